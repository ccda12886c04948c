"""What every array type is: a pytree, printable, picklable, comparable, registered once."""

import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0, assert_close, assert_same_derivatives, wave

M = np.asarray([[1.0, 2.0], [3.0, 4.0]])


def arrays():
    return [
        tj.Diagonal(M[0]),
        tj.Symmetric(M),
        tj.Hermitian(M + 1j),
        tj.Triangular(M, lower=False, unit_diagonal=True),
        tj.Scaled(tj.Diagonal(M[0]), 2.0),
        tj.Fill(1.5, (2, 3)),
        tj.Identity(2),
        tj.Zero((2, 2)),
        tj.Outer(M[0], M[1]),
        tj.Masked(jnp.asarray(M), "lower"),
        tj.Sum(jnp.asarray(M), tj.Identity(2)),
        tj.LowRank(M, M),
        tj.LowRankUpdate(tj.Identity(2), M[:, :1]),
        tj.Kronecker(M, tj.Identity(2)),
        tj.BlockDiagonal(M, tj.Identity(1)),
    ]


every = pytest.mark.parametrize("x", arrays(), ids=lambda x: type(x).__name__)


@every
def test_repr_of_concrete_arrays_and_of_tracers(x):
    assert repr(x).startswith(f"{type(x).__name__}(")
    shown = []
    jax.jit(lambda x: shown.append(repr(x)))(x)
    assert shown[0].startswith(f"{type(x).__name__}(")
    if jax.tree.leaves(x):
        assert "Tracer" not in shown[0]
        assert "float64[" in shown[0] or "complex128[" in shown[0]


def test_repr_shows_small_numbers_but_not_rounding_errors():
    assert repr(tj.Diagonal([6.5e-11, 2e-11])) == "Diagonal(diag=[6.5e-11, 2.0e-11])"
    assert repr(tj.Unitful(np.asarray(2e-5), "m")) == 'Unitful(2.e-05, "m")'
    assert repr(tj.Diagonal([1.0, 1e-17])) == "Diagonal(diag=[1., 0.])"


def test_repr_is_readable():
    assert repr(tj.Diagonal([1.0, 2.0])) == "Diagonal(diag=[1., 2.])"
    assert repr(tj.Diagonal(np.ones(100))) == "Diagonal(diag=float64[100])"
    assert repr(tj.Identity(3)) == "Identity(3, float64)"
    text = repr(tj.Kronecker(M, tj.Triangular(M, False)))
    assert "lower=False" in text


@every
def test_numpy_array_pickle_and_deepcopy(x):
    np.testing.assert_array_equal(np.asarray(x), x.to_dense())
    for copied in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert type(copied) is type(x)
        assert_close(copied, x)


@every
def test_equality_is_elementwise_and_never_one_truth(x):
    assert (x == x).shape == x.shape
    assert bool(jnp.all(x == x.to_dense()))
    assert not bool(jnp.any(x != x))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x == x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    assert not hasattr(x, "__jax_array__")


@every
def test_unflatten_takes_placeholders(x):
    """JAX passes objects and `None` through trees; no constructor may look at them."""
    leaves, tree = jax.tree.flatten(x)
    for placeholder in (object(), None, 1.5, "x"):
        held = jax.tree.unflatten(tree, [placeholder] * len(leaves))
        assert type(held) is type(x)
    assert jax.tree.structure(jax.tree.map(lambda _: 0, x)) == tree
    assert_close(jax.tree.unflatten(tree, leaves), x)


@every
def test_instances_are_frozen(x):
    name = dataclasses.fields(x)[0].name
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(x, name, 1.0)
    with pytest.raises(TypeError, match="has no field"):
        x.replace(nonsense=1.0)


def test_paths_name_the_fields():
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(tj.LowRank(M, M))]
    assert paths == [".u", ".v"]


# -- registration ----------------------------------------------------------------------------------


@tj.register_array_type
class Vandermonde(tj.AbstractArray):
    """Only `to_dense`."""

    points: jax.Array
    degree: int = tj.static_field()

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)


@tj.register_array_type
class Twice(tj.AbstractArray):
    """Over-parametrised: only the sum of the fields counts."""

    a: jax.Array
    b: jax.Array

    def to_dense(self):
        return jnp.diag(self.a + self.b)


def jacobian(x):
    """J as a matrix, from the definition."""
    leaves, tree = jax.tree.flatten(x)
    columns = jax.jacfwd(lambda v: tree.unflatten(v).to_dense())(leaves)
    size = x.to_dense().size
    return np.concatenate([np.reshape(c, (size, -1)) for c in columns], axis=1)


