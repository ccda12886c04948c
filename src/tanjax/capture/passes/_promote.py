"""Types for matrices whose construction shows their structure.

An author of `jnp.diag(d)` or `a + a.T` knows more than the array shows. The first operation that
takes such a matrix gets it in the type of its structure, and is dispatched on that type.

Sharp edges. A symmetric matrix is not known to be positive definite. Matrices that the program
returns, or that JAX's own functions use, stay dense.
"""

from __future__ import annotations

from jaxtyping import PyTree

from tanjax import operations as tj
from tanjax._errors import NoRuleError
from tanjax._jaxpr_types import JaxVariable
from tanjax._typing import Matrix, Natural
from tanjax.arrays import densify, destructure, is_structured

from .._equations import Equation, Operand, Variable
from .._interpreter import handles
from ._definitions import Walker, conform, is_product
from ._keys import scopes
from ._pass import Pass
from ._structure import Build, structured

_OF_ONE = (
    tj.solve, tj.inv, tj.logdet, tj.slogdet, tj.det, tj.inv_quad_logdet, tj.quadratic_form,
    tj.trace, tj.cholesky, tj.factorize,
)  # fmt: skip
# A product with a symmetric or triangular matrix costs as much as a dense product. The Cholesky
# factor of a Kronecker product is not the dense one if both factors are negative.
_NO_GAIN = ("Symmetric", "Triangular")
_CHOLESKY = ("Symmetric", "Diagonal", "Identity", "Scaled")


class Typed:
    """A matrix of known type; made once, in the program that made the matrix."""

    def __init__(self, name: str, build: Build) -> None:
        self.name, self._build = name, build
        self._value: Matrix | None = None

    def value(self) -> Matrix:
        """Return the matrix in its type."""
        if self._value is None:
            self._value = self._build()
        return self._value


class Promote(Walker):
    """The interpreter of `promote`."""

    def __init__(self) -> None:
        super().__init__()
        self._outside: dict[JaxVariable, Typed] = {}  # by the variable of an inner jaxpr

    def _step(self, equation: Equation, env: dict[Variable, PyTree]) -> None:
        self.walk.env = env
        before = self._outside
        if equation.programs:
            self._outside = {**before, **self._into(equation)}
        try:
            super()._step(equation, env)
        finally:
            self._outside = before

    def _into(self, equation: Equation) -> dict[JaxVariable, Typed]:
        """Return the known types of matrices that the programs of an equation take from outside."""
        by_leaf = {v.skeleton: v for v in self.walk.users if v.kind is None}
        found = {}
        for scope in scopes(equation):
            for inner, outer in scope.outer.items():
                known = self._typed(by_leaf[outer]) if outer in by_leaf else None
                if known is not None:
                    known.value()  # make it here: a value made in a body belongs to the body
                    found[inner] = known
        return found

    def _typed(self, x: Variable) -> Typed | None:
        if x.kind is None and x.skeleton in self._outside:
            return self._outside[x.skeleton]
        notes = self.walk.notes
        if x not in notes:
            found = structured(self.walk, x)
            notes[x] = None if found is None else Typed(*found)
        return notes[x]

    @handles(*_OF_ONE, tj.matmul, "dot_general")
    def operation(self, equation: Equation, *args: PyTree, **kwargs: PyTree) -> PyTree:
        product = is_product(equation)
        if len(args) != len(equation.inputs) or not (product or equation.target in _OF_ONE):
            return self.default(equation, *args, **kwargs)
        given = [
            self._promoted(equation, x, a) if product or not i else a
            for i, (x, a) in enumerate(zip(equation.inputs, args, strict=True))
        ]
        dense = [
            destructure(a) if is_structured(a) and isinstance(x, Variable) and x.kind is None else a
            for x, a in zip(equation.inputs, args, strict=True)
        ]
        if all(a is b for a, b in zip(given, dense, strict=True)):
            return self.default(equation, *dense, **kwargs)
        call = tj.matmul if product else equation.target
        try:
            with densify("error"):
                out = conform(call(*given, **kwargs), equation, self._stays(equation))
        except NoRuleError:
            out = None
        if out is None:
            return self.default(equation, *dense, **kwargs)
        self.changes += 1
        return out

    def _promoted(self, equation: Equation, x: Operand, value: Natural) -> Natural:
        if is_structured(value) or not isinstance(x, Variable) or x.kind is not None:
            return value
        known = self._typed(x)
        if known is None or (is_product(equation) and known.name in _NO_GAIN):
            return value
        if equation.target is tj.cholesky and known.name not in _CHOLESKY:
            return value
        return known.value()

    def _stays(self, equation: Equation) -> bool:
        """True if all users of the results dispatch on the type of their operand."""
        users = [(v, u) for v in equation.outputs if v is not None for u in self.walk.uses(v)]
        return all(
            u is not None and (is_product(u) or (u.target in _OF_ONE and u.inputs[0] is v))
            for v, u in users
        )


promote = Pass(
    "promote",
    Promote,
    """Give matrices the array type that their construction shows.

    Diagonal (`jnp.diag(d)`), triangular (`jnp.tril`, `jnp.triu`), Kronecker (`jnp.kron`) and
    multiples of the identity (`c * jnp.eye(n)`). Symmetric: `a + a.T`, `b @ b.T`,
    `x[:, None] * x`, and entrywise functions of these.

    A matrix gets its type where it is an argument of `solve`, `inv`, `logdet`, `slogdet`, `det`,
    `inv_quad_logdet`, `quadratic_form`, `trace`, `cholesky`, `factorize` or a product. The pass
    reads the program, never numbers.

    **Cost:** a second trace. **Derivative:** that of the operations on the types.
    """,
)
