"""Rules on several devices: `shard_map`, sharded arguments, donated buffers."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tanjax as tj
from comparisons import assert_close, densely, scalar
from transformed import N, assert_agree, every_case, load


def mesh():
    return jax.make_mesh((N,), ("i",), axis_types=(AxisType.Auto,))


def four(tree):
    return jax.tree.map(lambda v: jnp.stack([v, 1.1 * v, 0.9 * v, 1.05 * v]), tree)


SPECS = {
    "replicated": (P(), P("i")),
    "sharded": (P("i"), P("i")),
    "vector replicated": (P("i"), P()),
}


@pytest.mark.parametrize("specs", SPECS.values(), ids=SPECS)
@every_case
def test_shard_map(case, specs):
    """The gradient outside and inside of the map; replicated operands get the sum over devices."""
    axes = tuple(None if s == P() else 0 for s in specs)

    def transform(f):
        many = jax.vmap(f, axes)
        on_devices = jax.shard_map(many, mesh=mesh(), in_specs=specs, out_specs=P("i"))
        inside = jax.shard_map(
            jax.grad(lambda a, x: jnp.sum(jnp.sin(many(a, x))), (0, 1)),
            mesh=mesh(),
            in_specs=specs,
            out_specs=specs,
        )

        def run(a, x):
            a, x = (v if axis is None else four(v) for v, axis in zip((a, x), axes, strict=True))
            both = jax.value_and_grad(lambda a, x: jnp.sum(jnp.sin(on_devices(a, x))), (0, 1))
            tangents = jax.tree.map(jnp.sin, (a, x))
            return inside(a, x), jax.jvp(both, (a, x), tangents)

        return run

    assert_agree(case, transform)


@every_case
def test_sharded_arguments(case):
    function, reference, args = load(case)
    place = lambda v: jax.device_put(v, NamedSharding(mesh(), P("i") if v.ndim else P()))
    with tj.densify("allow"):
        got = jax.jit(jax.value_and_grad(scalar(function), (0, 1)))(*jax.tree.map(place, args))
    want = jax.value_and_grad(scalar(densely(reference)), (0, 1))(*args)
    assert_close(jax.device_get(got), jax.device_get(want))


@every_case
def test_donation(case):
    function, reference, (a, x) = load(case)

    def updated(f):
        def step(a, x):
            return jax.tree.map(lambda p, g: p - 0.1 * g, a, jax.grad(scalar(f))(a, x))

        return step

    want = jax.jit(updated(densely(reference)))(a, x)
    spare = jax.tree.map(jnp.copy, a)
    with tj.densify("allow"):
        got = jax.jit(updated(function), donate_argnums=0)(spare, x)
    assert_close(got, want)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(spare))
