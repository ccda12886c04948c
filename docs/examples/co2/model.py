r"""A Gaussian process for CO₂, as features with Gaussian weights.

The concentration is a quadratic trend, a slow and a fast smooth deviation from it, and a seasonal
cycle whose shape drifts. Each is a sum of known functions of time with independent Gaussian
weights. So the covariance of the $n$ measurements is $\Phi\,\mathrm{diag}(w)\,\Phi^\top$ plus
diagonal noise: a low-rank update of a diagonal matrix. The features $\Phi$ are fixed; the variances
$w$ and the noise depend on nine hyper-parameters.

The smooth deviations have squared-exponential covariance, in the sine features of Solin & Särkkä,
"Hilbert space methods for reduced-rank Gaussian process regression", 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tanjax as tj

MIDDLE, HALF_WIDTH = 1980.0, 38.0  # years; the sine features vanish at both ends
HARMONICS = 4  # of the year
SINES = 96
TREND_STD = 30.0  # ppm, the broad prior of the three coefficients of the trend


class Parameters(NamedTuple):
    """The hyper-parameters: natural logarithms, except for `noise_growth`."""

    slow_std: Any = np.log(1.0)  # ppm
    slow_length: Any = np.log(8.0)  # years
    fast_std: Any = np.log(0.5)  # ppm
    fast_length: Any = np.log(1.0)  # years
    season_std: Any = np.log(3.0)  # ppm, of the first harmonic
    season_decay: Any = np.log(1.0)  # per harmonic
    drift_std: Any = np.log(0.5)  # ppm, of the seasonal cycle over half of the record
    noise_std: Any = np.log(0.5)  # ppm
    noise_growth: Any = 0.0  # of the logarithm of the noise, over half of the record


START = np.array(Parameters())


def _unit_time(year: Any) -> Any:
    return (jnp.asarray(year) - MIDDLE) / 22.0


def features(year: Any) -> Array:
    """Return the features at some times, shape `(n, 3 + SINES + 4 * HARMONICS)`."""
    s = _unit_time(year)[:, None]
    trend = s ** jnp.arange(3.0)
    j = jnp.arange(1.0, SINES + 1)
    from_edge = jnp.asarray(year)[:, None] - MIDDLE + HALF_WIDTH
    sines = jnp.sin(jnp.pi * j * from_edge / (2 * HALF_WIDTH)) / HALF_WIDTH**0.5
    angle = 2 * jnp.pi * jnp.arange(1.0, HARMONICS + 1) * jnp.asarray(year)[:, None]
    season = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return jnp.concatenate([trend, sines, season, s * season], axis=1)


def variances(p: Parameters) -> Array:
    """Return the prior variance of every feature's weight."""
    frequency = jnp.pi * jnp.arange(1.0, SINES + 1) / (2 * HALF_WIDTH)

    def spectrum(log_std: Any, log_length: Any) -> Any:
        length = jnp.exp(log_length)
        scale = jnp.exp(2 * log_std) * (2 * jnp.pi) ** 0.5 * length
        return scale * jnp.exp(-0.5 * (length * frequency) ** 2)

    sines = spectrum(p.slow_std, p.slow_length) + spectrum(p.fast_std, p.fast_length)
    decay = jnp.exp(-jnp.exp(p.season_decay) * jnp.arange(float(HARMONICS)))
    season = jnp.tile(decay, 2)
    return jnp.concatenate(
        [
            jnp.full(3, TREND_STD**2),
            sines,
            jnp.exp(2 * p.season_std) * season,
            jnp.exp(2 * p.drift_std) * season,
        ]
    )


def noise_variance(p: Parameters, year: Any) -> Array:
    """Return the variance of the measurements, which may grow or shrink over the decades."""
    return jnp.exp(2 * (p.noise_std + p.noise_growth * _unit_time(year)))


Covariance = Callable[[Array, Array, Array], Any]  # of noise, weights, features


def low_rank_update(noise: Array, weights: Array, phi: Array) -> Any:
    """Return the covariance in types of tanjax."""
    return tj.LowRankUpdate(tj.Diagonal(noise), phi, weights)


def likelihood(covariance: Covariance, year: Any, y: Any) -> Callable[[Array], Array]:
    """Return the negative log marginal likelihood, by `solve` and `logdet`, as a function.

    **Arguments:** `covariance`: makes a matrix of any type from noise, weights and features.
    """
    phi, y = features(year), jnp.asarray(y)

    def negative_log_likelihood(theta: Array) -> Array:
        p = Parameters(*theta)
        k = covariance(noise_variance(p, year), variances(p), phi)
        fit = y @ tj.solve(k, y)
        return 0.5 * (fit + tj.logdet(k) + y.size * jnp.log(2 * jnp.pi))

    return negative_log_likelihood


def dense_likelihood(year: Any, y: Any) -> Callable[[Array], Array]:
    """Return the same function in plain JAX, by a Cholesky factor of the n-by-n covariance."""
    phi, y = features(year), jnp.asarray(y)

    def negative_log_likelihood(theta: Array) -> Array:
        p = Parameters(*theta)
        k = jnp.diag(noise_variance(p, year)) + (phi * variances(p)) @ phi.T
        factor = jnp.linalg.cholesky(k)
        z = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        return 0.5 * (z @ z + logdet + y.size * jnp.log(2 * jnp.pi))

    return negative_log_likelihood


class Posterior(NamedTuple):
    """The process given the measurements, at some times, in ppm minus the mean of the record."""

    mean: Array
    std: Array  # of the process
    total_std: Array  # of a new measurement


def posterior(covariance: Covariance, theta: Any, year: Any, y: Any, at: Any) -> Posterior:
    """Return the posterior at times `at`, without any n-by-n matrix."""
    p, phi, phi_at = Parameters(*jnp.asarray(theta)), features(year), features(at)
    w = variances(p)
    k = covariance(noise_variance(p, year), w, phi)
    prior = phi * w  # the covariance of the measurements with the weights
    solved = tj.solve(k, jnp.concatenate([jnp.asarray(y)[:, None], prior], axis=1))
    mean = phi_at @ (prior.T @ solved[:, 0])
    weights = jnp.diag(w) - prior.T @ solved[:, 1:]
    variance = jnp.maximum(jnp.sum((phi_at @ weights) * phi_at, axis=1), 0)
    return Posterior(mean, jnp.sqrt(variance), jnp.sqrt(variance + noise_variance(p, at)))
