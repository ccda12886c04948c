"""Optimisers in place take the steps of optax, and every array stays what it is."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tanjax as tj
from tanjax_rules.inplace.optimisers import adam, adam_state, lion, momentum

pytestmark = pytest.mark.core

M, S = tj.units.m, tj.units.s
RNG = np.random.default_rng(5)
normal = lambda *shape: jnp.asarray(RNG.normal(size=shape))

PARAMS = {
    "dense": normal(3, 2),
    "diagonal": tj.Diagonal(normal(3)),
    "symmetric": tj.Symmetric(normal(3, 3)),
    "length": normal(3) * M,
    "stiffness": tj.Quantity(tj.Symmetric(normal(3, 3), definite=True), M / S),
    "kronecker": tj.Kronecker(normal(2, 2), tj.Triangular(normal(2, 2))),
}


def loss(params, data):
    """Every parameter matters, more or less; hidden parts of `data` meet them, too."""
    others = {k: v for k, v in params.items() if k != "symmetric"}
    terms = [jnp.sum(jnp.sin(leaf + k) * leaf) for k, leaf in enumerate(jax.tree.leaves(others))]
    x = params["symmetric"] @ data
    return sum(terms) + jnp.sum(x**2)


DATA = [normal(3) for _ in range(5)]
gradient = jax.jit(jax.grad(loss))


def moments(params):
    """Memory of zeros, and `None` for integers, which have no tangents."""
    return tj.refs.fdata(tj.tangents.zero_tangent(params))


def values_of(params):
    read = lambda ref: ref[...]
    return jax.tree.map(read, params, is_leaf=lambda x: isinstance(x, tj.refs.StructuredRef))


def by_optax(optimiser):
    params, path, state = PARAMS, [], optimiser.init(PARAMS)
    for data in DATA:
        gradients = jax.tree.map(canonical, gradient(params, data), is_leaf=is_array)
        with jax.numpy_dtype_promotion("standard"):  # optax counts in integers
            updates, state = optimiser.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        path.append(params)
    return path


def is_array(x):
    return isinstance(x, tj.AbstractArray)


def canonical(x):
    """Hidden parts, which a symmetric matrix does not have, are none of a gradient's."""
    if not is_array(x):
        return x
    inner = jax.tree.map(canonical, x, is_leaf=lambda y: y is not x and is_array(y))
    return inner.canonical()


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


def assert_invariants(params):
    """Exactly symmetric, exactly triangular, bit by bit."""
    for data in (params["symmetric"].data, params["stiffness"].stored.data):
        np.testing.assert_array_equal(data, data.T)
    lower = params["kronecker"].factors[1].data
    np.testing.assert_array_equal(lower, np.tril(lower))
    assert params["length"].unit is M
    assert params["stiffness"].stored.definite


@pytest.mark.parametrize(
    ("step", "start", "optimiser"),
    [
        (adam, adam_state, optax.adam(0.05)),
        (momentum, moments, optax.sgd(0.05, momentum=0.9)),
        (lion, moments, optax.lion(0.05)),
    ],
    ids=["adam", "momentum", "lion"],
)
def test_steps_are_those_of_optax(step, start, optimiser):
    """A call, then a compiled scan that closes over parameters and state, and writes to them."""
    params = tj.new_ref(PARAMS)
    before, state = jax.tree.leaves(params), start(params)
    first, *others = by_optax(optimiser)
    step(params, state, gradient(PARAMS, DATA[0]), 0.05)
    assert_same(values_of(params), first)

    @jax.jit
    def train(params, state, data):
        def body(_, data):
            step(params, state, gradient(values_of(params), data), 0.05)
            return None, values_of(params)

        return jax.lax.scan(body, None, data)[1]

    path = train(params, state, jnp.stack(DATA[1:]))
    for i, want in enumerate(others):
        now = jax.tree.map(lambda x, i=i: x[i], path)
        assert_same(now, want)
        assert_invariants(now)
    assert all(a is b for a, b in zip(jax.tree.leaves(params), before, strict=True))
    assert_same(tj.refs.freeze(params), others[-1])


