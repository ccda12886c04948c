"""In-place functions: what they do to Refs, their transitions, and rules of these in every mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from comparisons import assert_same_derivatives

pytestmark = pytest.mark.core

X = jnp.array([0.7, -0.4, 1.3])
T = jnp.array([0.3, 1.0, -0.6])


assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


# -- the functions of the document on which mutation is modelled -----------------------------------


@tj.inplace(mutates="x")
def set_1(x, y):
    """Write the first entry; return the argument."""
    x[0] = y
    return x


@tj.inplace(mutates="x")
def square(x):
    x[...] = x[...] ** 2
    return jnp.sum(x[...])


def make_square(name, rule):
    """A copy of `square` with a rule."""

    @tj.inplace(mutates="x")
    def f(x):
        x[...] = x[...] ** 2
        return jnp.sum(x[...])

    f.__name__ = name
    rule(f)
    return f


def natural(f, factor=2.0, define=None):
    @(define or f.natural_rule)
    def rule(x):
        return f.primal(x), lambda x_bar, out_bar: factor * x * (x_bar + out_bar)


def mooncake(f, factor=2.0):
    @f.inplace_rule
    def rule(x):
        def pullback(x_bar, out_bar):
            x_bar[...] = factor * x * (x_bar[...] + out_bar)

        return f.primal(x), pullback


SQUARES = {
    "derived": square,
    "natural": make_square("natural", natural),
    "mooncake": make_square("mooncake", mooncake),
    "typed": make_square("typed", lambda f: natural(f, define=f.def_pullback(tj.Dense))),
}


def on_transition(f, x):
    after = f.transition(x * 2.0)
    return jnp.sum(jnp.cos(after.state[0])) * after.out


def on_refs(f, x):
    def body(x):
        r = jax.new_ref(x * 2.0)
        out = f(r)
        return jnp.sum(jnp.cos(r[...])) * out

    return tj.refs.discharge(body)(x)


def on_arrays(x):
    y = (2.0 * x) ** 2
    return jnp.sum(jnp.cos(y)) * jnp.sum(y)


@functools.cache
def in_every_mode(call, *f):
    """The derivatives that JAX makes."""
    f = functools.partial(call, *f)
    gradient = jax.grad(f)
    repeated = lambda x: lax.scan(lambda c, _: (c * f(x), None), jnp.ones(()), None, 2)[0]
    modes = {
        "value": f,
        "grad": gradient,
        "jvp": lambda x: jax.jvp(f, (x,), (T,))[1],
        "hessian": jax.hessian(f),
        "reverse over reverse": jax.grad(lambda x: jnp.vdot(gradient(x), T)),
        "vmap of grad": lambda x: jax.vmap(gradient)(jnp.stack([x, x + 0.1 * T])),
        "checkpoint": jax.grad(jax.checkpoint(f)),
        "scan": jax.grad(repeated),
    }
    return jax.jit(lambda: {name: mode(X) for name, mode in modes.items()})()


@pytest.mark.parametrize("call", [on_transition, on_refs])
@pytest.mark.parametrize("name", SQUARES)
def test_square_in_every_mode(name, call):
    got = in_every_mode(call, SQUARES[name])
    for mode, value in in_every_mode(on_arrays).items():
        np.testing.assert_allclose(got[mode], value, rtol=1e-10, err_msg=mode)


@pytest.mark.parametrize("form", [natural, mooncake])
def test_a_wrong_rule_shows_in_every_mode(form):
    got = in_every_mode(on_refs, make_square("wrong", functools.partial(form, factor=3.0)))
    for mode, value in in_every_mode(on_arrays).items():
        same = np.allclose(got[mode], value, rtol=1e-3)
        assert same is (mode == "value"), mode


def test_the_model_of_squares_in_place():
    """phi(x) = (x * x, sum(x * x)), of state and output, has the adjoint 2 x y1 + 2 x y2."""
    after, pullback = jax.vjp(square.transition, X)
    assert_close(after.state[0], X**2)
    assert_close(after.out, jnp.sum(X**2))
    (x_bar,) = pullback(tj.refs.Transition((T,), jnp.asarray(0.5)))
    assert_close(x_bar, 2 * X * T + X)
    # Whoever asks for the output alone says that the final state is not asked for.
    assert_close(jax.grad(lambda x: square.transition(x).out)(X), 2 * X)
    tj.testing.check_adjoint(square.transition, X)


def test_one_memory_returned_twice_has_one_cotangent():
    """`set_1` with its rule in the form of the document: the cotangent is rewritten."""

    @tj.inplace(mutates="x")
    def set_1(x, y):
        x[0] = y
        return x

    @set_1.inplace_rule
    def set_1_rule(x, y):
        def set_1_pullback(x_bar, out_bar):
            assert jax.tree.leaves(out_bar) == []  # `out` is `x`: no cotangent of its own
            y_bar = x_bar[0]
            x_bar[0] = 0.0
            return y_bar

        return set_1.primal(x, y), set_1_pullback

    def body(x):
        r = tj.new_ref(x)
        a, b = r, set_1(r, x[1] * x[2])
        return jnp.sum(a[...] ** 2) + jnp.sum(jnp.cos(b[...])) * a[0]

    def by_hand(x):
        new = x.at[0].set(x[1] * x[2])
        return jnp.sum(new**2) + jnp.sum(jnp.cos(new)) * new[0]

    assert_same_derivatives(tj.refs.discharge(body), by_hand, X)
    (state,), out = set_1.transition(X, jnp.asarray(5.0))
    assert_close(state, X.at[0].set(5.0))
    assert jax.tree.leaves(out) == []  # a mark, which says that it is `x`


# -- calls on Refs ---------------------------------------------------------------------------------


def test_the_caller_sees_the_mutation_and_gets_its_own_ref_back():
    """Arguments that are only read may be Refs, too."""
    r, y = jax.new_ref(X), jax.new_ref(jnp.asarray(9.0))
    assert set_1(r, 5.0) is r
    np.testing.assert_array_equal(r[...], X.at[0].set(5.0))
    assert set_1(r, y) is r
    assert (float(r[0]), float(y[...])) == (9.0, 9.0)


def test_states_outputs_and_new_memory():
    """The document's `f(x, y, z, s)`: two mutated arguments, an output, new memory."""

    @tj.inplace(mutates=("z", "s"))
    def document(x, y, z, s):
        z[...] = z[...] * y + x
        s[0] = jnp.sum(z[...])
        new = jax.new_ref(z[...] * 2.0)
        return x * y, new, (z, new)

    z, s = refs = jax.new_ref(X), jax.new_ref(jnp.zeros(1))
    product, new, (same, again) = document(2.0, 3.0, z, s)
    assert (float(product), same is z, again is new) == (6.0, True, True)
    state = document.transition(2.0, 3.0, X, jnp.zeros(1)).state
    for vector, total in (refs, state):
        assert_close(vector[...], 3 * X + 2)
        assert_close(total[...], [jnp.sum(3 * X + 2)])
    assert_close(new[...], 2 * (3 * X + 2))


