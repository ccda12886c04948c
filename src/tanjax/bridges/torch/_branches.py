"""Torch's control flow on tensors, `torch.cond` and `while_loop`, as JAX's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jax import lax
from jaxtyping import PyTree
from torch._ops import HigherOrderOperator

from ._registry import no_rule
from ._typing import Args, Function

Run = Callable[[Function, Args], PyTree]  # a function of tensors, on arrays


def branched(op: HigherOrderOperator, args: Args, run: Run) -> PyTree:
    """What an operation that takes functions gives, on arrays.

    **Raises:** `NoRuleError` for one that is neither a `cond` nor a `while_loop`.
    """
    if op is torch.ops.higher_order.cond:
        predicate, yes, no, operands = args
        if isinstance(predicate, bool):
            return run(yes if predicate else no, operands)
        return lax.cond(
            predicate.reshape(()),
            lambda given: _plain(run(yes, given)),
            lambda given: _plain(run(no, given)),
            tuple(operands),
        )
    if op is torch.ops.higher_order.while_loop:
        goes_on, body, carried, rest = args
        return lax.while_loop(
            lambda state: run(goes_on, (*state, *rest)).reshape(()),
            lambda state: _plain(run(body, (*state, *rest))),
            tuple(carried),
        )
    raise no_rule(op)


def _plain(out: PyTree) -> PyTree:
    """Several results as a tuple, whatever kind of list a graph gives."""
    return tuple(out) if isinstance(out, (list, tuple)) else out
