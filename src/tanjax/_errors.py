"""The errors and warnings of tanjax.

Every class here is a subclass of the builtin that a caller would catch. Every message says what
went wrong, where (operation, argument), why, and what to do. Messages are built only on failure:
only `raise` statements call the functions below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


class ShapeError(ValueError):
    """Shapes do not fit together, or an argument is batched where one array is expected."""


class NotDefiniteError(ValueError):
    """A matrix that must be positive definite is not."""


class NoRuleError(NotImplementedError):
    """No rule or implementation exists for an operation on these types."""


class CaptureError(TypeError):
    """A program cannot be captured, replayed or rewritten as asked."""


class CaptureWarning(UserWarning):
    """A part of a captured program runs unchanged, although it could have been handled."""


class CotangentError(TypeError):
    """A tangent or cotangent has the wrong tree, shape, dtype or count."""


class UnitError(TypeError):
    """Units do not fit together, or a program drops or writes a unit in a meaningless way."""


class ScaleError(ValueError):
    """A number overflows or underflows its dtype."""


class ScaleWarning(UserWarning):
    """One exponent cannot hold all the numbers; plain floating-point results are kept."""


class AliasError(ValueError):
    """Two arguments share one memory, and the function writes to one of them."""


class MutationError(TypeError):
    """A `Ref` stands where an array belongs, or the reverse, or a mutation would be lost."""


class ConvergenceError(RuntimeError):
    """A solver did not reach its tolerance; while tracing, an error of the running program."""


class RegistrationError(ValueError):
    """An array type, implementation or rule cannot be registered as asked."""


class RulePackError(ImportError):
    """A rule pack cannot be loaded or breaks the contract of the loader."""


class CheckFailure(AssertionError):
    """A check of the testing kit found a wrong value, or could not have found one."""


class DensifyWarning(UserWarning):
    """tanjax converted a structured array to a dense one: no rule keeps its structure."""


class RulePackWarning(UserWarning):
    """A rule pack was skipped because it could not be loaded."""


class HiddenCotangentWarning(UserWarning):
    """A cotangent has a part that no natural cotangent can express."""


class LoweringWarning(UserWarning):
    """The default lowering is not available, and another one is used."""


def describe(x: Any) -> str:
    """Return a short name for a value in messages: `float64[3,2]`, `Diagonal[3,3]`, `NoneType`."""
    shape = getattr(x, "shape", None)
    if shape is None or not isinstance(shape, tuple):
        return type(x).__name__
    size = ",".join(map(str, shape))
    module = type(x).__module__
    dense = module.startswith(("jax", "numpy"))
    return f"{x.dtype}[{size}]" if dense else f"{type(x).__name__}[{size}]"


def message(what: str, *details: str, hint: str = "") -> str:
    """Lay out a message: what happened, indented facts, and what to do."""
    lines = [what, *(f"  {line}" for line in details)]
    if hint:
        lines.append(f"Hint: {hint}")
    return "\n".join(lines)


def wrong_ndim(cls: str, field: str, expected: int, got: Any) -> ShapeError:
    """Return the error for a field of the wrong rank."""
    return ShapeError(
        message(
            f"{cls}: `{field}` must have {expected} dimension(s).",
            f"got: {describe(got)}",
            hint="these are the last ones; the axes of a batch come before them.",
        )
    )


def wrong_natural_shape(where: str, expected: tuple[int, ...], got: Any) -> CotangentError:
    """Return the error for a natural (co)tangent whose shape is not that of its primal."""
    return CotangentError(
        message(
            f"{where}: the natural (co)tangent has the wrong shape.",
            f"expected: {expected}",
            f"got: {describe(got)}",
            hint="a natural (co)tangent has the shape of the array that it belongs to.",
        )
    )


def unregistered(cls: type) -> RegistrationError:
    """Return the error for a class that derives from `AbstractArray` but is not an array type."""
    return RegistrationError(
        f"{cls.__name__} derives from AbstractArray but is not registered.\n"
        "Hint: decorate the class with `@tj.register_array_type`."
    )


def final_type(cls: type) -> RegistrationError:
    """Return the error for a class that derives from another array type."""
    return RegistrationError(
        f"{cls.__name__}: array types are final; derive from `tj.AbstractArray` directly."
    )


def no_rule(op: str, types: Sequence[str], nearest: Sequence[str], hint: str) -> NoRuleError:
    """Return the error for a call without a registered implementation."""
    near = nearest or ["(nothing is registered for this operation)"]
    return NoRuleError(
        message(
            f"{op}: no implementation for ({', '.join(types)}).",
            "nearest registrations:",
            *(f"  {line}" for line in near),
            hint=hint,
        )
    )


def not_solved(solver: str) -> str:
    """Return the message for a solver that did not converge."""
    return message(
        f"solve: {solver} did not reach its tolerance, or broke down.",
        "where: `solve(a, b, solver=...)`, or the system that its derivative solves",
        "why: too few steps, a badly conditioned or singular matrix, one that the solver is not "
        "made for (CG: matrix and preconditioner positive definite), or a tolerance below what "
        "the dtype can tell.",
        hint="a preconditioner, more `max_steps`, a larger tolerance, another solver; "
        "`throw=False` gives nan instead.",
    )


def incompatible(operation: str, left: str, right: str, hint: str = "") -> UnitError:
    """Return the error for two operands whose units do not fit; `left` and `right` name them."""
    return UnitError(
        message(
            f"{operation}: the units do not fit together.",
            left,
            right,
            hint=hint
            or "convert one side with `.to(...)`, or strip its unit with `.to_value(...)`.",
        )
    )


_OURS = {"tanjax", "tanjax_rules", "tanjax_torch", "jax", "contextlib", "functools"}


def outside() -> int:
    """Return the `stacklevel` at which a warning names the line of the user's call.

    It skips frames of tanjax, of JAX between them (JAX traces our functions), and generated code.
    """
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back and (
        frame.f_globals.get("__name__", "").partition(".")[0] in _OURS
        or frame.f_code.co_filename.startswith("<")
    ):
        frame, level = frame.f_back, level + 1
    return level
