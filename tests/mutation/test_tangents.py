"""Tangents of memory are memory: one type per primal, two parts, each Ref changed once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

X = jnp.asarray([1.0, 2.0, 3.0])
SQUARE = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
M = tj.units.m
FLOAT0 = jax.dtypes.float0


def tree_of_all():
    """Arrays, Refs, structured ones, quantities, integers, in and out of memory, and an alias."""
    shared = tj.new_ref(X)
    return {
        "ref": shared,
        "again": [shared],
        "array": 2 * X,
        "structured": tj.new_ref(tj.Symmetric(SQUARE)),
        "raw": jax.tree.map(jax.new_ref, tj.Tridiagonal(X[:2], X, X[:2])),
        "length": tj.new_ref(X * M),
        "plain": tj.Diagonal(X) * M,
        "complex": [tj.new_ref(X.astype(complex)), X.astype(complex)],
        "counter": tj.new_ref(3),
        "number": 4,
        "none": None,
    }


leaves = jax.tree.leaves


def numbers(t):
    return [np.asarray(x[...] if isinstance(x, jax.Ref) else x) for x in leaves(t)]


def waves(x, phase):
    """A tangent of `x`, aliased as `x` is, that is not zero anywhere."""
    t = tj.tangents.zero_tangent(x)
    done = set()

    def fill(leaf):
        if leaf.dtype == FLOAT0:
            return leaf
        value = jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape) + phase)
        if jnp.iscomplexobj(value):
            value = jax.lax.complex(value.real, jnp.cos(value.real))
        if not isinstance(leaf, jax.Ref):
            return value
        if id(leaf) not in done:
            leaf[...] = value
        done.add(id(leaf))
        return leaf

    return jax.tree.map(fill, t)


def test_one_tangent_type_for_each_primal_type():
    x, other = tree_of_all(), tree_of_all()
    other["again"] = [tj.new_ref(X)]  # aliases are no matter of types
    kind = tj.tangents.tangent_type(x)
    assert (
        kind
        == tj.tangents.tangent_type(other)
        == tj.tangents.tangent_type(tj.tangents.zero_tangent(x))
    )
    assert (
        kind
        == tj.tangents.tangent_type(waves(x, 0.3))
        == tj.tangents.tangent_type(tj.refs.set_to_zero(waves(x, 0.3)))
    )
    assert hash(kind) == hash(tj.tangents.tangent_type(other))
    assert tj.tangents.tangent_type(tj.new_ref(X)) != tj.tangents.tangent_type(X)
    assert repr(tj.tangents.tangent_type((tj.new_ref(X), X))).count("Ref{float64[3]}") == 1
    for changed in (X[:2], X.astype(jnp.float32), X.astype(complex)):
        assert tj.tangents.tangent_type(tj.new_ref(changed)) != tj.tangents.tangent_type(
            tj.new_ref(X)
        )
    feet = tj.new_ref(X * tj.units.foot)
    assert tj.tangents.tangent_type(feet) != tj.tangents.tangent_type(tj.new_ref(X * M))
    fill = tj.new_ref(tj.Fill(1.0, (3,)))
    assert tj.tangents.tangent_type(tj.new_ref(tj.Diagonal(X))) != tj.tangents.tangent_type(fill)


def test_types_of_the_two_parts():
    x = tree_of_all()
    t = tj.tangents.zero_tangent(x)
    assert (
        tj.refs.fdata_type(x) == tj.tangents.tangent_type(tj.refs.fdata(t)) == tj.refs.fdata_type(t)
    )
    assert (
        tj.refs.rdata_type(x) == tj.tangents.tangent_type(tj.refs.rdata(t)) == tj.refs.rdata_type(t)
    )
    assert (
        tj.refs.fdata_type(x).dimension + tj.refs.rdata_type(x).dimension
        == tj.tangents.tangent_type(x).dimension
    )
    assert tj.refs.fdata_type(X).leaves == ()
    assert tj.refs.rdata_type(tj.new_ref(X)).leaves == ()


def test_zero_keeps_aliases():
    x = tree_of_all()
    t = tj.tangents.zero_tangent(x)
    assert t["ref"] is t["again"][0]
    assert t["ref"] is not x["ref"]
    assert t["structured"].kind is tj.Symmetric
    assert t["length"].unit is M
    assert t["counter"].dtype == t["number"].dtype == FLOAT0  # no memory for what cannot move
    assert all(not np.any(n) for n in numbers(t) if n.dtype != FLOAT0)
    one, other = tj.tangents.zero_tangent((tj.new_ref(X), tj.new_ref(X)))
    assert one is not other


def test_parts_join():
    t = waves(tree_of_all(), 0.3)
    f, r = tj.refs.fdata(t), tj.refs.rdata(t)
    assert all(isinstance(leaf, jax.Ref) for leaf in leaves(f))
    assert not any(isinstance(leaf, jax.Ref) for leaf in leaves(r))
    joined = tj.refs.combine(f, r)
    assert jax.tree.structure(joined) == jax.tree.structure(t)
    assert all(a is b for a, b in zip(leaves(joined), leaves(t), strict=True))
    assert f["ref"] is f["again"][0]
    for wrong in ((f, f), (r, r), (r, f), (t, r), (f, t)):
        with pytest.raises(
            tj.errors.CotangentError, match="combine: the two parts do not fit at `t"
        ):
            tj.refs.combine(*wrong)
    with pytest.raises(tj.errors.CotangentError, match="not of one type"):
        tj.refs.combine(f, r["array"])


def test_increment_adds_each_ref_once():
    """Each Ref once, arrays by value; the sum of two waves, whatever the tree."""
    x = tree_of_all()
    t, u = waves(x, 0.3), waves(x, 1.1)
    start, steps, out = numbers(t), numbers(u), t
    for count in (1, 2):  # the second call adds as the first one does
        out = tj.refs.increment(out, u)
        for got, first, step in zip(numbers(out), start, steps, strict=True):
            if got.dtype != FLOAT0:
                np.testing.assert_allclose(got, first + count * step, rtol=1e-14, atol=1e-15)
    assert all(
        a is b for a, b in zip(leaves(tj.refs.fdata(out)), leaves(tj.refs.fdata(t)), strict=True)
    )
    doubled = [2 * n for n in numbers(u) if n.dtype != FLOAT0]
    twice = [n for n in numbers(tj.refs.increment(u, u)) if n.dtype != FLOAT0]
    for got, expected in zip(twice, doubled, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_increment_under_jit():
    """Refs are arguments, arrays come back."""
    x = {"a": tj.new_ref(tj.Symmetric(SQUARE) * M), "b": [tj.new_ref(X)], "c": tj.Diagonal(X)}
    t, u = waves(x, 0.3), waves(x, 1.1)
    want = [a + b for a, b in zip(numbers(t), numbers(u), strict=True)]

    @jax.jit
    def add(f, r, u):
        return tj.refs.rdata(tj.refs.increment(tj.refs.combine(f, r), u))

    out = tj.refs.combine(tj.refs.fdata(t), add(tj.refs.fdata(t), tj.refs.rdata(t), u))
    for got, expected in zip(numbers(out), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15)
    jax.jit(lambda t: tj.refs.rdata(tj.refs.set_to_zero(t)))(out)
    assert not np.any(out["b"][0][...])


def test_increment_reads_before_it_writes():
    a, b = tj.new_ref(X), tj.new_ref(10 * X)
    tj.refs.increment((a, b), (b, a))
    np.testing.assert_array_equal(a[...], 11 * X)
    np.testing.assert_array_equal(b[...], 11 * X)


def test_increment_refuses():
    a, b, c = (tj.new_ref(X) for _ in range(3))
    with pytest.raises(tj.errors.AliasError, match="would get two increments"):
        tj.refs.increment((a, a), (b, c))
    tj.refs.increment((a, c), (b, b))
    for wrong in (X, (b, X), (b, tj.new_ref(X[:2])), (tj.new_ref(X.astype(jnp.float32)), b)):
        with pytest.raises(
            tj.errors.CotangentError, match="increment: the two trees are not of one type"
        ):
            tj.refs.increment((a, c), wrong)
    np.testing.assert_array_equal(a[...], 2 * X)
    with pytest.raises(
        tj.errors.CotangentError, match=r"`tj\.refs\.increment\(t, u\)` adds in place"
    ):
        tj.tangents.add_tangents(a, b)


def test_set_to_zero_writes_memory_and_leaves_values():
    t = waves(tree_of_all(), 0.3)
    out = tj.refs.set_to_zero(t)
    assert all(not np.any(n) for n in numbers(out) if n.dtype != FLOAT0)
    assert all(
        a is b for a, b in zip(leaves(tj.refs.fdata(out)), leaves(tj.refs.fdata(t)), strict=True)
    )
    assert np.any(t["array"])
    assert out["counter"].dtype == FLOAT0


def test_inner_product():
    x = tree_of_all()
    t, u = waves(x, 0.3), waves(x, 1.1)
    pairs = list(zip(leaves(t), numbers(t), numbers(u), strict=True))
    seen = {id(leaf): np.sum(a * b).real for leaf, a, b in pairs if a.dtype != FLOAT0}
    np.testing.assert_allclose(tj.tangents.inner_product(t, u), sum(seen.values()), rtol=1e-14)
    frozen = tj.refs.freeze({k: v for k, v in t.items() if k == "length"})
    np.testing.assert_allclose(tj.tangents.inner_product(frozen["length"], frozen["length"]).item(),
                               np.sum(np.sin(np.arange(3) + 0.3) ** 2))  # fmt: skip
    z = jnp.asarray([1.0 + 2.0j])
    assert (
        tj.tangents.inner_product(tj.new_ref(z), tj.new_ref(z)) == -3.0
    )  # Re Σ c t, not conjugated


def test_adjoint_on_memory():
    """⟨T* ȳ, ẋ⟩ = ⟨ȳ, T ẋ⟩ where state, tangent and cotangent are all in Refs."""

    @tj.refs.discharge
    def transition(x):
        refs = tj.new_ref(x)
        refs["s"][...] = refs["s"][...] @ refs["s"][...]
        refs["q"][0] = refs["q"][1] * refs["n"][2]
        return tj.refs.freeze(refs)

    x = {"s": tj.Diagonal(X), "q": X * M, "n": 0.1 * X}
    x_dot = tj.new_ref(waves(x, 0.3))
    _, state_dot = jax.jvp(transition, (x,), (tj.refs.freeze(x_dot),))
    state, pull = jax.vjp(transition, x)
    state_bar = tj.new_ref(waves(state, 1.1))
    x_bar = tj.tangents.zero_tangent(tj.new_ref(x))
    tj.refs.increment(x_bar, tj.new_ref(pull(tj.refs.freeze(state_bar))[0]))
    left = tj.tangents.inner_product(x_bar, x_dot)
    right = tj.tangents.inner_product(state_bar, tj.new_ref(state_dot))
    np.testing.assert_allclose(left, right, rtol=1e-14)
    assert abs(left) > 0.1
