"""What a library author writes, continued: `logdet`, and the `inv` that its natural rule asks for."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl

import tanjax as tj

from .feature_covariance import FeatureCovariance
from .feature_solve import whitened


@tj.logdet.implementation(FeatureCovariance)
def logdet_features(k):
    _, factor = whitened(k)
    return jnp.sum(jnp.log(k.noise)) + 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))


@tj.inv.implementation(FeatureCovariance)
def inv_features(k):
    """Again diagonal plus low rank, in types that tanjax ships; nobody forms the inverse."""
    over_noise, factor = whitened(k)
    half = jsl.solve_triangular(factor, over_noise.T, lower=True).T
    return tj.LowRankUpdate(tj.Diagonal(1 / k.noise), half, None, -half)
