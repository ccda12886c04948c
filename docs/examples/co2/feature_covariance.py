"""What a library author writes: a covariance type of one's own, from two lines to closed forms.

`PlainCovariance` says what it is and nothing more; every operation and derivative works, by
forming the dense matrix. `FeatureCovariance` adds the maps that the natural rules of tanjax ask
for. The modules `feature_solve` and `feature_logdet` then say how to solve, invert and take
determinants. So far nobody has written a derivative of an operation: the natural rules of `solve`
and `logdet` that tanjax ships hold for any array type. `feature_rules` replaces them by faster
ones.
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
        # The cotangent of the matrix is asked for its diagonal and for products with the thin
        # features. It may be an outer product or an inverse in factored form: nobody forms it.
        product = tj.matmul(natural, self.features)
        return FeatureCovariance(
            noise=tj.diagonal(natural),
            weights=jnp.sum(self.features * product, axis=0),
            features=(product + tj.matmul(natural.mT, self.features)) * self.weights,
        )
