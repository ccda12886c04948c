"""One memory in two places is refused by name where it is written; so is an array as a Ref."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core


@tj.inplace(mutates=("x", "z"))
def mix(x, y, z):
    """Mutates the first and the last argument, and reads the middle one."""
    jax.tree.map(lambda r: r.__setitem__(0, y[0]), x)
    z[0] = y[1]


def ref():
    return jax.new_ref(jnp.arange(4.0))


ONES = jnp.ones(2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: mix(r, ONES, r), r"mix: `x` and `z` are the same memory(.|\n)*copy"),
        (lambda r: mix({"b": [r], "a": r}, ONES, ref()), r"`x\['a'\]` and `x\['b'\]\[0\]`"),
        (lambda r: mix([r, ref(), r], ONES, ref()), r"`x\[0\]` and `x\[2\]`"),
        (lambda r: mix(r, r, ref()), "`x` and `y`"),
        (lambda r: mix(ref(), r, r), "`y` and `z`"),  # first read, then written
        (lambda r: mix(jax.tree.map(lambda _: r, tj.Diagonal(ONES)), ONES, r), "`x.*diag` and `z`"),
        (lambda r: jax.jit(lambda r: mix(r, ONES, r))(r), "`x` and `z`"),
    ],
    ids=["arguments", "tree", "list", "written and read", "read and written", "field", "jit"],
)
def test_one_memory_in_two_places_is_refused(call, words):
    """Nothing is written then."""
    r = ref()
    with pytest.raises(tj.errors.AliasError, match=words):
        call(r)
    np.testing.assert_array_equal(r[...], jnp.arange(4.0))


def test_one_memory_that_is_only_read_may_be_two_arguments():
    @tj.inplace(mutates="x")
    def add(x, y, z):
        x[0] = y[1] + z[2]

    r, x = ref(), ref()
    add(x, r, r)
    assert float(x[0]) == 3.0


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: x * tj.units.m], ids=["plain", "metres"])
def test_two_fields_in_one_memory_are_refused(wrap):
    """A symmetric tridiagonal matrix that holds its side diagonals in one memory."""
    refs = tj.new_ref(wrap(tj.Tridiagonal(jnp.ones(3), jnp.ones(4), jnp.ones(3))))
    (lower, diag, _), structure = jax.tree.flatten(refs)
    shared = jax.tree.unflatten(structure, [lower, diag, lower])
    with pytest.raises(tj.errors.AliasError, match=r"`x\['a'\].*lower` and `x\['a'\].*upper`"):
        mix({"a": shared}, ONES, ref())


@pytest.mark.parametrize("second", [lambda r: r, lambda r: r.at[1:3], lambda r: r.at[jnp.r_[1, 2]]])
@pytest.mark.parametrize("transform", [jax.jit, tj.refs.discharge])
def test_a_ref_and_its_view_or_two_views_are_refused(second, transform):

    @transform
    def f(x):
        r = jax.new_ref(x)
        mix(r.at[0:2], ONES, second(r))

    with pytest.raises(tj.errors.AliasError, match=r"`x`( and `z`)? (is a view|are views) of it"):
        f(jnp.arange(4.0))


@tj.inplace(mutates=("x", "z"))
def exchange(x, z):
    x[...], z[...] = z[...], 2 * x[...]


def test_views_that_do_not_overlap_are_two_memories():
    """By one axis of the Ref, also of views of views; and so is their gradient."""
    x = jnp.arange(12.0).reshape(4, 3)

    def f(x):
        r = jax.new_ref(x)
        exchange(r.at[0:2], r.at[2:4])
        exchange(r.at[0::2, 1:2], r.at[1::2, 1:2])
        exchange(r.at[0:2].at[1:2, 0:1], r.at[2:4].at[1:2, 0:1])
        return r[...]

    def functional(x):
        x = jnp.concatenate([x[2:], 2 * x[:2]])
        x = x.at[0::2, 1].set(x[1::2, 1]).at[1::2, 1].set(2 * x[0::2, 1])
        return x.at[1, 0].set(x[3, 0]).at[3, 0].set(2 * x[1, 0])

    loss = lambda f: jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))
    np.testing.assert_array_equal(jax.jit(f)(x), functional(x))
    np.testing.assert_allclose(jax.jit(loss(tj.refs.discharge(f)))(x), loss(functional)(x))
    if jax.__version_info__ >= (0, 12):  # no views of concrete Refs before
        r = jax.new_ref(x)
        exchange(r.at[0], r.at[-1])
        np.testing.assert_array_equal(r[...], jnp.stack([x[3], x[1], x[2], 2 * x[0]]))
        with pytest.raises(tj.errors.AliasError):
            exchange(r.at[3], r.at[-1])


@pytest.mark.parametrize("wrong", [jnp.ones(4), np.ones(4), 1.0, tj.Diagonal(jnp.ones(4))])
def test_an_array_where_a_ref_belongs_is_refused(wrong):
    with pytest.raises(
        tj.errors.MutationError, match=r"mix: `x.*mutates it(.|\n)*would be lost(.|\n)*new_ref"
    ):
        mix(wrong, ONES, ref())


def test_write_through_a_view_is_in_the_ref():
    """Views are arguments as any other (of a concrete Ref not with JAX 0.10.2)."""

    def f(x):
        r = jax.new_ref(x)
        mix(r.at[2:4], 10 * x, ref())
        return r[...]

    expected = [0.0, 1.0, 0.0, 3.0]
    np.testing.assert_array_equal(jax.jit(f)(jnp.arange(4.0)), expected)
    np.testing.assert_array_equal(tj.refs.discharge(f)(jnp.arange(4.0)), expected)
    if jax.__version_info__ >= (0, 12):
        r = ref()
        mix(r.at[2:4], 10 * jnp.arange(4.0), ref())
        np.testing.assert_array_equal(r[...], expected)
