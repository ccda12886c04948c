"""The graph run on numbers: every rule against JAX in float64, wide ranges, loops, budgets."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

from primitive_calls import CALLS
from scale_facts import exponents_at
from tanjax.scale._plan import plan
from tanjax.scale.graph._build import build
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes import _evaluate
from tanjax.scale.magnitudes._evaluate import evaluate, measure, rounded, simulate, unsupported
from tanjax.scale.numbers._wide import as_float
from tanjax.scale.replay._replay import replay

pytestmark = pytest.mark.core

# -- every rule ------------------------------------------------------------------------------------

X = jnp.array([[0.3, -1.7, 2.5], [0.9, 3.25, -0.6]])
P = jnp.array([[0.3, 1.7, 2.5], [0.9, 3.25, 0.6]])  # positive
U = jnp.array([[0.3, -0.7, 0.5], [0.9, 0.25, -0.6]])  # within ±1
Z = lax.complex(X, U)
S = jnp.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]])  # symmetric, positive
I32 = jnp.array([[7, -3, 2**31 - 1], [-(2**31), 0, 12]], jnp.int32)
J32 = jnp.array([[3, 2, 5], [1, 0, -5]], jnp.int32)
U8 = jnp.array([[7, 250, 128], [1, 0, 90]], jnp.uint8)
B = X > 0
EDGE = jnp.array([0.0, -0.0, jnp.inf, -jnp.inf, jnp.nan, 0.5, -0.5, 1.5, 2.5, -2.5])
BACK = EDGE[::-1]
IMAGE = jnp.sin(jnp.arange(2 * 4 * 6 * 5.0)).reshape(2, 4, 6, 5)
A, T, BATCH = jnp.tril(S), jnp.triu(S), jnp.stack([S, S @ S])
RHS = jnp.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 0.1]])
AT, BEYOND = jnp.array([2, 0]), jnp.array([0, 7])
key, data = jax.random.key, jax.random.key_data
HOLES = {"base_dilation": (2, 1), "window_dilation": (1, 2)}


def conv(kernel, dims="NCHW OIHW NCHW", padding=((1, 0), (0, 2)), **more):
    a = jnp.cos(jnp.arange(np.prod(kernel) * 1.0)).reshape(kernel)
    numbers = tuple(dims.split())
    return [lax.conv_general_dilated(IMAGE, a, (1, 2), padding, dimension_numbers=numbers, **more)]


def window(combine, start, x=P, padding="SAME", **more):
    return lax.reduce_window(x, start, combine, (1, 2), (1, 1), padding, **more)


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), ((0, 1), (1, 0))).sum()


def lowest(x):
    return window(lax.min, jnp.inf, x, "VALID").sum()


def solve(a, b, **how):
    return lax.linalg.triangular_solve(a, b, **{"left_side": True, "lower": True} | how)


def bits(key, shape=(3,), dtype=None):
    return jax.random.bits(key, shape, dtype)


# What the calls of every primitive leave out; the cases of a family are functions of nothing.
MORE = {
    "floats": [
        lambda: [jnp.floor(EDGE), jnp.ceil(EDGE), jnp.round(EDGE), lax.round(EDGE), jnp.sign(EDGE)],
        lambda: [EDGE + BACK, EDGE * BACK, EDGE / BACK, jnp.maximum(EDGE, BACK), abs(EDGE)],
        lambda: [lax.nextafter(X, U), lax.nextafter(X.astype("f4"), jnp.float32(9))],
        lambda: [lax.pow(X, 3), lax.pow(X, jnp.array([[1, 2, 3], [0, -1, -2]])), lax.cbrt(X)],
        lambda: [lax.integer_pow(X, 0), lax.integer_pow(X, 1), jnp.logaddexp(X, U)],
        lambda: [lax.reduce_precision(X * 1e3, 5, 10), lax.reduce_precision(X * 1e-6, 4, 3)],
        lambda: [jnp.exp(EDGE), jnp.log(EDGE), jnp.tanh(EDGE), jnp.exp(EDGE * 200)],
        lambda: [jnp.expm1(EDGE * 200), lax.logistic(X * 400), special.erfc(X * 4)],
        lambda: [special.gammaln(P), special.digamma(P), special.polygamma(1, P)],
        lambda: [special.gammainc(P, P.T[0, 0]), special.gammaincc(P, 2.0), special.i0e(X)],
        lambda: [special.i1e(X), special.betainc(P, 0.7, 0.4), special.zeta(P + 1, P)],
    ],
    "comparison": [
        lambda: [lax.lt_to_p.bind(EDGE[:4], EDGE[3::-1]), lax.le_to_p.bind(EDGE[:4], EDGE[3::-1])],
        lambda: [lax.eq_to_p.bind(EDGE[:4], EDGE[1:5]), EDGE == EDGE, BACK > EDGE],
        lambda: [jnp.isfinite(EDGE), lax.select_n(jnp.array(True), X, U), jnp.where(B, 1, I32)],
        lambda: [lax.select_n(jnp.array([[0, 1, 2], [2, 1, 0]], "i4"), X, U, P)],
    ],
    "integers": [
        lambda: [I32 + J32, I32 * J32, I32 - J32, lax.div(I32, J32), lax.rem(I32, J32), -I32],
        lambda: [U8 + U8, U8 * U8, U8 - 9, abs(I32), jnp.sign(J32), lax.integer_pow(J32, 3)],
        lambda: [J32 ** abs(J32), I32 & J32, I32 | J32, I32 ^ J32, ~I32, ~B, B & ~B, B | B],
        lambda: [lax.shift_left(I32, J32), lax.shift_right_logical(I32, J32)],
        lambda: [lax.shift_right_arithmetic(I32, J32), lax.shift_left(I32, abs(J32) * 11)],
        lambda: [lax.shift_right_arithmetic(I32, abs(J32) * 11), lax.shift_right_logical(U8, U8)],
        lambda: [lax.population_count(I32), lax.clz(I32), lax.clz(U8), lax.population_count(U8)],
        lambda: [lax.mulhi(I32, J32), I32 < J32, jnp.maximum(I32, J32), B * B, I32 // 3, I32 % 5],
        lambda: [lax.lt_to_p.bind(I32, J32), lax.clamp(jnp.int32(-2), I32, jnp.int32(5))],
        lambda: [lax.reduce_xor(I32, (0,)), lax.reduce_and(I32, (1,)), lax.reduce_or(I32, (1,))],
        lambda: [jnp.any(B, 1), jnp.all(B), jnp.sum(I32), jnp.prod(J32, 1), jnp.cumsum(U8)],
        lambda: [jnp.sum(U8, dtype="u1"), jnp.cumsum(U8, dtype="u1"), I32 @ J32.T, U8 @ U8.T],
    ],
    "conversion": [
        lambda: [EDGE.astype("i4"), (X * 1e12).astype("i4"), (X * 1e30).astype("i8")],
        lambda: [B.astype("f8"), I32.astype("f8"), I32.astype("i1"), I32.astype("u4")],
        lambda: [lax.bitcast_convert_type(X, "i8"), lax.bitcast_convert_type(X.astype("f4"), "i4")],
        lambda: [lax.bitcast_convert_type(abs(J32) << 24, "f4"), (abs(X) * 200).astype("u1")],
        lambda: [lax.bitcast_convert_type(I32, "u1"), X.astype(jnp.bfloat16).astype("f8") * 0 + 1],
    ],
    "complex": [
        lambda: [Z + X, Z * Z, Z / (Z + 1), abs(Z), -Z, Z == Z, jnp.sign(Z), lax.conj(X)],
        lambda: [Z @ Z.T, jnp.sum(Z), jnp.prod(Z, 1), jnp.cumprod(Z, 0), lax.integer_pow(Z, 3)],
        lambda: [jnp.expm1(Z), jnp.log1p(Z), jnp.cos(Z), jnp.sin(Z), jnp.tanh(Z), Z**1.5],
        lambda: [jnp.sinh(Z), jnp.cosh(Z), jnp.tan(Z), lax.logistic(Z)],
    ],
    "shapes": [
        lambda: [lax.pad(X, 9.0, ((1, 2, 1), (-1, 0, 0))), X[::1, ::2], jnp.tile(X, (2, 1))],
        lambda: [lax.pad(X, 0.0, ((-1, -1, 0), (0, 3, 2))), jnp.broadcast_to(X, (2, 2, 3))],
        lambda: [lax.pad(I32, jnp.int32(1), ((0, 0, 0), (-1, -1, 2))), jnp.zeros((2,)), X[0, 0]],
        lambda: [lax.broadcasted_iota("i4", (2, 3), 1), jnp.arange(4.0), jnp.eye(3), X[None]],
        lambda: [*lax.split(X, (1, 2), 1), lax.expand_dims(X, (1,)), lax.reshape(X, (6,), (1, 0))],
        lambda: [lax.broadcast_in_dim(X[0], (2, 3, 2), (1,)), jnp.stack([X, U], 1), X.T],
        lambda: [jnp.unstack(X)[1], jnp.zeros_like(X), lax.full_like(X, 2), jnp.cumsum(X[:0], 1)],
        lambda: [lax.tile(X, (2, 1))] if hasattr(lax, "tile") else [],
    ],
    "order": [
        lambda: [jnp.sort(EDGE), jnp.argsort(EDGE), jnp.sort(X, 0), jnp.sort(I32, axis=1)],
        lambda: [*lax.sort((jnp.array([2.0, 1, 2, 1]), 3 - jnp.arange(4), EDGE[:4]), num_keys=2)],
        lambda: [*lax.top_k(jnp.array([1.0, 3, 3, jnp.nan]), 3), *lax.top_k(I32, 2), jnp.median(X)],
        lambda: [*lax.approx_max_k(X, 2), *lax.approx_min_k(X.T, 1)],
        lambda: [jnp.argmax(X, 1), jnp.argmin(X, 0), jnp.argmax(EDGE), jnp.unique(I32, size=3)],
    ],
    "reductions": [
        lambda: [jnp.sum(X, 1), jnp.prod(X, 0), jnp.max(X, 1), jnp.mean(X), jnp.sum(X[:0])],
        lambda: [jnp.cumsum(X, 1), jnp.cumprod(X, 0), lax.cummin(X, 1, reverse=True)],
        lambda: [lax.cumlogsumexp(X, 1), lax.cumsum(X, 1, reverse=True)],
        lambda: [lax.cumprod(X, 1, reverse=True), lax.cumlogsumexp(X, 0, reverse=True)],
        lambda: [lax.reduce(X, 1.0, lax.mul, (1,)), lax.reduce(X, 0.5, lax.max, (0,))],
        lambda: [lax.reduce(X, 0.5, jnp.hypot, (1,)), lax.reduce(X, 0.5, jnp.hypot, (1, 0))],
        lambda: [window(jnp.hypot, 0.5), jax.grad(lambda a: special.gammainc(a, P).sum())(P)],
        lambda: [lax.reduce_max(EDGE, (0,)), lax.reduce_min(EDGE[:4], (0,))],
    ],
    "contractions": [
        lambda: [jnp.einsum("bij,bkj->bik", BATCH, BATCH), jnp.einsum("ij,ij->i", X, U)],
        lambda: [jnp.einsum("bij,jk->kbi", BATCH, S), lax.dot(X, U.T, preferred_element_type="f8")],
        lambda: [jnp.tensordot(BATCH, BATCH, ((2, 0), (1, 0)))],
        lambda: conv((3, 4, 2, 3)),
        lambda: conv((4, 2, 2, 1), feature_group_count=2, rhs_dilation=(2, 1)),
        lambda: conv((2, 2, 5, 3), "NHWC HWIO CNHW", ((-1, 2), (1, 0)), lhs_dilation=(2, 1)),
        lambda: conv((6, 4, 2, 1), batch_group_count=2),
    ],
    "windows": [
        lambda: [window(lax.add, 2.0), window(lax.mul, 1.0), window(lax.add, 0, I32)],
        lambda: [window(lax.max, np.int32(-(2**31)), I32, window_dilation=(1, 2))],
        lambda: [window(lax.add, 0.0, padding=((1, 0), (2, -1)), **HOLES)],
        lambda: [jax.grad(pooled)(X), jax.jvp(pooled, (X,), (U,))[1], jax.grad(lowest)(X)],
        lambda: [*jax.jvp(jax.grad(pooled), (X,), (U,))],
    ],
    "indices": [
        lambda: [X[jnp.array([1, 0, 1]), 1:], X[..., AT], I32[AT - 1, jnp.array([2, 9])]],
        lambda: [X.at[jnp.array([0, 1, 1]), 1].add(2.0), X.at[BEYOND, 1].set(2.0)],
        lambda: [X.at[:, jnp.array([0, 2, 2])].mul(3.0), X.at[1].min(0.0), X.at[AT[:1]].max(1.0)],
        lambda: [X.at[BEYOND].get(mode="fill", fill_value=5.0), X.at[BEYOND].get(mode="clip")],
        lambda: [X.at[BEYOND].add(1.0, mode="clip"), X.at[0, 0].subtract(4.0)],
        lambda: [X.at[AT + 7].get(), jnp.take_along_axis(X, jnp.array([[0, 1], [1, 5]]), 1)],
        lambda: [*jax.vmap(lambda r, k: (r[k], r.at[k].add(1.0)))(X, AT)],
        lambda: [jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(X, AT)],
        lambda: [lax.dynamic_slice(X, (1, 2), (1, 2)), lax.dynamic_update_slice(X, U[:1], (1, 2))],
    ],
    "linear algebra": [
        lambda: [jnp.linalg.cholesky(BATCH), jnp.linalg.cholesky(-S), jnp.linalg.det(S)],
        lambda: [solve(A, RHS), solve(T, RHS, lower=False), solve(A, RHS, transpose_a=True)],
        lambda: [solve(A, RHS.T, left_side=False), solve(A, RHS, unit_diagonal=True)],
        lambda: [solve(A + 1j * A, RHS + 0j, conjugate_a=True, transpose_a=True)],
        lambda: [jnp.linalg.solve(S, RHS), jnp.linalg.inv(BATCH), jnp.linalg.slogdet(S)[1]],
        lambda: [*lax.linalg.lu(BATCH), *lax.linalg.lu(S), jnp.linalg.lstsq(RHS, RHS)[0]],
        lambda: [*jnp.linalg.qr(RHS), *jnp.linalg.qr(BATCH), jnp.linalg.qr(RHS, "complete")[1]],
        lambda: [abs(jnp.linalg.svd(RHS)[0]), abs(jnp.linalg.eigh(BATCH)[0]), jnp.linalg.pinv(RHS)],
        lambda: [lax.linalg.tridiagonal_solve(P[0], P[0] * 4, P[1], RHS)],
        lambda: [lax.linalg.symmetric_product(RHS, S, alpha=2.0, beta=0.5, symmetrize_output=True)],
        lambda: [jnp.linalg.svd(RHS, compute_uv=False), jnp.linalg.matrix_power(S, 5)],
        lambda: [lax.linalg.householder_product(RHS * 0.1, jnp.array([0.7, 1.2]))],
        lambda: [lax.linalg.lu_pivots_to_permutation(jnp.array([2, 1, 2], "i4"), 4)],
        lambda: [jnp.sort(jnp.linalg.eigvals(T)), jnp.fft.irfft(Z, 5), jnp.fft.rfft2(X)],
        lambda: [jnp.fft.fft(X, 4), jnp.fft.fft2(X)],
        lambda: [*lax.linalg.schur(A + T), *lax.linalg.hessenberg(A + T)],
        lambda: [*lax.linalg.tridiagonal(S, lower=True)],
    ],
    "random": [
        lambda: [bits(key(7), (3, 2)), jax.random.uniform(key(2**40 + 7), (3,))],
        lambda: [bits(key(3), dtype="u8"), bits(key(3), dtype="u1")],
        lambda: [*map(data, (*jax.random.split(key(3), 3), jax.random.fold_in(key(3), 9)))],
        lambda: [data(jax.random.clone(key(3))), jax.random.normal(key(8))],
        lambda: [jax.random.normal(key(1), (2, 2)), jax.random.randint(key(0), (4,), 0, 9)],
        lambda: [jax.random.uniform(jax.random.PRNGKey(5)), jax.random.permutation(key(4), 5)],
        lambda: [bits(jax.random.wrap_key_data(jnp.array([1, 2], "u4")))],
        lambda: [jax.vmap(jax.random.normal)(jax.random.split(key(3), 3))],
        lambda: [jax.random.gamma(key(3), P), jax.random.beta(key(3), P, 2.0)],
        lambda: [bits(key(3, impl="rbg")), lax.rng_bit_generator(jnp.arange(4, dtype="u4"), (3,))],
    ],
}
# No process runs them by itself, the backend chooses their results, or there is no law for them.
NOT_RUN = ("devices", "approximate top", "general eigenvalues", "ragged")
PROGRAMS = {name: [call] for name, call in CALLS.items() if name not in NOT_RUN}
PROGRAMS |= {f"more {family}": [(case,) for case in cases] for family, cases in MORE.items()}


def traced(f, *args):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(f)(*args)


# Compiled one by one and without optimisation: together, a family takes XLA 40 s.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def run_with_jax(closed, args):
    """Constants are handed over as arguments: XLA would compute with them while it compiles."""
    run = lambda consts, args: jax.core.eval_jaxpr(closed.jaxpr, consts, *args)
    return jax.jit(run, compiler_options=FAST)(closed.consts, args)


def assert_equal(got, want, where, tolerance=1e-12):
    """Same shape and kind; floats relative to the largest entry of the array."""
    want = np.asarray(want)
    if want.dtype.kind not in "biufc":
        want = want.astype(float)
    got = np.asarray(as_float(got))
    assert got.shape == want.shape, where
    assert got.dtype.kind == want.dtype.kind, where
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, str(where))
        return
    finite = np.abs(want[np.isfinite(want)])
    size = max(float(finite.max()), 1e-3) if finite.size else 1.0
    np.testing.assert_allclose(got, want, tolerance, tolerance * size, True, str(where))


@pytest.mark.slow
@pytest.mark.parametrize("family", PROGRAMS)
def test_every_rule_agrees_with_jax(family):
    for i, (f, *args) in enumerate(PROGRAMS[family]):
        closed = traced(f, *args)
        want = run_with_jax(closed, args)
        graph = build(closed)
        found = evaluate(graph, args)
        assert [(s.node.primitive, s.reason) for s in found.skipped] == []
        assert len(want) == len(found.outputs)
        for j, (a, b) in enumerate(zip(found.outputs, want, strict=True)):
            node = graph.outputs[j].value.node
            assert_equal(a, b, f"{family} {i} {j} {node and node.primitive}")


def run(f, *args, **options):
    """The graph of a function and what its evaluation found."""
    graph = build(jax.make_jaxpr(f)(*args))
    return graph, evaluate(graph, jax.tree.leaves(args), **options)


def log2_of(found, index=0):
    """The one number of an output as its binary logarithm."""
    x = found.outputs[index]
    return float(np.log2(np.abs(x.array))) + x.exponent


# -- coverage ----------------------------------------------------------------------------------


# What cannot be run on numbers, and why; what depends on it is unknown.
UNSUPPORTED = {
    "of several devices": (
        "all_gather all_to_all axis_index pmax pmin ppermute psum ragged_all_to_all"
    ),
    "effects and mutable arrays": "after_all create_token dce_sink get stage swap",
    "its order of drawing is the backend's": "rng_uniform",
    "gone before a program is complete": "custom_lin",
    "programs to the graph": "polynomial symmetric_product call_hi_primitive",
}
# Rules that no public function of this JAX leads to on one device, or not in a graph: `lu` is given
# further results there, and what stands for a program is a call of it.
OUT_OF_REACH = """
    broadcast_to cholesky_update empty empty2 geqp3 geqrf iota_2x32_shape layout_constraint log2 lu
    one_minus_square ormqr pbroadcast pcast pvary reduced_vary_cast
    reduced_vary_cast_p reshard select_and_scatter sharding_constraint threefry2x32 tile
    vary_unreduced_cast vary_unreduced_cast_p with_memory_space_constraint zeros_like