def test_final_state_is_visible_after_a_gradient():
    """A Ref of the caller holds the state after the forward pass, as primals need no undoing."""
    r = jax.new_ref(X)

    @jax.jit
    def step(r, y):
        def loss(y):
            set_1.transition(r[...], y)
            return y**2

        slope = jax.grad(loss)(y)
        set_1(r, y)
        return slope

    assert float(step(r, 3.0)) == 6.0
    assert float(r[0]) == 3.0


def test_rules_and_bodies_for_types():
    """Dispatch by the class of the arguments before: body and rule."""
    seen = []

    @tj.inplace(mutates="a")
    def double(a):
        jax.tree.map(lambda r: r.__setitem__(..., 2.0 * r[...]), a)

    @double.implementation(tj.Diagonal)
    def double_diagonal(a):
        seen.append("body")
        a.diag[...] = a.diag[...] + a.diag[...]

    @double.natural_rule(tj.Diagonal)
    def double_rule(a):
        seen.append("rule")
        return double.primal(a), lambda a_bar, out_bar: 2.0 * a_bar

    refs = jax.tree.map(jax.new_ref, tj.Diagonal(X))
    double(refs)
    np.testing.assert_allclose(refs.diag[...], 2 * X)
    assert set(seen) == {"body"}  # before JAX 0.12 it is traced twice
    slope = jax.grad(lambda d: jnp.sum(double.transition(d).state[0].diag ** 2))(tj.Diagonal(X))
    np.testing.assert_allclose(slope.diag, 8 * X)
    assert "rule" in seen
    seen.clear()
    r = jax.new_ref(X)
    double(r)
    assert not seen


