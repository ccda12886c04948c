"""Captured programs: traced once, read with types, replayed as what they are.

To see what a function of structured arrays and quantities does one wants equations that say
`solve[Diagonal, Dense]`; to run it one wants what JAX compiles. Both are here: a program is a flat
jaxpr of plain arrays, which replays with the bits of the function, and a typed view of it.

    >>> import tanjax as tj
    >>> d = x = jax.numpy.ones(3)
    >>> program = capture(lambda d, x: tj.solve(tj.Diagonal(d), x))(d, x)
    >>> print(program)
    { lambda ; a:f32[3] b:f32[3]. let
        c:Diagonal<f32[3]> = Diagonal a
        d:f32[3] = solve[Diagonal, Dense] c b
      in (d,) }

Sharp edges. A program is for arguments of the captured shapes, dtypes, trees, units and static
values; others are refused. Printing and reading cost nothing until asked for.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs, _marks
from tanjax._errors import CaptureError, message
from tanjax._marks import MOVING, Static
from tanjax.arrays import Unitful
from tanjax.transforms import planned_if_lost

from ._equations import Equation, Operand, Variable
from ._print import program_text
from ._replay import Replay
from ._tracing import Traced, is_argument, is_result, placeholder, trace
from ._types import aval_text, is_typed
from ._view import View, skeleton


def capture(f: Callable[..., PyTree]) -> Callable[..., Program]:
    """Capture a function as a `Program`: `tj.capture(f)(*args, **kwargs)`.

    Calls of operations and of functions of quantities, higher-order functions and constructions of
    `tj.CaptureMeta` classes become one equation each; everything else is JAX's.

    **Arguments:** `f`: a function that JAX can trace, or a program. Then its arguments: pytrees of
    arrays, quantities, numbers, `jax.ShapeDtypeStruct`; other leaves (functions, texts, `None`) are
    static, and compared on replay.
    **Returns:** a function of the arguments that returns the program.
    **Raises:** `CaptureError` if `f` is no function; what `f` raises.
    **Cost:** one trace, about that of `jax.make_jaxpr`.
    """
    if not callable(f):
        raise CaptureError(
            message(
                "capture: there is nothing to capture.",
                f"got: {type(f).__name__}, which is not a function.",
                hint="write `tj.capture(f)(x)`, not `tj.capture(f(x))`.",
            )
        )

    @functools.wraps(f)
    def captured(*args: PyTree, **kwargs: PyTree) -> Program:
        moving, tree, shape = _marks.split((args, kwargs), is_argument)
        with _marks.scope():
            return Program(trace(f, tree, shape, moving), getattr(f, "__name__", "f"))

    return captured


class Program:
    """A captured function: callable, iterable over its equations, printable.

    **Fields:** `inputs`, `outputs`, `consts`: typed variables; `in_tree`, `out_tree`: JAX's trees
    of `(args, kwargs)` and of the result; `jaxpr`: JAX's jaxpr of it, without marks.
    """

    def __init__(self, traced: Traced, name: str = "f") -> None:
        self.closed = traced.closed
        self.name = name
        self._traced = traced
        self._view: View | None = None
        self._inlined: Any = None

    @classmethod
    def of_jaxpr(cls, closed: Any) -> Program:
        """An inner jaxpr of one of JAX's own equations: plain arrays in and out."""
        if not hasattr(closed, "consts"):
            closed = _jaxprs.Closed(closed)
        count, outs = len(closed.jaxpr.invars), len(closed.out_avals)
        tree = jax.tree.structure((tuple(range(count)), {}))
        out_tree = jax.tree.structure(list(range(outs)))
        return cls(Traced(closed, tree, (MOVING,) * count, out_tree, (MOVING,) * outs))

    # -- reading ---------------------------------------------------------------------------

    @property
    def in_tree(self) -> Any:
        """The tree of `(args, kwargs)`, static leaves included."""
        return self._traced.tree

    @property
    def out_tree(self) -> Any:
        """The tree of the result."""
        return self._traced.out_tree

    @property
    def out_shape(self) -> Any:
        """What stands in every place of the result: an array, or something static."""
        return self._traced.out_shape

    @property
    def view(self) -> View:
        """The typed equations; made when first asked for."""
        if self._view is None:
            t, jaxpr = self._traced, self.closed.jaxpr
            arguments = skeleton(t.tree, t.shape, jaxpr.invars)
            results = functools.partial(skeleton, t.out_tree, t.out_shape)
            self._view = View(jaxpr, arguments, results, type(self).of_jaxpr)
        return self._view

    @property
    def inputs(self) -> list[Variable]:
        return self.view.inputs

    @property
    def outputs(self) -> list[Operand]:
        return self.view.outputs

    @property
    def consts(self) -> list[Variable]:
        return self.view.consts

    @property
    def equations(self) -> list[Equation]:
        return self.view.equations

    def __iter__(self) -> Iterator[Equation]:
        return iter(self.equations)

    def __len__(self) -> int:
        return len(self.equations)

    def __getitem__(self, i: int) -> Equation:
        return self.equations[i]

    def __repr__(self) -> str:
        return program_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(program_text(self))}</pre>"

    @property
    def jaxpr(self) -> Any:
        """JAX's closed jaxpr of the program, in which all marked calls are entered."""
        entered = functools.partial(run, self.closed, enters=lambda mark: True)
        return jax.make_jaxpr(entered)(self._avals())

    def example(self) -> PyTree:
        """`(args, kwargs)` as the program takes them, of `jax.ShapeDtypeStruct`."""
        return _marks.join(self._traced.tree, self._traced.shape, self._avals())

    def _avals(self) -> list[Any]:
        return [placeholder(v.aval) for v in self.closed.jaxpr.invars]

    # -- values, for interpreters ------------------------------------------------------------

    def const_values(self) -> list[Any]:
        """The values of `consts` at the capture."""
        known = dict(zip(self.closed.jaxpr.constvars, self.closed.consts, strict=True))
        fill = lambda v: v.value if isinstance(v, Static) else known[v]
        return [jax.tree.map(fill, c.skeleton) for c in self.consts]

    def input_values(self, args: PyTree, kwargs: dict[str, PyTree]) -> list[Any]:
        """The values of `inputs` among arguments: one per typed value or array."""
        t = self._traced
        captured = skeleton(t.tree, t.shape, self.closed.jaxpr.invars)
        wanted = jax.tree.leaves(captured, is_leaf=is_typed)
        given = jax.tree.leaves((tuple(args), kwargs), is_leaf=is_typed)
        if len(given) != len(wanted):
            raise _other(self.name, "the arguments", _expected(t.tree), f"{len(given)} values")
        pairs = zip(wanted, given, strict=True)
        return [x for w, x in pairs if not isinstance(w, Static)]

    def takes(self, args: PyTree, kwargs: dict[str, PyTree]) -> bool:
        """Whether arguments have the trees, shapes and dtypes of the capture."""
        try:
            self._operands(tuple(args), kwargs)
        except CaptureError:
            return False
        return True

    def check(self, args: PyTree, kwargs: dict[str, PyTree]) -> None:
        """**Raises:** `CaptureError` naming the argument that is not as captured."""
        self._operands(args, kwargs)

    def pruned(self, kinds: Sequence[str] = ()) -> Program:
        """Without the equations that nobody needs; effects stay, and marks of some kinds.

        And what holds one of these, in a loop or a branch.
        """

        def stays(eqn: Any) -> bool:
            mark = _marks.mark_of(eqn)
            if mark is not None and mark.kind in kinds:
                return True
            inner = [getattr(j, "jaxpr", j) for _, j in _jaxprs.inner_jaxprs(eqn)]
            slots = mark.slots if mark is not None else ()
            inner += [p.closed.jaxpr for s in slots for p in s.programs.values()]
            return any(any(map(stays, j.eqns)) for j in inner)

        jaxpr = self.closed.jaxpr
        live = jaxpr.replace(eqns=_jaxprs.needed_equations(jaxpr, stays))
        return Program(self._traced._replace(closed=self.closed.replace(jaxpr=live)), self.name)

    # -- replay ----------------------------------------------------------------------------

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Replay: the bits of the captured function, under every transformation of JAX.

        **Range:** quantities are looked at by who computes with them outside of a trace, and a
        program was traced. A replay of quantities that leaves the range of its dtype is planned as
        `tj.jit(program)` would do it, as far as that can be seen from outside: `tj.jit` it.
        **Raises:** `CaptureError` naming the argument, if one is not as captured.
        """
        operands = self._operands(args, kwargs)
        if any(isinstance(x, _compat.Tracer) for x in operands):
            if varies(operands, self.closed.jaxpr.invars):
                from ._interpreter import Interpreter

                return Interpreter().run(self, args, kwargs)
            return self._joined(self._replayed()(*operands))
        result = self._joined(self._eagerly(*operands))
        if not self._holds_quantities:
            return result
        return planned_if_lost(self.name, self, self.__call__, args, kwargs, result)

    def _joined(self, outs: Sequence[Any]) -> PyTree:
        return _marks.join(self._traced.out_tree, self._traced.out_shape, outs)

    @functools.cached_property
    def _holds_quantities(self) -> bool:
        """Whether a quantity is anywhere in the program."""
        t = self._traced
        return any(map(_has_quantity, (t.tree, t.out_tree))) or _computes_with(self.closed.jaxpr)

    @functools.cached_property
    def _eagerly(self) -> Replay:
        """Replay outside of a trace: operations are the compiled units that they were."""
        return Replay(self.closed, enters=_is_no_unit)

    def _replayed(self) -> Callable[..., list[Any]]:
        """Replay under a trace: JAX keeps the traces, linearisations and transposes of a `jit`."""
        # Under a capture equation by equation, so that those of this one are among the others.
        if _marks.ACTIVE[0] and _marks.capturing():
            return lambda *operands: run(self.closed, operands)
        # Entered, what was no unit: cotangents are summed in the order of the function's own.
        flat = lambda *operands: run(self.closed, operands, _is_no_unit)
        if any(isinstance(c, _compat.Tracer) for c in self.closed.consts):
            return flat
        if self._inlined is None:
            flat.__name__ = self.name
            self._inlined = jax.jit(flat, inline=True)
        return self._inlined

    def _operands(self, args: PyTree, kwargs: PyTree) -> list[Any]:
        """The arrays among arguments, if these are as captured."""
        operands, tree, shape = _marks.split((args, kwargs), is_result)
        t = self._traced
        if tree != t.tree:
            raise _other(self.name, "the arguments", _expected(t.tree), _expected(tree))
        if shape != t.shape:
            for (path, _), was, now in zip(_paths(tree), t.shape, shape, strict=True):
                if was is not now and was != now:
                    raise _other(self.name, _argument(path), _text(was), _text(now))
        places = (path for (path, _), s in zip(_paths(tree), shape, strict=True) if s is MOVING)
        for path, var, x in zip(places, self.closed.jaxpr.invars, operands, strict=True):
            given = jax.typeof(x)
            if (given.shape, given.dtype) != (var.aval.shape, var.aval.dtype):
                raise _other(self.name, _argument(path), aval_text(var.aval), aval_text(given))
        return operands


def run(
    closed: Any, operands: Sequence[Any], enters: Callable[[_marks.Mark], bool] | None = None
) -> list[Any]:
    """Evaluate a closed jaxpr; the calls for whose marks `enters` holds are entered."""
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = {}
    read = lambda v: v.val if _jaxprs.is_literal(v) else env[v]
    env.update(zip(jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(jaxpr.invars, operands, strict=True))
    last = _last_uses(jaxpr)
    for i, eqn in enumerate(jaxpr.eqns):
        values = [read(v) for v in eqn.invars]
        mark = _marks.mark_of(eqn) if enters else None
        if mark is not None and enters is not None and enters(mark):
            outs = run(eqn.params["jaxpr"], values, enters)
        else:
            outs = _compat.bind_again(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))
        for v in last[i]:
            del env[v]
    return [read(v) for v in jaxpr.outvars]


def varies(operands: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether operands vary over manual axes of a mesh over which those captured did not.

    Then no equation of JAX can be taken as it stands: where a replicated value meets a varying one
    there is a cast, the transpose of which sums over the devices.
    """
    axes = _compat.varying_axes
    return any(axes(x) - axes(v.aval) for x, v in zip(operands, variables, strict=True))


