"""Several devices: what they send to each other, `shard_map`, donated buffers, solvers of lineax.

A structured array is a tree of its fields, and a field that is spread over devices by rows stays
so: through the product, the solution, the sums, and what a gradient step makes of it. What is sent
is read in the compiled programs.
"""

import functools
import re

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tanjax as tj
from comparisons import assert_close, densely, scalar, wave
from tanjax.arrays import is_inexact
from tanjax.testing import cases_of

pytestmark = pytest.mark.core

N, K = 256, 4  # rows, and columns of thin matrices
COLLECTIVE = re.compile(
    r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


def mesh(kind=AxisType.Auto):
    return jax.make_mesh((4,), ("i",), axis_types=(kind,))


def by_rows(tree, kind=AxisType.Auto):
    """Every leaf spread over the devices by its first axis; scalars on all."""
    place = lambda v: NamedSharding(mesh(kind), P("i") if jnp.ndim(v) else P())
    return jax.tree.map(lambda v: jax.device_put(v, place(v)), tree)


def collectives(compiled):
    """How many numbers a device sends in a program: of each kind of message in all."""
    found = {}
    for result, kind in COLLECTIVE.findall(compiled.as_text()):
        shapes = re.findall(r"\[([\d,]*)\]", result)
        sizes = [int(np.prod([int(d) for d in s.split(",") if d])) for s in shapes]
        found[kind] = found.get(kind, 0) + sum(sizes)
    return found


def rows(*columns):
    return wave(jnp.zeros((N, *columns))) + 2


def square():
    return wave(jnp.zeros((N, N))) + 20 * jnp.eye(N)


def products(a, x, b):
    """What every type has: products, sums, the trace, a norm."""
    along = jnp.sum(jnp.sin(a @ x)) + jnp.sum(jnp.sin(x @ a)) + jnp.sum(jnp.sin(a @ b))
    return (
        along
        + tj.trace(a) ** 2
        + tj.linalg.sum(a) ** 2
        + tj.norm(a)
        + tj.linalg.quadratic_form(a, x)
    )


def systems(a, x, b):
    """And what follows without the other rows, in these types: solutions, the determinant."""
    return jnp.sum(jnp.sin(tj.solve(a, x))) + jnp.sum(tj.solve(a, b) ** 2) + tj.logdet(a)


def both(a, x, b):
    return products(a, x, b) + systems(a, x, b)


# Of each type, the most numbers that a device may send; a matrix has 65 536, a block 4 096.
KEPT = {
    "Diagonal": (both, lambda: tj.Diagonal(rows()), {"all-reduce": 16}),
    "LowRank": (products, lambda: tj.LowRank(rows(K), rows(K)), {"all-reduce": 16 * K * K}),
    "LowRankUpdate": (
        both,
        lambda: tj.LowRankUpdate(tj.Diagonal(rows()), rows(K)),
        {"all-reduce": 16 * K * K},
    ),
    # columns of a block meet the part of a vector that belongs to it, of which each device has some
    "BlockDiagonal": (
        products,
        lambda: tj.BlockDiagonal(*(square()[:64, :64] for _ in range(4))),
        dict.fromkeys(("all-gather", "all-reduce", "all-to-all", "collective-permute"), 5 * N * K),
    ),
    # a row is a column as well: thin cotangents are gathered, the others exchanged once
    "Symmetric": (
        products,
        lambda: tj.Symmetric(square()),
        {"all-gather": 12 * N * K, "all-reduce": 2 * N, "all-to-all": N * N // 4},
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_gradient_step_keeps_the_rows_where_they_are(case):
    loss, make, allowed = KEPT[case]

    def step(*args):
        value, bars = jax.value_and_grad(loss, (0, 1, 2))(*args)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, args, bars)

    args = (make(), rows(), rows(K))
    spread = by_rows(args)
    compiled = jax.jit(step).lower(*spread).compile()
    found = collectives(compiled)
    assert all(size <= allowed.get(kind, 0) for kind, size in found.items()), found
    got = compiled(*spread)
    for new, old in zip(jax.tree.leaves(got[1]), jax.tree.leaves(spread), strict=True):
        assert new.sharding.is_equivalent_to(old.sharding, old.ndim)
    assert_close(jax.device_get(got), jax.device_get(jax.jit(step)(*args)), 1e-9)


def test_a_gathered_matrix_is_noticed():
    a, x = by_rows((tj.Symmetric(square()), rows()))
    found = collectives(jax.jit(tj.solve).lower(a, x).compile())
    assert found["all-gather"] >= N * N


def test_the_gradient_of_a_symmetric_product_gathers_vectors():
    """Also where nothing says how the gradient itself is to be spread."""
    gradient = jax.grad(lambda a, x: jnp.sum(jnp.sin(a @ x)))
    found = collectives(
        jax.jit(gradient).lower(*by_rows((tj.Symmetric(square()), rows()))).compile()
    )
    assert set(found) == {"all-gather"}
    assert found["all-gather"] <= 12 * N


@pytest.mark.parametrize("definite", [False, True])
def test_a_stack_of_blocks_sends_nothing(definite):
    """Equal blocks on the devices that hold them, mapped: factorised where they are."""
    data = square().reshape(8, 32, N)[:, :, :32] + 50 * jnp.eye(32)
    stack = tj.Symmetric(data[0]).replace(data=data + data.mT, definite=definite)

    def loss(a, b):
        one = lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b)) + a @ b) + tj.logdet(a) + tj.trace(a)
        return jax.vmap(one)(a, b)

    def step(a, b):
        value, pull = jax.vjp(loss, a, b)
        return value, pull(jnp.ones_like(value))

    args = stack, rows().reshape(8, 32)
    compiled = jax.jit(step).lower(*by_rows(args)).compile()
    assert collectives(compiled) == {}
    assert_close(jax.device_get(compiled(*by_rows(args))), jax.device_get(jax.jit(step)(*args)))