"""


def test_no_primitive_is_silently_missing():
    import jax.extend.core.primitives as extended

    known = {p.name for p in vars(extended).values() if hasattr(p, "bind")}
    known |= {p.name for key, p in vars(lax).items() if key.endswith("_p")}
    listed = set(" ".join(UNSUPPORTED.values()).split())
    assert set(unsupported(known)) == listed & known
    assert set(unsupported()) <= listed


def test_every_rule_is_reached_by_a_case():
    seen = set()
    for f, *args in (program for programs in PROGRAMS.values() for program in programs):
        # Some equations have a node of another name: a program, or one with more results.
        for node in build(traced(f, *args)).walk():
            seen |= {node.primitive, node.equation.primitive.name}
    run = {name for name, law in LAWS.items() if law.evaluate}
    assert run - seen <= set(OUT_OF_REACH.split())


# -- wide range ----------------------------------------------------------------------------------


def test_numbers_far_out_of_the_range_of_float64():
    """Against Python's integers and fractions."""
    three = jnp.float32(3.0)
    _, found = run(lambda x: lax.fori_loop(0, 1000, lambda _, c: c * 3, x) / x, three)
    assert log2_of(found) == pytest.approx(1000 * math.log2(3), rel=1e-12)
    _, found = run(lambda x: lax.integer_pow(x, 1000), three)
    x = found.outputs[0]
    exact = Fraction(3) ** 1000 / Fraction(2) ** x.exponent
    assert Fraction(float(x.array)) / exact == pytest.approx(1, abs=1e-12)
    tiny = jnp.float32(1e-30)
    _, found = run(lambda x: jnp.sqrt(lax.integer_pow(x, 100)) / lax.integer_pow(x, 49), tiny)
    assert as_float(found.outputs[0]) == pytest.approx(float(tiny), rel=1e-12)
    _, found = run(lambda x: jnp.prod(jnp.broadcast_to(x, (2000,))), tiny)
    assert log2_of(found) == pytest.approx(2000 * math.log2(float(tiny)), rel=1e-12)
    for up in (1, -1):
        x = jnp.array([1e-200, 1e-200, 1e-10]) ** up
        _, found = run(lambda x: jnp.cumprod(x)[2], x)
        assert log2_of(found) == pytest.approx(-up * 410 * math.log2(10), rel=1e-12)


