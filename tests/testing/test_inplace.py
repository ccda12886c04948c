"""`check_inplace` accepts what is right, and finds planted faults, each by the stage that should.

A fault is planted in the body, an implementation, a rule or the call of something that is right,
and only the stage that should notice runs. Faults of the operation within, which any operation
could have, are in `together/test_planted.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import INPLACE_MODES, Case, Samples, check_inplace

S = Samples(11)
X, Y = S.normal(3), S.normal(3)


def right_pull(x, y, x_bar, out_bar):
    """Of `x <- y x²`, `Σ y x²`: of the state after and of the output to the arguments before."""
    total = x_bar + out_bar
    return 2 * x * y * total, x * x * total


def squared(pull=right_pull, after=None, body=None, form="natural_rule"):
    """`x <- y x²`, which returns its sum, some of it replaced."""

    def literal(x, y):
        x[...] = y * x[...] ** 2
        return jnp.sum(x[...])

    square = tj.inplace(body or literal, mutates="x")
    square.name = square.transition.name = "square"
    if body is not None:
        return square, (X, Y)

    def natural_rule(x, y):
        out = square.primal(x, y)
        out = out if after is None else after(x, y, out)
        return out, lambda x_bar, out_bar: pull(x, y, x_bar, out_bar)

    def inplace_rule(x, y):
        return square.primal(x, y), lambda x_bar, out_bar: pull(x, y, x_bar, out_bar)

    getattr(square, form)(inplace_rule if form == "inplace_rule" else natural_rule)
    return square, (X, Y)


def in_place(x, y, x_bar, out_bar):
    total = x_bar[...] + out_bar
    x_bar[...] = 2 * x * y * total
    return x * x * total


def body(f):
    return lambda: squared(body=f)


def rule(pull, form="natural_rule"):
    return lambda: squared(pull=pull, form=form)


def changed(change):
    return rule(lambda *a: change(*right_pull(*a)))


def calling(call):
    """An in-place function whose calls are made wrong."""

    def make():
        square, args = squared()
        square.__class__ = type("Broken", (tj.refs.InPlace,), {"__call__": call})
        return square, args

    return make


def right_call(f, x, y):
    return tj.refs.InPlace.__call__(f, x, y)


# -- bodies that do more than they say ------------------------------------------------------------


def counting():
    """Each trace multiplies by another number."""
    calls = []

    def count(x, y):
        calls.append(0)
        x[...] = len(calls) * y * x[...]

    return squared(body=count)


def remembering():
    """The first call is remembered for good."""
    known = []

    def remember(f, x, y):
        if isinstance(x[...], jax.core.Tracer):
            return right_call(f, x, y)
        known.append(right_call(f, x, y))
        return known[0] * len(known)

    return calling(remember)()


def returning(f):
    """A function that returns its Ref, called wrong."""

    def make():
        @tj.inplace(mutates="x")
        def double(x):
            x[...] = 2 * x[...]
            return x

        call = lambda self, x: f(x, tj.refs.InPlace.__call__(self, x))
        double.__class__ = type("Broken", (tj.refs.InPlace,), {"__call__": call})
        return double, (X,)

    return make


def rewriting(write):
    """The right call, after which something else is written."""

    def call(f, x, y):
        out = right_call(f, x, y)
        x[...] = write(x[...])
        return out

    return calling(call)


def cut_off(f, x, y):
    x[...] = jax.lax.stop_gradient(x[...])
    return right_call(f, x, y)


def writes_another(f, x, y):
    out = right_call(f, x, y)
    if isinstance(y, jax.Ref):
        y[0] = 0.0
    return out


def scratch():
    """A routine that uses its second argument as scratch."""
    memory = bytearray(3 * 8)

    def routine(y):
        y = np.asarray(y)
        np.frombuffer(memory, dtype=y.dtype)[0] += 1.0
        return y

    def writes_numpy(x, y):
        spec = jax.ShapeDtypeStruct(y.shape, y.dtype)
        x[...] = jax.pure_callback(routine, spec, y) + x[...]

    given = np.frombuffer(memory, dtype=np.float64)
    given[:] = np.asarray(Y)
    return tj.inplace(writes_numpy, mutates="x"), (X, given)


@jax.custom_batching.custom_vmap
def forgetful(x):
    return 1.0 * x


@forgetful.def_vmap
def _(size, batched, x):
    return x[::-1], True


# -- structured arrays, two states -----------------------------------------------------------------


def half_written():
    """`x <- c x`, with an implementation for diagonal matrices that leaves out a number."""

    def write(x, c):
        x.diag[:2] = c * x.diag[:2]

    scale = tj.inplace(lambda x, c: x.__setitem__(..., c * x[...]), mutates="x")
    scale.implementation(tj.Diagonal)(write)
    return scale, (tj.Diagonal(S.normal(3)), jnp.asarray(0.7))


def swapped():
    """Two states that change places, with weights that the rule mixes up."""

    @tj.inplace(mutates=("x", "y"))
    def swap(x, y):
        x[...], y[...] = 2 * y[...], 3 * x[...]

    @swap.natural_rule
    def swap_rule(x, y):
        return swap.primal(x, y), lambda x_bar, y_bar, out_bar: (2 * y_bar, 3 * x_bar)

    return swap, (X, Y)


@jax.custom_jvp
def wrong_sine(y):
    return jnp.sin(y)


wrong_sine.defjvps(lambda t, out, y: 1.01 * t * jnp.cos(y))


def added(x, y, x_bar, out_bar):
    total = x_bar[...] + out_bar
    x_bar[...] += 2 * x * y * total
    return x * x * total


def read_too_late(x, y, x_bar, out_bar):
    x_bar[...] = 2 * x * y * (x_bar[...] + out_bar)
    return x * x * (x_bar[...] + out_bar)


def nothing_done(x, y, x_bar, out_bar):
    return x * x * (x_bar[...] + out_bar)


def of_the_rule(state=1.0, out=1.0):
    """A rule whose value is off by these factors."""
    change = lambda x, y, z: z._replace(state=(state * z.state[0],), out=out * z.out)
    return lambda: squared(after=change)


FAULTS = {
    # what is called
    "hidden state": ("again", counting),
    "an output remembered": ("again", remembering),
    "nothing is written back": (
        "refs",
        calling(lambda f, x, y: jnp.sum(f.transition(x[...], y).state[0])),
    ),
    "written twice": ("refs", rewriting(lambda x: 2 * x)),
    "another output": ("refs", calling(lambda f, x, y: 1.01 * right_call(f, x, y))),
    "an output more": ("refs", calling(lambda f, x, y: (right_call(f, x, y), x[0]))),
    "a copy is returned": ("identity", returning(lambda x, out: jax.new_ref(out[...]))),
    "an array is returned": ("identity", returning(lambda x, out: out[...])),
    "another argument is written": ("untouched", calling(writes_another)),
    "a NumPy argument is written": ("untouched", scratch),
    "state of a batch": ("batch", rewriting(lambda x: forgetful(x))),
    "cut off on Refs": ("through refs", calling(cut_off)),
    # bodies and implementations
    "another state of an implementation": ("refs", half_written),
    "the same, as an operation": ("value", half_written),
    "another derivative": (
        "finite differences",
        body(lambda x, y: x.__setitem__(..., wrong_sine(y) * x[...])),
    ),
    # rules
    "state after, by the rule": ("rule", of_the_rule(state=1.01)),
    "output, by the rule": ("rule", of_the_rule(out=1.01)),
    "cotangent of the state ignored": (
        "rule",
        rule(lambda x, y, x_bar, out_bar: right_pull(x, y, 0 * x_bar, out_bar)),
    ),
    "cotangent of the output ignored": (
        "vjp",
        rule(lambda x, y, x_bar, out_bar: right_pull(x, y, x_bar, 0 * out_bar)),
    ),
    "cotangents swapped": ("jvp", changed(lambda a, b: (b, a))),
    "states change places": ("rule", swapped),
    "in place: added instead of replaced": ("rule", rule(added, "inplace_rule")),
    "in place: read after it was changed": ("rule", rule(read_too_late, "inplace_rule")),
    "in place: nothing done": ("through refs", rule(nothing_done, "inplace_rule")),
}


def check(made, *stages, **options):
    f, args = made
    rest = tuple(m for m in INPLACE_MODES if m not in stages)
    return check_inplace(f, *args, skip=rest, **options)


MUTATION = tuple(INPLACE_MODES[: INPLACE_MODES.index("value")])


def returns_memory():
    """The caller's Ref, a new one twice, and a number."""

    @tj.inplace(mutates=("x", "n"))
    def push(x, n, value):
        x[n[...]] = value * x[0]
        n[...] = (n[...] + 1) % 3
        new = jax.new_ref(2 * x[...])
        return {"same": x, "new": (new, new), "last": value * x[1]}

    return push, (X, jnp.asarray(1), jnp.asarray(0.7))


