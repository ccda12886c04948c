"""Dispatch of a call: which implementation runs, and what differentiates it.

For a call on given types, the order is:

- AD of the implementation, if the operation opted out or the implementation for these types says
  `differentiate=True`;
- the most specific natural rule;
- AD of the implementation.

One more decision needs the output. An output with hidden directions (an over-parametrised type) may
receive cotangents that no natural cotangent expresses. An output without a closed form of its
pullback has them only by an iteration that loses digits. Unless the rule says how to handle these,
JAX differentiates the implementation. Both ways give the gradient of the definition.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import _compat, arrays
from tanjax._errors import CotangentError, describe, message, no_rule
from tanjax._typing import Function, Pullback
from tanjax.arrays import AbstractArray, is_inexact, is_structured

from . import _batched
from ._declaration import Declaration, Implementation, Rule
from ._lowering import both_modes
from ._natural import in_jax, structural_pullback, structural_pushforward, to_natural
from ._table import Registered, Signature, distance, is_static_value


@dataclasses.dataclass
class Resolution:
    """The decision for one operation, one tuple of classes and one set of static arguments."""

    operation: Declaration
    classes: Signature
    statics: dict[str, PyTree]
    implementation: Implementation | None
    rule: Rule | None
    push: Rule | None
    origin: str
    hidden_output: bool = False
    checked: list[Rule] = dataclasses.field(default_factory=list)

    def functions(self) -> list[Function]:
        """Return the functions that run in a call: the implementation and the rules."""
        chosen = self.implementation.function if self.implementation else self.operation.generic
        return [f for f in (chosen, *(r and r.function for r in (self.rule, self.push))) if f]

    # -- running -------------------------------------------------------------------------

    def primal(self, *args: PyTree) -> PyTree:
        """Run the implementation itself, without rule or compilation."""
        self._check(args)
        if self.implementation is not None:
            return self.implementation.function(*args, **self.statics)
        if self.operation.generic is None:
            raise no_rule(
                self.operation.name,
                [c.__name__ for c in self.classes],
                self.operation.implementations.nearest(self.classes),
                f"register one with `@{self.operation.name}.implementation(...)`",
            )
        return self._generic(args)

    def _generic(self, args: tuple[PyTree, ...]) -> PyTree:
        op = self.operation
        if op.dense and any(map(is_structured, args)):
            names = ", ".join(c.__name__ for c in self.classes)
            hint = f"register `@{op.name}.implementation({names})`"
            dense = [arrays.densified(a, op.name, hint) if is_structured(a) else a for a in args]
            return op(*dense, **self.statics)
        try:
            return op.generic(*args, **self.statics)  # type: ignore[misc]
        except TypeError as error:
            if any(map(is_structured, args)):
                names = ", ".join(c.__name__ for c in self.classes)
                error.add_note(
                    f"The generic implementation of `{op.name}` ran on ({names}). If it needs "
                    "dense arrays, declare `@tj.operation(dense=True)` or register "
                    f"`@{op.name}.implementation({names})`."
                )
            raise

    def structural_rule(self, *args: PyTree) -> tuple[PyTree, Pullback]:
        """Run the rule with structural cotangents; return `(out, pullback)`."""
        assert self.rule is not None
        out, natural_pullback = self._run(self.rule, args)
        names = self.operation.names_for(len(args))
        pullback = structural_pullback(self.rule.convention, natural_pullback, out, args, {}, names)
        if learned := [i for i, a in enumerate(args) if _is_learned(a)]:
            pullback = self._with_learned(pullback, args, learned)
        if self.rule.hidden != "hybrid" or has_natural_cotangents(out):
            return out, pullback
        return out, self._hybrid(out, pullback, args)

    def _hybrid(self, out: PyTree, pullback: Function, args: Sequence[PyTree]) -> PyTree:
        """Use the rule for the visible part of a cotangent, and AD for the rest."""
        pull = lambda o, y: arrays.pullback_of_destructure(o)(y) if is_structured(o) else y
        add = lambda x, y: x + y if is_inexact(x) else x
        subtract = lambda x, y: x - y if is_inexact(x) else x

        def hybrid_pullback(out_bar: PyTree) -> PyTree:
            natural = to_natural(out, out_bar)
            # only the digits of the natural cotangent: AD adds the rest
            visible = jax.tree.map(pull, out, natural, is_leaf=is_structured)
            hidden = jax.tree.map(subtract, out_bar, visible)
            _, vjp = jax.vjp(self.primal, *args)
            bars = zip(pullback(visible, natural), vjp(hidden), strict=True)
            return tuple(jax.tree.map(add, *pair) for pair in bars)

        return hybrid_pullback

    def _with_learned(
        self, pullback: Function, args: Sequence[PyTree], learned: Sequence[int]
    ) -> Function:
        """Use AD for callables that are trees of arrays, where rules return `None`."""

        def full(out_bar: PyTree, speak: PyTree = None) -> tuple[PyTree, ...]:
            bars = list(pullback(out_bar, speak))
            fixed = {i: a for i, a in enumerate(args) if i not in learned}
            primal = lambda *moving: self.primal(*_fill(fixed, moving))
            _, vjp = jax.vjp(primal, *(args[i] for i in learned))
            for i, bar in zip(learned, vjp(out_bar), strict=True):
                bars[i] = bar
            return tuple(bars)

        return full

    def structural_push(self, *args: PyTree) -> tuple[PyTree, Function]:
        """Run the pushforward rule with structural tangents; return `(out, pushforward)`."""
        assert self.push is not None
        out, natural_pushforward = self._run(self.push, args)
        return out, structural_pushforward(self.push.convention, natural_pushforward, out, args)

    def _check(self, args: Sequence[PyTree]) -> None:
        check = self.operation.check
        if check is None:
            return
        if not any(map(is_structured, args)):
            args = _batched.cores(self.operation, args)
        check(self.operation.name, *args)

    def _run(self, rule: Rule, args: Sequence[PyTree]) -> PyTree:
        self._check(args)
        result = rule.function(*map(in_jax, args), **self.statics)
        if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
            raise CotangentError(
                message(
                    f"{rule.convention.name}: a rule must return `(out, pullback)`.",
                    f"got: {describe(result)}",
                )
            )
        if rule not in self.checked:  # once per resolution: it traces the primal a second time
            self.checked.append(rule)
            dynamic = {i for i, a in enumerate(args) if not is_static_value(a)}
            fixed = {i: a for i, a in enumerate(args) if i not in dynamic}
            primal = lambda *moving: self.primal(*_fill(fixed, moving))
            expected = jax.eval_shape(primal, *(a for i, a in enumerate(args) if i in dynamic))
            _check_output(rule.convention.name, expected, result[0])
        return result

    def differentiable(self, fixed: dict[int, PyTree] | None = None) -> Function:
        """Return the function that JAX sees: evaluated by the primal, differentiated by the rule.

        **Arguments:** `fixed`: positional arguments that are static, by position; the function
        takes the others.
        """
        fill = functools.partial(_fill, fixed or {})
        by_ad = lambda *args: self.primal(*fill(map(project_tangents, args)))
        if self.rule is None and self.push is None:
            return by_ad

        def rule(*args: PyTree) -> PyTree:
            out, pullback = self.structural_rule(*fill(map(project_tangents, args)))
            return out, lambda out_bar: tuple(
                b for i, b in enumerate(pullback(out_bar)) if i not in (fixed or {})
            )

        def push(*args: PyTree) -> PyTree:
            out, pushforward = self.structural_push(*fill(map(project_tangents, args)))
            return out, lambda *tangents: pushforward(*_fill(dict.fromkeys(fixed or {}), tangents))

        by_rule = both_modes(
            by_ad,
            rule if self.rule else None,
            push if self.push else None,
            self.operation.name,
        )

        def call(*args: PyTree) -> PyTree:
            if self.hidden_output or (self.push and any(map(_is_learned, args))):
                return by_ad(*args)
            out = by_rule(*args)
            if self.handles(out):
                return out
            self.hidden_output = True  # known for these types from now on
            return by_ad(*args)

        return call

    def handles(self, out: PyTree, rule: Rule | None = None) -> bool:
        """True if the rule, rather than AD, may differentiate a call with this output."""
        rule = rule or self.rule or self.push
        return rule is None or rule.hidden != "ad" or has_natural_cotangents(out)

    def traced(self, fixed: tuple[int, ...], *args: PyTree) -> PyTree:
        """Run the body of the compiled call; `fixed` are the positions of static arguments."""
        function = self.differentiable({i: args[i] for i in fixed})

        def aligned(*args: PyTree) -> PyTree:
            return function(*_compat.align([a for i, a in enumerate(args) if i not in fixed]))

        return _batched.call(self.operation, aligned, args, self.statics)


def _is_learned(x: PyTree) -> bool:
    """True for a callable whose leaves are arrays: a module, `jax.tree_util.Partial`."""
    return callable(x) and not is_structured(x) and any(map(is_inexact, jax.tree.leaves(x)))


def _fill(fixed: dict[int, PyTree], moving: PyTree) -> list[PyTree]:
    """Merge the static arguments, by position, and the others, in order."""
    args = list(moving)
    for i in sorted(fixed):
        args.insert(i, fixed[i])
    return args


def resolve(op: Declaration, classes: Signature, statics: dict[str, PyTree]) -> Resolution:
    """Decide what a call on these classes does.

    **Raises:** `TypeError` for a list where an operation takes arrays: JAX would trace its numbers.
    """
    if list in classes and op.core_ndims is not None:
        name = op.names_for(len(classes))[classes.index(list)]
        hint = "pass an array, `jnp.asarray(...)`."
        raise TypeError(message(f"{op.name}: `{name}` is a list.", hint=hint))
    implementation = op.implementations.find(classes)
    rule, push = op.rules.find(classes), op.pushforwards.find(classes)
    out = op.opt_outs.find(classes)
    origin = op.origin if implementation is None else implementation.origin
    chosen = None if implementation is None else implementation.entry
    by_ad = out is not None and _closer(out.signature, rule, classes)
    if implementation is not None and implementation.entry.differentiate:
        by_ad = by_ad or _closer(implementation.signature, rule, classes)
    if by_ad:
        return Resolution(
            op, classes, statics, chosen, None, None, f"{origin} (AD of the implementation)"
        )
    found = rule or push
    return Resolution(
        operation=op,
        classes=classes,
        statics=statics,
        implementation=chosen,
        rule=None if rule is None else rule.entry,
        push=None if push is None else push.entry,
        origin=found.origin if found else origin,
    )


def _closer(signature: Signature, rule: Registered[Rule] | None, classes: Signature) -> bool:
    """True if a signature is at least as specific for a call as the rule that would apply."""
    if rule is None:
        return True
    ours, theirs = distance(signature, classes), distance(rule.signature, classes)
    assert ours is not None
    assert theirs is not None
    return ours <= theirs


def keep_invariant(x: AbstractArray) -> AbstractArray:
    """Return an array as it is, and project its tangents onto the storage invariant of its type.

    Implementations read the fields directly, which is fast and right while the invariant holds. A
    tangent that JAX makes (a basis vector of `jax.jacfwd`) may break it; the definition `to_dense`
    would project that tangent. This function does the same, at no cost to the primal.
    """
    leaves, tree = jax.tree.flatten(x)
    places = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]
    values = [leaves[i] for i in places]
    still = [None if is_inexact(leaf) else _compat.no_tangent(leaf) for leaf in leaves]

    def project(*tangents: PyTree) -> list[PyTree]:
        x_dot = tree.unflatten(_replaced(still, places, tangents))
        return [jax.tree.leaves(x_dot.canonical())[i] for i in places]

    same = lambda *values: list(values)  # a primitive: a `custom_jvp` does not survive in a loop
    linear = _compat.LinearMap(same, same, "keep_invariant", project)
    kept = _compat.linear_call(linear, [], values, [jax.typeof(v) for v in values])
    return tree.unflatten(_replaced(leaves, places, kept))


def _replaced(
    leaves: Sequence[PyTree], places: Sequence[int], values: Sequence[PyTree]
) -> list[PyTree]:
    new = dict(zip(places, values, strict=True))
    return [new.get(i, leaf) for i, leaf in enumerate(leaves)]


def project_tangents(tree: PyTree) -> PyTree:
    """Apply `keep_invariant` to every structured array in a tree that has an invariant."""
    if isinstance(tree, AbstractArray) and type(tree).canonical is not AbstractArray.canonical:
        return keep_invariant(tree)
    if jax.tree_util.all_leaves([tree]):
        return tree
    children, treedef = jax.tree.flatten(tree, is_leaf=lambda v: v is not tree)
    return jax.tree.unflatten(treedef, map(project_tangents, children))


def structured_leaves(tree: PyTree) -> list[PyTree]:
    """Return the structured arrays in a tree."""
    return [x for x in jax.tree.leaves(tree, is_leaf=is_structured) if is_structured(x)]


def has_natural_cotangents(out: PyTree) -> bool:
    """True if natural cotangents express exactly every cotangent that an output can receive."""
    return all(map(arrays.has_exact_naturals, structured_leaves(out)))


def _check_output(name: str, expected: PyTree, got: PyTree) -> None:
    trees = jax.tree.structure(expected), jax.tree.structure(got)
    same = trees[0] == trees[1] and all(
        e.shape == jnp.shape(g) and e.dtype == jnp.result_type(g)
        for e, g in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True)
    )
    if not same:
        raise CotangentError(
            message(
                f"{name}: the rule's output differs from that of the implementation.",
                f"implementation: {expected}",
                f"rule: {jax.tree.map(describe, got) if trees[0] != trees[1] else got}",
                hint="compute the output with `op.primal(...)` inside the rule.",
            )
        )