def test_sparse_products_keep_columns_where_they_are():
    """Of rows XLA sends every term, and its results are on all devices; they are right, too."""
    places = np.stack([np.arange(N), np.arange(N) * 7 % N], axis=1)
    a, b = tj.Sparse(rows(), np.concatenate([places[:-1], [[0, 5]]]), (N, N)), rows(8)

    def loss(a, b):
        return jnp.sum(jnp.sin(a @ b))

    dense = jax.grad(lambda a, b: loss(a.to_dense(), b), (0, 1))(a, b)
    for spec in (P("i"), P(None, "i")):
        spread = jax.device_put(b, NamedSharding(mesh(), spec))
        got = jax.jit(jax.grad(loss, (0, 1)))(a, spread)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, dense)
    product = jax.jit(tj.matmul)
    assert product(a, spread).sharding.spec == P(None, "i")
    assert collectives(product.lower(a, spread).compile()) == {}
    mapped = jax.shard_map(
        lambda a, b: jax.lax.psum(loss(a, b), "i"),
        mesh=mesh(),
        in_specs=(P(), P(None, "i")),
        out_specs=P(),
    )
    step = jax.jit(jax.grad(mapped, (0, 1)))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), step(a, spread), dense)
    assert collectives(step.lower(a, spread).compile()).get("all-gather", 0) == 0
    assert sum(collectives(step.lower(a, spread).compile()).values()) <= N + 1


def test_blocks_of_each_device_under_shard_map():
    """The matrix of all devices is block-diagonal; only its determinant is everybody's."""
    blocks = (square()[:, :64] + 20 * jnp.tile(jnp.eye(64), (4, 1)),)
    own = tj.BlockDiagonal(square()[:64, :64])

    def loss(a, x):
        return jax.lax.psum(tj.logdet(a) + jnp.sum(jnp.sin(tj.solve(a, x))), "i")

    spread = jax.shard_map(loss, mesh=mesh(), in_specs=P("i"), out_specs=P())
    args = own.replace(blocks=blocks), rows()
    compiled = jax.jit(jax.value_and_grad(spread, (0, 1))).lower(*by_rows(args)).compile()
    assert collectives(compiled) == {"all-reduce": 1}
    whole = lambda b, x: loss_of_blocks([b[i : i + 64] for i in range(0, N, 64)], x)
    value, (a_bar, x_bar) = compiled(*by_rows(args))
    want = jax.value_and_grad(whole, (0, 1))(blocks[0], args[1])
    assert_close(jax.device_get((value, (a_bar.blocks[0], x_bar))), jax.device_get(want))


def loss_of_blocks(blocks, x):
    a = jax.scipy.linalg.block_diag(*blocks)
    return jnp.linalg.slogdet(a)[1] + jnp.sum(jnp.sin(jnp.linalg.solve(a, x)))