def symmetric_in_metres():
    @tj.inplace(mutates="x")
    def shrink(x, c):
        x[...] = x[...] * c
        return x

    return shrink, (tj.Symmetric(S.normal(2, 2)) * tj.unit("m"), jnp.asarray(0.7))


@pytest.mark.parametrize("make", [returns_memory, symmetric_in_metres])
def test_right_function_passes_every_stage(make):
    result = check(make(), *MUTATION)
    assert set(MUTATION) <= {*result.stages}
    assert result.scalars > 40
    assert not result.warnings


@pytest.mark.parametrize(
    "made",
    [squared, lambda: squared(pull=in_place, form="inplace_rule")],
    ids=["natural", "in place"],
)
def test_rules_that_are_right(made):
    result = check(made(), "through refs", "rule", "vjp", "hessian", "sensitivity", "units")
    assert result.stages["sensitivity"].scalars >= 6
    assert result.worst_error < 1e-8


@pytest.mark.parametrize("name", FAULTS)
def test_fault_fails_in_its_stage(name):
    stage, make = FAULTS[name]
    with pytest.raises(tj.errors.CheckFailure, match=f": {stage}: ") as failure:
        check(make(), stage)
    assert "implementation: " in str(failure.value)


def test_a_failure_names_everything():
    with pytest.raises(tj.errors.CheckFailure) as failure:
        check(changed(lambda a, b: (1.001 * a, b))(), "vjp")
    text = str(failure.value)
    for words in ("square(vector, vector)", ": vjp: ", "respect to x", "first at (", "rule: "):
        assert words in text
    assert "test_inplace.squared" in text  # the origin


