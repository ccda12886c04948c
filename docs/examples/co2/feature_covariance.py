"""Code of a library author: a custom covariance type, from two lines to closed forms.

`PlainCovariance` defines only `to_dense`. Every operation and derivative works, by the dense
matrix. `FeatureCovariance` adds the maps that the natural rules of tanjax use. The modules
`feature_solve` and `feature_logdet` implement `solve`, `inv` and `logdet`. None of this defines a
derivative of an operation: tanjax's natural rules of `solve` and `logdet` hold for any array type.
`feature_rules` replaces them by faster ones.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

import tanjax as tj


@tj.register_array_type
class PlainCovariance(tj.AbstractArray):
    """`diag(noise) + features @ diag(weights) @ features.T`, and nothing else."""

    noise: Array
    weights: Array
    features: Array

    def to_dense(self) -> Array:
        return jnp.diag(self.noise) + (self.features * self.weights) @ self.features.T


@tj.register_array_type
class FeatureCovariance(tj.AbstractArray):
    """The same matrix, with closed forms."""

    noise: Array
    weights: Array
    features: Array

    def to_dense(self) -> Array:
        return jnp.diag(self.noise) + (self.features * self.weights) @ self.features.T

    def apply(self, b: Array) -> Array:
        noise = self.noise if b.ndim == 1 else self.noise[:, None]
        weights = self.weights if b.ndim == 1 else self.weights[:, None]
        return noise * b + self.features @ (weights * (self.features.T @ b))

    def transposed(self) -> FeatureCovariance:
        return self

    def diagonal(self) -> Array:
        return self.noise + jnp.sum(self.weights * self.features**2, axis=1)

    def pullback_of_destructure(self, natural) -> FeatureCovariance:
        # The cotangent of the matrix may be an outer product or an inverse in factored form. Its
        # diagonal and its products with the thin features never form the matrix.
        product = tj.matmul(natural, self.features)
        return FeatureCovariance(
            noise=tj.linalg.diagonal(natural),
            weights=jnp.sum(self.features * product, axis=0),
            features=(product + tj.matmul(natural.mT, self.features)) * self.weights,
        )
