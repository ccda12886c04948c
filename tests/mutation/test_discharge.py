"""A discharged function is the program as written, in every mode, around all control flow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from comparisons import assert_same_derivatives

pytestmark = pytest.mark.core

X = jnp.array([0.7, -0.4, 1.3, 0.2])
T = jnp.array([0.3, 1.0, -0.6, 0.5])


def assert_close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-10), got, want)


def control_flow(x):
    """Every construct writes a Ref, some read it whole, some by index, some through a closure."""
    r, total = jax.new_ref(x), jax.new_ref(x[0])
    head = jax.new_ref(jnp.array(1))
    weights = jax.new_ref(jnp.cos(x))  # only ever read

    def step(i, c):
        r[i] = jnp.sin(r[i]) * r[i - 1] + weights[i]
        total[...] += jnp.sum(r[...]) * weights[0]
        return c * r[i]

    c = lax.fori_loop(1, 3, step, x[1])

    def scanned(carry, row):
        def inner(i, d):
            r[i] *= row * d
            return d + weights[i]

        d = lax.fori_loop(0, 2, inner, carry)
        head[...] = (head[...] + 1) % 4
        r[head[...]] = r[head[...]] + d
        return carry * r[1], r[0]

    c, rows = lax.scan(scanned, c, x[:2] ** 2, reverse=True)

    def left():
        r[0] = total[...] * r[1]
        return r[2]

    c += lax.cond(total[...] > 0, left, lambda: weights[2])
    c += lax.switch(head[...], [lambda: r[3], left, lambda: total[...], lambda: x[0]])

    @jax.jit
    def compiled(ref, y):
        mine = jax.new_ref(y)
        mine[0] = mine[1] * ref[0]
        ref[1] = mine[0] * ref[1]
        return mine[...]

    y = compiled(r, x) * compiled(r, rows[jnp.array([0, 1, 1, 0])])

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def again(y):
        r[2] = lax.cond(y[0] > 0, lambda: r[1] * y[1], lambda: jnp.sin(r[2]))
        return r[2] * weights[1]

    return again(y) + total[...] * c + jnp.sum(jax.freeze(r) * y)


def functional(x):
    """The same by hand, on values."""
    r, total, head, w = list(x), x[0], 1, jnp.cos(x)
    c = x[1]
    for i in (1, 2):
        r[i] = jnp.sin(r[i]) * r[i - 1] + w[i]
        total = total + sum(r) * w[0]
        c = c * r[i]
    rows = [None, None]
    for k in (1, 0):
        row, d = x[k] ** 2, c
        for i in (0, 1):
            r[i] = r[i] * (row * d)
            d = d + w[i]
        head = (head + 1) % 4
        r[head] = r[head] + d
        c, rows[k] = c * r[1], r[0]
    positive = total > 0
    first = jnp.where(positive, total * r[1], r[0])
    r[0] = first
    c = c + jnp.where(positive, r[2], w[2])
    assert head == 3
    c = c + x[0]

    def compiled(y):
        y = [y[1] * r[0], *y[1:]]
        r[1] = y[0] * r[1]
        return y

    y = [a * b for a, b in zip(compiled(x), compiled([rows[i] for i in (0, 1, 1, 0)]), strict=True)]
    r[2] = jnp.where(y[0] > 0, r[1] * y[1], jnp.sin(r[2]))
    return r[2] * w[1] + total * c + sum(a * b for a, b in zip(r, y, strict=True))


@pytest.mark.slow
def test_control_flow_in_every_mode():
    assert_same_derivatives(tj.refs.discharge(control_flow), functional, X, tolerance=1e-9)


def test_control_flow_takes_both_branches():
    """The branch is chosen by a value: both, and a batch that takes both at once."""
    batch = jnp.stack([X, -X, T, -T])
    got = jax.jit(jax.vmap(jax.value_and_grad(tj.refs.discharge(control_flow))))(batch)
    assert_close(got, jax.jit(jax.vmap(jax.value_and_grad(functional)))(batch))


def over_rows(x):
    """Rows of a Ref, of a counter and of weights: written, read, handed on, kept."""
    r, count = jax.new_ref(x), jax.new_ref(jnp.zeros(3, int))
    weights = jax.new_ref(jnp.cos(x))  # only ever read

    @jax.jit
    def handed(row, c):
        row[1] = row[0] * c
        return jnp.sum(row[...])

    @jax.checkpoint
    def line(c, rows):
        row, n, weight = rows
        n[...] = n[...] + 1
        c = lax.cond(c > 0, lambda: handed(row, c), lambda: c - row[2] * weight[0])
        row[3] = c * row[3]
        return c, row[0]

    def again(i, c):
        c, firsts = lax.scan(line, c, (r, count, weights), reverse=True)
        r[0, 0] = jnp.sum(firsts)
        return jnp.cos(c)

    c = lax.fori_loop(0, 2, again, jnp.asarray(0.3, x.dtype))
    return c + jnp.sum(r[...] ** 2) + jnp.sum(count[...]).astype(x.dtype)


def over_rows_as_carries(x):
    weights = jnp.cos(x)

    def line(c, rows):
        row, weight = rows
        row = row.at[1].set(jnp.where(c > 0, row[0] * c, row[1]))
        c = jnp.where(c > 0, jnp.sum(row), c - row[2] * weight[0])
        row = row.at[3].multiply(c)
        return c, (row, row[0])

    def again(i, state):
        x, c = state
        c, (x, firsts) = lax.scan(line, c, (x, weights), reverse=True)
        return x.at[0, 0].set(jnp.sum(firsts)), jnp.cos(c)

    x, c = lax.fori_loop(0, 2, again, (x, jnp.asarray(0.3, x.dtype)))
    return c + jnp.sum(x**2) + 6.0


def test_scan_over_a_ref_in_every_mode():
    x = jnp.sin(jnp.arange(12.0) + 1).reshape(3, 4)
    assert_same_derivatives(tj.refs.discharge(over_rows), over_rows_as_carries, x)


def test_scan_over_a_batch_of_structured_refs_calls_rules():
    """Each step has the Ref of one matrix, for an in-place function with a rule."""

    @tj.inplace(mutates="a")
    def damp(a, c):
        a[0, 1] = c * a[0, 1]
        return tj.trace(a[...]) * c

    used = []

    @damp.natural_rule
    def damp_rule(a, c):
        after, pull = jax.vjp(damp.primal, a, c)

        def damp_pullback(a_bar, out_bar):
            used.append(a_bar)
            structural = tj.tangents.restructure(a, tj.destructure(a_bar))
            a_bar, c_bar = pull(tj.refs.Transition((structural,), out_bar))
            return tj.tangents.natural(a, a_bar), c_bar

        return after, damp_pullback

    def f(stack, c):
        batch = tj.new_ref(jax.vmap(lambda m: tj.Symmetric(m, "mean"))(stack))
        c, _ = lax.scan(lambda c, a: (damp(a, c), None), c, batch)
        return c + jnp.sum(jnp.sin(batch[...].data))

    def by_hand(stack, c):
        total = 0.0
        for m in (stack + stack.mT) / 2:
            m = m * jnp.array([[1.0, c], [c, 1.0]])
            total, c = total + jnp.sum(jnp.sin(m)), jnp.trace(m) * c
        return total + c

    stack = jnp.cos(jnp.arange(12.0)).reshape(3, 2, 2)
    got = jax.jit(jax.value_and_grad(tj.refs.discharge(f), (0, 1)))(stack, 0.7)
    assert_close(got, jax.value_and_grad(by_hand, (0, 1))(stack, 0.7))
    assert used


def test_scan_over_a_ref_that_its_body_has_otherwise_is_refused():
    def closes_over(x):
        r = jax.new_ref(x)
        return lax.scan(lambda c, row: (c + row[...] * r[0], None), x[0], r)[0]

    def twice(x):
        r = jax.new_ref(x)
        return lax.scan(lambda c, rows: (c + rows[0][...], None), x[0], (r, r))[0]

    for f in (closes_over, twice):
        with pytest.raises(tj.errors.AliasError, match=f"{f.__name__}: one memory goes"):
            tj.refs.discharge(f)(X)


def test_while_loop_forward():
    """Reverse mode of a `while_loop` is JAX's to refuse; forward mode works."""

    def f(x):
        r, n = jax.new_ref(x), jax.new_ref(0)

        def body(c):
            n[...] += 1
            r[0] = r[0] * r[1]
            return c + r[0]

        c = lax.while_loop(lambda c: (n[...] < 3) & (c < 100.0), body, x[2])
        return c + r[0] * x[3]

    def g(x):
        a, c = x[0], x[2]
        for _ in range(3):
            a = a * x[1]
            c = c + a
        return c + a * x[3]

    got, want = (
        jax.jit(lambda x, h=h: jax.jvp(h, (x,), (T,)))(X) for h in (tj.refs.discharge(f), g)
    )
    assert_close(got, want)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(tj.refs.discharge(f))(X)


