"""Arrays that are written in place keep type, invariant, unit and dtype, or refuse."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import tanjax as tj
from tanjax.mutation import is_ref
from tanjax.testing import examples_of

pytestmark = pytest.mark.core

M, KM, S = tj.units.m, tj.units.km, tj.units.s
FULL = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
NUMBERS = jnp.asarray([1.0, 2.0, 3.0])
EXAMPLES = [
    pytest.param(x, id=f"{kind.__name__}{i}")
    for kind in tj.rules.registered_array_types()
    if kind.__module__.startswith("tanjax")
    for i, x in enumerate(examples_of(kind))
]


@tj.register_array_type
class Vandermonde(tj.AbstractArray):
    """A user's type: its field says only how many dimensions it has."""

    points: Array = tj.array_field(ndim=1)
    degree: int = tj.static_field()

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)


def assert_same(x, y):
    """Equal trees, static data and units among them, and equal leaves, bit by bit."""
    assert jax.tree.structure(x) == jax.tree.structure(y)
    for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        assert jnp.result_type(a) == jnp.result_type(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# -- whole arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("x", EXAMPLES)
def test_every_type_is_read_and_written(x):
    """Read, write, clear, add to, freeze: the type stays, and so do its static fields."""
    ref = tj.new_ref(x)
    assert_same(ref[...], x)
    assert (ref.shape, ref.dtype, ref.ndim) == (x.shape, x.dtype, x.ndim)
    assert ref.kind is type(x)
    assert all(map(is_ref, jax.tree.leaves(ref)))
    other = jax.tree.map(lambda leaf: leaf[::-1] if leaf.ndim == 1 else leaf, x)
    ref[...] = other
    assert_same(ref[...], other)
    if x.is_linear and jax.tree.leaves(x) and not getattr(x, "definite", False):
        ref[...] = 0
        assert_same(ref[...], jax.tree.map(jnp.zeros_like, x))
    ref[...] = x
    assert_same(tj.freeze(ref), x)
    assert repr(tj.new_ref(x)) == f"StructuredRef({x!r})"


@pytest.mark.parametrize("x", EXAMPLES)
def test_every_type_is_a_quantity_in_a_batch_under_jit(x):
    """Units and batches go through every type; a write in another unit converts."""
    quantity = tj.Unitful(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), x), M)

    @jax.jit
    def written(q):
        ref = tj.new_ref(q)
        assert ref.unit is M
        assert ref.shape == q.shape
        ref[...] = ref[...].to(M)
        return tj.freeze(ref)

    assert_same(written(quantity), quantity)


def test_a_users_type():
    ref = tj.new_ref(Vandermonde(NUMBERS, 3))
    ref.points[1] = 7  # an integer, as it is written, in an array of floats
    ref.points[2:] = 0.5
    assert ref.degree == 3
    assert_same(ref[...], Vandermonde(jnp.asarray([1.0, 7.0, 0.5]), 3))
    with pytest.raises(tj.MutationError, match="cannot change the type"):
        ref[...] = Vandermonde(NUMBERS, 2)
    with pytest.raises(tj.MutationError, match="by index"):
        ref[0, 0] = 1.0
    with pytest.raises(AttributeError, match="fields: points, degree"):
        ref.nodes  # noqa: B018


def test_a_tree_of_refs():
    tree = {"a": tj.Diagonal(NUMBERS), "b": [2.0, NUMBERS], "c": 3.0 * KM, "n": None}
    refs = tj.new_ref(tree)
    assert type(refs["a"]) is type(refs["c"]) is tj.StructuredRef
    assert is_ref(refs["b"][0])
    assert is_ref(refs["b"][1])
    assert refs["c"].dtype == jnp.float64
    frozen = tj.freeze(refs)
    assert_same(frozen["a"], tree["a"])
    assert frozen["c"].unit is KM
    assert frozen["n"] is None
    assert_same(tj.freeze(tree)["a"], tree["a"])  # what is no Ref stays
    ref = tj.new_ref(NUMBERS)
    twice = tj.freeze((ref, ref))
    assert twice[0] is twice[1]
    frozen = jax.make_jaxpr(lambda x: tj.freeze(tj.new_ref(tj.Diagonal(x))))(NUMBERS)
    assert frozen.jaxpr.eqns[-1].primitive.name == "freeze"  # taken back, and not read: no copy


