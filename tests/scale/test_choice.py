"""How exponents are chosen: for how long they are looked for."""

import jax
import jax.numpy as jnp
import pytest

from tanjax.scale._judged import Judged
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


def test_exponents_that_lose_what_plain_jax_has_are_worse_than_any_that_lose_other_entries():
    judged = lambda worse, lost: Judged(lost, worse, [], [])
    best, some, many, worse = (judged(*n) for n in ((0, 0), (0, 2), (0, 9), (1, 1)))
    assert best.badness < some.badness < many.badness < worse.badness
    assert best.is_right
    assert not some.is_right
