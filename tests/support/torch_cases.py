"""One operation on plain torch and on our tensors of the same numbers, and how the two compare.

A case is a call of an operation of torch's OpInfo database on one of its sample inputs: forward,
and backward of a random cotangent where the database says that a gradient exists. Its answer is one
of these, the worst that happened:

* `right`: values, dtypes, shapes and gradients are torch's;
* `wrong value`, `wrong type` (a dtype, a shape or the number of results), `wrong gradient`;
* `cut gradient`: a result or an input has no gradient although torch's has;
* `refused`: an error of ours says by name what is not there; `raises`: another error;
* `not raised` (of error inputs): torch refuses the arguments, and ours gives a result.

Numbers agree when they differ by less than 2e-5 (float32), 1e-9 (float64) of the largest entry of
the array, or of 0.01, where a result is what rounding leaves of 0. Where float32 differs by more,
torch in float64 judges: ours may be four times as far from it as torch in float32 is, no farther.
"""

import inspect
import random

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tanjax._errors as errors
from tanjax.bridges import torch as tjt
from tanjax.bridges.torch._dispatch import dispatch

RIGHT, VALUE, TYPE, GRADIENT, CUT = (
    "right",
    "wrong value",
    "wrong type",
    "wrong gradient",
    "cut gradient",
)
REFUSED, RAISES, NOT_RAISED, SLOW = "refused", "raises", "not raised", "too slow"
ANSWERS = (RIGHT, REFUSED, RAISES, NOT_RAISED, SLOW, TYPE, VALUE, GRADIENT, CUT)
OURS = (
    tjt.DtypeError,
    tjt.TensorError,
    *(c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)),
)
TOLERANCE = {torch.float32: 2e-5, torch.complex64: 2e-5}
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class Mismatch(Exception):
    """What differs: `answer` is its kind."""

    def __init__(self, answer, what):
        super().__init__(what)
        self.answer = answer


class from_nothing(TorchDispatchMode):
    """Operations without a tensor among their arguments are answered by our table."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return dispatch(func, types, args, kwargs or {})


def seeded(seed):
    """Start all generators of samples anew."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def copied(sample, make):
    """Input, arguments and arguments by name of a sample, its tensors made anew."""
    return pytree.tree_map_only(torch.Tensor, make, (sample.input, sample.args, sample.kwargs))


def plain(t):
    """The same numbers, as a leaf."""
    return t.detach().clone().requires_grad_(t.requires_grad)


def ours(t):
    """A leaf of ours with the same numbers."""
    return tjt.from_torch(t.detach()).requires_grad_(t.requires_grad)


def wide(t):
    """The same numbers with twice the bits."""
    dtype = WIDER.get(t.dtype, t.dtype)
    return t.detach().to(dtype, copy=True).requires_grad_(t.requires_grad)