def test_functions_far_out_of_the_range_of_float64():
    x = jnp.float32(1000.0)
    identities = [
        lambda x: jnp.log(jnp.exp(x)),
        lambda x: jnp.log1p(jnp.expm1(x)),
        lambda x: jnp.log2(jnp.exp2(x)),
        lambda x: jnp.asinh(jnp.sinh(x)),
        lambda x: jnp.acosh(jnp.cosh(x)),
        lambda x: -jnp.log(jax.nn.sigmoid(-x)),
        lambda x: jnp.log(jnp.exp(x) ** 0.5) * 2,
        lambda x: jnp.log(lax.cbrt(jnp.exp(x))) * 3,
        lambda x: -2 * jnp.log(lax.rsqrt(jnp.exp(x))),
        lambda x: jnp.log(jnp.tanh(jnp.sin(jnp.exp(-x)))) * -1,
        lambda x: -jnp.log(jnp.log1p(jnp.expm1(lax.erf_inv(lax.erf(jnp.exp(-x)))))),
        lambda x: -jnp.log(jnp.atan2(jnp.exp(-x), x)) - jnp.log(x),
        lambda x: jnp.where(jnp.exp(x) > jnp.exp(x - 1), x, 0),
        lambda x: jnp.log(jnp.where(x > 0, jnp.exp(x), jnp.exp(3 * x))),
        lambda x: jnp.floor(jnp.exp(x)) / jnp.exp(x) * x,
        lambda x: -jnp.ceil(-jnp.exp(-x) - 1) * x,
        lambda x: jnp.log(jnp.linalg.norm(jnp.exp(x) * jnp.array([0.6, 0.8], "f4"))),
        lambda x: jnp.log(jnp.linalg.cholesky(jnp.exp(x)[None, None])[0, 0]) * 2,
    ]
    _, found = run(lambda x: [f(x) for f in identities], x)
    assert found.complete
    for i, got in enumerate(found.outputs):
        assert as_float(got) == pytest.approx(1000.0, rel=1e-9), i
    _, found = run(lambda x: lax.erfc(x), x)
    assert log2_of(found) == pytest.approx(
        (-1e6 - math.log(1e3 * math.sqrt(math.pi))) / math.log(2)
    )


