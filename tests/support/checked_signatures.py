"""Run with every annotation checked: `python checked_signatures.py [PACKAGE ...]`.

jaxtyping's import hook puts a check around each function of the packages below. The public
operations are checked on their arguments, of any class. Then the program traces the cases of the
rules (and of the named packages), the examples of the array types, and a program or two of each
public family. It does not compile them, as only shapes matter. It reports every call that violates
its annotation, and exits with the number of them.
"""

import functools
import gc
import re
import sys
import types
from collections.abc import Callable, Iterator

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook, jaxtyped

ROOMS = (
    "tanjax._dtype_range",
    "tanjax.arrays",
    "tanjax.bridges",
    "tanjax.operations",
    "tanjax.frontends",
    "tanjax.kernels",
    "tanjax.registry",
    "tanjax.testing",
    "tanjax.transforms",
    "tanjax.units",
    "tanjax_rules",
    "tanjax_torch",
)

CHECKED = beartype(conf=BeartypeConf(is_pep484_tower=True))  # accepts an `int` for a `float`


def typechecked(function: Callable) -> Callable:
    """Wrap in beartype, for methods too: the class that `Self` names does not exist yet."""
    for name, hint in function.__annotations__.items():
        if isinstance(hint, str):
            function.__annotations__[name] = re.sub(r"\bSelf\b", "object", hint)
        elif "typing.Self" in repr(hint):
            function.__annotations__[name] = object
    return CHECKED(function)


def check_operations(tj: types.ModuleType) -> None:
    """Check calls of the public operations: their functions see dense arguments only."""
    call, checked = tj.rules.Operation.__call__, {}

    def as_annotated(op: object) -> Callable:
        @functools.wraps(op.__wrapped__)
        def called(*args: object, **kwargs: object) -> object:
            return call(op, *args, **kwargs)

        return jaxtyped(called, typechecker=typechecked)

    def checked_call(op: object, *args: object, **kwargs: object) -> object:
        if op not in checked:
            checked[op] = as_annotated(op)
        return checked[op](*args, **kwargs)

    for op in [*vars(tj).values(), *vars(tj.linalg).values()]:
        if isinstance(op, tj.rules.Operation):
            checked[op] = as_annotated(op)
    tj.rules.Operation.__call__ = checked_call


def of_cases(tj: types.ModuleType, packages: list[str]) -> Iterator[tuple[str, Callable]]:
    """Yield value, pullback and pushforward of every case of the rules."""
    import jax
    import jax.numpy as jnp

    from tanjax.testing import cases_of

    def everything(case: object, *args: object) -> object:
        function = functools.partial(case.operation, **case.static)
        case.operation.primal(*args, **case.static)
        out, pullback = tj.vjp(function, *args)
        ones = lambda x: jnp.ones(x.shape, x.dtype)
        pullback(jax.tree.map(ones, out, is_leaf=tj.rules.is_structured))
        tj.linearize(function, *args)
        return jax.tree.leaves(out)

    for package in packages:
        for case in cases_of(package):
            whole = functools.partial(everything, case)
            yield case.name, functools.partial(jax.eval_shape, whole, *case.args)


def of_types(tj: types.ModuleType) -> Iterator[tuple[str, Callable]]:
    """Yield the queries and the four maps of every example of an array type."""
    import jax
    import jax.numpy as jnp

    from tanjax.testing import Samples

    def everything(x: object) -> object:
        dense = x.to_dense()
        structural = jax.tree.map(jnp.ones_like, x)
        tj.tangents.pullback_of_destructure(x)(dense)
        tj.tangents.pushforward_of_destructure(x)(structural)
        tj.tangents.pushforward_of_restructure(x)(dense)
        tj.tangents.pullback_of_restructure(x)(structural)
        for query in (x.conj, x.canonical, x.total, x.as_query, x.linear_terms):
            query()
        if x.ndim == 2:
            x.apply(dense.T), x.apply(dense[0]), x.transposed(), x.diagonal()
            x.submatrix(slice(0, 1), slice(1, 2))
        x.inner_product(dense), x.scaled(2.0), x.divided(jnp.float32(2)), x.astype(complex)
        return dense, structural

    for kind in tj.rules.registered_array_types():
        for k, x in enumerate(getattr(kind, "examples", lambda _: [])(Samples(1))):
            yield f"{kind.__name__}, example {k}", functools.partial(jax.eval_shape, everything, x)


