"""Solvers of lineax inside of `shard_map`: one system per device, and all hear of a failure."""

import functools

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import tanjax as tj

COUNT = 4
CG = lineax.CG(rtol=1e-10, atol=1e-10)
SPLIT = PartitionSpec("i")
RIGHT = jnp.asarray(np.random.default_rng(1).normal(size=(COUNT, 3)))
ROOTS = jnp.asarray(np.random.default_rng(2).normal(size=(COUNT, 3, 3)))


@pytest.fixture
def mesh():
    if jax.device_count() < COUNT:
        pytest.skip("needs several devices")
    return jax.make_mesh((COUNT,), ("i",), axis_types=(AxisType.Auto,))


def definite(root):
    return tj.Symmetric(root @ root.T + jnp.eye(3), definite=True)


def on_devices(mesh, solver, shared=False, **how):
    """One system per device; or the same matrix for all."""
    flags = {k: how.pop(k) for k in ("check_vma",) if k in how}
    of_roots = PartitionSpec() if shared else SPLIT

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(of_roots, SPLIT), out_specs=SPLIT, **flags
    )
    def one(root, b):
        return tj.solve(definite(root if shared else root[0]), b[0], solver=solver, **how)[None]

    return one


def with_gradients(f):
    loss = lambda root, b: jnp.sum(jnp.sin(f(root, b)))
    return jax.jit(lambda root, b: (f(root, b), jax.grad(loss, (0, 1))(root, b)))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("flags", [{}, {"check_vma": False}, {"throw": False}], ids=str)
def test_conjugate_gradients_on_every_device(mesh, shared, flags):
    """Values and gradients; that of a matrix which all share is a sum over the devices."""
    root = ROOTS[0] if shared else ROOTS
    each = lambda root, b: jnp.linalg.solve(definite(root).to_dense(), b)
    plain = jax.vmap(each, (None if shared else 0, 0))
    if flags == {"check_vma": False} and shared:
        flags = {}  # JAX does not sum over devices then
    got = with_gradients(on_devices(mesh, CG, shared, **flags))(root, RIGHT)
    want = with_gradients(plain)(root, RIGHT)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-7, atol=1e-7)


def test_who_did_not_arrive_says_so(mesh):
    """One device fails, and the program with it; or its solution alone is nan."""
    right = jnp.zeros((COUNT, 3)).at[2].set(1.0)  # nothing to solve on the others
    few = lineax.CG(rtol=1e-10, atol=1e-10, max_steps=1)
    with pytest.raises(Exception, match="did not reach its tolerance"):
        jax.block_until_ready(jax.jit(on_devices(mesh, few))(ROOTS, right))
    x = jax.jit(on_devices(mesh, few, throw=False))(ROOTS, right)
    assert jnp.isnan(x).any(1).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    "solver",
    [lineax.BiCGStab(1e-10, 1e-10), lineax.LSMR(1e-10, 1e-10), lineax.Normal(CG)],
    ids=lambda s: type(s).__name__,
)
def test_other_solvers_without_the_check_of_axes(mesh, solver):
    """Their loops begin with numbers that are alike on all devices, which the check refuses."""
    got = jax.jit(on_devices(mesh, solver, check_vma=False))(ROOTS, RIGHT)
    want = jax.vmap(lambda r, b: jnp.linalg.solve(definite(r).to_dense(), b))(ROOTS, RIGHT)
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)