def test_the_same_memory_twice_in_a_loop():
    """A body that closes over one Ref under two names, one of them only read."""

    def f(x):
        r = jax.new_ref(x)

        @jax.jit
        def inner(i):
            return r[i]

        def body(i, c):
            r[i + 1] = inner(i) * r[i + 1]
            return c

        lax.fori_loop(0, 3, body, None)
        return r[3]

    assert_same_derivatives(tj.refs.discharge(f), jnp.prod, X)


@pytest.mark.parametrize("x", [X, np.array(X)], ids=["JAX", "NumPy"])
def test_arguments_that_are_no_arrays_are_handed_on(x):
    """Numbers, texts, functions; arrays of NumPy are arrays."""

    def f(x, times, name, function, table):
        r = jax.new_ref(x)
        for _ in range(times):
            r[0] = function(r[0])
        return {"x": r[...], "name": name, "n": times, "none": None, "k": table["k"]}

    out = tj.refs.discharge(f)(x, 2, "a", jnp.sin, table={"k": (1, "b")})
    assert (out["name"], out["n"], out["none"], out["k"]) == ("a", 2, None, (1, "b"))
    assert_close(out["x"], X.at[0].set(np.sin(np.sin(0.7))))


def test_operations_and_their_rules_survive():
    """A custom rule in a discharged function is the rule, not the derivative of its body."""

    @jax.custom_vjp
    def twice(x):
        return 2.0 * x

    twice.defvjp(lambda x: (2.0 * x, None), lambda _, bar: (5.0 * bar,))

    @jax.custom_jvp
    def thrice(x):
        r = jax.new_ref(x)
        r[...] = 3.0 * r[...]
        return r[...]

    thrice.defjvp(lambda p, t: (thrice(*p), 7.0 * t[0]))

    @tj.refs.discharge
    def f(x):
        r = jax.new_ref(x)
        r[0] = twice(r[0])
        r[1] = thrice(r[1])
        return jnp.sum(r[...])

    np.testing.assert_array_equal(jax.jit(jax.grad(f))(X), [5.0, 7.0, 1.0, 1.0])
    assert float(f(X)) == pytest.approx(2 * 0.7 - 3 * 0.4 + 1.5)