def test_an_argument_that_never_changes():
    idle = tj.inplace(lambda x, y: y.__setitem__(0, 2 * x[0]), mutates=("x", "y"))
    result = check((idle, (X, Y)), "refs")
    assert result.warnings == ["x is named in `mutates`, and does not change in this call"]


def test_cases_of_in_place_functions():
    """A case is checked as what it is of, and its rule counts as run."""
    f, args = squared()
    rest = tuple(m for m in INPLACE_MODES if m not in ("refs", "rule"))
    case = Case(f, *args).declare(skip=rest)
    assert str(case) == "square(vector[3], vector[3])"
    assert case.operation is f.transition
    assert {"refs", "rule"} <= {*case.check().stages}
    assert case.operation.resolve(case.args, {}).rule.function.__name__ == "natural_rule"


def test_call_that_checks_nothing_is_refused():
    f, (x, y) = squared()
    with pytest.raises(TypeError, match="not an in-place function"):
        check_inplace(f.transition, x, y)
    with pytest.raises(tj.errors.MutationError, match="the kit makes the Refs"):
        check_inplace(f, jax.new_ref(x), y)
    with pytest.raises(ValueError, match="unknown stage"):
        check_inplace(f, x, y, skip=("batches",))
    with pytest.raises(tj.errors.CheckFailure, match="left out"):
        check_inplace(f, x, y, modes=("refs",))
