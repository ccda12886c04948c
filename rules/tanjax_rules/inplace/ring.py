"""A ring buffer: the last few values of a stream, with its head in the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Integer, Shaped

import tanjax as tj
from tanjax.typing import DenseArray

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.inplace(mutates=("buffer", "head"))
def push(
    buffer: Shaped[jax.Ref, "n ..."], head: Integer[jax.Ref, ""], value: Shaped[DenseArray, " ..."]
) -> Shaped[DenseArray, " ..."]:
    """Overwrite the oldest of n values by `value`, move the head, and return the oldest.

    `buffer` has shape `(n, ...)`, `head` is an integer, `value` has shape `(...)`.

    **Cost:** that of one value, also in reverse mode (with JAX 0.12; see `tj.refs.discharge`).
    **Derivative:** that of the program; the head, an integer, has none.

    >>> buffer, head = tj.new_ref((jnp.zeros(2), 0))
    >>> [float(push(buffer, head, jnp.asarray(x))) for x in (1.0, 2.0, 3.0)]
    [0.0, 0.0, 1.0]
    >>> buffer[...].tolist(), int(head[...])
    ([3.0, 2.0], 1)
    """
    k = head[...]
    oldest = buffer[k]
    buffer[k] = value
    head[...] = (k + 1) % buffer.shape[0]
    return oldest


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Vectors."""
    from tanjax.testing import Case, Samples

    s = Samples(35)
    yield Case(push.transition, s.complex(2, 3), jnp.asarray(0), s.complex(3))
