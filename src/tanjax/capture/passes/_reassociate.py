"""The same product in another order, where that is cheaper.

`(a @ b) @ x` multiplies matrices where `a @ (b @ x)` multiplies vectors. `inv(a) @ b` inverts where
`solve(a, b)` would do. Products with a single user are split into chains and multiplied in the best
order, by the costs of products of the known types. A determinant of a product is that of the
factors. A diagonal plus a thin product becomes a `LowRankUpdate`.

Sharp edge. Another order rounds differently. It may over- or underflow where the written order does
not, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays, operations as tj
from tanjax._marks import Static
from tanjax._typing import AnyArray, Natural
from tanjax.arrays import is_structured
from tanjax.quantities import Quantity, is_quantity

from .._equations import Equation, Operand
from .._interpreter import handles
from ._chains import MOST, Factor, Later, Value, best_order, force, leaf, product_cost
from ._definitions import Walker, conform, is_product, shape_of
from ._pass import Pass
from ._structure import is_transpose

_TAKES_UPDATES = (tj.solve, tj.logdet, tj.slogdet, tj.inv_quad_logdet, tj.factorize)
_DETERMINANTS = (tj.logdet, tj.slogdet, tj.det)
_BASES = (arrays.Diagonal, arrays.Identity)


class Reassociate(Walker):
    """The interpreter of `reassociate`."""

    # -- chains ----------------------------------------------------------------------------

    @handles(tj.matmul, "dot_general")
    def product(self, equation: Equation, *args: PyTree, **kwargs: PyTree) -> PyTree:
        as_written = lambda: self.default(equation, *map(force, args), **kwargs)
        if not is_product(equation) or any(len(self._shape(x)) > 2 for x in equation.inputs):
            return as_written()
        if self._goes_on(equation):
            return self._later(equation, args)
        factors = [self._factor(x) for x in self._factors_of(equation)]
        if not _fit(factors) or (len(factors) < 3 and all(f.inverted is None for f in factors)):
            return as_written()
        best = best_order(factors)
        if best is None or not best.cost < 0.99 * self._written(equation)[0]:
            return as_written()
        out = conform(best.value(), equation, False)
        if out is None:
            return as_written()
        self.changes += 1
        return out

    def _later(self, equation: Equation, args: Sequence[Value]) -> Later:
        """Defer a result until a user needs it; all its users are in this program."""

        def build() -> AnyArray:
            out = self.default(equation, *map(force, args))
            return out[0] if equation.kind == "primitive" else out

        return Later(self._like(equation), build)

    @handles(tj.inv)
    def inverse(self, equation: Equation, a: Natural) -> PyTree:
        (out,) = equation.outputs
        if out is None or out.kind is Quantity or not self._only_multiplies(out):
            return self.default(equation, a)
        return self._later(equation, (a,))

    def _goes_on(self, equation: Equation) -> bool:
        """True if the only user is a determinant, or a product that splits this one."""
        (out,) = equation.outputs
        users = self.walk.uses(out) if out is not None else []
        if len(users) != 1 or users[0] is None or out is None or out.kind is Quantity:
            return False
        if not is_product(users[0]):
            return users[0].target in _DETERMINANTS
        first, second = users[0].inputs
        return self._opens(first, 0) if first is out else self._opens(second, 1)

    def _opens(self, x: Operand, side: int) -> bool:
        """True if a product may be split: it has one user, and no vector inside.

        A vector is at an end of a chain: on the left of `x @ a`, on the right of `a @ x`.
        """
        made = self.walk.origin(x)
        if made is None or not is_product(made) or len(self.walk.uses(x)) != 1:
            return False
        inner = self._shape(made.inputs[1 - side])
        return len(inner) == 2 and len(self._factors_of(made)) <= MOST

    def _factors_of(self, made: Equation) -> list[Operand]:
        return [*self._factors(made.inputs[0], 0), *self._factors(made.inputs[1], 1)]

    def _factors(self, x: Operand, side: int) -> list[Operand]:
        made = self.walk.origin(x)
        if made is None or not self._opens(x, side):
            return [x]
        return self._factors_of(made)

    def _shape(self, x: Operand) -> tuple[int, ...]:
        return shape_of(self.walk.value(x))

    def _factor(self, x: Operand) -> Factor:
        made, value = self.walk.origin(x), self.walk.value(x)
        if made is None or made.target is not tj.inv or made.kind != "operation":
            return Factor(value)
        return Factor(value, self.walk.value(made.inputs[0]) if self._only_multiplies(x) else None)

    def _only_multiplies(self, x: Operand) -> bool:
        """True if only products use an inverse, at most three: it costs three factorisations."""
        users = self.walk.uses(x)
        return len(users) <= 3 and all(
            is_product(u) or (u is not None and u.target is tj.quadratic_form and u.inputs[0] is x)
            for u in users
        )

    def _written(self, equation: Equation) -> tuple[float, PyTree]:
        """Return the cost of the products in their written order, and the result."""
        (a, first), (b, second) = (self._part(x, i) for i, x in enumerate(equation.inputs))
        known = product_cost(first, second)
        return (a + b + known[0], known[1]) if known else (float("inf"), self._like(equation))

    def _like(self, equation: Equation) -> PyTree:
        (out,) = equation.outputs
        struct = lambda v: (
            v.value if isinstance(v, Static) else jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)
        )
        return jax.tree.map(struct, out.skeleton)  # type: ignore[union-attr]

    def _part(self, x: Operand, side: int) -> tuple[float, PyTree]:
        made = self.walk.origin(x)
        if made is not None and self._opens(x, side):
            return self._written(made)
        part = leaf(self._factor(x))
        return part.cost, part.like

    # -- inverses and determinants -----------------------------------------------------------

    @handles(tj.quadratic_form)
    def quadratic(self, equation: Equation, a: Natural, x: Natural) -> PyTree:
        factor = self._factor(equation.inputs[0])
        if factor.inverted is None or is_structured(x) or is_quantity(x) or jnp.ndim(x) != 1:
            return self.default(equation, force(a), x)
        out = conform(tj.matmul(x, tj.solve(factor.inverted, x)), equation, False)
        if out is None:
            return self.default(equation, force(a), x)
        self.changes += 1
        return out

    @handles(*_DETERMINANTS)
    def determinant(self, equation: Equation, a: Natural) -> PyTree:
        out = self._determinant(equation, a)
        out = None if out is None else conform(out, equation, False)
        if out is None:
            return self.default(equation, force(a))
        self.changes += 1
        return out

    def _determinant(self, equation: Equation, a: Natural) -> PyTree | None:
        made = self.walk.origin(equation.inputs[0])
        if made is None or is_quantity(a):
            return None
        if made.target is tj.inv and equation.target is tj.logdet:
            return -tj.logdet(self.walk.value(made.inputs[0]))
        if not is_product(made) or len(self.walk.uses(equation.inputs[0])) != 1:
            return None
        factors = [force(self.walk.value(x)) for x in made.inputs]
        shapes = [shape_of(f) for f in factors]
        if any(len(s) != 2 or s[0] != s[1] for s in shapes) or shapes[0] != shapes[1]:
            return None
        first, second = (equation.target(f) for f in factors)
        if equation.target is tj.logdet:
            return first + second
        if equation.target is tj.slogdet:
            sign, logarithm = first.sign * second.sign, first.logabsdet + second.logabsdet
            return tj.SlogdetResult(sign, logarithm)
        # `a * b`, or `otherwise()` if a factor has over- or underflowed.
        tiny = jnp.finfo(first.dtype).tiny
        size = jnp.abs(first), jnp.abs(second)
        fine = jnp.isfinite(first) & jnp.isfinite(second) & (size[0] >= tiny) & (size[1] >= tiny)
        return jax.lax.cond(fine, lambda: first * second, lambda: tj.det(force(a)))

    # -- sums ------------------------------------------------------------------------------

    @handles(tj.add)
    def sum(self, equation: Equation, a: Natural, b: Natural) -> PyTree:
        out = self._update(equation, a, b)
        if out is None:
            return self.default(equation, a, b)
        self.changes += 1
        return out

    def _update(self, equation: Equation, a: Natural, b: Natural) -> PyTree | None:
        """Return a diagonal plus a thin product as `LowRankUpdate`, if all users profit from it."""
        (out,) = equation.outputs
        users = self.walk.uses(out) if out is not None else []
        if not users or out is None or out.kind is not None:
            return None
        if any(
            u is None or u.target not in _TAKES_UPDATES or u.inputs[0] is not out for u in users
        ):
            return None
        for base, (x, value) in ((a, (equation.inputs[1], b)), (b, (equation.inputs[0], a))):
            made = self.walk.origin(x)
            if isinstance(base, _BASES) and made is not None and is_product(made):
                u, v = made.inputs
                left, right = force(self.walk.value(u)), force(self.walk.value(v))
                if is_structured(left) or is_structured(right) or len(self.walk.uses(x)) != 1:
                    continue
                rows, rank = shape_of(left) if len(shape_of(left)) == 2 else (0, 0)
                if 0 < 2 * rank < rows and left.dtype == right.dtype == base.dtype == value.dtype:
                    own = is_transpose(self.walk, u, v)
                    return arrays.LowRankUpdate(base, left, None, None if own else right.T)
        return None


def _fit(factors: list[Factor]) -> bool:
    """True if a chain consists of matrices of one dtype, with vectors only at its ends."""
    if len(factors) > MOST:
        return False
    shapes = [shape_of(f.value) for f in factors]
    if any(len(s) != 2 for s in shapes[1:-1]) or any(len(s) not in (1, 2) for s in shapes):
        return False
    if any(is_quantity(f.value) for f in factors):
        return False
    dtypes = {f.value.dtype for f in factors}
    return len(dtypes) == 1 and bool(jnp.issubdtype(dtypes.pop(), jnp.inexact))


reassociate = Pass(
    "reassociate",
    Reassociate,
    """Multiply in the cheapest order, and use the factors of products and inverses.

    - `(a @ b) @ x` becomes `a @ (b @ x)`; dynamic programming orders longer chains.
    - `inv(a) @ b`, `b @ inv(a)` and `quadratic_form(inv(a), b)` become solves.
    - `logdet`, `slogdet` and `det` of a product become those of square factors.
    - `logdet(inv(a))` becomes `-logdet(a)`.
    - A `Diagonal` plus a product of thin matrices becomes a `LowRankUpdate` if it is solved with.

    Only products with a single user are split.

    **Cost:** a second trace, and one trace for each product of types that is considered.
    **Derivative:** that of the replacement.
    """,
)
