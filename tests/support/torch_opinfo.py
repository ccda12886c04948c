"""Torch's OpInfo database on plain torch and on our tensors of the same numbers, compared.

    python tests/support/torch_opinfo.py --samples 6 --json results.json [--only add,mul]

A case is a call of an operation on one of its sample inputs: forward, and backward with a random
cotangent if the database says that a gradient exists. The answer of a case is one of these:

* `right`: values, dtypes, shapes and gradients are torch's;
* `wrong value`, `wrong type` (a dtype, a shape or the number of results), `wrong gradient`;
* `cut gradient`: a result or an input has no gradient although torch's has;
* `refused`: an error of ours names the missing part; `raises`: another error;
* `not raised` (of error inputs): torch refuses the arguments, and ours gives a result.

Numbers agree if they differ by less than 2e-5 (float32) or 1e-9 (float64). The error is relative to
the largest entry of the array, or to 0.01, as a result may be the rounding of a 0. If float32
differs by more, torch in float64 judges: ours may be at most four times as far from it as torch in
float32 is.

The names of core ATen are those of the operations with an overload that torch tags `Tag.core`.
Every OpInfo belongs to one group:

* `core`: its name (`aten_name` or `name`) is in this set;
* `reach`: a function with another name (`nn.functional.linear`, `fft.rfft`, `std`). Its first
  sample inputs, run on plain torch, reach only operations of core ATen, or operations that
  `torch._decomp.core_aten_decompositions()`, the table of `torch.export`, defines by core ATen;
* `more`: all the others. They are measured too, and counted apart.

The cases of an OpInfo are its first `--samples` sample inputs for the CPU: forward and backward in
float32 and float64, forward in int64, bool and complex64. The first sample in float32 also runs the
in-place and the `out=` variant. For its error inputs torch raises, and so must ours. Some results
are compared in dtype and shape only: those of `empty_like` and similar functions, and those that
differ for eight seeds on plain torch.

Each operation has `--limit` seconds, in a process that is started again if it hangs or dies.
"""

import argparse
import functools
import inspect
import json
import multiprocessing
import platform
import random
import sys
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tanjax as tj
from tanjax.bridges import torch as tjt

RIGHT, VALUE, TYPE, GRADIENT = "right", "wrong value", "wrong type", "wrong gradient"
CUT, REFUSED, RAISES, NOT_RAISED = "cut gradient", "refused", "raises", "not raised"
OURS = (tjt.DtypeError, tjt.TensorError)
OURS += tuple(c for c in vars(tj).values() if inspect.isclass(c) and issubclass(c, Exception))
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
BACKWARD = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 2e-5, torch.complex64: 2e-5}
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}

# Not run: CUDA code, sparse layouts, and sizes that never reach a tensor.
EXCLUDED = ("jiterator_", "to_sparse", "sparse.", "broadcast_shapes")
# Their values are undefined: dtype and shape are compared.
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided")
UNDEFINED += ("new_empty", "new_empty_strided")
# Torch itself is less exact: its gradient of `hardsigmoid` has 1 / 6 in float32.
LESS_EXACT = {"nn.functional.hardsigmoid": {torch.float64: 1e-7}}
# Torch leaves the choice among indices of equal entries open.
TIES = ("topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "mode")
# Neither an entry nor a decomposition, operations on memory, creation: parts of names.
UNSERVED = ("polynomial", "bessel_j", "bessel_k", "bessel_y", "airy", "ldl_", "fractional_max")
UNSERVED += ("histogram", "hash_tensor", "segment_reduce", "chalf", "resize", "tensor_split")
UNSERVED += ("linear_cross_entropy", "signal.windows")
_NEUTRAL = {"detach", "lift_fresh", "lift"}  # copies of a reference: torch tags them nothing


@functools.cache
def database():
    """Return torch's OpInfos. Their module needs `expecttest` for a base class unused here."""
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not op.name.startswith(EXCLUDED)]