def test_static_arguments_anywhere():
    @tj.inplace(mutates="x", static=("times", "function"))
    def repeat(x, times, y, function=jnp.sin, *, start=0):
        for i in range(start, times):
            x[i] = function(x[i]) * y
        return times

    r = jax.new_ref(X)
    assert int(repeat(r, 2, 3.0)) == 2
    np.testing.assert_allclose(r[...], [3 * np.sin(0.7), 3 * np.sin(-0.4), 1.3])
    repeat(r, times=3, y=1.0, function=jnp.cos, start=2)
    np.testing.assert_allclose(r[2], np.cos(1.3))
    after = repeat.transition(X, 1, 2.0, function=jnp.cos)
    np.testing.assert_allclose(after.state[0][0], 2 * np.cos(0.7))
    slope = jax.grad(lambda y: repeat.transition(X, 2, y).state[0][0])(3.0)
    np.testing.assert_allclose(slope, np.sin(0.7))
    flag = tj.inplace(lambda x, up: x.__setitem__(0, 1.0 if up else -1.0), mutates="x")
    flag(r, True)
    assert float(r[0]) == 1.0


def test_integer_and_key_state():
    """A ring buffer's head and a random key are state without a gradient."""

    @tj.inplace(mutates=("buffer", "head", "key"))
    def push(buffer, head, key, x):
        key[...], drawn = jax.random.split(key[...])
        buffer[head[...]] = x * jax.random.normal(drawn, dtype=x.dtype)
        head[...] = (head[...] + 1) % 3

    def total(x, key):
        refs = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.array(1)), jax.new_ref(key)
        for i in range(4):
            push(*refs, x[i % 3] ** 2)
        return jnp.sum(refs[0][...] ** 2)

    def functional(x, key):
        buffer, head = [jnp.zeros(())] * 3, 1
        for i in range(4):
            key, drawn = jax.random.split(key)
            buffer[head] = x[i % 3] ** 2 * jax.random.normal(drawn, dtype=x.dtype)
            head = (head + 1) % 3
        return sum(b**2 for b in buffer)

    key = jax.random.key(1)
    got = jax.jit(jax.value_and_grad(tj.refs.discharge(total)))(X, key)
    jax.tree.map(assert_close, got, jax.jit(jax.value_and_grad(functional))(X, key))
    refs = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.array(1)), jax.new_ref(key)
    push(*refs, X[0])
    assert int(refs[1][...]) == 2


def test_two_states_in_the_order_of_mutates():
    """`mutates` in another order than the arguments; cotangents follow it in both forms."""

    def body(x, y, z):
        x[...], z[...] = x[...] * y * z[...], z[...] + x[...]
        return jnp.sum(x[...])

    def pullback_of(x, y, z):
        def pull(z_bar, x_bar, out_bar):
            x_bar = x_bar + out_bar
            return x_bar * y * z + z_bar, jnp.sum(x_bar * x * z), x_bar * x * y + z_bar

        return pull

    plain = tj.inplace(body, mutates=("z", "x"))
    ruled, moved = tj.inplace(body, mutates=("z", "x")), tj.inplace(body, mutates=("z", "x"))

    @ruled.natural_rule
    def rule(x, y, z):
        return ruled.primal(x, y, z), pullback_of(x, y, z)

    @moved.inplace_rule
    def moved_rule(x, y, z):
        def pull(z_bar, x_bar, out_bar):
            x_new, y_bar, z_new = pullback_of(x, y, z)(z_bar[...], x_bar[...], out_bar)
            x_bar[...], z_bar[...] = x_new, z_new
            return y_bar

        return moved.primal(x, y, z), pull

    def total(f, x):
        after = f.transition(jnp.sin(x), x[0], x**2)
        return jnp.sum(after.state[0] ** 2) + jnp.sum(jnp.cos(after.state[1])) * after.out

    value_and_grad = lambda f: jax.jit(jax.value_and_grad(functools.partial(total, f)))(X)
    for other in (ruled, moved):
        jax.tree.map(assert_close, value_and_grad(plain), value_and_grad(other))