@pytest.mark.parametrize(
    ("x", "new"),
    [
        (jnp.asarray([1.0, 2.0]), jnp.asarray([9.0, 9.0])),
        (tj.Diagonal(jnp.asarray([1.0, 2.0])), tj.Diagonal(jnp.asarray([9.0, 9.0]))),
        (jnp.asarray([1.0, 2.0]) * tj.unit("m"), jnp.asarray([9.0, 9.0]) * tj.unit("m")),
    ],
    ids=["dense", "structured", "quantity"],
)
def test_frozen_arrays_stay_when_the_ref_is_written(x, new):
    ref = tj.new_ref(x)
    frozen = tj.freeze(ref)
    ref[...] = new
    assert_same(frozen, x)
    assert_same(tj.freeze(ref), new)


def test_a_ref_is_a_tree_of_named_leaves():
    ref = tj.new_ref(tj.Unitful(tj.Diagonal(NUMBERS), M))
    ((path, leaf),) = jax.tree_util.tree_flatten_with_path({"x": ref})[0]
    assert jax.tree_util.keystr(path) == "['x'].stored.diag"
    assert leaf is jax.tree.leaves(ref)[0]
    assert jax.tree.structure(ref) == jax.tree.structure(jax.tree.map(lambda r: r, ref))
    assert copy.copy(ref).shape == (3, 3)


@pytest.mark.parametrize("x", [len, "text", jax.new_ref(jnp.ones(2)), tj.new_ref(1.0 * M)], ids=str)
def test_new_ref_refuses_a_value_that_no_ref_can_hold(x):
    with pytest.raises(tj.MutationError, match=r"new_ref: no Ref can hold `x\['here'\]`"):
        tj.new_ref({"here": x})


def test_keys_and_dtypes():
    """PRNG keys, bfloat16, integers, flags, complex and empty arrays are state like any other."""
    empty, wide = jnp.ones((0, 2)), FULL.astype(complex)
    for x in (jax.random.key(0), FULL.astype(jnp.bfloat16), jnp.arange(3), FULL > 3, empty, wide):
        assert tj.freeze(tj.new_ref(x)).dtype == x.dtype
    assert not jax.typeof(tj.freeze(tj.new_ref(3))).weak_type


def test_a_ref_is_no_array():
    ref = tj.new_ref(tj.Diagonal(NUMBERS))
    with pytest.raises(TypeError):
        jnp.sum(ref)
    with pytest.raises(TypeError):
        ref + 1
    for change in ("ref += 1", "ref -= 1", "ref *= 2", "ref /= 2"):
        with pytest.raises(tj.MutationError, match=r"write into what it holds: `ref\[\.\.\.\]"):
            exec(change, {"ref": ref})


AS_ARRAY = {
    "np.asarray": np.asarray,
    "np.sum": np.sum,
    "jnp.sum": jnp.sum,
    "product": lambda r: r @ jnp.ones(3),
    "product with an array": lambda r: jnp.ones(3) @ r,
    "product with a NumPy array": lambda r: np.ones(3) @ r,
    "sum": lambda r: 1.0 + r,
    "negative": lambda r: -r,
    "comparison": lambda r: r < 2.0,
    "entries": list,
    "unit": lambda r: r * tj.units.m,
    "solve": lambda r: tj.solve(r, jnp.ones(3)),
    "solve with": lambda r: tj.solve(jnp.eye(3), r),
    "trace": tj.trace,
    "destructure": tj.destructure,
}


@pytest.mark.parametrize("name", AS_ARRAY)
def test_memory_where_an_array_is_meant_has_to_be_read(name):
    """NumPy made an object of it, and summed that."""
    ref = tj.new_ref(tj.Symmetric(jnp.eye(3)))
    with pytest.raises(tj.MutationError, match=r"memory: Symmetric\(.*\n.*read what it holds"):
        AS_ARRAY[name](ref)


