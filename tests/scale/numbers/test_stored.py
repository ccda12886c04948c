"""What a dtype makes of numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from tanjax.scale.numbers._stored import rounded_to
from tanjax.scale.numbers._wide import Wide, extent, normalised


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("odd", [(), (0.0, -0.0), (np.inf,), (np.nan, -np.inf)], ids=str)
def test_the_ends_of_what_is_rounded_are_known(dtype, odd):
    """Without a look, and as a look would find them; what is no number stays as it is."""
    rng = np.random.default_rng(0)
    for power in (-50, 0, 70):
        numbers = rng.normal(size=50) * 10.0 ** rng.integers(-3, 4, 50) * 10.0**power
        with np.errstate(invalid="ignore"):
            found = rounded_to(normalised(Wide(np.array([*numbers, *odd]))), dtype)
        assert found.extent == extent(found.array)
        eps = float(jnp.finfo(dtype).eps)
        stored = found.array * 2.0**found.exponent
        np.testing.assert_allclose(stored[:50], numbers, rtol=eps / 2)
        assert np.array_equal(stored[50:], odd, equal_nan=True)