# -- under transformations -------------------------------------------------------------------------


def test_refs_of_the_caller_under_transformations():
    """A Ref as an argument of `jit`, of `vmap`, closed over by a scan."""
    r = jax.new_ref(X)

    @jax.jit
    def call(r, y):
        return set_1(r, y)[...]

    np.testing.assert_array_equal(call(r, 2.0), [2.0, -0.4, 1.3])
    rows = jax.new_ref(jnp.stack([X, X]))
    jax.vmap(lambda r, y: set_1(r, y)[...])(rows, jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(rows[:, 0], [1.0, 2.0])

    @jax.jit
    def loop(ys):
        def body(c, y):
            square(r)
            set_1(r, y)
            return c, r[0] * r[1]

        return lax.scan(body, None, ys)[1]

    np.testing.assert_allclose(loop(jnp.array([3.0, 4.0])), [3 * 0.4**2, 4 * 0.4**4])
    np.testing.assert_allclose(r[...], [4.0, 0.4**4, 1.3**4])


def test_calls_are_traced_once():
    traces = []

    @tj.inplace(mutates="x")
    def count(x, y):
        traces.append(1)
        x[0] = y

    r = jax.new_ref(X)
    for y in (1.0, 2.0, 3.0):
        count(r, y)
    assert len(traces) == 1


# -- signatures and outputs ------------------------------------------------------------------------


def test_arguments_of_any_kind():
    """`*args` and `**kwargs` are a tuple and a dict, of the transition and of its rules, too."""

    @tj.inplace(mutates=("r", "others"), static="n")
    def mix(r, /, n, *others, k=2.0, **weights):
        for other in others:
            other[...] = other[...] * weights["a"] * (k * n)
        r[0] = weights["b"]
        return others[-1]

    r, a, b = (jax.new_ref(X) for _ in range(3))
    assert mix(r, 3, a, b, k=4.0, a=T, b=jnp.asarray(5.0)) is b
    for ref, want in ((r, X.at[0].set(5.0)), (a, 12.0 * X * T), (b, 12.0 * X * T)):
        assert_close(ref[...], want)
    with pytest.raises(tj.errors.AliasError, match=r"`r` and `others\[1\]` are the same memory"):
        mix(r, 3, a, r, a=T, b=1.0)
    weights = {"a": T, "b": jnp.asarray(5.0)}
    after = mix.transition(X, 3, (X, X), weights, k=4.0)
    assert_close(after.state[1][1], 12.0 * X * T)

    @mix.natural_rule
    def mix_rule(r, others, weights, *, n, k):
        def mix_pullback(r_bar, others_bar, out_bar):
            back = tuple(7.0 * bar for bar in others_bar)  # wrong, to be seen
            return r_bar.at[0].set(0.0), back, {"a": 0.0 * T, "b": r_bar[0]}

        return mix.primal(r, n, others, weights, k=k), mix_pullback

    def loss(x, y):
        r, other = jax.new_ref(x), jax.new_ref(x)
        mix(r, 3, other, a=T, b=y)
        return jnp.sum(r[...]) + jnp.sum(other[...])

    by_x, by_y = jax.grad(tj.refs.discharge(loss), (0, 1))(X, 2.0)
    assert_close(by_x, jnp.array([7.0, 8.0, 8.0]))
    assert_close(by_y, 1.0)


def test_a_function_that_mutates_nothing_reads_its_refs():
    total = tj.inplace(lambda r: jnp.sum(r[...] ** 2), mutates=())
    assert_close(total(jax.new_ref(X)), X @ X)
    assert_close(jax.grad(lambda x: total.transition(x).out)(X), 2 * X)


@pytest.mark.parametrize("jit", [True, False])
def test_an_output_may_have_what_is_no_array(jit):
    @functools.partial(tj.inplace, mutates="r", jit=jit)
    def step(r, x):
        r[0] = x
        return {"state": r, "done": "yes", "call": jnp.sin, "nothing": None, "x": x}

    r = jax.new_ref(X)
    out = step(r, 2.0)
    assert out["state"] is r
    assert (out["done"], out["call"], out["nothing"], float(out["x"])) == ("yes", jnp.sin, None, 2)
    after = step.transition(X, 2.0)
    assert "<the memory of `r`>" in repr(after.out)
    assert jax.tree.leaves(after.out) == [2.0]
    with pytest.raises(tj.errors.MutationError, match="returns a set, which is no array"):
        tj.inplace(lambda r: {1, 2}, mutates="r", jit=jit)(r)


@pytest.mark.parametrize(
    "call", [lambda f: f(jax.new_ref(X), {"a": 1.0}), lambda f: f.transition(X, {"a": 1.0})]
)
def test_a_branch_on_a_number_is_reported_by_the_name_of_the_argument(call):
    """That of the user's function, not of what traces it."""

    @tj.inplace(mutates="r")
    def choose(r, y):
        if y["a"] > 0:
            r[0] = 1.0

    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        call(choose)
    assert "the function choose at" in str(caught.value)
    assert "the argument y['a']" in str(caught.value)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("mutates", ["y", ("x", "y"), "flag"])
def test_mutates_must_name_arguments(mutates):
    with pytest.raises(tj.errors.RegistrationError, match="`mutates` must name"):
        tj.inplace(lambda x, *, flag=True: None, mutates=mutates)


def test_writing_an_argument_that_is_not_named():
    @tj.inplace(mutates="x")
    def wrong(x, y):
        y[0] = x[0]

    with pytest.raises(TypeError, match="item assignment") as caught:
        wrong(jax.new_ref(X), jax.new_ref(X))
    assert "wrong writes to an array" in caught.value.__notes__[0]
    assert "mutates=('x'...)" in caught.value.__notes__[0]


def test_closing_over_a_ref():
    r = jax.new_ref(X)

    @tj.inplace(mutates="x")
    def closes(x):
        x[0] = r[1]

    with pytest.raises(
        tj.errors.MutationError, match="closes: an in-place function closes over a Ref"
    ):
        closes(jax.new_ref(X))


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [  # each is explained once, by the innermost
        (lambda x: x.__setitem__(..., jnp.ones(5)), tj.ShapeError, "shape(.|\n)*JAX says: Invalid"),
        (lambda x: x.__setitem__(..., x[...].astype(int)), tj.errors.MutationError, "the dtype"),
        (lambda x: x.at[0:2], tj.errors.MutationError, "returns a view"),
    ],
    ids=["shape", "dtype", "view"],
)
def test_a_body_that_changes_its_memory_or_returns_a_view_is_refused(body, error, words):
    f = tj.inplace(body, mutates="x")
    with pytest.raises(error, match=f"<lambda>: .*{words}"):
        f(jax.new_ref(X))
    with pytest.raises(error, match=f"<lambda>: .*{words}"):
        f.transition(X)


