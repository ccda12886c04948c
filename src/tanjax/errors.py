"""The errors and warnings that tanjax raises."""

from ._errors import (
    AliasError as AliasError,
    CaptureError as CaptureError,
    CaptureWarning as CaptureWarning,
    CheckFailure as CheckFailure,
    ConvergenceError as ConvergenceError,
    CotangentError as CotangentError,
    DensifyWarning as DensifyWarning,
    HiddenCotangentWarning as HiddenCotangentWarning,
    MutationError as MutationError,
    NoRuleError as NoRuleError,
    NotDefiniteError as NotDefiniteError,
    RegistrationError as RegistrationError,
    RulePackError as RulePackError,
    RulePackWarning as RulePackWarning,
    ScaleError as ScaleError,
    ScaleWarning as ScaleWarning,
    ShapeError as ShapeError,
    UnitError as UnitError,
)

__all__ = sorted(name for name in globals() if name[0].isalpha())
