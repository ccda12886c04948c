"""JAX's moving parts, all of them, in one file.

This module holds everything that JAX's compatibility policy does not cover. That is the linear
primitive behind both modes (`jax.extend`, `jax.interpreters`), the varying axes of `shard_map`, and
jaxpr evaluation. If the primitive fails its self-test, the public lowering replaces it
(`registry/_lowering.py`).

Supported: JAX 0.10.2 to 0.12. Switches:
* `varying_axes`: `aval.vma` became `aval.manual_axis_type.varying` in 0.10.
* `ClosedJaxpr` is `Jaxpr` from 0.11: `.jaxpr`, `.consts`, `.eqns`, `.out_avals` alone are read.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import pathlib
import sys
import warnings
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend import source_info_util
from jax.extend.core import get_opaque_trace_state as get_opaque_trace_state, unmapped_aval
from jaxlib import _jax as _jaxlib

from ._errors import LoweringWarning
from ._jaxpr_types import JaxEquation, Params, Primitive, Readable
from ._jaxprs import Avals, Dims, Operator, Tangents, Values
from ._typing import AnyArray, Function

Tracer = jax.core.Tracer
# Options of XLA's compiler: no equation is computed again inside several kernels.
UNFUSED = {"xla_disable_hlo_passes": "fusion"}
float0 = np.dtype(jax.dtypes.float0)
T = TypeVar("T")


def is_symbolic_zero(x: object) -> bool:
    """True if a tangent is JAX's symbolic zero."""
    return isinstance(x, jax.custom_derivatives.SymbolicZero)


def no_tangent(x: AnyArray) -> AnyArray:
    """Return the (co)tangent of integers: `float0`, or a symbolic zero for symbolic sizes."""
    try:
        return np.zeros(np.shape(x), float0)
    except TypeError:
        return jax.custom_derivatives.SymbolicZero(jax.typeof(x).to_tangent_aval())


# -- shard_map --------------------------------------------------------------------------------


def varying_axes(x: AnyArray) -> frozenset[str]:
    """Return the manual mesh axes over which a value, or an aval, varies inside `shard_map`."""
    aval = getattr(x, "aval", x)
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset((getattr(aval, "vma", None) if kind is None else kind.varying) or ())


def align(tree: T, *like: object) -> T:
    """Cast every leaf to the union of the varying axes of all leaves, and of those of `like`.

    The transpose sums over the missing axes, so no rule needs to mention a mesh axis.
    """
    axes: frozenset[str] = frozenset().union(*map(varying_axes, jax.tree.leaves((tree, like))))
    if not axes:
        return tree

    def cast(x: Array) -> Array:
        missing = tuple(sorted(axes - varying_axes(x)))
        if not missing:
            return x
        is_number = jnp.issubdtype(jnp.result_type(x), jnp.inexact)
        known = is_number and not isinstance(x, Tracer)
        return lax.pcast(constant(x) if known else x, missing, to="varying")

    return jax.tree.map(cast, tree)


def constant(x: Array | np.ndarray) -> Array:
    """Return known numbers as an array; inside of `shard_map`, as an equation without operands.

    The batching rule of `cond` casts the operands of a branch, also its constants, to vary like the
    branch index. It keeps the equations, so a cast among them would then be one too many.
    """
    is_number = jnp.issubdtype(jnp.result_type(x), jnp.inexact)  # integers have no linear map
    if not (is_number and jax.sharding.get_abstract_mesh().manual_axes):
        return jnp.asarray(x)
    numbers = np.asarray(x)
    make = lambda *_: [jnp.asarray(numbers)]
    aval = jax.core.ShapedArray(numbers.shape, numbers.dtype)
    return linear_call(LinearMap(make, make, "constant"), [], [], [aval])[0]


# -- the linear primitive -----------------------------------------------------------------------


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class LinearMap:
    """A linear map and its transpose, compared by identity so that it can be a parameter.

    `tangent` maps tangents of the operands, if it is not `forward`.
    """

    forward: Operator
    transpose: Operator
    name: str
    tangent: Operator | None = None
    # Cache of traces per map: facts about a jaxpr's constants are stored by object.
    traced: dict[Hashable, Readable] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