def test_magnitudes_are_measured():
    graph, found = run(
        lambda x: x * jnp.float32(4), jnp.array([0.0, -2.0, 8.0, jnp.inf, jnp.nan], "f4")
    )
    assert found.magnitudes[graph.inputs[0].index] == (1.0, 3.0, True)
    assert found.magnitudes[graph.outputs[0].value.index] == (3.0, 5.0, True)
    assert measure(jnp.array([1, -4], jnp.int8)) == (0.0, 2.0, True)
    assert measure(np.zeros(3)).is_zero
    assert measure(jnp.array([3j + 4, 0], jnp.complex64)).low == pytest.approx(math.log2(5))
    assert measure(jnp.array([1.5], jnp.bfloat16)).high == pytest.approx(math.log2(1.5))


# -- nested graphs, loops, effects ----------------------------------------------------------------


def test_branches_and_calls():
    def f(x):
        y = lax.cond(x > 1, lambda x: x * 2, lambda x: x * 1e30, x)
        y = lax.switch(jnp.int32(9), [jnp.sin, jnp.cos, lambda x: x + 1], y)
        y = jax.checkpoint(jnp.square)(y) + jax.nn.relu(-y) + jax.jit(lambda z: z * 2)(y)
        return jax.grad(lambda z: jnp.logaddexp(z, 0.0))(y), y

    graph, found = run(f, jnp.float64(3.0))
    assert as_float(found.outputs[1]) == 63.0
    cond = next(n for n in graph.walk() if n.primitive == "cond")
    taken = [found.magnitudes[b.nodes[0].outputs[0].index] for b in cond.graphs]
    assert [m is None for m in taken] == [True, False]


