"""What a dtype makes of numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from tanjax.scale.numbers._stored import rounded_to, saturated
from tanjax.scale.numbers._wide import Wide, as_float, extent, normalised, split


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


@pytest.mark.parametrize("exponent", [-400_000, 0, 400_000])
def test_infinities_are_cut_off_at_the_largest_number_of_their_exponent(exponent):
    """Far below everything else, too, where 2^-400,000 is no number of float64."""
    found = saturated(Wide(np.array([np.inf, 3.0, -np.inf, 0.0])), jnp.float32, exponent)
    mantissas, powers = split(found.array)
    powers = np.broadcast_to(powers + found.exponent, 4)
    np.testing.assert_array_equal(powers[:3], [exponent + 128, 2, exponent + 128])
    np.testing.assert_allclose(mantissas, [1.0, 0.75, -1.0, 0.0], rtol=1e-7)


def test_numbers_below_float64_keep_their_sign():
    found = as_float(Wide(np.array([-0.5, 0.5, 0.0, -0.5]), np.array([-5000, -5000, 0, 5000])))
    assert np.sign(found).tolist() == [-1.0, 1.0, 0.0, -1.0]
    assert np.isfinite(found).all()