def with_rule(body):
    """A function whose rule, of an integer and two arrays, is none of JAX's own."""
    f = jax.custom_jvp(body)

    @f.defjvp
    def _(primals, tangents):
        _, x, y = primals
        out = f(*primals)
        return out, 2.0 * tangents[1] * jnp.cos(out) * y + tangents[2] * x

    return f


def product_in_place(n, x, y):
    r = jax.new_ref(x)
    lax.fori_loop(1, x.size, lambda i, _: r.__setitem__(i, r[i] * r[i - 1] + n), None)
    return r[...] * y


def product_by_carry(n, x, y):
    body = lambda before, now: (now * before + n,) * 2
    return jnp.append(x[:1], lax.scan(body, x[0], x[1:])[1]) * y


def test_a_ref_in_a_function_with_a_rule_of_jax():
    """The rule is kept, in all modes and orders, where only one argument moves, and in a loop."""

    def of(body):
        def total(x):
            f = with_rule(body)
            one = lax.scan(lambda c, row: (jnp.sum(f(2.0, row * c, X)), None), x[0], x[None])[0]
            return one + jnp.sum(jnp.sin(f(1.0, x, x[::-1])))

        return total

    assert_same_derivatives(tj.refs.discharge(of(product_in_place)), of(product_by_carry), X)


def test_discharged_in_discharged():
    inner = tj.refs.discharge(lambda x: _cumulated(x))

    def outer(x):
        r = jax.new_ref(x)
        r[...] = inner(r[...])
        return jnp.sum(r[...] ** 2)

    assert_same_derivatives(tj.refs.discharge(outer), lambda x: jnp.sum(jnp.cumsum(x) ** 2), X)


def _cumulated(x):
    r = jax.new_ref(x)
    for i in range(1, x.size):
        r[i] += r[i - 1]
    return r[...]


def test_quantities_and_structured_arrays_pass_through():
    def f(d, length):
        r = jax.new_ref(d.diag)
        r[0] = r[0] * 2.0
        return tj.Diagonal(r[...]) @ length

    out = tj.refs.discharge(f)(tj.Diagonal(X), tj.quantity(jnp.ones(4), "m"))
    assert out.unit == tj.unit("m")
    np.testing.assert_allclose(out.to_value("m")[:2], [1.4, -0.4])


# -- what it refuses -------------------------------------------------------------------------------


def closes_over_an_outer_ref(x):
    r = jax.new_ref(x)
    return tj.refs.discharge(lambda y: y + r[0])(x)


def read_by_a_custom_rule(x):
    @jax.custom_jvp
    def read(r):
        return r[0]

    read.defjvp(lambda p, t: (read(*p), t[0]))
    return read(jax.new_ref(x))