def test_loops_agree_with_jax():
    def f(x):
        total = lax.fori_loop(0, 5, lambda i, c: c * x[i % 3] + 1, 1.0)
        sums = lax.scan(lambda c, y: (c + y, (c, c * y)), 0.5, x, reverse=True)
        until = lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * x[2], c[1] + 1), (1.0, 0))
        nested = lax.fori_loop(
            0, 3, lambda i, c: lax.fori_loop(0, i, lambda j, d: d + x[0], c), 0.0
        )
        empty = lax.scan(lambda c, y: (c, y), x, jnp.zeros((0, 2)))
        each = jax.vmap(lambda a: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, a))(x)
        return total, sums, until, nested, empty, lax.map(jnp.sin, x), each

    x = jnp.array([0.5, 2.0, 3.0])
    _, found = run(f, x)
    assert found.complete
    assert not found.estimated
    for got, want in zip(found.outputs, jax.tree.leaves(f(x)), strict=True):
        assert_equal(got, want, "loops")


@pytest.mark.parametrize(
    ("step", "growth"),
    [
        (lambda c: c * 1.25, 100_000 * math.log2(1.25)),
        (lambda c: c * 0.75, 100_000 * math.log2(0.75)),
        (lambda c: c + 1, math.log2(100_000)),
        (lambda c: c + 1e-3, math.log2(101)),
        (lambda c: c * 1.0001, 100_000 * math.log2(1.0001)),
        (lambda c: (c + 3) / 4, 0.0),
        (lambda c: -c, 0.0),
    ],
)
def test_a_long_loop_is_sampled(step, growth):
    graph, found = run(lambda x: lax.fori_loop(0, 100_000, lambda _, c: step(c), x), jnp.float64(1))
    assert found.estimated
    assert found.complete
    assert log2_of(found) == pytest.approx(growth, rel=0.05, abs=0.6)
    body = next(n for n in graph.walk() if n.primitive == "scan").graphs[0]
    magnitude = found.magnitudes[body.outputs[1].value.index]
    assert magnitude.high - magnitude.low >= abs(growth) * 0.95 - 0.6