def of_families(tj: types.ModuleType) -> Iterator[tuple[str, Callable]]:
    """Yield quantities, maps, derivatives and control flow: the public families."""
    import jax
    import jax.numpy as jnp

    d = tj.Diagonal(jnp.array([1.0, 2.0]))
    length, time = jnp.array([1.0, 2.0]) * tj.unit("km"), tj.quantity(3.0, "s")
    energy = lambda x: tj.linalg.sum(tj.linalg.multiply(x, x))
    steps = lambda c, x: (c + x, c * 2.0)
    programs = {
        "quantity": lambda: (tj.quantity("3 km").to("m"), tj.quantity([1, 2], "m").value),
        "operations on quantities": lambda: (
            tj.matmul(tj.Diagonal(length), length),
            tj.solve(tj.Diagonal(length), length),
            tj.linalg.add(length, length),
            tj.linalg.divide(length, time),
            tj.det(tj.Diagonal(length)),
            length / time,
            tj.numpy.sqrt(length * length),
            tj.numpy.where(length > length[0], length, 2 * length),
            tj.numpy.linalg.norm(length),
        ),
        "grad": lambda: (tj.grad(energy)(d), tj.value_and_grad(energy)(length)),
        "jvp, vjp": lambda: (
            tj.jvp(energy, (length,), (length,)),
            tj.vjp(energy, length)[1](time.to_value("s")),
            tj.linearize(energy, d)[1](d),
        ),
        "second order": lambda: (tj.hessian(energy)(length), tj.jacfwd(jnp.sin)(jnp.ones(2))),
        "jit": lambda: (tj.jit(energy)(length), tj.jit(tj.grad(energy))(d.diag)),
        "vmap": lambda: tj.vmap(lambda x: tj.solve(d, x))(jnp.ones((3, 2))),
        "scan": lambda: tj.scan(steps, time, length / length[0] * time),
        "loops": lambda: (
            tj.fori_loop(0, 3, lambda i, c: c * 2.0, time),
            tj.while_loop(lambda c: c < 9 * time, lambda c: c + time, time),
            tj.programs.map(lambda x: x * time, length),
            tj.programs.associative_scan(lambda a, b: a + b, length),
        ),
        "branches": lambda: (
            tj.cond(True, lambda x: x, lambda x: 2 * x, length),
            tj.programs.switch(1, [lambda x: x, lambda x: 3 * x], length),
            tj.checkpoint(energy)(length),
        ),
        "maps": lambda: (
            tj.tangents.natural(d, d),
            tj.tangents.structural(d, d.to_dense()),
            tj.tangents.project(d, jnp.ones((2, 2))),
            tj.tangents.is_visible(d, d),
            tj.tangents.inner_product(d, d),
            tj.tangents.add_tangents(d, tj.tangents.zero_tangent(d)),
            tj.tangents.tangent_type(d).dimension,
            tj.rules.rrule(tj.solve, d, d.diag)[1](d.diag),
            tj.rules.frule(tj.inv, (d,), (d,)),
        ),
    }
    for name, program in programs.items():
        yield name, functools.partial(jax.eval_shape, lambda run=program: jax.tree.leaves(run()))


def main(packages: list[str]) -> int:
    """Run everything, print each call that violates its annotation, and return their number."""
    gc.set_threshold(50_000, 20, 20)  # every trace is garbage; one in ten seconds was collecting it
    with install_import_hook([*ROOMS, *packages], "checked_signatures.typechecked"):
        import jax

        import tanjax as tj

        tj.testing.checks_of  # noqa: B018  (imports what is imported on request)
        jax.config.update("jax_enable_x64", True)
        tj.densify("allow")
        check_operations(tj)
        everything = [
            *of_cases(tj, ["tanjax_rules", *packages]),
            *of_types(tj),
            *of_families(tj),
        ]
        faults = 0
        for name, run in everything:
            try:
                run()
            except Exception as error:
                faults += 1
                print(f"{name}: {type(error).__name__}: {error}")
        print(f"{len(everything)} calls, {faults} not as annotated")
    return faults


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