def test_nothing_is_written_if_the_body_raises():
    @tj.inplace(mutates="x")
    def fails(x):
        x[0] = 100.0
        raise RuntimeError("on purpose")

    r = jax.new_ref(X)
    with pytest.raises(RuntimeError, match="on purpose"):
        fails(r)
    np.testing.assert_array_equal(r[...], X)


def test_a_cotangent_too_many_is_refused_and_none_means_no_dependence():
    value = lambda f: lambda x: jnp.sum(f.transition(x).state[0])
    none = make_square("none", lambda f: f.natural_rule(lambda x: (f.primal(x), lambda a, b: None)))
    assert not np.any(jax.grad(value(none))(X))
    two = make_square("two", lambda f: f.inplace_rule(lambda x: (f.primal(x), lambda a, b: (a, b))))
    with pytest.raises(tj.errors.CotangentError, match="not mutated"):
        jax.grad(value(two))(X)


def test_wrong_calls_name_the_function():
    with pytest.raises(TypeError, match=r"set_1\(x, y\)"):
        set_1(jax.new_ref(X))
    assert "mutates ('x',)" in repr(set_1)
    assert set_1.__doc__.startswith("Write the first entry")


# -- structured arrays and quantities --------------------------------------------------------------


@tj.inplace(mutates="a")
def shrink(a, factor):
    a[...] = a[...] * factor
    return a