def test_a_sampled_loop_that_explodes_is_unknown_or_infinite():
    f = lambda x: lax.fori_loop(0, 100_000, lambda _, c: c * c, x)
    _, found = run(f, jnp.float64(1.5), budget=40.0)
    assert found.outputs == [None]
    assert not found.complete
    _, found = run(f, jnp.float64(1.5))  # 1.5^(2^50) is infinite even here
    assert np.isposinf(found.outputs[0].array)
    _, found = run(lambda x: lax.while_loop(lambda c: c > 0, lambda c: c * 2, x), jnp.float64(1.5))
    assert found.estimated  # its end is not known
    assert log2_of(found) > 1000


def test_effects_are_never_run():
    called = []

    def f(x):
        jax.debug.print("{}", x)
        jax.debug.callback(called.append, x)
        y = jax.pure_callback(lambda v: called.append(v) or v, jax.typeof(x), x)
        return y + 1, x * 2

    _, found = run(f, jnp.float64(2.0))
    assert called == []
    assert found.outputs[0] is None
    assert as_float(found.outputs[1]) == 4.0
    assert not found.complete
    _, found = run(lambda x: (jax.debug.print("{}", x), x + 1)[1], jnp.float64(2.0))
    assert found.complete


def test_array_over_the_budget_is_unknown_but_measured():
    x = jnp.full((1000, 1000), 2.0)
    graph, found = run(lambda x, y: (x @ x, y + 1, jnp.sum(x)), x, jnp.float64(2.0), budget=3e6)
    assert [o is None for o in found.outputs] == [True, False, False]
    assert {s.reason for s in found.skipped} == {"over budget"}
    graph, found = run(lambda x: x + 1, x, budget=10.0)
    assert not found.complete
    assert found.magnitudes[graph.inputs[0].index] == (1.0, 1.0, True)
    assert found.magnitudes[graph.outputs[0].value.index] is None