def linear_call(linear: LinearMap, residuals: Values, operands: Values, out_avals: Avals) -> Values:
    """Bind the linear primitive: `linear.forward(*residuals, *operands)`."""
    avals = tuple(a.to_tangent_aval() for a in out_avals)
    params = {"linear": linear, "count": len(residuals), "out_avals": avals}
    return _linear_primitive().bind(*residuals, *operands, **params)


def linear_jaxpr(eqn: JaxEquation) -> Readable:
    """Trace the map of a linear equation to a jaxpr of its residuals and operands."""
    linear = eqn.params["linear"]
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    if (key := tuple((a.shape, a.dtype) for a in avals)) not in linear.traced:
        linear.traced[key] = jax.make_jaxpr(lambda *args: list(linear.forward(*args)))(*avals)
    return linear.traced[key]


def bind(eqn: JaxEquation, operands: Values) -> list[AnyArray]:
    """Run one equation of a jaxpr on operands and return a list of its results."""
    primitive = eqn.primitive
    found = primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)
    out = primitive.bind(*functions, *operands, **params)
    return list(out) if primitive.multiple_results else [out]


def custom_jvp_functions(eqn: JaxEquation) -> tuple[Operator, Operator]:
    """Return the function of a `custom_jvp_call`, and its rule of primals and tangents."""
    found: Any = eqn.primitive.get_bind_params(eqn.params)
    body, rule = found["subfuns"]

    def jvp(*args: AnyArray) -> Values:
        filled = lambda t: np.zeros(t.shape, float0) if t.dtype == float0 else jnp.zeros_like(t)
        return [filled(x) if is_symbolic_zero(x) else x for x in rule.call_wrapped(*args)]

    return body.call_wrapped, jvp


def to_weak_type(x: Array) -> Array:
    """Return the same numbers with JAX's weak type, as arithmetic with Python numbers gives."""
    options = {"new_dtype": x.dtype, "weak_type": True, "sharding": None}
    return lax.convert_element_type_p.bind(x, **options)


@functools.cache
def _linear_primitive() -> Primitive:
    """Make the primitive with its derivative, transpose, batching and lowering rules.

    Abstract evaluation does not trace the map: reverse mode traces only the transpose.
    """
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("tanjax_linear")
    primitive.multiple_results = True

    def implementation(*args: AnyArray, linear: LinearMap, count: int, out_avals: Avals) -> Values:
        return list(linear.forward(*args))

    primitive.def_impl(implementation)
    primitive.def_abstract_eval(lambda *_, linear, count, out_avals: list(out_avals))
    mlir.register_lowering(primitive, mlir.lower_fun(implementation, multiple_results=True))
    ad.primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive, ad)
    ad.primitive_transposes[primitive] = functools.partial(_linear_transpose, primitive, ad)
    batching.fancy_primitive_batchers[primitive] = functools.partial(_linear_batch, primitive)
    return primitive


def _linear_jvp(primitive: Any, ad: Any, primals: Values, tangents: Values, **params: Any) -> Any:
    linear, count = params["linear"], params["count"]
    places = [i for i in range(count) if type(tangents[i]) is not ad.Zero]
    # A rule may be written for arrays, but `jax.jvp` accepts and passes on Python numbers.
    point, dots = ([jnp.asarray(values[i]) for i in places] for values in (primals, tangents))
    if count == len(primals):  # a body with its own rule, which may return another value
        return jax.jvp(_body_of(linear, primals, places), point, dots)
    out, terms = primitive.bind(*primals, **params), []
    if any(type(t) is not ad.Zero for t in tangents[count:]):
        moved = [*primals[:count], *map(ad.instantiate_zeros, tangents[count:])]
        terms.append(linear.tangent(*moved) if linear.tangent else primitive.bind(*moved, **params))
    if places:  # the derivative with respect to the residuals is ordinary JAX
        terms.append(jax.jvp(_body_of(linear, primals, places), point, dots)[1])
    return out, [functools.reduce(operator.add, t) for t in zip(*terms, strict=True)]


