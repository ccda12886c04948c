"""Small calls that reach every primitive whose operands may have an exponent."""

import operator

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

from tanjax import _compat


def primitives_of_jax():
    """Return the names of all primitives that `jax.lax` or `jax.extend` exports."""
    places = (jax.lax, jax.lax.linalg, jax.extend.core.primitives)
    found = [getattr(place, name) for place in places for name in dir(place)]
    return {p.name for p in found if isinstance(p, Primitive)}


X = jnp.array([1.5, 2.0, -3.0])
Y = jnp.array([0.3, 0.7, 2.0])
M = jnp.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
Z = lax.complex(X, Y)
IMAGE = jnp.arange(1.0, 26).reshape(1, 1, 5, 5)
FILTER = jnp.arange(1.0, 5).reshape(1, 1, 2, 2)
AT, FAR = jnp.array([0, 2]), jnp.array([0, 9], jnp.int32)
ROWS = AT.astype(jnp.int32)


def window(function, start):
    return lambda x: lax.reduce_window(x, start, function, (2,), (1,), "SAME")


def on_mesh(f):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)


@custom_vmap
def mapped(x):
    return x * x


@mapped.def_vmap
def _(size, batched, x):
    return x * x, batched[0]


@jax.custom_vjp
def ruled(x):
    return x * x


ruled.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))


def pick(s, x):
    return lax.cond(x[0] > 0, lambda s: s * x, lambda s: s + x, s)