@pytest.mark.parametrize(
    "array",
    [
        tj.Symmetric(jnp.array([[2.0, 0.5], [0.5, 1.0]])),
        tj.Kronecker(jnp.eye(2) * X[0], jnp.ones((2, 2))),
        tj.quantity(X, "m"),
        tj.quantity(tj.Diagonal(X), "m"),
        {"d": tj.Diagonal(X), "x": X},
    ],
    ids=["Symmetric", "Kronecker", "quantity", "quantity of Diagonal", "dict"],
)
def test_structured_refs(array):
    """Memory of any array: the body reads and writes arrays, the caller's object comes back."""
    f, half = shrink, lambda a: a * 0.5
    if isinstance(array, dict):
        f = tj.inplace(lambda a, factor: [shrink(v, factor) for v in a.values()], mutates="a")
        half = lambda a: {k: v * 0.5 for k, v in a.items()}
    ref = tj.new_ref(array)
    out = f(ref, 0.5)
    assert out is ref or out[0] is ref["d"]
    after = f.transition(array, 0.5).state[0]
    for found in (tj.refs.freeze(ref), after):
        assert jax.tree.structure(found) == jax.tree.structure(array)
        jax.tree.map(np.testing.assert_allclose, found, half(array))

    def on_refs(a):
        mine = tj.new_ref(a)
        f(mine, 0.5)
        return tj.refs.freeze(mine)

    forms = half, lambda a: f.transition(a, 0.5).state[0], tj.refs.discharge(on_refs)
    total = lambda form, a: sum(jnp.sum(x**2) for x in jax.tree.leaves(form(a)))
    expected, *slopes = [jax.grad(functools.partial(total, form))(array) for form in forms]
    for slope in slopes:
        jax.tree.map(np.testing.assert_allclose, slope, expected)


@pytest.mark.parametrize("form", ["natural_rule", "inplace_rule"])
def test_a_rule_speaks_natural_cotangents_with_units(form):
    """A quantity in metres in the state: its cotangent in 1/m, in both forms of a rule."""
    seen = []

    @tj.inplace(mutates="x")
    def stretch(x, by):
        x[...] = x[...] * by

    def rule(x, by):
        def pullback(x_bar, out_bar):
            seen.append(x_bar.unit)
            by_bar = jnp.sum((x_bar[...] * x).to_value(""))
            if form == "natural_rule":
                return x_bar * by, by_bar
            x_bar[...] = x_bar[...] * by
            return by_bar

        return stretch.primal(x, by), pullback

    getattr(stretch, form)(rule)

    def total(x, by):
        return jnp.sum((stretch.transition(x, by).state[0].to_value("km")) ** 2)

    x = tj.quantity(1000 * X, "m")
    x_bar, by_bar = tj.grad(total, argnums=(0, 1))(x, 3.0)
    assert_close(x_bar.to_value("1/km"), 18 * X)
    assert_close(by_bar, 6 * jnp.sum(X**2))
    assert seen
    assert all(u.dimension == tj.unit("1/m").dimension for u in seen)


def test_batches_go_to_the_body_whole():
    """Also inside of trees; differentiated as what the body does with them."""

    @tj.inplace(mutates="params")
    def descend(params, rates):
        for name, rate in rates.items():
            params[name][...] = params[name][...] - 0.5 * rate
        return tj.trace(params["d"][...])

    params = {
        "d": tj.Diagonal(jnp.arange(6.0).reshape(2, 3)),
        "s": tj.Symmetric(jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])),
    }
    refs = tj.new_ref(params)
    np.testing.assert_allclose(descend(refs, params), [1.5, 6.0])
    after = tj.refs.freeze(refs)
    assert type(after["s"]) is tj.Symmetric
    np.testing.assert_allclose(after["s"].to_dense(), params["s"].to_dense() / 2)
    gradient = tj.grad(lambda p: jnp.sum(descend.transition(p, p).out))(params)
    np.testing.assert_allclose(gradient["d"].diag, jnp.full((2, 3), 0.5))


