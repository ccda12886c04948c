"""No function of quantities sees how a number is divided between array and label.

A metre is 2^-3 times 2^3 m. Every call of the conformance table is made with a power of two of its
own in the label of each argument, and must give what plain JAX gives in SI.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from calls import GROUPS, Q, compare, face, raw


def relabelled(tree, seed):
    """The same quantities with a power of two of their own in every label."""
    random = np.random.default_rng(seed)

    def move(q):
        if type(q) is not Q:
            return q
        q = q.quantity
        if not jnp.issubdtype(q.dtype, jnp.inexact):
            return q
        k = int(random.integers(-40, 40))
        return tj.Quantity(q.stored * 2.0**-k, q.unit, k)

    return jax.tree.map(move, tree, is_leaf=lambda x: type(x) is Q or x is None)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_function_regards_the_exponent(group):
    """A metre is 2^-3 times 2^3 m: no function may see a difference."""
    wrong = []
    for i, call in enumerate(GROUPS[group]):
        if raw(call) is None:
            continue
        args, kwargs = relabelled((call.args, call.kwargs), i)
        try:
            found = compare(face(call)(*args, **kwargs), call.plain(), call.expected)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            wrong.append(f"{call}: {found[:200]}")
    assert wrong == []
