"""The adjoint test, for any JAX function."""

from __future__ import annotations

import jax
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._typing import Function

from ._coordinates import Coordinates, random, require_double
from ._record import CheckResult, Recorder


def check_adjoint(f: Function, *primals: PyTree, tolerance: float = 1e-10) -> CheckResult:
    """Check `⟨ȳ, J ẋ⟩ = ⟨Jᵀ ȳ, ẋ⟩` for any JAX function, on structural (co)tangents.

    The test shows that both modes belong to one linear map, not that the map is right: a
    consistently wrong pair passes. **Raises:** `CheckFailure`.
    """
    require_double("check_adjoint", primals)
    recorder = Recorder(f"check_adjoint({getattr(f, '__name__', 'function')})")
    inputs = Coordinates(primals)
    tangents = inputs.tangent(random(inputs.size, 41))
    out, moved = jax.jvp(f, primals, tangents)
    _, pull = jax.vjp(f, *primals)
    outputs = Coordinates(out)
    out_bar = outputs.cotangent(random(outputs.size, 42))
    bars = pull(out_bar)
    recorder.compare(
        "adjoint", "⟨Jᵀ ȳ, ẋ⟩", arrays.inner_product(bars, tangents),
        arrays.inner_product(out_bar, moved), tolerance, zero=False,
    )  # fmt: skip
    return recorder.finish()