def test_a_map_into_one_ref_says_what_to_map():
    @tj.inplace(mutates="x")
    def add(x, y):
        x[...] = x[...] + y

    r = jax.new_ref(jnp.zeros(3))
    with pytest.raises(Exception, match="unbatched array reference") as caught:
        jax.vmap(lambda y: add(r, y))(jnp.ones((4, 3)))
    assert any("add would write one value for each" in note for note in caught.value.__notes__)


class Decay:
    def __init__(self, rate):
        self.rate = rate

    @tj.inplace(mutates="r")
    def step(self, r):
        r[...] = r[...] * self.rate


def test_a_method_writes_to_its_arguments():
    r = tj.new_ref(jnp.array([1.0, 2.0]))
    for rate in (3.0, 0.5):
        Decay(rate).step(r)
    np.testing.assert_allclose(r[...], [1.5, 3.0])

    @tj.refs.discharge
    def twice(x, rate):
        r = tj.new_ref(x)
        Decay(rate).step(r)
        Decay(rate).step(r)
        return jnp.sum(r[...])

    x_bar, rate_bar = jax.grad(twice, (0, 1))(jnp.array([1.0, 2.0]), 3.0)
    np.testing.assert_allclose(x_bar, [9.0, 9.0])
    np.testing.assert_allclose(rate_bar, 18.0)


def test_state_that_a_body_reads_is_compiled_in_unless_jit_is_false():
    gain = 2.0

    def times(r):
        r[...] = r[...] * gain

    compiled, anew = tj.inplace(times, mutates="r"), tj.inplace(times, mutates="r", jit=False)
    results = {}
    for gain in (2.0, 10.0):
        for name, f in (("compiled", compiled), ("anew", anew)):
            r = tj.new_ref(jnp.ones(1))
            f(r)
            results[name, gain] = float(r[0])
            assert float(anew.transition(jnp.ones(1)).state[0][0]) == gain
    assert results == {("compiled", 2): 2, ("compiled", 10): 2, ("anew", 2): 2, ("anew", 10): 10}


def test_an_error_at_run_time_without_compilation_leaves_the_memory():
    """Nothing is written before all of the transition is known; by `.transition` neither."""

    def raises(x):
        x[1] = 5.0 * x[1]
        x[0] = jax.pure_callback(lambda v: {}["lost"], x[0], x[0])

    f = tj.inplace(raises, mutates="x", jit=False)
    r = tj.new_ref(jnp.array([1.0, 2.0, 3.0]))
    with pytest.raises(Exception, match="lost"):
        jax.block_until_ready(f(r))
    with pytest.raises(Exception, match="lost"):
        jax.block_until_ready(tj.inplace(raises, mutates="x").transition(r[...]))
    np.testing.assert_array_equal(r[...], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (
            lambda a, b: b.__setitem__(0, jnp.ones(3)),
            tj.ShapeError,
            "to `b` does not have the shape",
        ),
        (
            lambda a, b: a["v"].__setitem__(..., jnp.ones(2, int)),
            tj.errors.MutationError,
            r"to `a\['v'\]` does not have the dtype",
        ),
        (
            lambda a, b: lax.fori_loop(0, 2, lambda i, _: b.__setitem__(i, a["w"][...]), None),
            tj.ShapeError,
            "to `b` does not have the shape",
        ),
    ],
)
def test_a_write_that_does_not_fit_names_its_argument(write, error, words):
    """Beside others of the same shape and dtype, and in a loop."""
    f = tj.inplace(lambda a, b: write(a, b), mutates=("a", "b"))
    with pytest.raises(error, match=f"<lambda>: a write {words}"):
        f(tj.new_ref({"w": jnp.zeros(2), "v": jnp.zeros(2)}), tj.new_ref(jnp.zeros(2)))