def _body_of(linear: LinearMap, args: Values, places: list[int]) -> Operator:
    """Return the map as a function of some of its arguments."""

    def body(*values: AnyArray) -> list[AnyArray]:
        given = dict(zip(places, values, strict=True))
        return list(linear.forward(*(given.get(i, x) for i, x in enumerate(args))))

    return body


def _linear_transpose(
    primitive: Any, ad: Any, cts: Values, *args: Any, linear: LinearMap, count: int, out_avals: Any
) -> Tangents:
    residuals, operands = args[:count], args[count:]
    full = [ad.instantiate_zeros(c) for c in cts]
    if any(map(ad.is_undefined_primal, residuals)):
        return _body_transpose(ad, linear, full, args)
    swapped = LinearMap(linear.transpose, linear.forward, linear.name)
    # A known operand is an instantiated zero tangent of a call whose other operands move.
    moving = [ad.is_undefined_primal(x) for x in operands]
    like = [x.aval if ad.is_undefined_primal(x) else jax.typeof(x) for x in operands]
    avals = tuple(a.to_tangent_aval() for a in like)
    bars = primitive.bind(*residuals, *full, linear=swapped, count=count, out_avals=avals)
    return [None] * count + [b if m else None for b, m in zip(bars, moving, strict=True)]


def _body_transpose(ad: Any, linear: LinearMap, cts: Values, args: Values) -> Tangents:
    """Transpose by JAX, which raises if the map is not linear in the requested arguments."""
    unknown = [i for i, x in enumerate(args) if ad.is_undefined_primal(x)]
    body = _body_of(linear, args, unknown)
    bars = jax.linear_transpose(body, *(args[i].aval for i in unknown))(cts)
    return [bars[unknown.index(i)] if i in unknown else None for i in range(len(args))]


def _linear_batch(primitive: Primitive, axis: Any, args: Values, dims: Dims, **params: Any) -> Any:
    linear, count, out_avals = params["linear"], params["count"], params["out_avals"]
    if all(d is None for d in dims):  # these batchers are called even if nothing is batched
        out = primitive.bind(*args, **params)
        return out, [None] * len(out)
    spmd = axis.spmd_name or axis.explicit_mesh_axis
    options = {"axis_size": axis.size, "axis_name": axis.name, "spmd_axis_name": spmd}
    pairs = list(zip(args, dims, strict=True))
    residuals = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in pairs[:count]]
    operands = [_at_front(axis.size, a, d) for a, d in pairs[count:]]
    residual_axes = tuple(None if d is None else 0 for d in dims[:count])

    def mapped(function: Operator, n: int) -> Operator:
        return lambda *a: jax.vmap(
            lambda *b: list(function(*b)), in_axes=residual_axes + (0,) * n, **options
        )(*a)

    n = len(operands)
    forward, transpose = mapped(linear.forward, n), mapped(linear.transpose, len(out_avals))
    tangent = linear.tangent and mapped(linear.tangent, n)
    batched = LinearMap(forward, transpose, linear.name, tangent)
    avals = tuple(unmapped_aval(axis.size, 0, a, axis.explicit_mesh_axis) for a in out_avals)
    out = primitive.bind(*residuals, *operands, linear=batched, count=count, out_avals=avals)
    return out, [0] * len(out)


def _at_front(size: int, a: AnyArray, axis: int | None) -> Array:
    return jnp.broadcast_to(a, (size, *a.shape)) if axis is None else jnp.moveaxis(a, axis, 0)


# -- a bilinear primitive ----------------------------------------------------------------------


# Up to this many columns, `k` more multiply-adds per entry take less time than a sum: reading the
# entry and its mirror image, and writing the sum. Up to `CACHED` rows the entries stay in a cache,
# and the crossover is at 16 to 32 columns; with more rows it is at 64 to 128. Thin matrices need no
# second n × n matrix.
THIN, THIN_BEYOND_CACHE, CACHED = 32, 64, 512


