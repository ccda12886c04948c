"""Random numbers with a state: the key is in memory, and each draw advances it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Scalar

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.inplace(mutates=("x", "key"))
def diffuse(x: Shaped[jax.Ref, " ..."], key: Shaped[jax.Ref, " ..."], size: Scalar) -> None:
    r"""Take a step of a random walk: $x \leftarrow x + \sigma z$ with a fresh normal $z$.

    `x` of any shape; `key` a key of `jax.random`, old or new; `size` the standard deviation.

    **Derivative:** that of the path, for the drawn numbers; the key has none.

    >>> x, key = tj.new_ref((jax.numpy.zeros(2), jax.random.key(0)))
    >>> diffuse(x, key, 0.1)
    >>> first = x[...]
    >>> diffuse(x, key, 0.1)  # other numbers
    >>> bool((x[...] == 2 * first).any())
    False
    """
    kept, used = jax.random.split(key[...])
    key[...] = kept
    x[...] = x[...] + size * jax.random.normal(used, x.shape, x.dtype)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """A vector, with an old key."""
    from tanjax.testing import Case, Samples

    s = Samples(36)
    case = Case(diffuse.transition, s.normal(3), jax.random.PRNGKey(1), s.normal())
    yield case.declare(skip=("dtype",))  # another dtype, other numbers
