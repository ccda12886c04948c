"""Words for annotations of the bridge: what torch's operations take and give.

`tanjax._typing` has those for arrays and trees; of torch itself its classes serve.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import NotImplementedType
from typing import Any, TypeAlias

import jax
import numpy as np
import torch
from torch._ops import OpOverload, OpOverloadPacket

from tanjax._typing import AnyArray, Function

# What a tensor of ours holds: an array of JAX or of our types, a quantity, or a gradient in stored
# coordinates (`_structural`). They have no class in common.
Payload: TypeAlias = AnyArray
Payloads: TypeAlias = tuple[Payload, ...]
Payloadlike: TypeAlias = Payload | NotImplementedType  # of a function that leaves cases to others

# What an operation is called with: tensors, or payloads in their place, numbers, dims, flags,
# dtypes, and lists of these, as its schema says.
Argument: TypeAlias = Any
Args: TypeAlias = Sequence[Argument]
Kwargs: TypeAlias = dict[str, Argument]
# What it gives, as its schema says: a tensor or its payload, several of them, a number, nothing.
Outcome: TypeAlias = Any

# What a program holds: parameters, buffers and constants, by name.
State: TypeAlias = dict[str, Payload]

# An array, or torch's `Scalar`, which is traced unless an entry says that it is static.
Number: TypeAlias = int | float | complex | jax.Array
# The same for those who ask by `is_number`, after which a union would know no more.
Operand: TypeAlias = AnyArray
Dims: TypeAlias = int | Sequence[int] | None
Dtype: TypeAlias = torch.dtype | None
Device: TypeAlias = torch.device | str | int | None
Generator: TypeAlias = torch.Generator | None  # in entries `None`: their kernel draws a key
Tolerance: TypeAlias = float | jax.Array | None
Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # on the host
# A key of JAX, or two words of 32 bits, which it takes as one and does not declare.
RandomKey: TypeAlias = AnyArray
Op: TypeAlias = OpOverload | OpOverloadPacket
# How an overload runs: whether some arguments are structured, arguments, arguments by name.
Plan: TypeAlias = Callable[[bool, Args, Kwargs], Outcome]
# What answers a call of torch's: a function, the classes of the tensors in it, and its arguments.
Types: TypeAlias = Collection[type]
Dispatch: TypeAlias = Callable[[Op | Function, Types, Args, Kwargs], Outcome]
Change: TypeAlias = Callable[[Payload], Payload]

__all__ = [
    "Args",
    "Argument",
    "Change",
    "Device",
    "Dims",
    "Dispatch",
    "Dtype",
    "Function",
    "Generator",
    "Kwargs",
    "Number",
    "Numbers",
    "Op",
    "Operand",
    "Outcome",
    "Payload",
    "Payloadlike",
    "Payloads",
    "Plan",
    "RandomKey",
    "State",
    "Tolerance",
    "Types",
]