@pytest.mark.parametrize(
    "x",
    [Vandermonde(jnp.asarray([0.5, 1.0, 2.0]), 4), Twice(jnp.ones(3), jnp.arange(3.0))],
    ids=["Vandermonde", "Twice"],
)
def test_a_type_with_only_to_dense_has_all_four_maps(x):
    """The defaults, against the Jacobian and its pseudo-inverse formed densely."""
    j = jacobian(x)
    inverse = np.linalg.pinv(j)
    flat = lambda t: np.concatenate([np.ravel(v) for v in jax.tree.leaves(t)])
    t, y = wave(x), wave(x.to_dense(), 1.0)
    visible = tj.pullback_of_destructure(x)(y)
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    close(tj.destructure(tj.pushforward_of_destructure(x)(t)).ravel(), j @ flat(t))
    close(flat(visible), j.T @ np.ravel(y))
    close(flat(tj.pushforward_of_restructure(x)(y)), inverse @ np.ravel(y))
    close(tj.destructure(tj.pullback_of_restructure(x)(t)).ravel(), inverse.T @ flat(t))
    close(tj.destructure(tj.project(x, y)).ravel(), j @ inverse @ np.ravel(y))
    assert bool(tj.is_visible(x, visible))
    assert bool(tj.is_visible(x, t)) == isinstance(x, Vandermonde)


def test_a_type_with_only_to_dense_takes_part_in_operations():
    x, v = Vandermonde(jnp.asarray([0.5, 1.0, 2.0]), 3), wave(jnp.zeros(3))
    with tj.densify("allow"):
        assert_same_derivatives(tj.matmul, jnp.matmul, x, v)
        assert_same_derivatives(tj.solve, jnp.linalg.solve, x, v)
    with pytest.warns(tj.DensifyWarning, match="Vandermonde"):
        tj.matmul(Vandermonde(jnp.ones(2), 2), jnp.ones(2))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Theirs:
    """A class that knows nothing of this library."""

    scale: jax.Array
    diag: jax.Array


def theirs_dense(x):
    return jnp.diag(x.scale * x.diag)


tj.register_array_type(Theirs, destructure=theirs_dense)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TheirDiagonal:
    values: jax.Array


tj.register_array_type(
    TheirDiagonal,
    destructure=lambda x: jnp.diag(x.values),
    pullback_of_destructure=lambda x, y: TheirDiagonal(jnp.diagonal(tj.destructure(y))),
    pullback_of_restructure=lambda x, t: t,
    linear=True,
    isometric=True,
    injective=True,
)


def test_a_foreign_class_takes_part():
    x = Theirs(jnp.asarray(2.0), jnp.asarray([1.0, 3.0]))
    assert tj.is_structured(x)
    assert_close(tj.destructure(x), jnp.diag(jnp.asarray([2.0, 6.0])))
    y = wave(jnp.zeros((2, 2)))
    assert_close(tj.structural(x, y), jax.vjp(theirs_dense, x)[1](y)[0])
    op = tj.operation(lambda a, b: tj.destructure(a) @ b)
    op.natural_rule(lambda a, b: (op.primal(a, b), lambda c: (c @ b.T, tj.destructure(a).T @ c)))
    assert_same_derivatives(op, jnp.matmul, x, y)
    gradient = tj.grad(lambda a: jnp.sum(jnp.sin(op(a, y))))(x)
    dense = jax.grad(lambda a: jnp.sum(jnp.sin(a @ y)))(tj.destructure(x))
    assert_close(tj.destructure(gradient), jnp.diag(jnp.diagonal(dense)))


def test_a_foreign_class_with_maps_of_its_own():
    x = TheirDiagonal(jnp.asarray([1.0, 3.0]))
    gradient = tj.grad(lambda a: jnp.sum(jnp.sin(tj.destructure(a))))(x)
    assert isinstance(gradient, TheirDiagonal)
    assert_close(gradient.values, jnp.cos(x.values))
    assert_close(tj.structural(x, tj.Outer(x.values, x.values)), TheirDiagonal(x.values**2))


def test_registrations_are_refused():
    class Plain:
        pass

    class Loose(tj.AbstractArray):
        pass

    with pytest.raises(
        tj.RegistrationError, match=r"(?s)Plain is not a pytree.*register_dataclass"
    ):
        tj.register_array_type(Plain, destructure=lambda x: x)
    with pytest.raises(tj.RegistrationError, match="Loose must define `to_dense`"):
        tj.register_array_type(Loose)
    with pytest.raises(tj.RegistrationError, match="Derived: array types are final"):

        class Derived(Vandermonde):
            def to_dense(self): ...

    for cls in (Vandermonde, Theirs, tj.Diagonal):
        with pytest.raises(tj.RegistrationError, match="already registered"):
            tj.register_array_type(cls)
    types = tj.rules.registered_array_types()
    assert tj.Diagonal in types
    assert Theirs in types
    assert Plain not in types


