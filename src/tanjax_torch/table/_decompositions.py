"""Torch's own decompositions, run on traced tensors inside of a kernel.

Torch defines most of ATen in terms of fewer operations. A definition is Python code on tensors. Run
once on tensors over tracers, it is a function of arrays like any entry, compiled like one. Tensors
that it makes from nothing (`torch.zeros`) become ours too.
"""

from __future__ import annotations

import functools

import jax
import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from tanjax_torch._typing import Args, Argument, Function, Kwargs, Outcome, Types
from tanjax_torch.arguments._keys import under_trace
from tanjax_torch.arguments._promotion import needs
from tanjax_torch.tensor._lift import quietly
from tanjax_torch.tensor._plain import copied, is_tensor
from tanjax_torch.tensor._tensor import SERVING, Tensor, tensor, unwrapped

from ._left import KINDS_OF
from ._registry import Entry

aten = torch.ops.aten
_EXPLICIT = (
    torch._C.DispatchKey.CompositeExplicitAutograd,
    torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional,
)


def definition(op: OpOverload) -> Function | None:
    """Torch's definition of an operation by others: a function of tensors, or `None`."""
    if is_composite(op):
        return op.decompose
    if op in decomposition_table:
        return decomposition_table[op]
    if op.namespace == "prims":  # their definitions use operations that use prims
        return None
    for key in _EXPLICIT:
        if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key.name):
            return lambda *args, **kwargs: op._op_dk(key, *args, **kwargs)
    return None


def is_composite(op: OpOverload) -> bool:
    """True if torch defines the operation and its derivative by other operations."""
    return op._can_decompose()


def decomposed(op: OpOverload) -> Entry | None:
    """Return torch's definition as an entry with static numbers: its code may branch on them."""
    define = definition(op)
    if define is None:
        return None
    kinds = KINDS_OF.get(op.overloadpacket.__name__)
    names = frozenset(a.name for a in op._schema.arguments if "Tensor" not in str(a.type))

    def run(*args: Argument, **kwargs: Argument) -> Outcome:
        if kinds is not None:
            needs(str(op), kinds, *[a for a in args if isinstance(a, jax.Array)])
        with torch._C._AutoDispatchBelowAutograd(), quietly(), factories(integers=True):
            named = {n: _tensor(a) for n, a in kwargs.items()}
            return unwrapped(define(*[_tensor(a) for a in args], **named))

    return Entry(run, names)


class factories(TorchDispatchMode):
    """Turn tensors that torch makes from nothing into ours, in the `with` block.

        with tjt.factories():
            model = nn.Linear(3, 2)  # parameters over arrays of JAX
            padded, lengths = pad_packed_sequence(packed)  # makes zeros, and writes into them

    **Arguments:** `integers`: if true, integers too. Otherwise they stay plain, since torch's own
    code reads some of them from memory, and plain ones join ours as indices.

    A plain tensor from elsewhere stays plain, and so does every view of it.
    """

    def __init__(self, integers: bool = False) -> None:
        super().__init__()
        self._integers = integers

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs | None = None
    ) -> Outcome:
        if _drawn(func, args):
            return SERVING[0](func, (), args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        ours = any(issubclass(t, Tensor) for t in types)  # plain results of an entry stay plain
        if ours or not makes_memory(func, args):
            return out
        change = functools.partial(self._as_ours, "empty" in func.name())
        return torch.utils._pytree.tree_map_only(torch.Tensor, change, out, is_leaf=is_tensor)

    def _as_ours(self, empty: bool, t: torch.Tensor) -> torch.Tensor:
        number = t.is_floating_point() or t.is_complex()
        if isinstance(t, Tensor) or t.device.type == "meta" or not (number or self._integers):
            return t
        return tensor(copied(t.zero_() if empty else t))


def makes_memory(op: OpOverload, args: Args) -> bool:
    """True if the results of an operation on plain tensors lie in a memory of their own.

    Torch's C++ takes views (`detach`) of a plain tensor, and a copy of a conjugate one, before it
    reads the numbers from memory, as for `t.numpy()`: these must stay plain.
    """
    if op in (aten.lift_fresh.default, aten.lift.default):  # the numbers of `torch.tensor`
        return True
    resolved = op is aten.clone.default and (args[0].is_conj() or args[0].is_neg())
    return not (op.is_view or op._schema.is_mutable or resolved)


def _drawn(func: OpOverload, args: Args) -> bool:
    """True if numbers are drawn while tracing, from nothing: torch's would be constants."""
    seeded = torch.Tag.nondeterministic_seeded in func.tags and under_trace()
    leaves = torch.utils._pytree.tree_leaves(args) if seeded else ()
    return seeded and not any(isinstance(a, torch.Tensor) for a in leaves)


def _tensor(a: Argument) -> Argument:
    if isinstance(a, jax.Array):
        return tensor(a)
    return [_tensor(x) for x in a] if isinstance(a, (list, tuple)) else a
