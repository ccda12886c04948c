"""tanjax: an autodiff rule framework with natural and structural tangents, on JAX."""

from ._errors import (
    CheckFailure as CheckFailure,
    CotangentError as CotangentError,
    DensifyWarning as DensifyWarning,
    HiddenCotangentWarning as HiddenCotangentWarning,
    NoRuleError as NoRuleError,
    RegistrationError as RegistrationError,
    RulePackError as RulePackError,
    RulePackWarning as RulePackWarning,
    ShapeError as ShapeError,
)
from ._version import __version__ as __version__
from .arrays import (
    AbstractArray as AbstractArray,
    BlockDiagonal as BlockDiagonal,
    Dense as Dense,
    Diagonal as Diagonal,
    Fill as Fill,
    Hermitian as Hermitian,
    Identity as Identity,
    Kronecker as Kronecker,
    LowRank as LowRank,
    LowRankUpdate as LowRankUpdate,
    Masked as Masked,
    Outer as Outer,
    Scaled as Scaled,
    Sum as Sum,
    Symmetric as Symmetric,
    TangentType as TangentType,
    Triangular as Triangular,
    Zero as Zero,
    add_tangents as add_tangents,
    densified as densified,
    densify as densify,
    destructure as destructure,
    inner_product as inner_product,
    is_structured as is_structured,
    is_visible as is_visible,
    natural as natural,
    project as project,
    pullback_of_destructure as pullback_of_destructure,
    pullback_of_restructure as pullback_of_restructure,
    pushforward_of_destructure as pushforward_of_destructure,
    pushforward_of_restructure as pushforward_of_restructure,
    register_array_type as register_array_type,
    registered_array_types as registered_array_types,
    restructure as restructure,
    static_field as static_field,
    structural as structural,
    tangent_type as tangent_type,
    zero_tangent as zero_tangent,
)
from .dispatch import (
    add as add,
    cholesky as cholesky,
    det as det,
    diagonal as diagonal,
    divide as divide,
    dot as dot,
    inv as inv,
    kron as kron,
    logdet as logdet,
    matmul as matmul,
    multiply as multiply,
    negative as negative,
    norm as norm,
    quadratic_form as quadratic_form,
    solve as solve,
    subtract as subtract,
    sum as sum,
    trace as trace,
    transpose as transpose,
)
from .registry import (
    Operation as Operation,
    as_custom_vjp as as_custom_vjp,
    frule as frule,
    lowering as lowering,
    operation as operation,
    operations as operations,
    packs as packs,
    rrule as rrule,
    wrap_natural_pullback as wrap_natural_pullback,
)
from .transforms import (
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jvp as jvp,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
)


def __getattr__(name: str) -> object:
    """Import the testing kit when it is asked for: programs that run need none of it."""
    if name == "testing":
        import importlib

        return importlib.import_module("tanjax.testing")
    raise AttributeError(f"module 'tanjax' has no attribute {name!r}")
