"""tanjax: an autodiff rule framework with natural and structural tangents, on JAX.

`__all__` lists the names for programs of every kind. Names of one theme are in `errors`, `linalg`,
`programs`, `refs`, `rules` and `tangents`. All of them are importable from here, too.
"""

import importlib
from typing import TYPE_CHECKING

from . import (
    errors as errors,
    linalg as linalg,
    refs as refs,
    rules as rules,
    tangents as tangents,
    units as units,
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
    KroneckerSum as KroneckerSum,
    LowRank as LowRank,
    LowRankUpdate as LowRankUpdate,
    Masked as Masked,
    Outer as Outer,
    Permutation as Permutation,
    Scaled as Scaled,
    Sparse as Sparse,
    Sum as Sum,
    Symmetric as Symmetric,
    SymTridiagonal as SymTridiagonal,
    Toeplitz as Toeplitz,
    Triangular as Triangular,
    Tridiagonal as Tridiagonal,
    Zero as Zero,
    add_tangents as add_tangents,
    array_field as array_field,
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
    restructure as restructure,
    static_field as static_field,
    structural as structural,
    tangent_type as tangent_type,
    zero_tangent as zero_tangent,
)
from .capture import (
    CaptureMeta as CaptureMeta,
    Interpreter as Interpreter,
    Program as Program,
    adjoint as adjoint,
    associative_scan as associative_scan,
    capture as capture,
    checkpoint as checkpoint,
    cond as cond,
    ctrl as ctrl,
    for_loop as for_loop,
    fori_loop as fori_loop,
    grad as grad,
    handles as handles,
    hessian as hessian,
    higher_order as higher_order,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jit as jit,
    jvp as jvp,
    linearize as linearize,
    map as map,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
from .errors import (
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
from .frontends import (
    concatenate as concatenate,
    dot as dot,
    lift as lift,
    stack as stack,
    vdot as vdot,
)
from .mutation import (
    GradientRefs as GradientRefs,
    InPlace as InPlace,
    StructuredRef as StructuredRef,
    Transition as Transition,
    accumulate as accumulate,
    combine as combine,
    discharge as discharge,
    fdata as fdata,
    fdata_type as fdata_type,
    freeze as freeze,
    gradient as gradient,
    increment as increment,
    inplace as inplace,
    new_ref as new_ref,
    rdata as rdata,
    rdata_type as rdata_type,
    set_to_zero as set_to_zero,
    zero_refs as zero_refs,
)
from .operations import (
    EighResult as EighResult,
    Factorization as Factorization,
    FactorizationPlan as FactorizationPlan,
    LUResult as LUResult,
    QRResult as QRResult,
    Root as Root,
    SlogdetResult as SlogdetResult,
    SVDResult as SVDResult,
    add as add,
    assert_definite as assert_definite,
    cholesky as cholesky,
    condition_number as condition_number,
    det as det,
    diagonal as diagonal,
    divide as divide,
    eigh as eigh,
    eigvalsh as eigvalsh,
    expm as expm,
    factorize as factorize,
    fractional_matrix_power as fractional_matrix_power,
    funm_hermitian as funm_hermitian,
    funm_multiply as funm_multiply,
    inv as inv,
    inv_quad_logdet as inv_quad_logdet,
    kron as kron,
    logdet as logdet,
    logm as logm,
    lstsq as lstsq,
    lu as lu,
    matmul as matmul,
    matrix_power as matrix_power,
    matrix_rank as matrix_rank,
    multiply as multiply,
    negative as negative,
    norm as norm,
    pinv as pinv,
    qr as qr,
    quadratic_form as quadratic_form,
    slogdet as slogdet,
    solve as solve,
    solve_discrete_lyapunov as solve_discrete_lyapunov,
    solve_lyapunov as solve_lyapunov,
    solve_sylvester as solve_sylvester,
    solve_triangular as solve_triangular,
    sqrtm as sqrtm,
    subtract as subtract,
    sum as sum,
    svd as svd,
    trace as trace,
    transpose as transpose,
)
from .quantities import Quantity as Quantity, quantity as quantity
from .registry import (
    Operation as Operation,
    as_custom_vjp as as_custom_vjp,
    frule as frule,
    operation as operation,
    rrule as rrule,
    wrap_natural_pullback as wrap_natural_pullback,
)
from .transforms import (
    custom_vjp as custom_vjp,
    free_coordinates as free_coordinates,
    scale_graph as scale_graph,
)
from .units import (
    unit as unit,
)

Unitful = Quantity  # an alias: the first name of the class

__all__ = [  # noqa: RUF022, by theme
    # arrays
    "AbstractArray", "Banded", "BlockDiagonal", "Circulant", "Dense", "Diagonal", "Fill",
    "Hermitian", "Identity", "Kronecker", "KroneckerSum", "LowRank", "LowRankUpdate", "Outer",
    "Permutation", "Scaled", "Sparse", "SymTridiagonal", "Symmetric", "Toeplitz", "Triangular",
    "Tridiagonal", "Zero", "densify", "destructure",
    # quantities
    "Quantity", "quantity", "unit",
    # derivatives
    "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "linearize", "value_and_grad",
    "vjp",
    # compilation, maps, loops, branches
    "checkpoint", "cond", "fori_loop", "jit", "lift", "scale_graph", "scan", "vmap",
    "while_loop",
    # linear algebra
    "det", "dot", "factorize", "inv", "logdet", "matmul", "norm", "solve", "trace", "vdot",
    # programs, and functions that write in place
    "capture", "inplace", "new_ref",
    # for authors of operations, rules and array types
    "custom_vjp", "operation", "register_array_type", "wrap_natural_pullback",
    # what users catch
    "DensifyWarning", "NoRuleError", "ShapeError", "UnitError",
    # namespaces
    "errors", "lax", "linalg", "numpy", "programs", "refs", "rules", "scale", "scipy",
    "tangents", "testing", "units",
]  # fmt: skip
_AT_FIRST_USE = [
    *("bridges", "lax", "numpy", "programs", "random", "scale", "scipy", "testing", "typing")
]

if TYPE_CHECKING:
    from . import (
        bridges as bridges,
        lax as lax,
        numpy as numpy,
        programs as programs,
        random as random,
        scale as scale,
        scipy as scipy,
        testing as testing,
        typing as typing,
    )
    from .programs import passes as passes
else:

    def __getattr__(name: str) -> object:
        """Import a submodule at its first use, so that `import tanjax` stays fast."""
        if name in _AT_FIRST_USE:
            return importlib.import_module(f"tanjax.{name}")
        if name == "passes":
            return importlib.import_module("tanjax.programs").passes
        raise AttributeError(f"module 'tanjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of `__all__`, without those that only remain importable."""
    return list(__all__)
