"""An operation of torch as a function of payloads, the one lookup of the bridge.

For dense arrays: an entry of the overload, of its packet, or torch's decomposition. For structured
ones: an entry for their types, then the registry of operations, then densifying with a warning.
"""

from __future__ import annotations

import jax
from torch._ops import OpOverload

from tanjax._errors import NoRuleError
from tanjax_torch._typing import Argument, Function, Outcome

from ._decompositions import decomposed
from ._kernels import Kernel
from ._registry import Entry, dense_entry, no_rule, remembered


@remembered
def call_of(op: OpOverload) -> Function:
    """The operation on dense arrays.

    **Raises:** `NoRuleError` where it has neither an entry nor a decomposition.
    """
    entry = dense_entry(op)
    if entry is not None:
        return Kernel(op, entry)
    entry = decomposed(op)
    if entry is None:
        raise no_rule(op)
    return _Decomposed(op, entry)


class _Decomposed:
    """A definition by torch, compiled unless it reads values: then it runs at each call."""

    def __init__(self, op: OpOverload, entry: Entry) -> None:
        self._kernel, self._eager = Kernel(op, entry), Kernel(op, entry._replace(eager=True))

    def __call__(self, *args: Argument, **kwargs: Argument) -> Outcome:
        try:
            return self._kernel(*args, **kwargs)
        except (jax.errors.ConcretizationTypeError, NoRuleError) as error:
            needs_values = (error, error.__cause__)  # its own code, or an entry that it calls
            if not any(isinstance(e, jax.errors.ConcretizationTypeError) for e in needs_values):
                raise
            self._kernel = self._eager
            return self._kernel(*args, **kwargs)
        except RecursionError:  # torch's definition calls itself: its kernel is in C++
            raise no_rule(self._kernel.op) from None