def tensors_of(tree):
    """The tensors among results or arguments, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def back(t):
    """A plain tensor with the numbers of ours."""
    if not isinstance(t, tjt.Tensor):
        return t.detach()
    found = tjt.to_torch(t.detach())
    if found.dtype != t.dtype or found.shape != t.shape:
        raise Mismatch(
            TYPE, f"says {t.dtype} {list(t.shape)}, holds {found.dtype} {list(found.shape)}"
        )
    return found


def far(ours, theirs):
    """The largest difference in tolerances, where it is more than one; else 0."""
    a, b = (_numpy(x) for x in (ours, theirs))
    if not (theirs.is_floating_point() or theirs.is_complex()):
        return 0.0 if np.array_equal(a, b) else np.inf
    tolerance = TOLERANCE.get(theirs.dtype, 1e-9)
    pairs = [(a.real, b.real), (a.imag, b.imag)] if theirs.is_complex() else [(a, b)]
    return max(_far(*pair, tolerance) for pair in pairs)


def _numpy(t):
    if t._is_zerotensor():
        return np.zeros(t.shape, torch.empty(0, dtype=t.dtype).numpy().dtype)
    t = t.float() if t.dtype is torch.bfloat16 else t
    return t.resolve_conj().resolve_neg().numpy()


def _far(a, b, tolerance):
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return np.inf
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    if not b.size:
        return 0.0
    excess = np.abs(a - b) / (tolerance * max(np.abs(b).max(), 0.01))
    return float(excess.max()) if excess.max() > 1 else 0.0


def compare(ours, theirs, exact, answer, what):
    """Compare one result; `exact()` gives the same from torch with twice the bits."""
    found = back(ours)
    if found.dtype != theirs.dtype or found.shape != theirs.shape:
        expected = f"{theirs.dtype} {list(theirs.shape)}"
        raise Mismatch(
            TYPE if answer == VALUE else answer,
            f"{what}: {found.dtype} {list(found.shape)}, not {expected}",
        )
    theirs = theirs.detach()
    theirs = theirs.to_dense() if theirs.layout != torch.strided else theirs
    distance = far(found, theirs)
    if distance and theirs.dtype in WIDER:
        judge = exact()
        if judge is not None and _as_near(found, theirs, judge.detach()):
            return
    if distance:
        raise Mismatch(
            answer,
            f"{what}: {distance:.1e} tolerances off; ours {_few(found)}, torch {_few(theirs)}",
        )


def _as_near(ours, theirs, judge):
    a, b, c = (
        x.resolve_conj().resolve_neg().numpy().astype(np.complex128) for x in (ours, theirs, judge)
    )
    finite = np.isfinite(c)
    if not (np.array_equal(np.isfinite(a), finite) and np.array_equal(np.isfinite(b), finite)):
        return False
    scale = np.abs(c[finite]) + 1e-30
    return (np.abs(a - c)[finite] / scale).max() <= 4 * (np.abs(b - c)[finite] / scale).max() + 2e-5


def _few(t):
    return str(t.resolve_conj().resolve_neg().flatten()[:4].tolist())[:90]


def differentiable(out):
    """The results that carry a gradient."""
    return [t for t in tensors_of(out) if t.requires_grad]


def cotangents(results, seed):
    """Random cotangents, plain tensors."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in results]


class Run:
    """One call, with what it gave and the gradients of its leaves."""

    def __init__(self, call, make, sample, process=None):
        self.given = copied(sample, make)
        nothing = not tensors_of(self.given)
        if make in (plain, wide) or not nothing:
            out = call(*self.given)
        else:
            with from_nothing():
                out = call(*self.given)
        self.raw = out
        self.out = process(out) if process else out

    def pull(self, cts, as_ours=False):
        """The gradient of every leaf."""
        leaves = [t for t in tensors_of(self.given) if t.requires_grad]
        results = differentiable(self.out)
        cts = [
            tjt.from_torch(c) if as_ours else c.to(r.dtype)
            for c, r in zip(cts, results, strict=True)
        ]
        return torch.autograd.grad(results, leaves, cts, allow_unused=True)


def check(call, sample, process=None, backward=False, values=True, seed=0, ties=False):
    """Compare a call on plain tensors with one on ours. **Raises:** `Mismatch`.

    `ties`: an index among the results may point at another one of equal entries.

    **Returns:** `None` where plain torch itself raises, else "right".
    """
    try:
        seeded(seed)
        theirs = Run(call, plain, sample, process)
    except Exception:
        return None
    seeded(seed)
    found = Run(call, ours, sample, process)
    wider = []

    def exact():
        if not wider:
            try:
                wider.append(Run(call, wide, sample, process))
            except Exception:
                wider.append(None)
        return wider[0]

    tied = sample.input if ties and isinstance(sample.input, torch.Tensor) else None
    _compare_results(found.out, theirs.out, exact, values, tied)
    results = differentiable(theirs.out)
    if backward and results and not len(differentiable(found.out)) == len(results):
        raise Mismatch(
            CUT,
            f"{len(differentiable(found.out))} results carry a gradient, torch's {len(results)}",
        )
    if backward and results and values:
        cts = cotangents(results, seed)
        _compare_gradients(found, theirs, exact, cts)
    return RIGHT


