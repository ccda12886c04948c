"""tanjax: an autodiff rule framework with natural and structural tangents, on JAX."""

from . import rules as rules, units as units
from ._errors import (
    CheckFailure as CheckFailure,
    CotangentError as CotangentError,
    DensifyWarning as DensifyWarning,
    HiddenCotangentWarning as HiddenCotangentWarning,
    NoRuleError as NoRuleError,
    RegistrationError as RegistrationError,
    RulePackError as RulePackError,
    RulePackWarning as RulePackWarning,
    ScaleError as ScaleError,
    ScaleWarning as ScaleWarning,
    ShapeError as ShapeError,
    UnitError as UnitError,
)
from ._version import __version__ as __version__
from .arrays import (
    AbstractArray as AbstractArray,
    Banded as Banded,
    BlockDiagonal as BlockDiagonal,
    Circulant as Circulant,
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
    Permutation as Permutation,
    Scaled as Scaled,
    Sum as Sum,
    Symmetric as Symmetric,
    SymTridiagonal as SymTridiagonal,
    Toeplitz as Toeplitz,
    Triangular as Triangular,
    Tridiagonal as Tridiagonal,
    Unitful as Unitful,
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
    quantity as quantity,
    register_array_type as register_array_type,
    restructure as restructure,
    static_field as static_field,
    structural as structural,
    tangent_type as tangent_type,
    zero_tangent as zero_tangent,
)
from .dispatch import (
    SlogdetResult as SlogdetResult,
    add as add,
    cholesky as cholesky,
    det as det,
    diagonal as diagonal,
    divide as divide,
    dot as dot,
    expm as expm,
    fractional_matrix_power as fractional_matrix_power,
    funm_hermitian as funm_hermitian,
    inv as inv,
    kron as kron,
    lift as lift,
    logdet as logdet,
    logm as logm,
    matmul as matmul,
    matrix_power as matrix_power,
    multiply as multiply,
    negative as negative,
    norm as norm,
    quadratic_form as quadratic_form,
    slogdet as slogdet,
    solve as solve,
    solve_discrete_lyapunov as solve_discrete_lyapunov,
    solve_lyapunov as solve_lyapunov,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
    subtract as subtract,
    sum as sum,
    trace as trace,
    transpose as transpose,
)
from .registry import (
    Operation as Operation,
    as_custom_vjp as as_custom_vjp,
    frule as frule,
    operation as operation,
    rrule as rrule,
    wrap_natural_pullback as wrap_natural_pullback,
)
from .transforms import (
    associative_scan as associative_scan,
    checkpoint as checkpoint,
    cond as cond,
    custom_vjp as custom_vjp,
    fori_loop as fori_loop,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jit as jit,
    jvp as jvp,
    linearize as linearize,
    map as map,
    scale_graph as scale_graph,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
from .units import unit as unit

_MOVED_TO_RULES = ("TangentType", "lowering", "operations", "packs", "registered_array_types")


def __getattr__(name: str) -> object:
    """Import on request what a program that runs need not load."""
    if name in ("bridges", "lax", "numpy", "scale", "scipy", "testing", "typing"):
        import importlib

        return importlib.import_module(f"tanjax.{name}")
    if name in _MOVED_TO_RULES:
        raise AttributeError(f"`tanjax.{name}` is `tanjax.rules.{name}` now.")
    raise AttributeError(f"module 'tanjax' has no attribute {name!r}")