def test_explicit_axes():
    """Diagonal matrices need no hint; where JAX asks for one, `auto_axes` takes care of it."""
    explicit = functools.partial(by_rows, kind=AxisType.Explicit)
    a, x, b = args = tj.Diagonal(rows()), rows(), rows(K)
    gradient = jax.grad(lambda a, x, b: jnp.sum(jnp.sin(tj.solve(a, x) + a @ x)), (0, 1))
    got = jax.jit(gradient)(*explicit(args))
    assert jax.typeof(got[0].diag).sharding.spec == P("i")
    assert_close(jax.device_get(got), jax.device_get(jax.jit(gradient)(*args)), 1e-9)

    thin = tj.LowRankUpdate(a, b)
    spread = explicit((thin, x, b))
    specs = jax.tree.map(lambda v: v.sharding.spec, spread[:2])
    with jax.set_mesh(mesh(AxisType.Explicit)):
        got = jax.jit(jax.sharding.auto_axes(gradient, out_sharding=specs))(*spread)
    assert_close(jax.device_get(got), jax.device_get(jax.jit(gradient)(thin, x, b)), 1e-9)


# -- shard_map -------------------------------------------------------------------------------------


def small_update():
    base = tj.Diagonal(jnp.arange(2.0, 6))
    return tj.LowRankUpdate(base, wave(jnp.zeros((4, 2)))), 1 + wave(jnp.zeros(4), 1.1)


@pytest.mark.parametrize(
    "specs", [(P(), P("i")), (P("i"), P("i")), (P("i"), P())], ids=["matrix", "none", "vector"]
)
def test_gradients_of_replicated_operands_are_summed(specs):
    """The gradient outside and inside of the map."""
    axes = tuple(None if s == P() else 0 for s in specs)
    loss = lambda f: lambda a, x: jnp.sum(jnp.sin(f(a, x)))
    four = lambda tree: jax.tree.map(lambda v: jnp.stack([v, 1.1 * v, 0.9 * v, 1.05 * v]), tree)

    def run(solve, a, x):
        a, x = (v if axis is None else four(v) for v, axis in zip((a, x), axes, strict=True))
        many = jax.vmap(solve, axes)
        spread = functools.partial(jax.shard_map, mesh=mesh(), in_specs=specs)
        inside = spread(jax.grad(loss(many), (0, 1)), out_specs=specs)
        outside = jax.value_and_grad(loss(spread(many, out_specs=P("i"))), (0, 1))
        return inside(a, x), jax.jvp(outside, (a, x), jax.tree.map(jnp.sin, (a, x)))

    solves = tj.solve, densely(jnp.linalg.solve)
    got, want = (jax.jit(functools.partial(run, f))(*small_update()) for f in solves)
    assert_close(got, want)


def test_donated_buffers_are_used():
    a, x = small_update()
    bar = lambda f, a: jax.grad(lambda a: jnp.sum(jnp.sin(f(a, x))))(a)
    step = lambda f: lambda a: jax.tree.map(lambda p, g: p - 0.1 * g, a, bar(f, a))
    want = jax.jit(step(densely(jnp.linalg.solve)))(a)
    assert_close(jax.jit(step(tj.solve), donate_argnums=0)(a), want)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(a))


def every_rule():
    """One case of each operation with each type as its first structured argument, by operation."""
    families = {}
    for case in cases_of("tanjax_rules"):
        first = next((type(a) for a in case.args if tj.rules.is_structured(a)), None)
        refused = case.operation is tj.rules.solve_by  # see the page on several devices
        if first is not None and not refused and is_smooth(case):
            families.setdefault(case.operation.name, {}).setdefault(first, case)
    return {name: list(cases.values()) for name, cases in families.items()}


def is_smooth(case):
    """Whether something moves: no rank, no empty array; and all operands are of one dtype."""
    leaves = jax.tree.leaves(case.args)
    kinds = {np.dtype(v.dtype).kind for v in leaves if np.dtype(v.dtype).kind in "fc"}
    return (
        all(map(np.size, leaves))
        and len(kinds) == 1
        and case.operation is not tj.linalg.matrix_rank
    )


FAMILIES = every_rule()


def loss_of(name, all_args, scale):
    """A number of all cases of an operation; the first operand is times a number of each device."""
    total = jnp.zeros(())
    for case, args in zip(FAMILIES[name], all_args, strict=True):
        first = jax.tree.map(lambda v: v * scale.astype(v.dtype) if is_inexact(v) else v, args[0])
        total = total + scalar(functools.partial(case.operation, **case.static))(first, *args[1:])
    return total


def gradient_on_devices(name, mapped=False):
    each = lambda args, s: jnp.sum(jax.vmap(lambda s: loss_of(name, args, s))(s))
    one = lambda args, s: loss_of(name, args, s[0])
    inside = lambda args, s: jax.lax.psum((each if mapped else one)(args, s), "i")
    spread = jax.shard_map(inside, mesh=mesh(), in_specs=(P(), P("i")), out_specs=P())
    return jax.jit(jax.value_and_grad(spread, allow_int=True))


