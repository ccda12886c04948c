"""Captured programs: traced once, read with types, replayed as what they are.

A reader of a function of structured arrays and quantities wants equations such as
`solve[Diagonal, Dense]`; to run it you need the equations that JAX compiles. A program has both: a
flat jaxpr of plain arrays, which replays with the bits of the function, and a typed view of it.

    >>> import tanjax as tj
    >>> d = x = jax.numpy.ones(3)
    >>> program = capture(lambda d, x: tj.solve(tj.Diagonal(d), x))(d, x)
    >>> print(program)
    { lambda ; a:f32[3] b:f32[3]. let
        c:Diagonal<f32[3]> = Diagonal a
        d:f32[3] = solve[Diagonal, Dense] c b
      in (d,) }

Sharp edges. A program takes arguments of the captured shapes, dtypes, trees, units and static
values; it refuses others. Before the first print or read the view costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs, _marks
from tanjax._errors import CaptureError, message
from tanjax._jaxpr_types import Aval, JaxEquation, OpenJaxpr
from tanjax._marks import MOVING, Static
from tanjax._typing import AnyArray
from tanjax.quantities import is_quantity
from tanjax.transforms import planned_if_lost

from ._draw import plot, to_dot
from ._equations import Equation, Operand, Variable
from ._html import to_html
from ._mismatch import expected, has_parameters, operands_of, other
from ._print import program_text
from ._replay import Replay, as_it_is, compiled, inlined, is_no_call, is_no_unit
from ._tracing import Traced, is_argument, trace
from ._types import is_typed
from ._view import View, skeleton
from ._walk import Walk, varies


def capture(f: Callable[..., PyTree]) -> Callable[..., Program]:
    """Capture a function as a `Program`: `tj.capture(f)(*args, **kwargs)`.

    Calls of operations and of functions of quantities, higher-order functions and constructions of
    `tj.programs.CaptureMeta` classes become one equation each; everything else is JAX's.

    **Arguments:** `f`: a function that JAX can trace, or a program. Then its arguments: pytrees of
    arrays, quantities, numbers, `jax.ShapeDtypeStruct`; other leaves (functions, texts, `None`) are
    static, and compared on replay.
    **Returns:** a function of the arguments that returns the program.
    **Raises:** `CaptureError` if `f` is no function; the errors of `f`.
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

    @classmethod
    def of_jaxpr(cls, closed: PyTree) -> Program:
        """Make a program of an inner jaxpr of one of JAX's equations: plain arrays in and out."""
        if not hasattr(closed, "consts"):
            closed = _jaxprs.Closed(closed)
        count, outs = len(closed.jaxpr.invars), len(closed.out_avals)
        tree = jax.tree.structure((tuple(range(count)), {}))
        out_tree = jax.tree.structure(list(range(outs)))
        return cls(Traced(closed, tree, (MOVING,) * count, out_tree, (MOVING,) * outs))

    # -- reading ---------------------------------------------------------------------------

    @property
    def in_tree(self) -> PyTreeDef:
        """The tree of `(args, kwargs)`, static leaves included."""
        return self._traced.tree

    @property
    def out_tree(self) -> PyTreeDef:
        """The tree of the result."""
        return self._traced.out_tree

    @property
    def out_shape(self) -> tuple[object, ...]:
        """The leaves of the result: arrays, or static values."""
        return self._traced.out_shape

    @property
    def view(self) -> View:
        """The typed equations, made at the first read."""
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
        return to_html(self)

    def to_dot(self) -> str:
        """The program in the language of Graphviz: boxes for equations, arrows with types."""
        return to_dot(self)

    def plot(self, ax: PyTree = None) -> PyTree:
        """Draw the same picture with Matplotlib and return its `Axes`; `None` makes new ones."""
        return plot(self, ax)

    @property
    def jaxpr(self) -> PyTree:
        """JAX's closed jaxpr of the program, in which all marked calls are inlined."""
        entered = Replay(self.closed, lambda mark: True, as_it_is)
        return jax.make_jaxpr(entered)(*self._avals())

    def example(self) -> PyTree:
        """Return `(args, kwargs)` of the program with `jax.ShapeDtypeStruct` for arrays."""
        return _marks.join(self._traced.tree, self._traced.shape, self._avals())

    def _avals(self) -> list[Aval | jax.ShapeDtypeStruct]:
        return [_placeholder(v.aval) for v in self.closed.jaxpr.invars]

    # -- values, for interpreters ------------------------------------------------------------

    def const_values(self) -> list[PyTree]:
        """The values of `consts` at the capture."""
        known = dict(zip(self.closed.jaxpr.constvars, self.closed.consts, strict=True))
        fill = lambda v: v.value if isinstance(v, Static) else known[v]
        return [jax.tree.map(fill, c.skeleton) for c in self.consts]

    def input_values(self, args: PyTree, kwargs: dict[str, PyTree]) -> list[PyTree]:
        """Return the values of `inputs` among arguments: one per typed value or array."""
        t = self._traced
        captured = skeleton(t.tree, t.shape, self.closed.jaxpr.invars)
        wanted = jax.tree.leaves(captured, is_leaf=is_typed)
        given = jax.tree.leaves((tuple(args), kwargs), is_leaf=is_typed)
        if len(given) != len(wanted):
            raise other(self.name, "the arguments", expected(t.tree), f"{len(given)} values")
        pairs = zip(wanted, given, strict=True)
        return [x for w, x in pairs if not isinstance(w, Static)]

    def result_of(self, values: Sequence[PyTree]) -> PyTree:
        """Return the result of the program, from the values of `outputs`."""
        return jax.tree.unflatten(self.view.out_tree, values)

    def takes(self, args: PyTree, kwargs: dict[str, PyTree]) -> bool:
        """True if arguments have the trees, shapes and dtypes of the capture."""
        try:
            operands_of(self.name, self._traced, tuple(args), kwargs)
        except CaptureError:
            return False
        return True

    def has_parameters(self, args: PyTree, kwargs: dict[str, PyTree]) -> bool:
        """True if arguments have the tree and the static values of the capture."""
        return has_parameters(self._traced, tuple(args), kwargs)

    def check(self, args: PyTree, kwargs: dict[str, PyTree]) -> None:
        """**Raises:** `CaptureError` naming the argument that differs from the capture."""
        operands_of(self.name, self._traced, args, kwargs)

    def pruned(self, kinds: Sequence[str] = ()) -> Program:
        """Return the program without unused equations; effects stay, and marks of given kinds.

        A loop or a branch that holds one of these also stays.
        """

        def stays(eqn: JaxEquation) -> bool:
            mark = _marks.mark_of(eqn)
            if mark is not None and mark.kind in kinds:
                return True
            inner = [j for _, j in _jaxprs.inner_jaxprs(eqn)]
            slots = mark.slots if mark is not None else ()
            inner += [p.closed.jaxpr for s in slots for p in s.programs.values()]
            return any(any(map(stays, j.eqns)) for j in inner)

        jaxpr = self.closed.jaxpr
        live = jaxpr.replace(eqns=_jaxprs.needed_equations(jaxpr, stays))
        return Program(self._traced._replace(closed=self.closed.replace(jaxpr=live)), self.name)

    # -- replay ----------------------------------------------------------------------------

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Replay: the bits of the captured function, under every transformation of JAX.

        **Range:** outside of a trace each operation checks the range of its quantities; a captured
        program was traced, so these checks are missing. If the results of a replay
        show that quantities left the range of their dtype, it is planned as `tj.jit(program)`
        would be. Lost intermediate values may not show: then call `tj.jit(program)`.
        **Raises:** `CaptureError` naming an argument that differs from the capture.
        """
        operands = operands_of(self.name, self._traced, args, kwargs)
        if any(isinstance(x, _compat.Tracer) for x in operands):
            if varies(operands, self.closed.jaxpr.invars):
                return Walk().run(self, args, kwargs)
            if _marks.ACTIVE[0] and _marks.capturing():  # its equations are among the others
                return self._joined(Replay(self.closed, lambda mark: False, as_it_is)(*operands))
            return self._joined(self._traced_again(*operands))
        result = self._joined(self._eagerly(*operands))
        if not self._holds_quantities:
            return result
        return planned_if_lost(self.name, self, self.__call__, args, kwargs, result)

    def _joined(self, outs: Sequence[AnyArray]) -> PyTree:
        return _marks.join(self._traced.out_tree, self._traced.out_shape, outs)

    @functools.cached_property
    def _holds_quantities(self) -> bool:
        """True if a quantity is anywhere in the program."""
        t = self._traced
        return any(map(_has_quantity, (t.tree, t.out_tree))) or _computes_with(self.closed.jaxpr)

    @functools.cached_property
    def _eagerly(self) -> Replay:
        """Replay outside of a trace: operations are the compiled units that they were."""
        return Replay(self.closed, is_no_unit, compiled)

    @functools.cached_property
    def _traced_again(self) -> Replay:
        """Replay under a trace, with the equations that the function itself would trace."""
        return Replay(self.closed, is_no_call, inlined)


def _placeholder(aval: Aval) -> Aval | jax.ShapeDtypeStruct:
    """Return the stand-in for an argument that is absent."""
    if not isinstance(aval, jax.core.ShapedArray):
        return aval
    weak = aval.weak_type
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak, sharding=_sharding(aval))


def _sharding(aval: Aval) -> jax.sharding.Sharding | None:
    """Return the explicit sharding of an aval; a program does not fix other shardings."""
    found = getattr(aval, "sharding", None)
    mesh = getattr(found, "mesh", None)
    return None if mesh is None or getattr(mesh, "empty", True) else found


def _has_quantity(tree: PyTreeDef) -> bool:
    leaves = jax.tree.unflatten(tree, [0] * tree.num_leaves)
    return any(map(is_quantity, jax.tree.leaves(leaves, is_leaf=is_quantity)))


def _computes_with(jaxpr: OpenJaxpr) -> bool:
    """True if a marked call in a jaxpr takes or gives a quantity."""
    marks = filter(None, map(_marks.mark_of, _jaxprs.all_equations(jaxpr)))
    return any(_has_quantity(mark.tree) or _has_quantity(mark.out_tree) for mark in marks)