def on_two_devices(body):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)


def sharded(x, handed):
    r = jax.new_ref(x)

    def body(y):
        mine = r if handed else jax.new_ref(y)
        mine[0] = y[0] * 2
        return mine[0:1]

    return on_two_devices(body)(x)


def read_in_shard_map(x):
    r = jax.new_ref(x)
    return on_two_devices(lambda y: y + r[0:1])(x)


def read_by(mask):  # JAX gives the result the shape of the mask
    def read(x):
        r = jax.new_ref(x)
        return jnp.sum(r[mask] * 2)

    return read


def read_by_a_solver(x):
    r = jax.new_ref(x)
    solve = lambda matvec, b: b / matvec(1.0)
    return lax.custom_linear_solve(lambda y: y * r[...], x, solve, symmetric=True)


def reshaped(x):  # JAX 0.12 loses what is written to such a view
    r = jax.new_ref(x)
    r.reshape(2, 2)[0, 1] = 7.0
    return r[...]


REF = jax.new_ref(X)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x + REF[0], r"closes over a Ref(.|\n)*mutates"),
        (closes_over_an_outer_ref, "closes over"),
        (jax.jit(closes_over_an_outer_ref), "closes over"),
        (lambda x: jax.new_ref(x), "a Ref is returned"),
        (lambda x: lax.scan(lambda r, _: (r, None), jax.new_ref(x), None, 2)[0][...], "close over"),
        (read_by_a_custom_rule, r"custom_jvp(.|\n)*test_discharge.py(.|\n)*natural_rule`.$"),
        (read_by_a_solver, r"custom_linear_solve(.|\n)*close over values"),
        (functools.partial(sharded, handed=True), r"shard_map(.|\n)*`.transition`"),
        (functools.partial(sharded, handed=False), "shard_map"),
        (reshaped, "view that is no part of it"),
        (read_by(np.array([True, False, True, True])), r"by a mask(.|\n)*np.flatnonzero"),
        (read_by(np.arange(4) > 5), "by a mask"),
        (lambda x: read_by(x > 0.5)(x), "by a mask"),
    ],
)
def test_a_ref_that_cannot_be_followed_is_refused(f, words):
    with pytest.raises(tj.errors.MutationError, match=words):
        tj.refs.discharge(f)(X)


@pytest.mark.parametrize("frames", ["off", "remove_frames"])
def test_a_ref_that_shard_map_closes_over_is_refused(frames):
    """By our words, whether JAX keeps its frames in the traceback or takes them out, as it does."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", frames)
    try:
        with pytest.raises(
            tj.errors.MutationError, match="read_in_shard_map: a Ref is used inside of"
        ):
            tj.refs.discharge(read_in_shard_map)(X)
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_a_ref_as_an_argument_is_refused():
    with pytest.raises(
        tj.errors.MutationError, match=r"<lambda>: a discharged function is called with"
    ):
        tj.refs.discharge(lambda r: r[0])(REF)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            lambda r: r.__setitem__(slice(0, 2), jnp.ones(3)),
            tj.ShapeError,
            "does not have the shape",
        ),
        (
            lambda r: r.__setitem__(0, jnp.float32(1)),
            tj.errors.MutationError,
            "does not have the dtype",
        ),
    ],
)
def test_a_change_of_shape_or_dtype_is_refused(change, error, words):
    def write(x):
        r = jax.new_ref(x)
        change(r)
        return r[...]

    with pytest.raises(error, match=rf"write: a write {words}(.|\n)*JAX says"):
        tj.refs.discharge(write)(X)


def test_discharged_inside_of_shard_map():
    total = lambda x: jnp.sum(on_two_devices(tj.refs.discharge(_cumulated))(x) ** 2)
    reference = lambda x: jnp.sum(jax.vmap(jnp.cumsum)(x.reshape(2, 2)) ** 2)
    assert_close(jax.jit(jax.value_and_grad(total))(X), jax.value_and_grad(reference)(X))


def test_a_mapped_branch_inside_says_what_to_do():
    """`vmap` in the function runs before it is discharged; JAX's words, and ours below them."""

    def one(x):
        r = jax.new_ref(x)
        lax.cond(x > 0, lambda: r.__setitem__(..., 2.0), lambda: None)
        return r[...]

    with pytest.raises(NotImplementedError, match="vmap-of-cond") as caught:
        tj.refs.discharge(lambda x: jax.vmap(one)(x))(X)
    assert "jax.vmap(tj.refs.discharge(f))" in caught.value.__notes__[-1]
    np.testing.assert_array_equal(jax.vmap(tj.refs.discharge(one))(X), [2.0, -0.4, 2.0, 2.0])
