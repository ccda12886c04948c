"""Small calls that reach every primitive with a NumPy rule, by family."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tanjax import _compat

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
IMAGE = jnp.sin(jnp.arange(2 * 4 * 6 * 5.0)).reshape(2, 4, 6, 5)


def conv(dims, groups=1, batches=1, padding=((1, 0), (0, 2)), kernel=None, **more):
    a = jnp.cos(jnp.arange(np.prod(kernel) * 1.0)).reshape(kernel)
    return lambda: lax.conv_general_dilated(
        IMAGE,
        a,
        more.pop("strides", (1, 2)),
        padding,
        dimension_numbers=dims,
        feature_group_count=groups,
        batch_group_count=batches,
        **more,
    )


def reduce_window(combine, start, x=P, **more):
    return lambda: lax.reduce_window(
        x, start, combine, (1, 2), (1, 1), more.pop("p", "SAME"), **more
    )


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), ((0, 1), (1, 0))).sum()


def lowest(x):
    return lax.reduce_window(x, jnp.inf, lax.min, (1, 2), (1, 1), "VALID").sum()


def indexed(x):
    i = jnp.array([[0, 1], [1, 5]])
    return [
        x[jnp.array([1, 0, 1]), 1:],
        x[..., jnp.array([2, 0])],
        x.at[jnp.array([0, 1, 1]), 1].add(2.0),
        x.at[jnp.array([0, 7]), 1].set(2.0),
        x.at[:, jnp.array([0, 2, 2])].mul(3.0),
        x.at[1].min(0.0),
        x.at[jnp.array([1])].max(1.0),
        x.at[0, 0].subtract(4.0),
        x.at[jnp.array([0, 7])].get(mode="fill", fill_value=5.0),
        x.at[jnp.array([0, 7])].get(mode="clip"),
        x.at[jnp.array([0, 7])].add(1.0, mode="clip"),
        x.at[jnp.array([9])].get(),
        jnp.take_along_axis(x, i, 1),
        jax.vmap(lambda r, k: r[k])(x, jnp.array([2, 0])),
        jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(x, jnp.array([2, 0])),
        jax.vmap(lambda r, k: r.at[k].add(1.0))(x, jnp.array([2, 0])),
        I32[jnp.array([0, 1]), jnp.array([2, 9])],
        lax.dynamic_slice(x, (1, 2), (1, 2)),
        lax.dynamic_update_slice(x, x[:1, :2], (1, 2)),
    ]


A, T = jnp.tril(S), jnp.triu(S)
RHS = jnp.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 0.1]])
BATCH = jnp.stack([S, S @ S])
solve = lax.linalg.triangular_solve

# Every case is a function without arguments; the cases of a family are one compilation.
CASES = {
    "arithmetic": [
        lambda: [X + U, X - U, X * U, X / U, -X, abs(X), jnp.sign(X), lax.square(X)],
        lambda: [lax.integer_pow(X, n) for n in (0, 1, 2, 3, 7, -1, -2)],
        lambda: [jnp.sqrt(P), lax.rsqrt(P), lax.cbrt(X), lax.rem(X, U), lax.clamp(-1.0, X, 1.0)],
        lambda: [jnp.polyval(jnp.array([2.0, -3, 0.5, 1]), X), lax.square(X)],
        lambda: [jnp.maximum(X, U), jnp.minimum(X, U), lax.pow(P, X), lax.pow(X, 3), P**2.5],
        lambda: [lax.pow(X, jnp.array([[1, 2, 3], [0, -1, -2]]))],
        lambda: [jnp.floor(EDGE), jnp.ceil(EDGE), jnp.round(EDGE), lax.round(EDGE)],
        lambda: [lax.nextafter(X, U), lax.nextafter(X.astype("f4"), jnp.float32(9))],
        lambda: [jax.grad(lambda x: jnp.sum(x * x + x))(X), EDGE + EDGE[::-1], EDGE * EDGE[::-1]],
        lambda: [EDGE / EDGE[::-1], jnp.maximum(EDGE, EDGE[::-1]), jnp.sign(EDGE), abs(EDGE)],
        lambda: [lax.reduce_precision(X * 1e3, 5, 10), lax.reduce_precision(X * 1e-6, 4, 3)],
    ],
    "comparison": [
        lambda: [X < U, X <= U, X > U, X >= U, X == X, X != U, jnp.isfinite(EDGE)],
        lambda: [lax.lt_to_p.bind(EDGE[:4], EDGE[3::-1]), lax.le_to_p.bind(EDGE[:4], EDGE[3::-1])],
        lambda: [lax.eq_to_p.bind(EDGE[:4], EDGE[1:5]), EDGE == EDGE, EDGE[::-1] > EDGE],
        lambda: [lax.select_n(B, X, U), lax.select_n(jnp.array(True), X, U), jnp.where(B, 1, I32)],
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
    ],
    "conversion": [
        lambda: [EDGE.astype("i4"), (X * 1e12).astype("i4"), (X * 1e30).astype("i8")],
        lambda: [X.astype(bool), B.astype("f8"), I32.astype("f8"), I32.astype("i1")],
        lambda: [I32.astype("u4"), X.astype("c16"), lax.bitcast_convert_type(X, jnp.int64)],
        lambda: [lax.bitcast_convert_type(X.astype("f4"), jnp.int32), (abs(X) * 200).astype("u1")],
        lambda: [
            lax.bitcast_convert_type(abs(J32) << 24, jnp.float32),
            lax.bitcast_convert_type(I32, "u1"),
        ],
        lambda: [X.astype(jnp.bfloat16).astype("f8") * 0 + 1],
    ],
    "complex": [
        lambda: [Z + X, Z * Z, Z / (Z + 1), jnp.real(Z), jnp.imag(Z), jnp.conj(Z), abs(Z), -Z],
        lambda: [lax.complex(X, U), jnp.exp(Z), jnp.log(Z), jnp.sqrt(Z), jnp.sin(Z), jnp.tanh(Z)],
        lambda: [Z @ Z.T, jnp.sum(Z), lax.integer_pow(Z, 3), Z == Z, jnp.sign(Z), lax.conj(X)],
        lambda: [jnp.expm1(Z), jnp.log1p(Z), jnp.cos(Z), jnp.prod(Z, 1), Z**1.5, jnp.cumprod(Z, 0)],
        lambda: [jnp.sinh(Z), jnp.cosh(Z), jnp.tan(Z), jax.nn.sigmoid(X), lax.logistic(Z)],
    ],
    "transcendental": [
        lambda: [jnp.exp(X), jnp.exp2(X), jnp.log(P), jnp.log1p(P), jnp.expm1(X), jnp.log2(P)],
        lambda: [jnp.sin(X), jnp.cos(X), jnp.tan(X), jnp.tanh(X), jnp.sinh(X), jnp.cosh(X)],
        lambda: [jnp.asin(U), jnp.acos(U), jnp.atan(X), jnp.atan2(X, U), jnp.asinh(X)],
        lambda: [jnp.acosh(P + 1), jnp.atanh(U * 0.9), lax.logistic(X * 400), lax.asinh(X)],
        lambda: [special.erf(X), special.erfc(X * 4), special.erfinv(U), special.gammaln(P)],
        lambda: [special.digamma(P), special.polygamma(1, P), special.zeta(P + 1, P)],
        lambda: [special.gammainc(P, P.T[0, 0]), special.gammaincc(P, 2.0), special.i0e(X)],
        lambda: [special.i1e(X), special.betainc(P, 0.7, 0.4), jnp.exp(EDGE), jnp.log(EDGE)],
        lambda: [jnp.tanh(EDGE), jnp.exp(EDGE * 200), jnp.expm1(EDGE * 200), lax.acosh(P + 1)],
        lambda: [
            lax.log(P),
            jnp.log2(P),
            lax.exp2(X),
            lax.atan2(U, X),
            lax.tan(X),
            lax.atanh(U * 0.5),
            jnp.logaddexp(X, U),
        ],
    ],
    "shapes": [
        lambda: [X.T, X.reshape(3, 2), X[None], X[::-1], X[:, 1:], X[::1, ::2], jnp.squeeze(X[:1])],
        lambda: [jnp.concatenate([X, U], 1), jnp.stack([X, U], 1), jnp.tile(X, (2, 1))],
        lambda: [
            lax.pad(X, 9.0, ((1, 2, 1), (-1, 0, 0))),
            lax.pad(X, 0.0, ((-1, -1, 0), (0, 3, 2))),
        ],
        lambda: [
            lax.pad(I32, jnp.int32(1), ((0, 0, 0), (-1, -1, 2))),
            jnp.broadcast_to(X, (2, 2, 3)),
        ],
        lambda: [
            lax.broadcasted_iota("i4", (2, 3), 1),
            jnp.arange(4.0),
            jnp.eye(3),
            jnp.zeros((2,)),
        ],
        lambda: [*lax.split(X, (1, 2), 1), lax.expand_dims(X, (1,)), lax.collapse(X, 0, 2)],
        lambda: [lax.optimization_barrier(X), lax.stop_gradient(X), jnp.copy(X)],
        lambda: [lax.broadcast_in_dim(X[0], (2, 3, 2), (1,)), jnp.ones((2, 3)) * X[0, 0]],
        lambda: [lax.reshape(X, (6,), (1, 0)), checkpoint_name(X, "x"), jax.device_put(X)],
        lambda: [jnp.unstack(X)[1], *jnp.split(X, 3, 1), jnp.zeros_like(X), lax.full_like(X, 2)],
        lambda: [lax.tile(X, (2, 1))] if hasattr(lax, "tile") else [],
    ],
    "order": [
        lambda: [jnp.sort(EDGE), jnp.argsort(EDGE), jnp.sort(X, 0), jnp.sort(I32, axis=1)],
        lambda: [
            *lax.sort((jnp.array([2.0, 1, 2, 1]), jnp.array([3, 2, 1, 0]), EDGE[:4]), num_keys=2)
        ],
        lambda: [*lax.top_k(X, 2), *lax.top_k(jnp.array([1.0, 3, 3, jnp.nan]), 3), jnp.median(X)],
        lambda: [jnp.argmax(X, 1), jnp.argmin(X, 0), jnp.argmax(EDGE), *lax.top_k(I32, 2)],
        lambda: [
            jnp.searchsorted(jnp.arange(5.0), X),
            jnp.unique(I32, size=3),
            jnp.percentile(X, 30),
        ],
    ],
    "reductions": [
        lambda: [jnp.sum(X), jnp.sum(X, 1), jnp.prod(X, 0), jnp.max(X, 1), jnp.min(X), jnp.mean(X)],
        lambda: [
            jnp.any(B, 1),
            jnp.all(B),
            jnp.sum(I32),
            jnp.prod(J32, 1),
            jnp.sum(U8, dtype="u1"),
        ],
        lambda: [lax.reduce_xor(I32, (0,)), lax.reduce_and(I32, (1,)), lax.reduce_or(I32, (1,))],
        lambda: [
            jnp.cumsum(X, 1),
            jnp.cumprod(X, 0),
            lax.cummax(X, 1),
            lax.cummin(X, 1, reverse=True),
        ],
        lambda: [
            lax.cumlogsumexp(X, 1),
            lax.cumsum(X, 1, reverse=True),
            jnp.cumsum(U8, dtype="u1"),
        ],
        lambda: [lax.cumprod(X, 1, reverse=True), lax.cumlogsumexp(X, 0, reverse=True)],
        lambda: [jnp.var(X), jnp.linalg.norm(X), special.logsumexp(X, 1), jax.nn.softmax(X)],
        lambda: [lax.reduce(X, 1.0, lax.mul, (1,)), lax.reduce(X, 0.5, lax.max, (0,))],
        lambda: [lax.reduce_max(EDGE, (0,)), lax.reduce_min(EDGE[:4], (0,)), jnp.sum(X[:0])],
    ],
    "contractions": [
        lambda: [X @ U.T, X[0] @ U[0], jnp.einsum("ij,ij->i", X, U), jnp.outer(X[0], U[1])],
        lambda: [
            jnp.einsum("bij,bkj->bik", BATCH, BATCH),
            jnp.tensordot(BATCH, BATCH, ((2, 0), (1, 0))),
        ],
        lambda: [I32 @ J32.T, jnp.einsum("bij,jk->kbi", BATCH, S), U8 @ U8.T],
        lambda: [lax.dot(X, U.T, preferred_element_type=jnp.float64)],
        conv(("NCHW", "OIHW", "NCHW"), kernel=(3, 4, 2, 3)),
        conv(("NCHW", "OIHW", "NCHW"), kernel=(4, 2, 2, 1), groups=2, rhs_dilation=(2, 1)),
        conv(
            ("NHWC", "HWIO", "CNHW"),
            kernel=(2, 2, 5, 3),
            lhs_dilation=(2, 1),
            padding=((-1, 2), (1, 0)),
        ),
        conv(("NCHW", "OIHW", "NCHW"), kernel=(6, 4, 2, 1), batches=2),
    ],
    "windows": [
        reduce_window(lax.add, 0.0),
        reduce_window(lax.max, -jnp.inf),
        reduce_window(lax.min, jnp.inf),
        reduce_window(lax.mul, 1.0),
        reduce_window(lax.add, 2.0),
        reduce_window(lax.add, 0, I32),
        reduce_window(lax.max, np.int32(-(2**31)), I32, window_dilation=(1, 2)),
        reduce_window(
            lax.add, 0.0, base_dilation=(2, 1), window_dilation=(1, 2), p=((1, 0), (2, -1))
        ),
        lambda: [jax.grad(pooled)(X), jax.jvp(pooled, (X,), (U,))[1]],
        lambda: jax.jvp(jax.grad(pooled), (X,), (U,))[1],
        lambda: jax.grad(lowest)(X),
    ],
    "indices": [lambda: indexed(X)],
    "linear algebra": [
        lambda: [jnp.linalg.cholesky(S), jnp.linalg.cholesky(BATCH), jnp.linalg.cholesky(-S)],
        lambda: [solve(A, RHS, left_side=True, lower=True), solve(T, RHS, left_side=True)],
        lambda: [solve(A, RHS, left_side=True, lower=True, transpose_a=True)],
        lambda: [solve(A, RHS.T, lower=True), solve(A, RHS.T, lower=True, unit_diagonal=True)],
        lambda: [
            solve(
                A + 1j * A, RHS + 0j, left_side=True, lower=True, conjugate_a=True, transpose_a=True
            )
        ],
        lambda: [
            jnp.linalg.solve(S, RHS),
            jnp.linalg.inv(BATCH),
            jnp.linalg.det(S),
            *lax.linalg.lu(S),
        ],
        lambda: [*lax.linalg.lu(BATCH), jnp.linalg.slogdet(S)[1], jnp.linalg.lstsq(RHS, RHS)[0]],
        lambda: [
            *jnp.linalg.qr(RHS),
            jnp.linalg.qr(RHS, mode="complete")[1],
            jnp.linalg.eigvalsh(S),
        ],
        lambda: [
            jnp.linalg.svd(RHS, compute_uv=False),
            abs(jnp.linalg.svd(RHS)[0]),
            jnp.linalg.pinv(RHS),
        ],
        lambda: [
            abs(jnp.linalg.eigh(S)[1]),
            abs(jnp.linalg.eigh(BATCH)[0]),
            jnp.linalg.matrix_power(S, 5),
        ],
        lambda: [
            jnp.sort(jnp.linalg.eigvals(T)),
            jax.scipy.linalg.expm(S),
            *jax.scipy.linalg.lu(S),
        ],
        lambda: [lax.linalg.tridiagonal_solve(P[0], P[0] * 4, P[1], RHS)],
        lambda: [lax.linalg.symmetric_product(RHS, S, alpha=2.0, beta=0.5, symmetrize_output=True)],
        lambda: [*jnp.linalg.qr(BATCH), jax.scipy.linalg.cho_solve((A, True), RHS)],
        lambda: [lax.linalg.householder_product(RHS * 0.1, jnp.array([0.7, 1.2]))],
        lambda: [lax.linalg.lu_pivots_to_permutation(jnp.array([2, 1, 2], "i4"), 4)],
        lambda: [_compat.symmetric_outer(RHS, RHS + 1)],
        lambda: [_compat.symmetric_outer(BATCH[..., :1], BATCH[..., 1:2] + 1)],
        lambda: [
            jnp.fft.fft(X),
            jnp.fft.ifft(Z),
            jnp.fft.rfft(X),
            jnp.fft.irfft(Z),
            jnp.fft.fft2(X),
        ],
        lambda: [jnp.fft.irfft(Z, 5), jnp.fft.rfft2(X), jnp.fft.fft(X, 4)],
    ],
    "random": [
        lambda: [
            jax.random.bits(jax.random.key(7), (3, 2)),
            jax.random.uniform(jax.random.key(2**40 + 7), (3,)),
        ],
        lambda: [
            jax.random.normal(jax.random.key(1), (2, 2)),
            jax.random.bits(jax.random.key(3), (3,), "u8"),
        ],
        lambda: [
            jax.random.key_data(jax.random.split(jax.random.key(3), 3)),
            jax.random.bits(jax.random.key(3), (3,), "u1"),
        ],
        lambda: [
            jax.random.key_data(jax.random.fold_in(jax.random.key(3), 9)),
            jax.random.randint(jax.random.key(0), (4,), 0, 9),
        ],
        lambda: [
            jax.random.uniform(jax.random.PRNGKey(5), (2,)),
            jax.random.permutation(jax.random.key(4), 5),
        ],
        lambda: [
            jax.random.key_data(jax.random.clone(jax.random.key(3))),
            jax.random.normal(jax.random.key(8)),
        ],
        lambda: [jax.random.bits(jax.random.wrap_key_data(jnp.array([1, 2], "u4")), (2,))],
        lambda: [jax.vmap(jax.random.normal)(jax.random.split(jax.random.key(3), 3))],
    ],
}


def results_of(case):
    """The results of a case as a list."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        out = case()
    return out if isinstance(out, list) else [out]
