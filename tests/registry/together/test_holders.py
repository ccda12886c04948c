"""Objects that hold an array and say so to JAX (`__jax_array__`), as a parameter of flax does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp


@jax.tree_util.register_pytree_node_class
class Param:
    """As `flax.nnx.Param`: a pytree that JAX takes for its value."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


DIAGONAL, VECTOR = tj.Diagonal(jnp.array([1.0, 2.0])), jnp.array([3.0, 5.0])
LENGTHS = VECTOR * tj.unit("m")
CALLS = {
    "an operation": (tj.logdet, (DIAGONAL,)),
    "a flag": (lambda a: tj.norm(a, ord="nuc"), (DIAGONAL,)),
    "both arguments": (tj.solve, (DIAGONAL, VECTOR)),
    "an object of factors": (lambda a, b: tj.factorize(a).solve(b), (DIAGONAL, VECTOR)),
    "a quantity": (tnp.sum, (LENGTHS,)),
    "quantities": (tnp.add, (LENGTHS, 2.0 * LENGTHS)),
    "a list": (lambda *x: tnp.concatenate([*x]), (LENGTHS, LENGTHS)),
    "a name": (lambda a: tnp.sum(a=a), (LENGTHS,)),
    "a handler": (tnp.prod, (LENGTHS,)),
    "a function of matrices": (tnp.linalg.det, (DIAGONAL,)),
    "a constructor": (tj.Kronecker, (DIAGONAL, DIAGONAL)),
    "a unit": (lambda x: tj.quantity(x, "m"), (VECTOR,)),
    "a captured operation": (lambda a: tj.capture(tj.logdet)(a)(a), (DIAGONAL,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_value_itself_is_meant(name):
    call, values = CALLS[name]
    with tj.densify("error"):
        want, got = call(*values), call(*map(Param, values))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_derivatives_are_in_the_tree_of_the_objects():
    def loss(p, b):
        return b @ tj.solve(p, b) + tj.logdet(p)

    bare = jax.grad(loss)(DIAGONAL, VECTOR)
    for transform in (
        jax.grad(loss),
        jax.jit(jax.grad(loss)),
        tj.grad(loss),
        tj.jit(tj.grad(loss)),
    ):
        found = transform(Param(DIAGONAL), Param(VECTOR))
        assert type(found) is Param
        np.testing.assert_allclose(tj.linalg.diagonal(found.value), bare.diag, rtol=1e-6)


def test_a_structure_in_the_place_of_a_dense_field_is_made_dense_visibly():
    with pytest.warns(tj.DensifyWarning, match="Symmetric"):
        tj.Symmetric(Param(DIAGONAL))
