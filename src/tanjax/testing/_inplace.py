"""Check an in-place function: its effect on Refs, and the derivatives of its transition.

An in-place function promises two things: on Refs it runs its body, and its transition is the same
map of states. The judge of the first is the undecorated body, on JAX's own Refs. The transition is
an operation, and is checked as one (`check_operation`). The kit also differentiates a whole program
that makes Refs and calls the function on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from tanjax import arrays, mutation
from tanjax._errors import CheckFailure, MutationError
from tanjax._typing import Function
from tanjax.mutation import InPlace, Transition

from ._coordinates import dense, moves, require_double
from ._modes import choose, compiled
from ._operation import OPERATION_MODES, check_operation, type_name, who
from ._places import raised
from ._problem import Problem
from ._record import CheckResult, Recorder

MUTATION_MODES = ("refs", "identity", "untouched", "again", "batch", "loop", "through refs")
INPLACE_MODES = (*MUTATION_MODES, *OPERATION_MODES)


def check_inplace(
    f: InPlace,
    *args: PyTree,
    modes: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
    tolerance: float = 1e-8,
    **options: PyTree,
) -> CheckResult:
    """Check an in-place function on these arguments, in float64: its calls and its transition.

    **Arguments:** `f`, made by `tj.inplace`; `args`: arrays, not Refs: the states before the call,
    and the other arguments. `modes`, `skip` and `tolerance` as of `check_operation`; `options`:
    its other options (`zero`, `generic`, `reference`) and static arguments of `f`.

    - *refs*: states and output of a call are those of the body on JAX's own Refs, outside and
      inside of `jax.jit`;
    - *identity*: where the body returns a Ref of the caller, the call returns the same Ref;
    - *untouched*: arguments that `mutates` does not name are unchanged;
    - *again*: a second call starts from the states after the first one, and no other state remains;
    - *batch*, *loop*: under `jax.vmap` and in a `jax.lax.scan` that closes over the Refs;
    - *through refs*: the reverse mode of a discharged program that calls it on Refs;
    - and all stages of `check_operation` for `f.transition`.

    **Returns:** the stages with counts and errors; a warning for an argument that `mutates` names
    but that does not change. **Raises:** `CheckFailure`, which names function, rule and origin,
    stage, argument and the first wrong entry; `MutationError` for Refs among the arguments.
    """
    if not isinstance(f, InPlace):
        raise TypeError(f"check_inplace: {f!r} is not an in-place function (see `tj.inplace`).")
    if any(map(mutation.is_ref, jax.tree.leaves(args))):
        raise MutationError(
            f"check_inplace: {f.name} must be checked on arrays; the kit makes the Refs.\n"
            "Hint: pass their values, `tj.refs.freeze(ref)` or `ref[...]`."
        )
    chosen = choose("check_inplace", INPLACE_MODES, modes, skip)
    require_double(f.name, args)
    given = {k: v for k, v in options.items() if k not in ("zero", "generic", "reference")}
    with arrays.densify("allow"):
        result = _Calls(f, args, given, chosen, tolerance).run()
    if any(m in OPERATION_MODES for m in chosen):
        left_out = tuple(m for m in OPERATION_MODES if m not in chosen)
        of_transition = check_operation(
            f.transition, *args, skip=left_out, tolerance=tolerance, **options
        )
        result.stages |= of_transition.stages
        result.derivative = of_transition.derivative
        result.notes += of_transition.notes
        result.warnings += of_transition.warnings
        result.seconds += of_transition.seconds
    return result


class _Calls:
    """The stages that call the function on Refs."""

    def __init__(
        self,
        f: InPlace,
        args: Sequence[PyTree],
        given: dict[str, PyTree],
        chosen: PyTree,
        tolerance: float,
    ) -> None:
        self.f, self.chosen, self.tolerance = f, chosen, tolerance
        self.problem = p = Problem(f.transition, args, given)
        subject = f"{f.name}({', '.join(type_name(a) for a in p.args if a is not None)})"
        self.recorder = Recorder(subject, lambda _: who(p))
        self.recorder.result.skipped = tuple(m for m in INPLACE_MODES if m not in chosen)
        self.places = [p.names.index(name) for name in f.mutates]
        self.others = [i for i in range(len(p.args)) if i not in self.places]

    def run(self) -> CheckResult:
        checks: dict[str, Callable[[], None]] = {
            "refs": self._check_refs,
            "identity": self._check_identity,
            "untouched": self._check_untouched,
            "again": self._check_again,
            "batch": self._check_batch,
            "loop": self._check_loop,
            "through refs": self._check_through,
        }
        for stage in MUTATION_MODES:
            if stage in self.chosen:
                self._guarded(stage, checks[stage])
        return self.recorder.finish()

    def _guarded(self, stage: str, check: Callable[[], None]) -> None:
        try:
            check()
        except CheckFailure:
            raise
        except Exception as error:
            raise self.recorder.fail(stage, "it raised.", raised(error)) from error

    # -- running ---------------------------------------------------------------------------------

    def _on_refs(self, call: Function, args: Sequence[PyTree], times: int = 1) -> PyTree:
        """Return states and outputs of successive calls on fresh Refs."""
        refs = [mutation.new_ref(args[i]) for i in self.places]
        outs = [_read(call(*self._put(args, refs)), refs) for _ in range(times)]
        return [mutation.freeze(r) for r in refs], outs

    def _put(self, args: Sequence[PyTree], refs: Sequence[PyTree]) -> list[PyTree]:
        full = list(args)
        for i, ref in zip(self.places, refs, strict=True):
            full[i] = ref
        return full

    def _call(self, *args: PyTree) -> PyTree:
        return self.f(*args, **self.problem.static)

    def _body(self, *args: PyTree) -> PyTree:
        """Run the undecorated function on JAX's own Refs."""
        return self.f.__wrapped__(*args, **self.problem.static)  # type: ignore[attr-defined]

    def _moving(self, run: Function) -> Function:
        """Return a function of the array arguments, with the others fixed."""
        leaves, tree = jax.tree.flatten(self.problem.args)
        places = [i for i, x in enumerate(leaves) if _is_array(x)]

        def on_arrays(values: Sequence[PyTree]) -> PyTree:
            full = list(leaves)
            for i, x in zip(places, values, strict=True):
                full[i] = x
            return run(jax.tree.unflatten(tree, full))

        return on_arrays

    def _arrays(self) -> list[PyTree]:
        return [x for x in jax.tree.leaves(self.problem.args) if _is_array(x)]

    def _literally(self, times: int = 1) -> PyTree:
        """Return states and outputs of successive calls of the body."""
        run = self._moving(lambda args: self._on_refs(self._body, args, times))
        return jax.jit(run)(self._arrays())

    def _compare(self, stage: str, how: str, got: PyTree, want: PyTree) -> None:
        """Compare states by the names of their arguments, and outputs."""
        (states, outs), (right_states, right_outs) = got, want
        for name, state, right in zip(self.f.mutates, states, right_states, strict=True):
            self._same(stage, f"the state {name} {how}", state, right)
        for out, right in zip(outs, right_outs, strict=True):
            self._same(stage, f"the output {how}", out, right)

    def _same(self, stage: str, what: str, got: PyTree, want: PyTree) -> None:
        found, right = list(_numbers(got)), list(_numbers(want))
        self.recorder.holds(
            stage, f"{what} has another number of arrays.", len(found) == len(right),
            f"expected: {len(right)}", f"got: {len(found)}",
        )  # fmt: skip
        for (path, x), (_, y) in zip(found, right, strict=True):
            self.recorder.compare(stage, f"{what}{path}", x, y, self.tolerance)
            self.recorder.holds(
                stage, f"{what}{path} has another dtype.", x.dtype == y.dtype,
                f"expected: {y.dtype}", f"got: {x.dtype}",
            )  # fmt: skip

    # -- stages ----------------------------------------------------------------------------------

    def _check_refs(self) -> None:
        want = self._literally()
        args = self.problem.args
        self._compare("refs", "after a call on Refs", self._on_refs(self._call, args), want)
        traced = jax.jit(self._moving(lambda args: self._on_refs(self._call, args)))
        self._compare("refs", "after a call under jit", traced(self._arrays()), want)
        pure = self.problem.call(*args)
        pure = list(pure.state), [jax.tree.leaves(pure.out)]
        self._compare("refs", "of the transition", pure, want)
        for name, state, i in zip(self.f.mutates, want[0], self.places, strict=True):
            if all(np.array_equal(x, y) for x, y in zip(
                    map(_plain, jax.tree.leaves(state)), map(_plain, jax.tree.leaves(args[i])),
                    strict=True)):  # fmt: skip
                self.recorder.result.warnings.append(
                    f"{name} is named in `mutates`, and does not change in this call"
                )

    def _check_identity(self) -> None:
        patterns = []

        def traced(args: Sequence[PyTree]) -> None:
            refs = [mutation.new_ref(args[i]) for i in self.places]
            patterns.append(self._pattern(self._body(*self._put(args, refs)), refs))

        jax.jit(self._moving(traced))(self._arrays())
        refs = [mutation.new_ref(self.problem.args[i]) for i in self.places]
        out = self._call(*self._put(self.problem.args, refs))
        got, want = self._pattern(out, refs), patterns[0]
        for k, (x, y) in enumerate(zip(got, want, strict=False)):
            self.recorder.holds(
                "identity", f"output {k} is not the memory that the body returns.", x == y,
                f"expected: {y}", f"got: {x}",
            )  # fmt: skip
        self.recorder.holds(
            "identity", "the output has another number of arrays.", len(got) == len(want),
            f"expected: {want}", f"got: {got}",
        )  # fmt: skip

    def _pattern(self, out: PyTree, refs: Sequence[PyTree]) -> list[str]:
        """Return for each array of an output the memory that it is."""
        known = {
            id(leaf): f"{name}{jax.tree_util.keystr(path)}"
            for name, ref in zip(self.f.mutates, refs, strict=True)
            for path, leaf in jax.tree_util.tree_flatten_with_path(ref)[0]
        }
        kind = lambda x: known.get(id(x), "a new Ref" if mutation.is_ref(x) else "an array")
        return [kind(x) for x in jax.tree.leaves(out)]

    def _check_untouched(self) -> None:
        args = self.problem.args
        before = [[np.array(_plain(x)) for x in jax.tree.leaves(a) if _is_array(x)] for a in args]
        self.problem.call(*args)
        self._same_bits("the transition", before, args, range(len(args)))
        given = list(args)
        for i in range(len(args)):
            if i in self.places or all(map(_is_array, jax.tree.leaves(args[i]))):
                given[i] = mutation.new_ref(args[i])
        self._call(*given)
        self._same_bits("a call", before, args, range(len(args)))
        self._same_bits("a call on Refs", before, list(map(mutation.freeze, given)), self.others)

    def _same_bits(
        self, who: str, before: PyTree, after: Sequence[PyTree], places: Iterable[int]
    ) -> None:
        for i in places:
            now = [_plain(x) for x in jax.tree.leaves(after[i]) if _is_array(x)]
            for old, new in zip(before[i], now, strict=True):
                self.recorder.holds(
                    "untouched", f"{who} changes {self.problem.names[i]}.",
                    np.array_equal(old, new, equal_nan=old.dtype.kind in "fc"),
                    f"before: {old.tolist()}", f"after: {np.asarray(new).tolist()}",
                )  # fmt: skip

    def _check_again(self) -> None:
        args = self.problem.args
        once = self._on_refs(self._call, args)
        self._compare("again", "of the same call once more", self._on_refs(self._call, args), once)
        twice, want = self._on_refs(self._call, args, 2), self._literally(2)
        if not all(np.all(np.isfinite(x)) for _, x in _numbers(want) if x.dtype.kind in "fc"):
            self.recorder.result.notes.append("no second call: it is not finite")
            return
        self._compare("again", "after two calls", twice, want)

    def _check_batch(self) -> None:
        """Run two calls at once, on Refs that hold both states."""
        p = self.problem
        if not p.size:
            return
        rows = [p.args, p.unpack(p.nearby(1)[0])]
        leaves = [[x for x in jax.tree.leaves(row) if _is_array(x)] for row in rows]
        stacked = [jnp.stack([jnp.asarray(x), jnp.asarray(y)]) for x, y in zip(
            *leaves, strict=True)]  # fmt: skip
        run = self._moving(lambda args: self._on_refs(self._call, args))
        got = jax.jit(jax.vmap(run))(stacked)
        one = jax.jit(run)
        each = [one([jnp.asarray(x) for x in row]) for row in leaves]
        for k, want in enumerate(each):
            row = jax.tree.map(lambda x, k=k: x[k], got)
            self._compare("batch", f"of call {k} of two at once", row, want)

    def _check_loop(self) -> None:
        """Run two calls in a loop that closes over the Refs."""

        def looped(args: Sequence[PyTree]) -> PyTree:
            refs = [mutation.new_ref(args[i]) for i in self.places]

            def body(carry: PyTree, _: PyTree) -> PyTree:
                return carry, _read(self._call(*self._put(args, refs)), refs)

            outs = lax.scan(body, None, length=2)[1]
            rows = [jax.tree.map(lambda x, k=k: x[k], outs) for k in range(2)]
            return [mutation.freeze(r) for r in refs], rows

        want = self._literally(2)
        if all(np.all(np.isfinite(x)) for _, x in _numbers(want) if x.dtype.kind in "fc"):
            got = jax.jit(self._moving(looped))(self._arrays())
            self._compare("loop", "after a loop of two", got, want)

    def _check_through(self) -> None:
        """Check the pullback of a program that makes Refs, passes them on, and reads them."""
        p = self.problem
        if not (p.size and p.out_dense.size):
            return
        template = jax.tree.structure(p.out_template)

        def program(*args: PyTree) -> Transition:
            states, outs = self._on_refs(self._call, args)
            leaves = [*jax.tree.leaves(states), *jax.tree.leaves(outs)]
            return jax.tree.unflatten(template, leaves)

        through = lambda point: p.read(mutation.discharge(program)(*p.unpack(point)))
        both = lambda point: [(y, pull(p.probe)[0]) for y, pull in
                              (jax.vjp(f, point) for f in (through, p.defined))]  # fmt: skip
        (y, bar), (right, right_bar) = compiled(both)(p.point)
        self.recorder.compare("through refs", "the value", y, right, self.tolerance)
        for _, leaf, where in p.blocks():
            what = f"the cotangent of {leaf}"
            self.recorder.compare(
                "through refs", what, bar[where], right_bar[where], self.tolerance
            )


# -- numbers ---------------------------------------------------------------------------------------


def _read(out: PyTree, refs: Sequence[PyTree]) -> list[PyTree]:
    """Return the arrays of an output without the caller's memory; new memory is read once."""
    seen = {id(leaf) for leaf in jax.tree.leaves(refs)}
    found: list[PyTree] = []
    for leaf in jax.tree.leaves(out):
        if not mutation.is_ref(leaf):
            found.append(leaf)
        elif id(leaf) not in seen:
            seen.add(id(leaf))
            found.append(leaf[...])
    return found


def _numbers(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the dense arrays of a tree, with their places."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(dense(tree))[0]:
        yield jax.tree_util.keystr(path), np.asarray(_plain(leaf))


def _plain(x: PyTree) -> PyTree:
    """Return the numbers of an array, or of a random key."""
    is_key = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.extended)
    return jax.random.key_data(x) if is_key else x


def _is_array(x: PyTree) -> bool:
    return hasattr(x, "dtype") or moves(x)