CALLS = {
    "add sub neg abs": (lambda x, y: (x + y, x - y, -x, abs(x)), X, Y),
    "add_any": (jax.grad(lambda x: jnp.sum(x * x + x)), X),
    "max min rem clamp": (
        lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), lax.rem(x, y), lax.clamp(0.5, x, y)),
        *(X, Y),
    ),
    "real imag complex": (lambda z: (z.real, z.imag, lax.complex(z.real, z.imag), z.conj()), Z),
    "shapes": (
        lambda x, y: (
            *(jnp.concatenate([x, y]), x.reshape(3, 1), jnp.broadcast_to(x, (2, 3)), x[::-1]),
            *(x[:, None].T, x[1:], jnp.squeeze(x[:1]), jnp.pad(x, 1, constant_values=y[0])),
            *(*jnp.split(x, [1]), jnp.tile(x, 2), jnp.stack([x, y]), *jnp.unstack(x)),
            *(lax.stop_gradient(x), jnp.copy(x)),
        ),
        *(X, Y),
    ),
    "indices": (
        lambda x, y: (
            *(lax.dynamic_slice(x, (1,), (2,)), lax.dynamic_update_slice(x, y[:1], (1,)), x[ROWS]),
            *(
                x.at[ROWS].set(y[:2]),
                x.at[ROWS].add(y[:2]),
                x.at[ROWS].min(y[:2]),
                x.at[ROWS].max(y[:2]),
            ),
            *(x.at[ROWS].multiply(y[:2]), x.at[ROWS].subtract(y[:2])),
        ),
        *(X, Y),
    ),
    "out of bounds": (
        lambda x: (*(x.at[FAR].get(mode="fill", fill_value=fill) for fill in (5.0, 0.0, None)),),
        X,
    ),
    "reductions": (
        lambda x: (x.sum(), x.max(), x.min(), jnp.cumsum(x), lax.cummax(x), lax.cummin(x)),
        X,
    ),
    "fft": (
        lambda x, z: (jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.irfft(z, 3), jnp.fft.ifft(z)),
        *(X, Z),
    ),
    "windows": (
        lambda x: (
            *(window(lax.add, 0.0)(x), window(lax.max, -np.inf)(x)),
            window(lax.min, np.inf)(x),
        ),
        X,
    ),
    "gradient of a window": (
        lambda x, y: (
            jax.grad(lambda x: jnp.sum(window(lax.max, -np.inf)(x) * y))(x),
            jax.jvp(jax.grad(lambda x: jnp.sum(window(lax.max, -np.inf)(x) ** 3)), (x,), (y,)),
        ),
        *(X, Y),
    ),
    "sort": (
        lambda x, y: (*lax.sort((x, y, AT.sum() + jnp.arange(3)), num_keys=1), *lax.top_k(x, 2)),
        *(X, Y),
    ),
    "approximate top": (lambda x: lax.approx_max_k(x, 2), X),
    "barriers": (
        lambda x, y: (*lax.optimization_barrier((x, y)), checkpoint_name(x * y, "a")),
        *(X, Y),
    ),
    "device": (lambda x: jax.device_put(x, jax.devices()[0]), X),
    "products": (lambda x, y, m: (x * y, m @ x, jnp.outer(x, y), x / y, 3 / x, x / 3), X, Y, M),
    "convolution": (lambda i, f: lax.conv(i, f, (1, 1), "SAME"), IMAGE, FILTER),
    "ragged": (lambda m: lax.ragged_dot(m, jnp.stack([m, m]), jnp.array([1, 2], jnp.int32)), M),
    "own products": (lambda m: _compat.symmetric_outer(m[:, :1], m[:, 1:2]), M),
    "own products in batches": (
        lambda m: _compat.symmetric_outer(m[None, :, :1], m[None, :, 1:2]),
        M,
    ),
    "comparisons": (
        lambda x, y: (
            *(x < y, x <= y, x > y, x >= y, x == y, x != y),
            *(jnp.arctan2(x, y), jnp.sort(x * y)),
        ),
        X,
        X * jnp.array([1.01, 0.99, 1.0]),  # so near that any wrong power of two would show
    ),
    "any": (lambda x: (jnp.sign(x), jnp.isfinite(x), jnp.argmax(x), jnp.argmin(x)), X),
    "roots": (
        lambda x: (jnp.sqrt(abs(x)), lax.rsqrt(abs(x)), lax.cbrt(x), lax.square(x)),
        X,
    ),
    "powers": (lambda x: (x**2, x**3, x**-2, x**5, abs(x) ** 2.5, abs(x) ** x, abs(x) ** 0.25), X),
    "decompositions": (
        lambda m: (
            *(jnp.linalg.cholesky(m), jnp.linalg.eigvalsh(m), abs(jnp.linalg.eigh(m)[1])),
            *(jnp.linalg.svd(m)[1], abs(jnp.linalg.svd(m)[0])),
        ),
        M,
    ),
    "linear solve": (lambda m, x: (jnp.linalg.solve(m, x), jnp.linalg.inv(m)), M, X),
    # The order of eigenvalues is another one at other magnitudes, and small ones are rounding.
    "general eigenvalues": (
        # In which order eigenvalues come is the backend's choice.
        lambda m: [jnp.max(jnp.abs(x)) for x in (jnp.linalg.eig(m)[0], lax.linalg.schur(m)[0])],
        M,
    ),
    "solves": (
        lambda m, x: (
            lax.linalg.triangular_solve(m, x[:, None], left_side=True),
            lax.linalg.triangular_solve(m, x[:, None], left_side=True, unit_diagonal=True),
            lax.linalg.tridiagonal_solve(x, x * 9, x, x[:, None]),
        ),
        *(M, X),
    ),
    "selection": (
        lambda x, y: (jnp.where(x > 0, x, y), lax.select_n(AT.max() - 2 + x.astype(int) * 0, x, y)),
        *(X, Y),
    ),
    "precision": (
        lambda x: (lax.reduce_precision(x, 11, 20), lax.reduce_precision(x, 4, 20)),
        jnp.array([200.0, 0.02, -3.0]),  # next to the ends of a range of four bits
    ),
    "conversion": (lambda x: (x.astype(jnp.float32), x.astype(int), x.astype(complex), x > 0), X),
    "functions": (
        lambda x, y: (
            *(jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.asin(y / 2), jnp.acos(-y / 2), jnp.atan(x)),
            *(jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.asinh(x), jnp.acosh(1 + y), lax.expm1(x)),
            *(jnp.atanh(y / 4), lax.log1p(y), lax.logistic(x), lax.erf(x), lax.erfc(x)),
            *(lax.erf_inv(y / 4), jnp.floor(x * y), jnp.ceil(x * y), jnp.round(x * y)),
            *(jnp.exp(x), jnp.exp2(x), jnp.log(y), jnp.log2(y), jnp.atan2(x, y), jnp.atan2(y, x)),
        ),
        *(X, Y),
    ),
    "complex functions": (lambda z: (jnp.exp(z), jnp.log(z), z**2, jnp.sqrt(z), z**0.25), Z),
    "powers of any kind": (
        lambda x, y: (abs(x) ** y, x**7, x**-5, y**1.5, y**0.7, y ** (1 / 3), y**30.5, x**30),
        *(X, Y),
    ),
    "products of many": (
        lambda x, m: (
            *(jnp.prod(x), jnp.prod(m, 0), jnp.prod(m, (0, 1)), jnp.prod(m[:0], 0)),
            *(lax.cumprod(x), lax.cumprod(m, 1, reverse=True)),
        ),
        *(X, M),
    ),
    "other types": (
        lambda x, y, n: (
            *((x * y).astype(bool), (x * y).astype(int), (x * y).astype(jnp.int8)),
            *(n.astype(float) * x, (x > y).astype(float) * x, (x * y).astype(complex)),
        ),
        *(X, Y),
        AT[:1],
    ),
    "custom solve": (
        lambda x, y: lax.custom_linear_solve(
            lambda v: x * v, y, lambda matvec, b: b / x, symmetric=True
        ),
        *(X, Y),
    ),
    "expanded": (
        lambda x, n: (jnp.polyval(x, Y), jnp.ldexp(x, n), *jnp.frexp(x), jnp.searchsorted(Y, x)),
        X,
        jnp.array([3, -2, 60]),
    ),
    "reductions by functions": (
        lambda x, y: (
            *(lax.reduce(x, y[0], f, (0,)) for f in (operator.add, operator.mul)),
            lax.reduce_window(x, y[0], operator.add, (2,), (1,), "SAME"),
        ),
        *(X, Y),
    ),
    "orthogonal factors": (lambda m: tuple(map(abs, jnp.linalg.qr(m))), M),
    "calls": (
        lambda x: (
            *(jax.jit(lambda x: x * x)(x), jax.checkpoint(lambda x: x * x)(x), jax.nn.relu(x) * x),
            *(ruled(x), mapped(x), lax.composite(lambda x: x * x, "a.square")(x)),
        ),
        X,
    ),
    "cond": (lambda s, x: pick(s, x), Y, X),
    "scan": (lambda s, x: lax.scan(lambda c, r: (c * r + 1, c / r), s, x), Y, X),
    "while": (
        lambda s, x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * c * 2 + x, s + 1),
        *(Y, abs(X)),
    ),
    "devices": (
        on_mesh(
            lambda x: (
                *(lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i"), lax.all_gather(x, "i")),
                *(lax.ppermute(x, "i", [(0, 1)]), lax.all_to_all(x, "i", 0, 0)),
                lax.psum_scatter(x, "i", tiled=True),
            )
        ),
        jnp.arange(1.0, 5),
    ),
}