def test_integer_fields():
    x = tj.BlockDiagonal(tj.Diagonal([1, 2]), tj.Diagonal([3, 4]))
    bar = tj.structural(x, jnp.ones((4, 4)))
    assert {leaf.dtype for leaf in jax.tree.leaves(bar)} == {FLOAT0}


def test_an_array_has_no_truth():
    """Except one of a single number, as in NumPy."""
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tj.Diagonal([1.0, 2.0]))
    assert tj.Fill(2.0, ())
    assert not tj.Fill(0.0, (1, 1))


@tj.register_array_type(linear=True, isometric=True, injective=True)
class Rotated(tj.AbstractArray):
    """A diagonal times the imaginary unit: the conjugate of the array is not that of the field."""

    d: jax.Array

    def to_dense(self):
        return 1j * jnp.diag(self.d)

    def pullback_of_destructure(self, natural):
        return self.replace(d=1j * tj.diagonal(natural))


COMPLEX = np.array([[1.0 + 2j, 0.5j], [0.3 - 1j, 2.0]])
CONJUGATED = [
    tj.Diagonal(COMPLEX[0]),
    tj.Hermitian(COMPLEX),
    tj.Symmetric(COMPLEX),
    tj.Triangular(COMPLEX),
    tj.Kronecker(COMPLEX, tj.Diagonal(COMPLEX[0])),
    tj.LowRank(COMPLEX, COMPLEX),
    tj.LowRankUpdate(tj.Diagonal(COMPLEX[0]), COMPLEX),
    tj.BlockDiagonal(COMPLEX, tj.Hermitian(COMPLEX)),
    tj.Scaled(tj.Diagonal(COMPLEX[1]), 2j),
    tj.Fill(1j, (2, 3)),
    tj.Outer(COMPLEX, COMPLEX),
    tj.Sum(COMPLEX, tj.Diagonal(COMPLEX[0])),
    tj.Masked(COMPLEX, "lower"),
    tj.Zero((2, 2), complex),
    tj.Identity(2, complex),
    tj.Identity(2),
    Rotated(jnp.asarray(COMPLEX[0])),
    tj.Diagonal([1.0, 2.0]),
]


@pytest.mark.parametrize("x", CONJUGATED, ids=lambda x: type(x).__name__)
def test_conjugate_adjoint_norm_and_precision(x):
    dense = np.asarray(x.to_dense())
    with tj.densify("allow"):
        for conjugate in (x.conj(), np.conj(x)):
            np.testing.assert_allclose(tj.destructure(conjugate), dense.conj())
        np.testing.assert_allclose(tj.destructure(x.H), dense.conj().T)
        np.testing.assert_allclose(tj.norm(x), np.linalg.norm(dense))
        for dtype in ("complex64", "float32", "int32"):
            if dtype == "complex64" or not np.iscomplexobj(dense):
                narrow = x.astype(dtype)
                assert narrow.dtype == dtype
                np.testing.assert_allclose(tj.destructure(narrow), dense.astype(dtype))
        assert type(x.conj()) is type(x) or type(x) is Rotated


def test_complex_fields_of_an_isometric_type_that_is_not_conjugated_by_fields():
    """J⁺ and J⁺ᵀ of it are conjugated as arrays."""
    x = Rotated(jnp.asarray(COMPLEX[0]))
    with tj.densify("allow"):
        assert tj.testing.check_array_type(x, skip=("copies",)).worst_error < 1e-9


def test_jax_is_told_where_a_dense_array_is_missing():
    x = tj.Diagonal([1.0, 2.0])
    for f in (lambda x: jnp.block([[x, x]]), jnp.asarray):
        with pytest.raises(tj.NoRuleError, match=r"pass `x\.to_dense"):
            jax.jit(f)(x)


def test_array_types_are_final_and_registered():
    with pytest.raises(tj.RegistrationError, match="final"):
        type("Narrower", (tj.Diagonal,), {})
    unregistered = type("Forgotten", (tj.AbstractArray,), {"to_dense": lambda self: jnp.ones(2)})
    for f in (lambda x: x @ jnp.ones(2), lambda x: 1.0):
        with pytest.raises(tj.RegistrationError, match="is not registered"):
            jax.jit(f)(unregistered())