def _looped(x):
    step = lambda c, y: (c * y * 1e25 / (1.0 + c), c + y)
    carry, rows = lax.scan(step, x[0], x)
    return jnp.sum(rows * 1e30) + carry


def _branched(x):
    big = x * 1e30 + 1e24
    grown = lambda y: jax.jit(jnp.exp)(y * 1e-30) * 1e20
    return lax.cond(big[0] > 1, grown, lambda y: y, big) * big * 1e-30


def _joined(x):
    root = jnp.sqrt(jnp.sum(x * 1e30 * (x * 1e30)) * x)
    return jnp.sum(root - x[::-1] / 1e20) * jnp.where(x > 1, x, 1e-30) * 1e-20


@pytest.mark.parametrize("f", [_looped, _branched, _joined], ids=lambda f: f.__name__)
def test_run_that_takes_over_an_earlier_one_finds_the_same(f, monkeypatch):
    """The same numbers, magnitudes and events, from fewer equations."""
    x = jnp.linspace(0.5, 2.0, 5, dtype=jnp.float32)
    closed = jax.make_jaxpr(f)(x)
    found = plan(closed, [x], [False] * len(closed.out_avals))
    run, count = _evaluate.applied, []
    monkeypatch.setattr(_evaluate, "applied", lambda *args: count.append(1) or run(*args))

    def simulated(exponents, **forgotten):
        reference = evaluate(found.graph, [x])._replace(**forgotten)
        coarse = rounded(found.graph, reference)
        reference.again["rounded"] = coarse._replace(**forgotten)
        count.clear()
        out = simulate(found.graph, reference, exponents)
        lists = [[y.array.tolist(), np.asarray(y.exponent).tolist()] for y in out.outputs]
        return str([lists, out.magnitudes, out.events, coarse.magnitudes]), len(count)

    assert not found.identity
    for exponents in (None, found.exponents):
        (kept, few), (new, many) = simulated(exponents), simulated(exponents, env=None)
        assert kept == new
        assert few < many or exponents is None