def symmetric_outer(left: Array, right: Array) -> Array:
    """Return `left @ right.mT + right @ left.mT`, with one product of double width or with two.

    The product of double width costs $n^2 k$ more multiply-adds; the sum costs three passes over
    the $n^2$ entries. Thin matrices use the product of double width, others the sum (benchmark row
    "Symmetric matmul"). In the first form JAX would see `left` on both sides of one product. As a
    primitive, it can be transposed in either argument.
    """
    return _symmetric_outer_primitive().bind(left, right)


@functools.cache
def _symmetric_outer_primitive() -> Primitive:
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    def implementation(left: Array, right: Array) -> Array:
        rows, width = left.shape[-2:]
        in_cache = isinstance(rows, int) and rows <= CACHED  # symbolic numbers may be large
        if isinstance(width, int) and width <= (THIN if in_cache else THIN_BEYOND_CACHE):
            return jnp.concatenate([left, right], -1) @ jnp.concatenate([right, left], -1).mT
        product = left @ right.mT
        return product + product.mT

    def batch(axis: Any, args: Values, dims: Dims) -> tuple[Array, int | None]:
        if all(d is None for d in dims):
            return primitive.bind(*args), None
        return primitive.bind(*[_at_front(axis.size, *x) for x in zip(args, dims, strict=True)]), 0

    primitive = Primitive("tanjax_symmetric_outer")
    primitive.def_impl(jax.jit(implementation))
    primitive.def_abstract_eval(
        lambda a, b: a.update(shape=(*a.shape[:-1], b.shape[-2]), weak_type=False)
    )
    mlir.register_lowering(primitive, mlir.lower_fun(implementation, multiple_results=False))
    ad.defbilinear(primitive, lambda c, a, b: c @ b + c.mT @ b, lambda c, a, b: c @ a + c.mT @ a)
    batching.fancy_primitive_batchers[primitive] = batch
    return primitive


@functools.cache
def linear_lowering_works() -> bool:
    """Test the linear primitive: reverse, forward and batched (about 10 ms, once)."""
    try:
        _self_test()
    except Exception as error:
        warnings.warn(
            f"the default lowering does not work with JAX {jax.__version__} "
            f"({type(error).__name__}: {error}); "
            "rules are lowered with `jax.linear_transpose` instead.",
            LoweringWarning,
            stacklevel=2,
        )
        return False
    return True


def _self_test() -> None:
    @jax.custom_jvp
    def double(x: Array) -> Array:
        return 2 * x

    @double.defjvp
    def _(primals: Values, tangents: Values) -> tuple[AnyArray, AnyArray]:
        twice = lambda t: [2 * t]
        linear = LinearMap(twice, twice, "self_test")
        return 2 * primals[0], linear_call(linear, [], tangents, [jax.typeof(primals[0])])[0]

    with jax.ensure_compile_time_eval():
        x = jnp.ones(2, jnp.float32)
        grads = jax.vmap(jax.grad(double))(x)
        moved = jax.jvp(double, (x,), (x,))[1]
    if not (np.all(np.asarray(grads) == 2) and np.all(np.asarray(moved) == 2)):
        raise ValueError("the linear primitive gave a wrong derivative")


NOT_THE_USERS = (*(str(pathlib.Path(f).parent) for f in (__file__, jax.__file__)), "<string>")


def source_of(eqn: JaxEquation) -> str:
    """Return the line of the user's program behind an equation, as `file:line (function)`.

    Empty if there is no such line: the equation comes from JAX or tanjax.
    """
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback else ():
        if not frame.file_name.startswith(NOT_THE_USERS):
            return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"
    return ""