def _is_no_unit(mark: _marks.Mark) -> bool:
    """Whether a call was no unit to JAX when what was captured ran: it is replayed as its parts."""
    return mark.kind in ("higher_order", "pullback", "class", "helper", "densify")


def _last_uses(jaxpr: Any) -> list[list[Any]]:
    """The variables that nobody needs after each equation."""
    seen = {v for v in jaxpr.outvars if not _jaxprs.is_literal(v)}
    last: list[list[Any]] = []
    for eqn in reversed(jaxpr.eqns):
        used = {v for v in (*eqn.invars, *eqn.outvars) if not _jaxprs.is_literal(v)}
        last.append(list(used - seen))
        seen |= used
    return last[::-1]


def _has_quantity(tree: Any) -> bool:
    leaves = jax.tree.unflatten(tree, [0] * tree.num_leaves)
    is_quantity = lambda x: type(x) is Unitful
    return any(map(is_quantity, jax.tree.leaves(leaves, is_leaf=is_quantity)))


def _computes_with(jaxpr: Any) -> bool:
    """Whether a marked call in a jaxpr takes or gives a quantity."""
    for eqn in jaxpr.eqns:
        mark = _marks.mark_of(eqn)
        if mark is not None and (_has_quantity(mark.tree) or _has_quantity(mark.out_tree)):
            return True
        inner = (getattr(j, "jaxpr", j) for _, j in _jaxprs.inner_jaxprs(eqn))
        if any(map(_computes_with, inner)):
            return True
    return False


def _paths(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))


def _argument(path: Any) -> str:
    """The place of a leaf in `(args, kwargs)`: `argument 0['w']`, `keyword n`."""
    group, key, *rest = path
    inner = jax.tree_util.keystr(tuple(rest))
    if group.idx % 2 == 0:
        return f"argument {key.idx}{inner}"
    return f"keyword {key.key}{inner}"


def _expected(tree: Any) -> str:
    args, kwargs = jax.tree.unflatten(tree, ["*"] * tree.num_leaves)
    named = [f"{k}={v}" for k, v in kwargs.items()]
    return f"({', '.join([*map(str, args), *named])})"


def _text(x: Any) -> str:
    return f"static {x!r}" if isinstance(x, Static) else "an array"


def _other(name: str, where: str, expected: str, got: str) -> CaptureError:
    return CaptureError(
        message(
            f"{name}: {where}: not as captured.",
            f"captured: {expected}",
            f"given:    {got}",
            "why: a program is for the shapes, dtypes, trees, units and static values captured.",
            hint="capture again: `tj.capture(f)(*args)`.",
        )
    )