SCALES = np.array([1.0, 1.01, 0.98, 1.03])


@pytest.mark.parametrize("mapped", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_rule_under_shard_map(name, mapped):
    """Operands that all devices share, and one that varies: what JAX types must agree.

    Mapped over two numbers of each device, too, where `vmap` computes both branches of a `cond`.
    """
    args = [case.args for case in FAMILIES[name]]
    scales = np.concatenate([SCALES, SCALES]) if mapped else SCALES
    with tj.densify("allow"):
        program = gradient_on_devices(name, mapped).lower(args, scales)
    assert "all_reduce" in program.as_text()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mapped"), [("solve", False), ("sqrtm", False), ("svd", True)])
def test_cotangents_are_summed_over_devices(name, mapped):
    args = [case.args for case in FAMILIES[name]]
    scales = np.concatenate([SCALES, SCALES[::-1]]) if mapped else SCALES
    plain = lambda args, s: jnp.sum(jax.lax.map(lambda s: loss_of(name, args, s), s))
    with tj.densify("allow"):
        got = gradient_on_devices(name, mapped)(args, scales)
        want = jax.jit(jax.value_and_grad(plain, allow_int=True))(args, jnp.asarray(scales))
    assert_close(jax.device_get(got), jax.device_get(want), 1e-9)


# -- solvers of lineax inside of `shard_map`: one system per device --------------------------------

CG, SPLIT = lineax.CG(rtol=1e-10, atol=1e-10), P("i")
RIGHT, ROOTS = wave(jnp.zeros((4, 3))), wave(jnp.zeros((4, 3, 3)), 1.3)


def definite(root):
    return tj.Symmetric(root @ root.T + jnp.eye(3), definite=True)


def solve_on_devices(solver, of_roots=SPLIT, check_vma=True, **how):
    """One system per device; or the same matrix for all."""

    def one(root, b):
        return tj.solve(definite(root.reshape(3, 3)), b[0], solver=solver, **how)[None]

    flags = {} if check_vma else {"check_vma": False}
    return jax.shard_map(one, mesh=mesh(), in_specs=(of_roots, SPLIT), out_specs=SPLIT, **flags)


def solve_each(root, b):
    return jnp.linalg.solve(definite(root).to_dense(), b)


@pytest.mark.parametrize(
    ("how", "shared"),  # without the check JAX does not sum over devices
    [({}, False), ({}, True), ({"throw": False}, True), ({"check_vma": False}, False)],
    ids=str,
)
def test_conjugate_gradients_on_every_device(shared, how):
    """Values and gradients; that of a matrix which all share is a sum over the devices."""
    with_gradients = lambda f: jax.jit(
        lambda *args: (f(*args), jax.grad(lambda *a: jnp.sum(jnp.sin(f(*a))), (0, 1))(*args))
    )
    root, of_roots, axis = (ROOTS[0], P(), None) if shared else (ROOTS, P("i"), 0)
    got = with_gradients(solve_on_devices(CG, of_roots, **how))(root, RIGHT)
    want = with_gradients(jax.vmap(solve_each, (axis, 0)))(root, RIGHT)
    assert_close(jax.device_get(got), jax.device_get(want), 1e-7)


def test_a_solver_that_does_not_converge_on_one_device_says_so():
    """The program fails; or the solution of this device alone is nan."""
    right = jnp.zeros((4, 3)).at[2].set(1.0)  # nothing to solve on the others
    few = lineax.CG(rtol=1e-10, atol=1e-10, max_steps=1)
    with pytest.raises(Exception, match="did not reach its tolerance"):
        jax.block_until_ready(jax.jit(solve_on_devices(few))(ROOTS, right))
    x = jax.jit(solve_on_devices(few, throw=False))(ROOTS, right)
    assert jnp.isnan(x).any(1).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    "solver",
    [lineax.BiCGStab(1e-10, 1e-10), lineax.LSMR(1e-10, 1e-10), lineax.Normal(CG)],
    ids=lambda s: type(s).__name__,
)
def test_other_solvers_without_the_check_of_axes(solver):
    """Their loops begin with numbers that are alike on all devices, which the check refuses."""
    got = jax.jit(solve_on_devices(solver, check_vma=False))(ROOTS, RIGHT)
    np.testing.assert_allclose(got, jax.vmap(solve_each)(ROOTS, RIGHT), rtol=1e-7, atol=1e-7)
