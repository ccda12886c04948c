"""How exponents are chosen: for how long they are looked for."""

import jax
import jax.numpy as jnp
import pytest

from tanjax.scale._plan import plan
from tanjax.scale.assign import _problem

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("equations", "seconds"), [(3, 3.0), (600, 1.0)])
def test_exponents_of_small_programs_have_more_time(monkeypatch, equations, seconds):
    """So that what HiGHS finds does not depend on the machine; large ones never go there."""
    given = []
    assign = _problem.assign_exponents
    note = lambda *a: given.append(a[4]) or assign(*a)
    monkeypatch.setattr(_problem, "assign_exponents", note)

    def there_and_back(x):
        for _ in range(equations):
            x = x * 1e30 * 1e-30 + 1
        return x

    x = jnp.full(2, 1e10, jnp.float32)
    plan(jax.make_jaxpr(there_and_back)(x), [x], [False])
    assert 0.8 * seconds < given[0] <= seconds