def test_integers_stay_and_dtypes_are_kept():
    x = {"x": jnp.ones(2, jnp.float32), "b": jnp.ones(2, jnp.bfloat16), "n": jnp.arange(2)}
    params = tj.new_ref(x)
    state = adam_state(params)
    adam(params, state, {**x, "n": None}, 0.5)
    np.testing.assert_allclose(params["x"][...], 0.5, rtol=1e-6)
    assert params["b"].dtype == state.mean["b"].dtype == jnp.bfloat16
    assert params["n"][...].tolist() == [0, 1]


def test_a_gradient_through_a_step():
    """The loss after one step, differentiated by where it began and by the rate."""
    x0 = {"s": tj.Symmetric(normal(3, 3)), "q": normal(3) * M}
    half = lambda x: 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x))

    def after(x, rate):
        params = tj.new_ref(x)
        momentum(params, moments(params), x, rate)  # the gradient of `half` is x
        return half(tj.refs.freeze(params))

    pure = tj.refs.discharge(after)
    bars, rate_bar = jax.grad(pure, argnums=(0, 1))(x0, 0.25)
    assert_same(bars, jax.tree.map(lambda leaf: 0.75**2 * leaf, x0))
    np.testing.assert_allclose(rate_bar, -0.75 * 2 * half(x0))
    assert type(bars["s"]) is tj.Symmetric
    assert_same(jax.jit(jax.grad(pure))(x0, 0.25), bars)


def test_nothing_is_copied():
    """All memory of parameters and state is the caller's, in the compiled program.

    XLA copies to transpose the gradient of a symmetric matrix, for its symmetric part.
    """
    x = normal(64, 64)
    of_all = {"d": tj.Diagonal(x[0]), "x": x * M, "s": tj.Symmetric(x)}
    for names in ("dx", "dxs"):
        params = tj.new_ref({name: of_all[name] for name in names})
        args = params, adam_state(params), values_of(params), 0.1
        compiled = jax.jit(lambda *args: adam(*args)).lower(*args).compile()
        size = sum(ref.size for ref in jax.tree.leaves(params)) * 3 * 8
        assert compiled.memory_analysis().alias_size_in_bytes >= size
        copied = re.search(r" = f64\[[^=]* copy\(", compiled.as_text())
        assert "s" in names or not copied


@pytest.mark.parametrize("compile", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("name", ["adam", "momentum", "lion"])
def test_sharded_parameters_stay_where_they_are(name, compile):
    """Parameters, moments and the count of steps are on all devices, as optax has them."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    x = jax.device_put({"w": jnp.arange(8.0) + 1, "d": tj.Diagonal(jnp.arange(4.0) + 1)}, spread)
    step, start = {
        "adam": (adam, adam_state),
        "momentum": (momentum, moments),
        "lion": (lion, moments),
    }[name]
    optimiser = {
        "adam": optax.adam(0.1),
        "momentum": optax.sgd(0.1, 0.9),
        "lion": optax.lion(0.1, 0.9, 0.99, weight_decay=1e-3),
    }[name]
    params, want, state = tj.new_ref(x), x, optimiser.init(x)
    memory = start(params)
    run = compile(lambda p, s, g: step(p, s, g, 0.1))
    for _ in range(3):
        run(params, memory, values_of(params))  # the gradient of half the sum of squares
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(want, state, want)
        want = optax.apply_updates(want, updates)
    for ref, right in zip(jax.tree.leaves(params), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(ref[...], right, rtol=1e-6)
        assert ref.sharding == spread
    assert all(ref.sharding.device_set == spread.device_set for ref in jax.tree.leaves(memory))
    moments_ = [ref for ref in jax.tree.leaves(memory) if ref.ndim]
    assert all(ref.sharding == spread for ref in moments_)
    tj.refs.set_to_zero(memory)
    assert all(ref.sharding == spread for ref in moments_)
