"""Numbers for cases: fixed, generic, well conditioned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax.arrays import AbstractArray


class Samples:
    """A source of arrays in double precision, the same in every run.

    `s = Samples(0)`, then `tj.Symmetric(s.definite(3))`, `s.normal(3, 2)`, `s.complex(2, 2)`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> PyTree:
        """Return normal numbers around 0.3."""
        return jax.device_put(np.asarray(self._rng.normal(0.3, 1.0, shape)))

    def complex(self, *shape: int) -> PyTree:
        """Return complex normal numbers."""
        parts = self._rng.normal(0.3, 1.0, (2, *shape))
        return jax.device_put(np.asarray(parts[0] + 1j * parts[1]))

    def positive(self, *shape: int) -> PyTree:
        """Return numbers between 0.5 and 2."""
        return jax.device_put(np.asarray(self._rng.uniform(0.5, 2.0, shape)))

    def regular(self, n: int, *, complex: bool = False) -> PyTree:
        """Return a general square matrix, well conditioned for solves."""
        noise = self.complex(n, n) if complex else self.normal(n, n)
        return 0.4 * noise + (1.5 + n / 2) * jnp.eye(n, dtype=noise.dtype)

    def definite(self, n: int, *, complex: bool = False) -> PyTree:
        """Return a Hermitian positive definite matrix, well conditioned."""
        half = self.complex(n, n) if complex else self.normal(n, n)
        return 0.3 * half @ jnp.conj(half.T) + jnp.diag(self.positive(n)).astype(half.dtype)


def examples_of(kind: type) -> list[PyTree]:
    """Return generic instances of an array type, if it has any (see `AbstractArray.examples`)."""
    return kind.examples(Samples(1)) if issubclass(kind, AbstractArray) else []