def _compare_results(ours, theirs, exact, values, tied=None):
    a, b = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
    if len(a) != len(b):
        raise Mismatch(TYPE, f"{len(a)} results, torch {len(b)}")
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        if not isinstance(y, torch.Tensor):
            if values and x != y and not (x != x and y != y):
                raise Mismatch(VALUE, f"result {n}: {x}, not {y}")
        elif not isinstance(x, torch.Tensor):
            raise Mismatch(TYPE, f"result {n}: {type(x).__name__}, not a tensor")
        elif values and not (tied is not None and _point_alike(tied.detach(), back(x), y)):
            compare(x, y, lambda n=n: _leaf(exact(), n), VALUE, f"result {n}")
        elif back(x).dtype != y.dtype or x.shape != y.shape:
            raise Mismatch(
                TYPE, f"result {n}: {x.dtype} {list(x.shape)}, not {y.dtype} {list(y.shape)}"
            )


def _point_alike(x, ours, theirs):
    """Whether two arrays of indices point at equal entries of an array along one of its axes."""
    if ours.dtype != torch.int64 or ours.shape != theirs.shape or not x.ndim:
        return False
    for dim in range(x.ndim):
        a, b = (i if i.ndim == x.ndim else i.unsqueeze(dim) for i in (ours, theirs))
        fits = all(a.shape[d] == x.shape[d] for d in range(x.ndim) if d != dim)
        inside = a.numel() == 0 or 0 <= int(a.min()) <= int(a.max()) < x.shape[dim]
        distinct = (a.sort(dim).values.diff(dim=dim) > 0).all()
        if fits and inside and distinct:
            p, q = x.gather(dim, a), x.gather(dim, b)
            if torch.equal(torch.nan_to_num(p, 7.25), torch.nan_to_num(q, 7.25)):
                return True
    return False


def _leaf(run, n):
    return None if run is None else pytree.tree_leaves(run.out)[n]


def _compare_gradients(ours, theirs, exact, cts):
    expected = theirs.pull(cts)
    found = ours.pull(cts, as_ours=True)
    pulled = []

    def judge(n):
        if exact() is None:
            return None
        if not pulled:
            pulled.append(exact().pull(cts))
        return pulled[0][n]

    for n, (x, y) in enumerate(zip(found, expected, strict=True)):
        if y is None and x is not None and back(x).count_nonzero():
            raise Mismatch(GRADIENT, f"gradient {n}: torch has none")
        if y is not None and x is None:
            raise Mismatch(CUT, f"gradient {n} is None, torch's is not")
        if y is not None:
            compare(x, y, lambda n=n: judge(n), GRADIENT, f"gradient {n}")


def check_error(call, sample):
    """Whether ours raises where torch does; `None` where torch does not."""
    try:
        Run(call, plain, sample)
    except Exception:
        pass
    else:
        return None
    try:
        Run(call, ours, sample)
    except Mismatch:
        raise
    except Exception:
        return RIGHT
    raise Mismatch(NOT_RAISED, "torch raises")


def answer_of(function, *args, **kwargs):
    """The answer of a check, and in words what is wrong."""
    try:
        return function(*args, **kwargs), ""
    except Mismatch as found:
        return found.answer, str(found)
    except OURS as error:
        return REFUSED, f"{type(error).__name__}: {_line(error)}"
    except Exception as error:
        return RAISES, f"{type(error).__name__}: {_line(error)}"


def _line(error):
    return next(iter(str(error).strip().splitlines()), "")[:160]


def compare_plain(a, b):
    """Whether two results of plain torch are the same."""
    pairs = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)