def test_in_place_operators():
    ref = tj.new_ref(tj.Diagonal(NUMBERS))
    ref[...] *= 2.0
    ref[...] += tj.Diagonal(NUMBERS)
    ref[...] -= tj.Diagonal(jnp.ones(3))
    ref[...] /= 2.0
    assert_same(ref[...], tj.Diagonal(1.5 * NUMBERS - 0.5))
    with tj.densify("allow"), pytest.raises(tj.MutationError, match="cannot change the type"):
        ref[...] += 1.0  # a dense matrix
    assert_same(ref[...], tj.Diagonal(1.5 * NUMBERS - 0.5))
    kronecker = tj.new_ref(tj.Kronecker(FULL, FULL))
    with pytest.raises(tj.MutationError, match="after: Sum"):
        kronecker[...] += kronecker[...]


def test_under_vmap_and_scan():
    def one(x):
        ref = tj.new_ref(tj.Symmetric(x) * M)
        ref[0, 1] = ref[0, 1] + 1.0 * KM
        return tj.freeze(ref)

    got = jax.vmap(one)(jnp.stack([FULL, 2 * FULL]))
    assert_same(jax.tree.map(lambda leaf: leaf[1], got), one(2 * FULL))

    ref = tj.new_ref(tj.Diagonal(NUMBERS))

    @jax.jit
    def steps(ref):
        def body(i, _):
            ref[...] *= 2.0
            ref.diag[i] += 1.0
            return _

        jax.lax.fori_loop(0, 3, body, 0)

    steps(ref)
    assert_same(ref[...], tj.Diagonal(8 * NUMBERS + jnp.asarray([4.0, 2.0, 1.0])))


# -- units -----------------------------------------------------------------------------------------


def test_units_convert_or_are_refused():
    ref = tj.new_ref(NUMBERS * M)
    ref[0] = 2.0 * KM
    ref[1:] = jnp.asarray([3.0, 4.0]) * KM
    assert_same(ref[...], jnp.asarray([2000.0, 3000.0, 4000.0]) * M)
    ref[...] = 5.0 * KM  # broadcast
    assert_same(ref[...], jnp.full(3, 5000.0) * M)
    ref[...] += 1.0 * KM
    ref[2] += 1.0 * M
    assert_same(ref[...], jnp.asarray([6000.0, 6000.0, 6001.0]) * M)
    assert_same(ref[2], jnp.asarray(6001.0) * M)
    ref[...] = 0  # zero is zero in every unit
    assert_same(ref[...], jnp.zeros(3) * M)
    before = ref[...]
    for wrong in (1.0 * S, jnp.ones(3) * S, 1.0, jnp.zeros(3), tj.Diagonal(NUMBERS) * M):
        for index in (..., 0, slice(None)):
            with pytest.raises((tj.UnitError, tj.MutationError)):
                ref[index] = wrong
    assert_same(ref[...], before)
    with pytest.raises(tj.UnitError, match=r"a quantity in s cannot be written in m\."):
        ref[0] = 1.0 * S
    with pytest.raises(tj.UnitError, match="a number without a unit"):
        ref[0] = 1.0


def test_pure_numbers():
    ref = tj.new_ref(tj.Diagonal(NUMBERS))
    ref.diag[0] = (1.0 * KM) / (1.0 * M)
    assert ref.diag[0] == 1000.0
    with pytest.raises(tj.UnitError, match="where no unit is kept"):
        ref.diag[0] = 1.0 * M
    with pytest.raises(tj.UnitError, match="where no unit is kept"):
        ref[...] = tj.Diagonal(NUMBERS) * M
    percent = tj.new_ref(jnp.ones(2) * tj.unit("percent"))
    percent[0] = 0.5
    assert_same(percent[...], jnp.asarray([50.0, 1.0]) * tj.unit("percent"))


def test_ref_of_degrees_converts_what_is_written():
    ref = tj.new_ref(tj.quantity([20.0, 30.0], "degC"))
    ref[0] = 300.0 * tj.units.K
    np.testing.assert_allclose(ref[0].stored, 26.85)
    with pytest.raises(tj.UnitError):
        ref[0] = 0  # of which scale?


