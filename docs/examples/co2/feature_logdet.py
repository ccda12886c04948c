"""Code of a library author, continued: `logdet`, and `inv`, which its natural rule uses."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

import tanjax as tj

from .feature_covariance import FeatureCovariance
from .feature_solve import Whitened, whitened


def log_determinant(k: FeatureCovariance, whitened: Whitened) -> Array:
    """Return the log-determinant by the matrix determinant lemma."""
    return jnp.sum(jnp.log(k.noise)) + 2 * jnp.sum(jnp.log(jnp.diagonal(whitened.factor)))


def inverse(k: FeatureCovariance, whitened: Whitened) -> tj.LowRankUpdate:
    """Return the inverse, again diagonal plus low rank, in types of tanjax and in factored form."""
    half = jsl.solve_triangular(whitened.factor, whitened.columns.T, lower=True).T
    return tj.LowRankUpdate(tj.Diagonal(1 / k.noise), half, None, -half)


@tj.logdet.implementation(FeatureCovariance)
def logdet_features(k):
    return log_determinant(k, whitened(k))


@tj.inv.implementation(FeatureCovariance)
def inv_features(k):
    return inverse(k, whitened(k))