@functools.cache
def core_overloads():
    """Return the overloads that torch tags as core ATen."""
    names = [n.partition("::")[2] for n in torch._C._dispatch_get_all_op_names() if "aten::" in n]
    parts = [name.partition(".") for name in names]
    ops = [getattr(getattr(torch.ops.aten, p), overload or "default") for p, _, overload in parts]
    return sorted((op for op in ops if torch.Tag.core in op.tags), key=str)


@functools.cache
def core_names():
    """Return the names of core ATen."""
    return frozenset(op.overloadpacket.__name__ for op in core_overloads())


class _Recording(TorchDispatchMode):
    """Record the names of the called operations, without the underscore of a write."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if func.namespace == "aten":
            self.names.add(name if name.endswith("__") else name.removesuffix("_"))
        return func(*args, **(kwargs or {}))


def group_of(op):
    """Return `core`, `reach` or `more`."""
    if {op.aten_name, op.name} & core_names():
        return "core"
    dtype = next((d for d in DTYPES if d in op.dtypes), None)
    recording = _Recording()
    recording.names = set()
    for sample in samples_of(op, dtype, False, 0)[:2] if dtype else ():
        try:
            with recording:
                op.op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
    lowered = {op.overloadpacket.__name__ for op in torch._decomp.core_aten_decompositions()}
    names = recording.names - _NEUTRAL
    return "reach" if names and names <= core_names() | lowered else "more"


_MANUAL_SEED = torch.manual_seed  # some OpInfos set a seed themselves: that seed is replaced


def _seed(seed):
    _MANUAL_SEED(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def samples_of(op, dtype, requires_grad, seed):
    """Return sample inputs for the CPU, the same at each call."""
    _seed(seed)
    with torch.random.fork_rng():
        return list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))


class Mismatch(Exception):
    """A difference; `answer` is its kind."""

    def __init__(self, answer, words):
        super().__init__(words)
        self.answer = answer


class _FromNothing(TorchDispatchMode):
    """Answer operations without a tensor among their arguments by our table."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return tjt.Tensor.__torch_dispatch__(func, types, args, kwargs)


def plain(t):
    """Return the same numbers, as a leaf."""
    return t.detach().clone().requires_grad_(t.requires_grad)


def ours(t):
    """Return a leaf of ours with the same numbers."""
    return tjt.from_torch(t.detach()).requires_grad_(t.requires_grad)


def wide(t):
    """Return the same numbers with twice the bits."""
    dtype = WIDER.get(t.dtype, t.dtype)
    return t.detach().to(dtype, copy=True).requires_grad_(t.requires_grad)


