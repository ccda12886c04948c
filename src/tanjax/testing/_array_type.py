"""Check an array type at one value: all that it declares about itself.

`to_dense` is the definition. It gives the Jacobian J in stored coordinates and, by a dense singular
value decomposition, its pseudo-inverse. The type's four maps must be J, Jᵀ, J⁺ and J⁺ᵀ. No single
identity suffices: a consistently wrong pair of maps passes the adjoint test, and the zero map
passes the round trip.
"""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._errors import CheckFailure
from tanjax._typing import Function, Natural
from tanjax.arrays import AbstractArray

from ._array_facts import check_facts, check_tangents, check_visible, pseudo_inverse
from ._array_memory import check_memory
from ._array_queries import check_queries
from ._coordinates import (
    Coordinates,
    canonical,
    moves,
    random,
    require_double,
    single_precision,
    wide_leaves,
)
from ._finite_differences import jacobian
from ._generic import require_generic
from ._lattice import check_lattice
from ._modes import choose, compiled
from ._places import method, raised
from ._record import SINGLE, Checker, CheckResult, Recorder
from ._units import (
    labelled,
    numbers,
    stripped,
    unit_of_cotangent,
    unit_of_tangent,
    values_type,
)

ARRAY_MODES = (
    "pytree",
    "copies",
    "shape",
    "facts",
    "maps",
    "finite differences",
    "lattice",
    "natural",
    "tangents",
    "dtype",
    "second order",
    "queries",
    "memory",
)
# These hold natural cotangents by design, so a cotangent of this class is shown unchanged.
CONTAINERS = (arrays.Outer, arrays.Masked, arrays.Sum)


def check_array_type(
    x: PyTree,
    *,
    modes: tuple[str, ...] | None = None,
    skip: tuple[str, ...] = (),
    generic: bool = True,
    tolerance: float = 1e-8,
) -> CheckResult:
    """Check the type of `x`, a structured array in float64 or complex128, at this value.

    **Arguments:** `modes`: the stages to run, all by default; name every omitted stage in `skip`.
    `generic=False` admits degenerate values (all equal, symmetric by accident). `tolerance`:
    relative, per map.

    **Returns:** the stages with counts and errors. **Raises:** `CheckFailure`.
    """
    chosen = choose("check_array_type", ARRAY_MODES, modes, skip)
    if not arrays.is_structured(x):
        raise TypeError(f"check_array_type: {type(x).__name__} is not a registered array type.")
    require_double("check_array_type", x)
    if generic:
        require_generic(type(x).__name__, x)
    checker = _TypeCheck(x, tolerance, generic)
    for name in chosen:
        try:
            with arrays.densify("allow"):
                checker.run_stage(name)
        except CheckFailure:
            raise
        except Exception as error:
            raise checker.recorder.fail(name, "it raised.", raised(error)) from error
    checker.recorder.result.skipped = tuple(skip)
    return checker.recorder.finish()