def scan_counts(params: Params) -> tuple[int, int]:
    """Return the number of constants and of carries of a `scan`.

    JAX 0.12 replaced the parameters `num_consts` and `num_carry` by a tree of the operands.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def higher_primitive(eqn: JaxEquation) -> Any:
    """Return the primitive of a `call_hi_primitive` equation; `None` for every other equation.

    JAX 0.12 made `ldexp`, `frexp` and `searchsorted` primitives, each defined by a function.
    """
    return eqn.params.get("_prim") if eqn.primitive.name == "call_hi_primitive" else None


def sparse_program(eqn: JaxEquation) -> Function | None:
    """Return the program behind a primitive of `jax.experimental.sparse`, else `None`.

    JAX lowers `bcoo_dot_general` by `_bcoo_dot_general_impl`; only CPUs and GPUs may replace that.
    Without it `test_sparse_matrices_are_planned` fails.
    """
    name = eqn.primitive.name
    module = sys.modules.get(f"jax.experimental.sparse.{name.partition('_')[0]}")
    found = getattr(module, f"_{name}_impl", None)
    return found and functools.partial(found, **eqn.params)


def jax_function_of(eqn: JaxEquation) -> str | None:
    """Return the name of the JAX function that a call equation runs; `None` for others."""
    return jax_function(eqn.params.get("jaxpr"))


def jax_function(closed: object) -> str | None:
    """Return the name of the JAX function of a closed jaxpr; `None` for others."""
    info = getattr(getattr(closed, "jaxpr", None), "debug_info", None)
    name, _, place = str(getattr(info, "func_src_info", "")).partition(" at ")
    return name if place.startswith(NOT_THE_USERS[1]) else None


_IS_0_12 = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12)
# True if a barrier avoids copies of a buffer that a loop reads, then writes: see `_access`.
BARRIER_KEEPS_ORDER = _IS_0_12
# True if a loop run in reverse keeps the rule of a `custom_jvp`, not only its body.
LOOPS_KEEP_RULES = _IS_0_12


# -- settings of JAX ----------------------------------------------------------------------------

# The settings in the key of JAX's own traces, as one tuple: x64, matmul precision, promotion, mesh
# and more. It takes 0.2 us; `jax.extend.linear_util.cache` would give the same in 1.2 us. Without
# it `test_settings_of_jax` fails in `test_planning.py`. JAX leaves `default_prng_impl` out:
# `jax.jit` keeps the generator of its first trace, and so does a planned program.
trace_context = _jaxlib.config.trace_context


# -- constants while tracing ------------------------------------------------------------------

# Part of the key of JAX's caches of traces; no code reads it. Under it JAX traces helpers again
# that it traced before. Without it `after_plain_jax` fails in `test_literals.py`.
planning = jax.make_user_context(False)

# The same for `tj.capture`: JAX traces functions again that it traced without marks.
capturing = jax.make_user_context(False)


# -- equations that carry marks ---------------------------------------------------------------


def call_name(eqn: JaxEquation) -> str | None:
    """Return the name object of the function that a call equation runs; `None` for others."""
    return eqn.params.get("name") if eqn.primitive.name in ("jit", "pjit") else None


def is_trace_of(eqn: JaxEquation, jaxpr: Readable | None) -> bool:
    """True if a call equation runs a function as it was traced, not one derived from it.

    The jaxpr is the same object. If JAX traced the function again in another context, the avals are
    equal, and the names of arguments and results are present: a jaxpr that JAX derives lacks one of
    the two.
    """
    mine = eqn.params["jaxpr"]
    if mine is jaxpr:
        return True
    info = getattr(getattr(mine, "jaxpr", mine), "debug_info", None)
    if getattr(info, "arg_names", None) is None or getattr(info, "result_paths", None) is None:
        return False
    avals = lambda j: ([v.aval for v in j.jaxpr.invars], j.out_avals)
    return jaxpr is not None and avals(mine) == avals(jaxpr)


def bind_again(eqn: JaxEquation, operands: Values) -> list[AnyArray]:
    """Run an equation by `bind` under the settings of its trace: compute type and mesh."""
    with eqn.ctx.manager:
        return bind(eqn, operands)


def placed(eqn: JaxEquation | None) -> AbstractContextManager[None]:
    """Return a context whose traces carry the user's source line of `eqn`."""
    return source_info_util.user_context(None if eqn is None else eqn.source_info.traceback)