def tensors_of(tree):
    """Return the tensors among results or arguments, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def back(t):
    """Return a plain tensor with the numbers of ours."""
    found = tjt.to_torch(t.detach()) if isinstance(t, tjt.Tensor) else t.detach()
    if found.dtype != t.dtype or found.shape != t.shape:
        raise Mismatch(TYPE, f"says {_kind(t)}, holds {_kind(found)}")
    return found


def _kind(t):
    return f"{t.dtype} {list(t.shape)}"


def _resolved(t):
    if t._is_zerotensor():
        return torch.zeros(t.shape, dtype=t.dtype)
    t = t.to_dense() if t.layout != torch.strided else t
    return t.resolve_conj().resolve_neg()


def far(found, expected):
    """Return the largest difference in tolerances if it exceeds one; else 0."""
    a, b = ((t.float() if t.dtype is torch.bfloat16 else t).numpy() for t in (found, expected))
    if not (expected.is_floating_point() or expected.is_complex()):
        return 0.0 if np.array_equal(a, b) else np.inf
    tolerance = TOLERANCE.get(expected.dtype, 1e-9)
    return max(_far(part(a), part(b), tolerance) for part in (np.real, np.imag))


def _far(a, b, tolerance):
    finite = np.isfinite(b)
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not (same and np.array_equal(finite, np.isfinite(a))):
        return np.inf
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    excess = np.abs(a - b) / (tolerance * max(np.abs(b).max(initial=0.0), 0.01))
    return float(excess.max(initial=0.0)) if excess.max(initial=0.0) > 1 else 0.0


def _as_near(found, expected, judge):
    """True if ours is as near to torch with twice the bits as torch is."""
    a, b, c = (t.numpy().astype(np.complex128) for t in (found, expected, judge))
    finite = np.isfinite(c)
    if not (np.array_equal(np.isfinite(a), finite) and np.array_equal(np.isfinite(b), finite)):
        return False
    mine, theirs = ((np.abs(x - c)[finite] / (np.abs(c[finite]) + 1e-30)).max() for x in (a, b))
    return mine <= 4 * theirs + 2e-5


def compare(found, expected, judge, answer, what, values=True):
    """Compare one result; `judge()` gives the same from torch with twice the bits."""
    found, expected = _resolved(back(found)), _resolved(expected.detach())
    if _kind(found) != _kind(expected):
        kind = TYPE if answer == VALUE else answer
        raise Mismatch(kind, f"{what}: {_kind(found)}, not {_kind(expected)}")
    distance = far(found, expected) if values else 0.0
    if distance and expected.dtype in WIDER:
        try:
            if _as_near(found, expected, _resolved(judge().detach())):
                return
        except Exception:  # torch itself lacks the wider dtype
            pass
    if distance:
        few = [str(t.flatten()[:4].tolist())[:90] for t in (found, expected)]
        words = f"{what}: {distance:.1e} tolerances off; ours {few[0]}, torch {few[1]}"
        raise Mismatch(answer, words)


class Run:
    """One call, with its results and the gradients of its leaves."""

    def __init__(self, call, make, sample, process=None, seed=0):
        given = (sample.input, sample.args, sample.kwargs)
        self.given = pytree.tree_map_only(torch.Tensor, make, given)
        _seed(seed)
        if make is ours and not tensors_of(given):
            with _FromNothing():
                self.out = call(*self.given)
        else:
            self.out = call(*self.given)
        self.out = process(self.out) if process else self.out
        self.smooth = [t for t in tensors_of(self.out) if t.requires_grad]

    def pull(self, cts):
        """Return the gradient of every leaf."""
        leaves = [t for t in tensors_of(self.given) if t.requires_grad]
        cts = [
            tjt.from_torch(c) if isinstance(t, tjt.Tensor) else c.to(t.dtype)
            for c, t in zip(cts, self.smooth, strict=True)
        ]
        return torch.autograd.grad(self.smooth, leaves, cts, allow_unused=True)


def check(call, sample, process=None, backward=False, values=True, ties=False):
    """Compare a call on plain tensors with one on ours. **Raises:** `Mismatch`.

    `ties`: an index among the results may select another of several equal entries.

    **Returns:** `None` if plain torch itself raises, else "right".
    """
    try:
        theirs = Run(call, plain, sample, process)
    except Exception:
        return None
    mine = Run(call, ours, sample, process)
    exact = functools.cache(lambda: Run(call, wide, sample, process))
    got, wanted = pytree.tree_leaves(mine.out), pytree.tree_leaves(theirs.out)
    if len(got) != len(wanted):
        raise Mismatch(TYPE, f"{len(got)} results, torch {len(wanted)}")
    for n, (x, y) in enumerate(zip(got, wanted, strict=True)):
        if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
            raise Mismatch(TYPE, f"result {n}: {type(x).__name__}, torch {type(y).__name__}")
        if isinstance(y, torch.Tensor):
            tied = ties and y.dtype is torch.int64 and _same_entries(sample.input, back(x), y)
            judge = lambda n=n: pytree.tree_leaves(exact().out)[n]
            compare(x, y, judge, VALUE, f"result {n}", values and not tied)
        elif values and x != y and not (x != x and y != y):
            raise Mismatch(VALUE, f"result {n}: {x}, not {y}")
    if not (backward and theirs.smooth):
        return RIGHT
    if len(mine.smooth) != len(theirs.smooth):
        raise Mismatch(CUT, f"{len(mine.smooth)} gradients, torch {len(theirs.smooth)}")
    if values:
        _compare_gradients(mine, theirs, exact)
    return RIGHT


def _same_entries(x, found, expected):
    """True if distinct indices along an axis select the same entries."""
    for dim in range(x.ndim if found.shape == expected.shape else 0):
        i, j = (k if k.ndim == x.ndim else k.unsqueeze(dim) for k in (found, expected))
        try:
            picked = [torch.nan_to_num(x.detach().gather(dim, k), 7.25) for k in (i, j)]
        except RuntimeError:  # another axis
            continue
        if torch.equal(*picked) and (i.sort(dim).values.diff(dim=dim) > 0).all():
            return True
    return False


def _compare_gradients(mine, theirs, exact):
    generator = torch.Generator().manual_seed(0)
    cts = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in theirs.smooth]
    pulled = functools.cache(lambda: exact().pull(cts))
    for n, (x, y) in enumerate(zip(mine.pull(cts), theirs.pull(cts), strict=True)):
        if y is None and x is not None and back(x).count_nonzero():
            raise Mismatch(GRADIENT, f"gradient {n}: torch has none")
        if y is not None and x is None:
            raise Mismatch(CUT, f"gradient {n} is None, torch's is not")
        if y is not None:
            compare(x, y, lambda n=n: pulled()[n], GRADIENT, f"gradient {n}")


def check_error(call, sample, words="torch raises"):
    """Check that ours raises where torch does; return `None` where torch does not."""
    try:
        Run(call, plain, sample)
    except Exception:
        try:
            Run(call, ours, sample)
        except Exception:
            return RIGHT
        raise Mismatch(NOT_RAISED, words) from None
    return None


def answer_of(function, *args, **kwargs):
    """Return the answer of a check, and a description of the fault."""
    try:
        return function(*args, **kwargs), ""
    except Mismatch as found:
        return found.answer, str(found)
    except Exception as error:
        words = f"{type(error).__name__}: " + next(iter(str(error).strip().splitlines()), "")[:160]
        return REFUSED if isinstance(error, OURS) else RAISES, words


def comparable(op, call, sample):
    """True if the arguments define the values: eight seeds give the same on plain torch."""
    try:
        with mock.patch("torch.manual_seed"):
            runs = [tensors_of(Run(call, plain, sample, None, seed).out) for seed in range(8)]
        pairs = [pair for run in runs for pair in zip(run, runs[0], strict=True)]
        same = not any(far(*(_resolved(t.detach()) for t in pair)) for pair in pairs)
        return op.name not in UNDEFINED and same
    except Exception:
        return op.name not in UNDEFINED


def spread(count):
    """Choose samples evenly, with the first and the last: options vary along them."""
    places = lambda n: sorted({i * (n - 1) // (count - 1) for i in range(count)}) if n else []
    return lambda samples: [samples[i] for i in places(len(samples))]


def cases_of(op, choose, dtypes=DTYPES, seed=0):
    """Yield the cases of an OpInfo: a mode, a number, and a function that returns the answer."""

    def call(first, args, kwargs):
        return op.gradcheck_wrapper(op.op, first, *args, **kwargs)

    def in_place(first, args, kwargs):
        written = first.clone()
        return op.inplace_variant(written, *args, **kwargs), written

    def out(first, args, kwargs):
        with torch.no_grad():
            made = op.op(first, *args, **kwargs)
            empty = pytree.tree_map_only(torch.Tensor, torch.zeros_like, made)
            if isinstance(empty, list):
                return made
            given = tuple(empty) if isinstance(empty, tuple) else empty
            op.op(first, *args, **kwargs, out=given)
        return empty

    for dtype in [d for d in dtypes if d in op.dtypes]:
        mode = str(dtype).removeprefix("torch.")
        backward = op.supports_autograd and dtype in BACKWARD and dtype in op.backward_dtypes
        for n, sample in enumerate(choose(samples_of(op, dtype, backward, seed))):
            values, process = comparable(op, call, sample), sample.output_process_fn_grad
            given = {"sample": sample, "values": values, "process": process}
            case = lambda f, g=given, **how: lambda: answer_of(check, f, **(g | how))
            yield mode, n, case(call, backward=backward, ties=op.name in TIES)
            if n or dtype is not torch.float32:
                continue
            if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
                smooth = backward and op.supports_inplace_autograd
                yield "in place", 0, case(in_place, process=None, backward=smooth)
            if op.supports_out and values:
                yield "out=", 0, case(out)
    plainly = lambda first, args, kwargs: op.op(first, *args, **kwargs)
    for n, given in enumerate(op.error_inputs("cpu") if op.error_inputs_func else ()):
        words = f"torch raises {given.error_type.__name__}: {given.error_regex[:100]}"
        case = functools.partial(answer_of, check_error, plainly, given.sample_input, words)
        yield "errors", n, case


def _start():
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def _measured(number, args):
    """Return the record of one operation; `None` for one of another group."""
    op, counts, wrong = database()[number], {}, []
    if args.group and group_of(op) not in args.group.split(","):
        return None
    for mode, n, case in cases_of(op, lambda samples: samples[: args.samples], seed=args.seed):
        with mock.patch.dict(TOLERANCE, LESS_EXACT.get(op.name, {})):
            answer, words = case()
        if answer is not None:  # plain torch raises too
            here = counts.setdefault(mode, {})
            here[answer] = here.get(answer, 0) + 1
        if answer not in (None, RIGHT):
            wrong.append([mode, n, answer, words])
    return _row(op, counts, wrong)


def _row(op, counts, wrong):
    names = {"op": op.name, "variant": op.variant_test_name, "group": group_of(op)}
    return names | {"counts": counts, "wrong": wrong}


def measure(args):
    """Run the chosen operations. **Returns:** the rows to write."""
    pool, rows = None, []
    for n, op in enumerate(database()):
        if args.only and op.name not in args.only.split(","):
            continue
        pool = pool or multiprocessing.get_context("spawn").Pool(1, _start, maxtasksperchild=40)
        try:
            rows.append(pool.apply_async(_measured, (n, args)).get(args.limit))
        except multiprocessing.TimeoutError:
            pool.terminate()
            pool, wrong = None, [["process", -1, "too slow", "the process hung or died"]]
            rows.append(_row(op, {"process": {"too slow": 1}}, wrong))
    return sorted(filter(None, rows), key=lambda row: (row["op"], row["variant"]))


def main():
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, usual in {"samples": 6, "seed": 0, "limit": 200.0}.items():
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    for name in ("only", "group", "json"):
        parser.add_argument(f"--{name}", default="")
    args = parser.parse_args()
    rows = measure(args)
    for group in ("core", "reach", "more"):
        sums = {}
        for row in rows:
            for answer, n in (p for c in row["counts"].values() for p in c.items()):
                sums[answer] = sums.get(answer, 0) + (n if row["group"] == group else 0)
        print(f"{group:6}{sum(sums.values()):6} cases", dict(sorted(sums.items())))
    if args.json:
        versions = {"torch": torch.__version__, "jax": jax.__version__}
        versions["python"] = platform.python_version()
        options = {"samples": args.samples, "seed": args.seed, "group": args.group}
        head = json.dumps({"versions": versions, "options": options})[:-1]
        lines = ",\n".join(map(json.dumps, rows))
        Path(args.json).write_text(f'{head}, "ops": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