class _TypeCheck(Checker):
    """The numbers of one value, and the stages that compare them."""

    def __init__(self, x: PyTree, tolerance: float, generic: bool) -> None:
        self.x, self.tolerance, self.generic = x, tolerance, generic
        self.kind: Any = arrays.array_type(x)
        shape = getattr(x, "shape", ())
        self.name = f"{type(x).__name__}[{','.join(map(str, shape))}]"
        self.recorder = Recorder(self.name, lambda what: (method(self.kind, what),))
        self.fields = Coordinates(x)
        self.point = self.fields.vector(x)
        self.formed = self._form(x)
        self.out = Coordinates(self.formed)
        self.bar_unit, self.dot_unit = unit_of_cotangent(x), unit_of_tangent(x)
        run: Function = lambda f, *a: compiled(f)(*a)
        self.run = run
        self.jacobian = np.asarray(run(jax.jacfwd(self.dense), self.point))
        self.inverse = pseudo_inverse(self.jacobian)
        self.dense_vector = random(self.out.size, 1)
        self.field_vector = random(self.fields.size, 2)

    def _form(self, x: PyTree) -> PyTree:
        return numbers(self.kind.destructure(x))

    def form_at(self, vector: PyTree) -> PyTree:
        """Return the dense numbers at these coordinates, with the storage invariant kept."""
        return self._form(canonical(self.fields.tree(vector)))

    def _natural(self, vector: PyTree) -> PyTree:
        """Return the natural cotangent with these coordinates."""
        return labelled(self.out.cotangent(vector), self.bar_unit)

    def _shown(self, what: str, natural: Natural) -> PyTree:
        """Return the dense numbers of a natural cotangent, and check its unit."""
        return stripped(what, natural, self.bar_unit)

    def dense(self, vector: PyTree) -> PyTree:
        """Return D as a function of coordinates."""
        return self.out.vector(self._form(self.fields.tree(vector)))

    def kept_dense(self, vector: PyTree) -> PyTree:
        """Return D as a function of coordinates, projected to the storage invariant."""
        return self.out.vector(self.form_at(vector))

    def run_stage(self, name: str) -> None:
        """Run one stage, here or in a module of its own."""
        elsewhere: PyTree = {
            "queries": check_queries,
            "tangents": check_tangents,
            "memory": check_memory,
        }
        if name in elsewhere:
            elsewhere[name](self)
        else:
            getattr(self, "check_" + name.replace(" ", "_"))()

    # -- a pytree of JAX --------------------------------------------------------------------------

    def check_pytree(self) -> None:
        leaves, tree = jax.tree.flatten(self.x)
        again = jax.tree.unflatten(tree, leaves)
        same = jax.tree.structure(again) == tree and type(again) is type(self.x)
        self.recorder.holds("pytree", "flatten and unflatten give another tree.", same)
        try:
            hash(tree)
            for place in (object(), None, 0):
                jax.tree.unflatten(tree, [place] * len(leaves))
        except Exception as error:
            raise self.recorder.fail(
                "pytree",
                "unflatten must accept placeholders, and static fields must hash.",
                raised(error),
                hint="validate in the constructor, never in `tree_unflatten`.",
            ) from error
        self.recorder.holds("pytree", "static fields do not compare equal.", tree == tree)
        self._compare_dense("pytree", "the array after unflatten", again)

    def check_copies(self) -> None:
        for name, copied in (
            ("pickle", lambda: pickle.loads(pickle.dumps(self.x))),
            ("copy.copy", lambda: copy.copy(self.x)),
            ("copy.deepcopy", lambda: copy.deepcopy(self.x)),
        ):
            try:
                new = copied()
            except Exception as error:
                if name == "pickle" and _is_local(type(self.x)):
                    self.recorder.result.notes.append(
                        f"{type(self.x).__name__} is a local class: pickle is not checked"
                    )
                    continue
                raise self.recorder.fail("copies", f"{name} failed.", raised(error)) from error
            self._compare_dense("copies", f"the array after {name}", new)
        what = "the array in canonical storage"  # this projection may round
        self._compare_dense("copies", what, canonical(self.x), self.tolerance)

    def _compare_dense(self, stage: str, what: str, other: PyTree, tolerance: float = 0.0) -> None:
        same = jax.tree.structure(other) == jax.tree.structure(self.x)
        self.recorder.holds(stage, f"{what} has another tree.", same)
        self.recorder.compare(stage, what, self._form(other), self.formed, tolerance)

    def check_shape(self) -> None:
        aval = jax.eval_shape(self._form, self.x)
        if isinstance(self.x, AbstractArray):
            for fact, real in (("shape", aval.shape), ("dtype", aval.dtype)):
                got = getattr(self.x, fact)
                self.recorder.holds(
                    "shape", f"`{fact}` is not that of `to_dense`.", got == real,
                    f"expected: {real}", f"got: {got}",
                )  # fmt: skip
            whole = numbers(self.x)
            self.recorder.compare("shape", "np.asarray", np.asarray(whole), self.formed, 0.0)
            traced: list[PyTree] = []
            jax.eval_shape(lambda x: traced.append((x.shape, x.dtype, repr(x))), self.x)
            same = traced[0][:2] == (aval.shape, aval.dtype)
            self.recorder.holds("shape", "shape or dtype differ under tracing.", same)
        moved = np.stack([self.point, self.point + 0.1 * self.field_vector])

        def both(moved: PyTree) -> PyTree:
            batch = jax.vmap(self.fields.tree)(moved)
            whole = [self.fields.tree(moved[i]) for i in range(2)]
            return jax.vmap(self._form)(batch), jnp.stack([self._form(x) for x in whole])

        if self.fields.size:
            got, want = self.run(both, moved)
            self.recorder.compare("shape", "to_dense under jit and vmap", got, want, self.tolerance)

    # -- the four maps ------------------------------------------------------------------------

    def maps(self) -> dict[str, PyTree]:
        """Return the matrices of the type's four maps, from the public functions."""
        x, fields, out = self.x, self.fields, self.out
        name = "pushforward_of_destructure"
        form = lambda natural: stripped(f"the result of {name}", natural, self.dot_unit)
        tangent = lambda y: labelled(out.tangent(y), self.dot_unit)
        back = lambda c: arrays.pullback_of_restructure(x)(fields.cotangent(c))
        push = lambda t: out.vector(form(arrays.pushforward_of_destructure(x)(fields.tangent(t))))
        pull = lambda y: fields.dual(arrays.pullback_of_destructure(x)(self._natural(y)))
        lift = lambda y: fields.vector(arrays.pushforward_of_restructure(x)(tangent(y)))
        show = lambda c: out.dual(self._shown("the result of pullback_of_restructure", back(c)))
        columns = lambda f, n: jax.vmap(f, out_axes=1)(jnp.eye(n))
        return {
            "pushforward_of_destructure": columns(push, fields.size),
            "pullback_of_destructure": columns(pull, out.size),
            "pushforward_of_restructure": columns(lift, out.size),
            "pullback_of_restructure": columns(show, fields.size),
            "combined": (push(self.field_vector), pull(self.dense_vector)),
            "zero": (push(0 * self.field_vector), pull(0 * self.dense_vector)),
        }

    def check_maps(self) -> None:
        if not self._has_coordinates("maps"):
            return
        got = self.run(self.maps)
        compare, tolerance = self.recorder.compare, self.tolerance
        j, inverse = self.jacobian, self.inverse
        compare("maps", "pushforward_of_destructure (J; right is the jvp of to_dense)",
                got["pushforward_of_destructure"], j, tolerance)  # fmt: skip
        compare("maps", "pullback_of_destructure (Jᵀ; right is the vjp of to_dense)",
                got["pullback_of_destructure"], j.T, tolerance)  # fmt: skip
        there, back = got["pushforward_of_restructure"], got["pullback_of_restructure"]
        # J⁺ may be derived from J⁺ᵀ, and the products from both: the first wrong map is named.
        compare("maps", "pullback_of_restructure (J⁺ᵀ, least norm)", back, inverse.T, tolerance)
        compare("maps", "pushforward_of_restructure (J⁺, least norm)", there, inverse, tolerance)
        compare("maps", "J J⁺ J", j @ np.asarray(there) @ j, j, tolerance)
        compare("maps", "pullback_of_restructure after pullback_of_destructure (the projector Π)",
                np.asarray(back) @ j.T, j @ inverse, tolerance)  # fmt: skip
        for name, value, want in (
            ("J of a general tangent", got["combined"][0], j @ self.field_vector),
            ("Jᵀ of a general cotangent", got["combined"][1], j.T @ self.dense_vector),
        ):
            compare("maps", f"{name} (linearity)", value, want, tolerance)
        for value in got["zero"]:
            self.recorder.holds("maps", "zero does not go to zero.", not np.any(value))

    def _has_coordinates(self, stage: str) -> bool:
        """True if there are coordinates to differentiate; otherwise the maps must be zero."""
        if self.fields.size and self.out.size:
            self.recorder.holds(
                stage, "the array does not depend on its fields.", bool(np.any(self.jacobian))
            )
            return True
        tangent = arrays.zero_tangent(self.x)
        for name, given in (
            ("pushforward_of_destructure", tangent),
            ("pullback_of_destructure", labelled(jnp.ones_like(self.formed), self.bar_unit)),
            ("pullback_of_restructure", tangent),
        ):
            image = getattr(arrays, name)(self.x)(given)
            image = numbers(image)
            values = jax.tree.leaves(arrays.destructure(image) if name.startswith("push")
                                     or name.endswith("_restructure") else image)  # fmt: skip
            empty = not any(np.any(v) for v in values if moves(v))
            self.recorder.holds(stage, f"{name} of an array without coordinates moves.", empty)
        return False

    def check_finite_differences(self) -> None:
        stage = "finite differences"
        run = compiled(self.kept_dense)
        if self._has_coordinates(stage):
            want = jacobian(run, self.point)
            self.recorder.compare(stage, "the Jacobian of to_dense", self.jacobian, want, 1e-6)

    def check_lattice(self) -> None:
        if self._has_coordinates("lattice"):
            check_lattice(self)

    # -- facts --------------------------------------------------------------------------------

    def check_facts(self) -> None:
        if self._has_coordinates("facts"):
            check_facts(self)

    def check_natural(self) -> None:
        """Check the public gradient: `⟨natural(w̄), J ẇ⟩ = ⟨w̄, ẇ⟩`, in an honest class."""
        if not self._has_coordinates("natural"):
            return
        check_visible(self)
        seen = jnp.asarray(self.jacobian.T @ np.asarray(self.dense_vector))
        natural = arrays.natural(self.x, self.fields.cotangent(seen))
        worn = values_type(natural)
        wears = worn is values_type(self.x) and not issubclass(worn, CONTAINERS)
        self.recorder.holds(
            "natural", "the natural cotangent of a non-linear type wears its class.",
            not wears or arrays.fact(natural, "is_linear"), f"got: {worn.__name__}",
        )  # fmt: skip
        got = self.out.dual(self._shown("the natural cotangent", natural)) @ self.jacobian
        self.recorder.compare("natural", "⟨natural(w̄), J ẇ⟩", got, seen, self.tolerance)

    def check_dtype(self) -> None:
        """Check that single precision in gives single precision out."""
        small = single_precision(self.x)

        def everything(x: PyTree) -> PyTree:
            formed = self._form(x)
            images = [arrays.pushforward_of_destructure(x)(arrays.zero_tangent(x))]
            bars = [arrays.pullback_of_destructure(x)(labelled(formed, self.bar_unit))]
            if self.fields.size and self.out.size:
                images += [arrays.pullback_of_restructure(x)(bars[0])]
                bars += [arrays.pushforward_of_restructure(x)(labelled(formed, self.dot_unit))]
            moving = [leaf for bar in bars for leaf in jax.tree.leaves(bar) if moves(leaf)]
            return formed, [arrays.destructure(i) for i in images], moving

        if any(map(moves, jax.tree.leaves(small))):
            wide = wide_leaves(jax.eval_shape(everything, small))
            self.recorder.holds("dtype", "single precision became double.", not wide, *wide)
            self._check_astype(small)

    def _check_astype(self, small: PyTree) -> None:
        if not isinstance(self.x, AbstractArray):
            return
        got, want = arrays.destructure(numbers(self.x.astype(small.dtype))), self._form(small)
        self.recorder.holds(
            "dtype", f"`astype({small.dtype})` gives another dtype.", got.dtype == want.dtype,
            f"got: {got.dtype}",
        )  # fmt: skip
        self.recorder.compare("dtype", f"`astype({small.dtype})`", got, want, SINGLE)

    def check_second_order(self) -> None:
        """Check the Hessian of `Σ sin(D)`: the registered Jᵀ must itself be differentiable."""
        if not self._has_coordinates("second order"):
            return
        weights = random(self.out.size, 3)
        loss = lambda y: jnp.sum(weights * jnp.sin(y))

        def gradient(vector: PyTree) -> PyTree:
            x = canonical(self.fields.tree(vector))
            y_bar = self._natural(jax.grad(loss)(self.kept_dense(vector)))
            return self.fields.dual(arrays.pullback_of_destructure(x)(y_bar))

        def both(point: PyTree) -> PyTree:
            plain = jax.hessian(lambda v: loss(self.kept_dense(v)))(point)
            return jax.jacfwd(gradient)(point), jax.jacrev(gradient)(point), plain

        forward, reverse, want = self.run(both, self.point)
        for mode, got in (("forward", forward), ("reverse", reverse)):
            what = f"the Hessian of sum(sin(to_dense)), {mode} mode over Jᵀ"
            self.recorder.compare("second order", what, got, want, self.tolerance)


def _is_local(cls: type) -> bool:
    """True if a class is no attribute of its module: made in a function, or in a notebook."""
    found: PyTree = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not cls
