r"""Code of a library author, continued: the import of this module adds the new type to `solve`.

The solver is Woodbury's identity with the small matrix
$S = I + \sqrt w\,\Phi^\top N^{-1}\Phi\sqrt w$, which is well scaled for all variances. The
derivative is the natural rule of `solve`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

import tanjax as tj

from .feature_covariance import FeatureCovariance


class Whitened(NamedTuple):
    """The factors of a covariance for Woodbury's identity."""

    columns: Array  # Φ √w / N
    factor: Array  # the Cholesky factor of S


def whitened(k: FeatureCovariance) -> Whitened:
    root = k.features * jnp.sqrt(k.weights)
    columns = root / k.noise[:, None]
    return Whitened(columns, jnp.linalg.cholesky(jnp.eye(k.weights.size) + root.T @ columns))


def woodbury(k: FeatureCovariance, whitened: Whitened, b: Array) -> Array:
    small = jsl.cho_solve((whitened.factor, True), whitened.columns.T @ b)
    return (b.T / k.noise).T - whitened.columns @ small


@tj.solve.implementation(FeatureCovariance, tj.Dense)
def solve_features(k, b):
    return woodbury(k, whitened(k), b)
