"""Torch's OpInfo database: what of it is core ATen, and its sample inputs."""

import functools
import sys
import types
import unittest

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_cases import seeded

CORE, REACH, MORE = "core", "reach", "more"
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
BACKWARD = (torch.float32, torch.float64)

# Not run: what they are has no meaning for a tensor over an array of JAX.
EXCLUDED = {
    "jiterator_unary": "compiles CUDA source",
    "jiterator_binary": "compiles CUDA source",
    "jiterator_4inputs_with_extra_args": "compiles CUDA source",
    "jiterator_binary_return_by_ref": "compiles CUDA source",
    "jiterator_2inputs_2outputs": "compiles CUDA source",
    "to_sparse": "sparse layouts",
    "sparse.mm": "sparse layouts",
    "sparse.sampled_addmm": "sparse layouts",
    "broadcast_shapes": "works on sizes only, never reaches a tensor",
}
# Their values are undefined: dtype and shape are compared.
UNDEFINED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
# Torch itself is less exact: its gradient of `hardsigmoid` has 1 / 6 in float32.
LESS_EXACT = {"nn.functional.hardsigmoid": {torch.float64: 1e-7}}
# Torch leaves open which of equal entries an index means.
TIES = ("topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "mode")
_NEUTRAL = ("detach", "lift_fresh", "lift")  # copies of a reference: torch tags them nothing


@functools.cache
def database():
    """Torch's OpInfos. Its module wants `expecttest` for a base class that is not used here."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        try:
            import expecttest  # noqa: F401
        except ImportError:
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.name not in EXCLUDED]


@functools.cache
def core_overloads():
    """The overloads that torch tags as core ATen."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        if space == "aten":
            packet, _, overload = rest.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if torch.Tag.core in op.tags:
                found.append(op)
    return sorted(found, key=str)


@functools.cache
def core_names():
    """The names of core ATen."""
    return frozenset(op.overloadpacket.__name__ for op in core_overloads())


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


def reached(op, samples=2):
    """The overloads that the first samples of an OpInfo reach on plain torch."""
    dtype = next((d for d in DTYPES if d in op.dtypes), None)
    found = []
    if dtype is not None:
        for _, sample in zip(range(samples), samples_of(op, dtype, False, 0), strict=False):
            with _Recording() as recording:
                try:
                    op.op(sample.input, *sample.args, **sample.kwargs)
                except Exception:
                    continue
            found += recording.ops
    return found


def group_of(op):
    """`core`, `reach` or `more`."""
    if {op.aten_name, op.name} & core_names():
        return CORE
    names = {_functional_name(r) for r in reached(op) if r.namespace == "aten"} - set(_NEUTRAL)
    return REACH if names and names <= core_names() | _lowered() else MORE


@functools.cache
def _lowered():
    return {op.overloadpacket.__name__ for op in torch._decomp.core_aten_decompositions()}


def _functional_name(op):
    name = op.overloadpacket.__name__
    return name if name.endswith("__") else name.removesuffix("_")


def samples_of(op, dtype, requires_grad, seed):
    """Sample inputs for the CPU, the same at each call."""
    seeded(seed)
    with torch.random.fork_rng():
        return iter(list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)))


def is_random(op):
    """Whether an OpInfo draws random numbers."""
    return any(torch.Tag.nondeterministic_seeded in r.tags for r in reached(op, 10))
