"""Aliases for annotations of the bridge: arguments and results of torch's operations.

`tanjax._typing` has those for arrays and trees.
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

# The payload of a tensor of ours: an array of JAX or of our types, a quantity, or a gradient in
# stored coordinates (`_structural`). They have no class in common.
Payload: TypeAlias = AnyArray
Payloads: TypeAlias = tuple[Payload, ...]
Payloadlike: TypeAlias = Payload | NotImplementedType  # of a function that leaves cases to others

# An argument of an operation, as its schema says: a tensor or its payload, a number, dims, a flag,
# a dtype, or a list of these.
Argument: TypeAlias = Any
Args: TypeAlias = Sequence[Argument]
Kwargs: TypeAlias = dict[str, Argument]
# A result, as the schema says: a tensor or its payload, several of them, a number, nothing.
Outcome: TypeAlias = Any

# The arrays of a program: parameters, buffers and constants, by name.
State: TypeAlias = dict[str, Payload]

# An array, or torch's `Scalar`, which is traced unless an entry says that it is static.
Number: TypeAlias = int | float | complex | jax.Array
# The same for code that tests by `is_number`, which does not narrow a union.
Operand: TypeAlias = AnyArray
Dims: TypeAlias = int | Sequence[int] | None
Dtype: TypeAlias = torch.dtype | None
Device: TypeAlias = torch.device | str | int | None
Generator: TypeAlias = torch.Generator | None  # in entries `None`: their kernel draws a key
Tolerance: TypeAlias = float | jax.Array | None
Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # on the host
# A key of JAX, or two words of 32 bits, which JAX accepts and does not declare.
RandomKey: TypeAlias = AnyArray
Op: TypeAlias = OpOverload | OpOverloadPacket
# The plan of an overload takes a flag for structured arguments, arguments, arguments by name.
Plan: TypeAlias = Callable[[bool, Args, Kwargs], Outcome]
# The handler of a call. It takes the function, the classes of the tensors in it, and the arguments.
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
