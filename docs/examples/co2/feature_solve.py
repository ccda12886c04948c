r"""What a library author writes, continued: importing this module teaches `solve` the new type.

Woodbury's identity with the small matrix $S = I + \sqrt w\,\Phi^\top N^{-1}\Phi\sqrt w$, which is
well scaled whatever the variances are. The derivative is the natural rule of `solve`.
"""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

import tanjax as tj

from .feature_covariance import FeatureCovariance


def whitened(k: FeatureCovariance) -> tuple[Array, Array]:
    """`Φ √w / N`, and the Cholesky factor of `S`."""
    root = k.features * jnp.sqrt(k.weights)
    over_noise = root / k.noise[:, None]
    return over_noise, jnp.linalg.cholesky(jnp.eye(k.weights.size) + root.T @ over_noise)


@tj.solve.implementation(FeatureCovariance, tj.Dense)
def solve_features(k, b):
    over_noise, factor = whitened(k)
    columns = b[:, None] if b.ndim == 1 else b
    small = jsl.cho_solve((factor, True), over_noise.T @ columns)
    return (columns / k.noise[:, None] - over_noise @ small).reshape(b.shape)