def test_powers_of_two():
    """A quantity beyond the range of its dtype keeps its exponent, and does not become infinite."""
    huge = (jnp.ones(2, jnp.float32) * 1e30 * M) * (jnp.ones(2, jnp.float32) * 1e30)
    assert huge.scale
    ref = tj.new_ref(huge)
    ref[0] = 3.0 * huge[1]
    np.testing.assert_allclose((ref[0] / huge[1]).value, 3.0, rtol=1e-6)
    far = (jnp.float32(1e27) * KM) * jnp.float32(2e30)
    ref[1] = far  # of another unit, and another power of two
    np.testing.assert_allclose((ref[1] / huge[0]).value, 2.0, rtol=1e-6)
    diagonal = tj.new_ref(tj.Unitful(tj.Diagonal(huge.stored), M, huge.scale))
    diagonal.diag[0] = 3.0 * huge[1]
    np.testing.assert_allclose(diagonal[...].stored.diag, huge.stored * jnp.float32([3.0, 1.0]))
    for kept in (ref[...], tj.freeze(ref)):
        assert kept.scale == huge.scale
    small = tj.new_ref(jnp.ones(2, jnp.float32) * M)
    with pytest.raises(tj.ScaleError, match="does not fit in float32"):
        small[...] = huge
    assert_same(small[...], jnp.ones(2, jnp.float32) * M)


def test_fields_of_quantities():
    ref = tj.new_ref(tj.Unitful(tj.Tridiagonal(NUMBERS[:2], NUMBERS, NUMBERS[:2]), M))
    ref.diag[0] = 2.0 * KM
    ref.lower[...] = 0
    ref.stored.upper[1] = 9.0  # numbers
    want = tj.Tridiagonal([0.0, 0.0], [2000.0, 2.0, 3.0], [1.0, 9.0])
    assert_same(ref[...], tj.Unitful(want, M))
    assert ref.diag.unit is M
    with pytest.raises(tj.UnitError):
        ref.diag[0] = 1.0
    product = tj.new_ref(tj.Unitful(tj.Kronecker(FULL, FULL), M))
    with pytest.raises(AttributeError, match=r"`ref\.stored\.factors` counts in numbers"):
        product.factors  # noqa: B018
    product.stored.factors[0][0, 0] = 5.0
    assert product[...].stored.factors[0][0, 0] == 5.0


# -- shapes and dtypes -----------------------------------------------------------------------------


def test_broadcast_and_cast():
    """What JAX's Refs refuse: numbers, rows, other widths. The dtype of the Ref stays."""
    ref = tj.new_ref(tj.Diagonal(jnp.ones(3, jnp.bfloat16))).diag
    ref[...] = 2.0
    ref[np.array([0, 1])] = 7
    ref[2:] = jnp.asarray(0.5, jnp.float32)
    assert ref[...].tolist() == [7.0, 7.0, 0.5]
    ref[...] = NUMBERS
    assert ref[...].dtype == jnp.bfloat16
    ref[np.array([True, False, True])] = 4.0
    ref[::-1] = ref[...] + jnp.arange(3, dtype=jnp.bfloat16)
    assert ref[...].tolist() == [6.0, 3.0, 4.0]
    assert ref[None, -1].tolist() == [4.0]
    for index in (..., slice(None), 0):
        with pytest.raises(tj.ShapeError, match="does not have the shape"):
            ref[index] = jnp.ones(4)
    with pytest.raises(tj.MutationError, match="the kind of the numbers"):
        ref[0] = 1j
    with pytest.raises(tj.MutationError, match="the kind of the numbers"):
        tj.new_ref(tj.Diagonal(jnp.arange(3))).diag[0] = 0.5
    plain = jax.jit(lambda x, k: (r := tj.new_ref(x * M), r.__setitem__(k, 1.0 * KM), r[...])[2])
    assert_same(plain(jnp.zeros(3), 1), jnp.asarray([0.0, 1000.0, 0.0]) * M)
    masked = plain(jnp.zeros(3), jnp.asarray([True, False, True]))
    assert_same(masked, jnp.asarray([1000.0, 0.0, 1000.0]) * M)