@pytest.mark.parametrize("own", [0, 219, -219])
def test_constants_are_converted_for_each_reader_from_their_numbers(own):
    """At an exponent of its own an array from 2^-126 to 2^101 would be zero, or infinite."""
    wide_apart = jnp.array([2.0**-126, 1.0, 2.0**101], jnp.bfloat16)
    graph = build(jax.make_jaxpr(lambda x: (x * wide_apart, x + wide_apart))(wide_apart))
    x = jnp.array([4.0, 8.0, 0.5], jnp.bfloat16)
    constant = graph.constants[0]
    product = next(use for use in constant.uses if use.node.primitive == "mul")
    (result,) = product.node.outputs
    pairs = [(constant, own), (product, -12), (result, -12)]
    at = exponents_at(graph, pairs)
    simulated = simulate(graph, evaluate(graph, [x]), at)
    for got, want in zip(simulated.outputs, replay(graph, at)([x]), strict=True):
        np.testing.assert_array_equal(as_float(got), np.asarray(want, float))
    np.testing.assert_array_equal(as_float(simulated.outputs[0]), [2.0**-124, 8.0, 2.0**100])


def test_numbers_beyond_a_wide_range_stay_noted_when_a_run_goes_on():
    graph = build(jax.make_jaxpr(lambda x: x + 1)(1.0))
    begun = evaluate(graph, [1.0])
    assert not evaluate(graph, [1.0], begun=begun).beyond
    assert evaluate(graph, [1.0], begun=begun._replace(beyond=True)).beyond