def test_batches_broadcast_and_single_arrays_do_not():
    one, two = tj.Diagonal(NUMBERS), tj.Diagonal(jnp.stack([NUMBERS, -NUMBERS]))
    ref = tj.new_ref(two)
    assert ref.batch_shape == (2,)
    ref[...] = one
    assert_same(ref[...], tj.Diagonal(jnp.stack([NUMBERS, NUMBERS])))
    ref.diag[1] = -NUMBERS
    assert_same(ref[...], two)
    with pytest.raises(tj.ShapeError):
        ref[...] = tj.Diagonal(jnp.ones(1))
    with pytest.raises(tj.ShapeError):
        tj.new_ref(one)[...] = two
    with pytest.raises(tj.ShapeError):
        tj.new_ref(one)[...] = tj.Diagonal(jnp.ones(2))


BATCHES = {
    "Symmetric": jax.vmap(tj.Symmetric),
    "Diagonal": lambda x: tj.Diagonal(x[..., 0]),
    "Kronecker": lambda x: tj.Kronecker(x, 2 * x),
    "LowRankUpdate": lambda x: tj.LowRankUpdate(tj.Diagonal(x[..., 0]), x, x[..., 1]),
}
PLACES = {
    "integer": 1,
    "negative": (-1, ...),
    "whole axes": (2, slice(None), slice(None)),
    "slice": slice(0, 3, 2),
    "places": np.array([2, 0]),
    "mask": np.array([True, False, True]),
    "traced": jnp.asarray(1),
    "traced, out of range": jnp.asarray(7),
    "traced mask": jnp.array([False, True, True]),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_arrays_of_a_batch_are_written_one_by_one(kind):
    """At every index of its leading axes, as `x.at[index].set` writes the dense array."""
    make = BATCHES[kind]
    x = jax.random.normal(jax.random.key(3), (3, 2, 2))
    old, new = make(x), make(x + 1.0)
    one = jax.tree.map(lambda leaf: leaf[0], new)
    moving = {k: v for k, v in PLACES.items() if isinstance(v, jax.Array)}

    @jax.jit
    def run(moving):
        found = {}
        for name, index in (PLACES | moving).items():
            ref = tj.new_ref(old * tj.units.m)
            ref[index] = one * tj.units.km
            found[name] = ref[...].stored
        ref = tj.new_ref(old)
        ref[1:] = jax.tree.map(lambda leaf: leaf[:2], new)
        ref[0] = ref[2]
        return found, ref[...]

    found, batch = run(moving)
    for name, index in PLACES.items():
        index = tuple(i for i in (index if type(index) is tuple else (index,)) if i is not ...)
        dense = old.to_dense().at[index[:1]].set(1000.0 * one.to_dense())
        np.testing.assert_allclose(found[name].to_dense(), dense, rtol=1e-12, err_msg=name)
    want = jax.tree.map(lambda b: jnp.stack([b[1], b[0], b[1]]), new)
    jax.tree.map(np.testing.assert_array_equal, batch, want)


def test_arrays_of_a_batch_that_are_refused():
    """A type, a size, a unit or a place that does not fit; and nothing is written."""
    ref = tj.new_ref(tj.Symmetric(jnp.stack([jnp.eye(2)] * 3)))
    for index, value, error in (
        (0, jnp.eye(2), tj.MutationError),
        (0, tj.Symmetric(jnp.eye(3)), tj.ShapeError),
        (slice(0, 2), ref[...], tj.ShapeError),
        (0, tj.Symmetric(jnp.eye(2)) * tj.units.m, tj.UnitError),
        (3, tj.Symmetric(jnp.eye(2)), IndexError),
    ):
        with pytest.raises(error):
            ref[index] = value
    with pytest.raises(tj.MutationError, match=r"an array of the batch, `ref\[k\] = a`"):
        ref.data[0] = jnp.eye(2)
    np.testing.assert_array_equal(ref[...].data, jnp.stack([jnp.eye(2)] * 3))


def test_a_field_of_another_size_is_refused_and_not_broadcast():
    """One column in the place of two would be twice the matrix."""
    u = jnp.ones((3, 1))
    two = tj.LowRank(jnp.ones((3, 2)), jnp.ones((3, 2)))
    for held, value in (
        (two, tj.LowRank(u, u)),
        (tj.LowRank(u, u), tj.LowRank(u, u) + tj.LowRank(u, u)),
        (jax.tree.map(lambda x: jnp.stack([x, x]), two), tj.LowRank(u, u)),
        (tj.Kronecker(jnp.eye(2), jnp.eye(3)), tj.Kronecker(jnp.eye(3), jnp.eye(2))),
    ):
        with pytest.raises(tj.ShapeError, match="fields of the value have other shapes"):
            tj.new_ref(held)[...] = value
    update = tj.LowRankUpdate(tj.Diagonal(jnp.ones(3)), u)
    with pytest.raises(tj.MutationError, match="make the Ref of an array with the `d` of the val"):
        tj.new_ref(update)[...] = 2 * update


def test_nothing_is_written_where_anything_is_refused():
    x = tj.Tridiagonal(NUMBERS[:2], NUMBERS, NUMBERS[:2])
    ref = tj.new_ref(x)
    with pytest.raises(tj.MutationError):
        ref[...] = x.replace(lower=2 * x.lower, upper=x.upper.astype(complex))
    assert_same(ref[...], x)


# -- invariants ------------------------------------------------------------------------------------


def test_a_promise_is_part_of_the_type():
    definite, plain = (tj.Symmetric(FULL @ FULL.T, definite=d) for d in (True, False))
    ref = tj.new_ref(definite)
    with pytest.raises(tj.MutationError, match="repeat the promise if it holds"):
        ref[...] -= plain
    with pytest.raises(tj.MutationError):
        ref[...] = 0
    ref[...] = definite
    assert_same(tj.freeze(ref), definite)
    forgets = tj.new_ref(plain)
    forgets[...] = definite
    assert_same(forgets[...], plain)


@pytest.mark.parametrize("unit", [1, M], ids=["plain", "metres"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("kind", [tj.Symmetric, tj.Hermitian], ids=["symmetric", "hermitian"])
def test_mirrored_entries_are_written_on_both_sides(kind, batch, unit):
    """Entries, rows and columns, by numbers and traced: what NumPy would do."""
    rng = np.random.default_rng(3)
    normal = lambda *n: rng.normal(size=(*batch, *n))
    draw = lambda *n: jnp.asarray(normal(*n) + 1j * normal(*n))
    mirror = lambda x: np.conj(x) if kind is tj.Hermitian else x
    x, v, row, block = kind(draw(3, 3)), draw(), draw(3), draw(1, 2)
    all_ = slice(None)
    writes = [
        ((0, 1), v), ((-1, 0), v), ((1, 1), v), ((0, all_), row), ((all_, 2), row),
        ((slice(0, 1), slice(1, None)), block), ((2, slice(1)), row[..., :1]), ((1,), row),
    ]  # fmt: skip

    @jax.jit
    def by_ref(x, k):
        out = []
        for index, value in [*writes, ((k, 1), v), ((k, all_), row)]:
            ref = tj.new_ref(x * unit)
            batches = (...,) if len(index) == 2 else (all_,) * len(batch)
            ref[(*batches, *index)] = value * unit
            out.append(tj.freeze(ref))
        return out

    for got, (index, value) in zip(
        by_ref(x, 2), [*writes, ((2, 1), v), ((2, all_), row)], strict=True
    ):
        want = np.array(x.data)
        i, j = index if len(index) == 2 else (*index, all_)
        want[..., i, j] = value
        both = type(i) is type(j) is slice
        want[..., j, i] = mirror(np.swapaxes(value, -1, -2) if both else value)
        if kind is tj.Hermitian:
            want[..., np.arange(3), np.arange(3)] = want[..., np.arange(3), np.arange(3)].real
        assert_same(got, kind(want) * unit)
        data = np.asarray(jax.tree.leaves(got)[0])
        np.testing.assert_array_equal(data, mirror(np.swapaxes(data, -1, -2)))


def test_mirrored_entries_that_are_refused():
    ref = tj.new_ref(tj.Symmetric(FULL))
    for index in ((slice(2), slice(2)), (slice(None), slice(1, None))):
        with pytest.raises(tj.MutationError, match="contains mirror images"):
            ref[index] = 1.0
    for index in ((np.array([0, 1]), 2), (FULL > 3.0,), (None, 0, 0), (0, 0, 0)):
        with pytest.raises(tj.MutationError, match="integers and slices"):
            ref[index] = 1.0
    with pytest.raises(tj.ShapeError):
        ref[0, 1] = NUMBERS
    with pytest.raises(tj.MutationError, match=r"write entries, `ref\[i, j\] = v`"):
        ref.data[0, 1] = 1.0
    assert ref.data[0, 1] == 2.0  # reading a field is harmless
    assert_same(ref[...], tj.Symmetric(FULL))


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("unit_diagonal", [False, True], ids=["general", "unit"])
def test_triangular_entries(lower, unit_diagonal):
    """Every entry and every block: written where the triangle has it, refused elsewhere."""
    x = tj.Triangular(FULL, lower, unit_diagonal)
    has = np.asarray(tj.Triangular(jnp.ones((3, 3)), lower, unit_diagonal).data) == 1
    spans = [0, 1, -1, slice(0, 1), slice(1, 3), slice(None)]
    for index in [(i, j) for i in spans for j in spans]:
        ref = tj.new_ref(x)
        if has[index].all():
            ref[index] = -1.0
            want = np.array(x.data)
            want[index] = -1.0
            assert_same(ref[...], x.replace(data=jnp.asarray(want)))
        elif index != (slice(None), slice(None)):
            with pytest.raises(tj.MutationError, match="outside of the triangle"):
                ref[index] = -1.0
            assert_same(ref[...], x)

    @jax.jit
    def traced(i, j):
        ref = tj.new_ref(x)
        ref[i, j] = -1.0
        ref[i, :] = ref[i, :] * 2.0
        return tj.freeze(ref)

    for i, j in ((0, 2), (2, 0), (1, 1), (-1, 0)):
        want = np.array(x.data)
        want[i, j] = -1.0 if has[i, j] else want[i, j]
        dense = np.array(want) + (np.eye(3) if unit_diagonal else 0)
        want[i] = np.where(has[i], 2 * dense[i], want[i])
        assert_same(traced(i, j).data, jnp.asarray(want))
    ref = tj.new_ref(x)
    with pytest.raises(tj.MutationError, match="cannot be written by itself"):
        ref.data[0, 0] = 1.0
    with pytest.raises(tj.MutationError, match=r"write a Triangular: `tj\.restructure"):
        ref[...] = FULL  # some of it is outside
    assert_same(ref[...], x)


def test_other_kept_storage():
    """A band has corners that no entry of the matrix reads; a permutation looks at its indices."""
    band = tj.new_ref(tj.Banded(jnp.ones((3, 3)), 1, 1))
    with pytest.raises(tj.MutationError, match=r"whole array, `ref\[\.\.\.\] = a`"):
        band.bands[0, 0] = 1.0
    permutation = tj.new_ref(tj.Permutation([2, 0, 1]))
    with pytest.raises(tj.MutationError, match="checks these indices"):
        permutation.indices[0] = 0
    permutation[...] = tj.Permutation([0, 2, 1])
    assert permutation[...].indices.tolist() == [0, 2, 1]
    nested = tj.new_ref(tj.Kronecker(tj.Symmetric(FULL), FULL))
    with pytest.raises(tj.MutationError):
        nested.factors[0].data[0, 1] = 1.0
    nested.factors[0][0, 1] = 5.0
    assert_same(nested[...].factors[0], tj.Symmetric(FULL.at[0, 1].set(5.0)))


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
def test_an_integer_out_of_range(dtype):
    """Traced, it writes nothing, as `x.at[i].set`; known, it is refused."""
    metres = lambda x: x * M
    targets = {
        "quantity": (
            metres(NUMBERS),
            lambda i: i,
            9.0 * M,
            lambda x, i: metres(x.stored.at[i].set(9.0)),
        ),
        "tail": (
            metres(FULL),
            lambda i: (..., i),
            9.0 * M,
            lambda x, i: metres(x.stored.at[:, i].set(9.0)),
        ),
        "symmetric": (
            tj.Symmetric(FULL),
            lambda i: (i, 1),
            9.0,
            lambda x, i: x.replace(data=x.data.at[i, 1].set(9.0).at[1, i].set(9.0)),
        ),
        "row": (
            tj.Symmetric(FULL),
            lambda i: i,
            9.0,
            lambda x, i: x.replace(data=x.data.at[i].set(9.0).at[:, i].set(9.0)),
        ),
        "triangular": (
            tj.Triangular(FULL),
            lambda i: (i, 0),
            9.0,
            lambda x, i: x.replace(data=x.data.at[i, 0].set(9.0)),
        ),
        "batch": (
            tj.Triangular(jnp.stack([FULL] * 3)),
            lambda i: (i, 2, 0),
            9.0,
            lambda x, i: x.replace(data=x.data.at[i, 2, 0].set(9.0)),
        ),
        "field": (
            tj.Diagonal(NUMBERS),
            lambda i: i,
            9.0,
            lambda x, i: x.replace(diag=x.diag.at[i].set(9.0)),
        ),
    }

    @jax.jit
    def traced(i):
        both = []
        for name, (x, index, value, on_array) in targets.items():
            ref = tj.new_ref(x)
            (ref.diag if name == "field" else ref)[index(i)] = value
            both.append((ref[...], on_array(x, i)))
        return both

    for i in (2, 3, 100, *((-1, -3, -4, -100) if dtype != "uint8" else (255,))):
        for got, want in traced(jnp.asarray(i, dtype)):
            assert_same(got, want)
    for i in (3, np.int64(-4), jnp.asarray(7)):
        for name, (x, index, value, _) in targets.items():
            ref = tj.new_ref(x)
            with pytest.raises(IndexError, match=f"{i} is out of range in axis"):
                (ref.diag if name == "field" else ref)[index(i)] = value
            assert_same(ref[...], x)


def test_reading_entries():
    symmetric = tj.new_ref(tj.Symmetric(FULL) * M)
    assert_same(symmetric[0, 1], jnp.asarray(2.0) * M)
    lengths = tj.new_ref(FULL * M)
    for index in ((0, 1), (slice(None), -1), (np.array([0, 2]),), (None, 1), (FULL > 3.0,)):
        assert_same(lengths[index], FULL[index] * M)


def test_repr_under_a_trace_shows_shapes():
    seen = []
    jax.make_jaxpr(lambda x: seen.append(repr(tj.new_ref(tj.Diagonal(x)))))(NUMBERS)
    assert seen == ["StructuredRef(Diagonal(diag=float64[3]))"]


# -- derivatives -----------------------------------------------------------------------------------


def test_a_structured_state_has_a_gradient_of_its_type_and_unit():
    @tj.inplace(mutates=("stiffness", "length"))
    def stretch(stiffness, length, x):
        stiffness[0, 1] = stiffness[0, 1] * x[0]
        length[0] = (2.0 * length[1]).to(KM)
        length[...] *= x[1]
        return jnp.sum(stiffness[...] @ x)

    def energy(stiffness, length):
        (stiffness, length), out = stretch.transition(stiffness, length, x)
        assert type(stiffness) is tj.Symmetric
        assert length.unit is M
        return (jnp.sum(length.stored**2) + out) * tj.units.J

    x = jnp.asarray([0.7, -1.3])
    state = tj.Symmetric(FULL[:2, :2]), jnp.asarray([3.0, 4.0]) * M
    stiffness_bar, length_bar = tj.grad(energy, (0, 1))(*state)
    assert type(stiffness_bar.value) is tj.Symmetric
    assert (stiffness_bar.unit, length_bar.unit) == (tj.units.J, tj.units.J / M)
    mixed = x[0] * (x[0] + x[1]) / 2
    want = [[x[0], mixed], [mixed, x[1]]]
    np.testing.assert_allclose(stiffness_bar.value.to_dense(), want, rtol=1e-12)
    np.testing.assert_allclose(length_bar.value, [0.0, 8 * 1.69 * 4 + 2 * 1.69 * 4])
