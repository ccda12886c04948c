"""API for authors of rules and array types: run, choose, lower and list rules.

out, pullback = tj.rules.rrule(tj.solve, a, b)
with tj.rules.lowering("public"):
jax.grad(loss)(a)
start = tj.rules.align(jnp.zeros_like(x), x)  # what a loop in a rule starts with
"""

from .arrays import (
    AbstractArray as AbstractArray,
    FreeForm as FreeForm,
    TangentType as TangentType,
    array_field as array_field,
    densified as densified,
    is_structured as is_structured,
    register_array_type as register_array_type,
    registered_array_types as registered_array_types,
    static_field as static_field,
)
from .kernels import WithDifferences as WithDifferences, custom_jvp as custom_jvp
from .operations import (
    Algorithm as Algorithm,
    logdet_by as logdet_by,
    solve_by as solve_by,
)
from .registry import (
    Operation as Operation,
    align as align,
    as_custom_vjp as as_custom_vjp,
    constant as constant,
    frule as frule,
    lowering as lowering,
    operation as operation,
    operations as operations,
    packs as packs,
    rrule as rrule,
    wrap_natural_pullback as wrap_natural_pullback,
)
from .transforms import custom_vjp as custom_vjp

__all__ = sorted(name for name in globals() if name[0].isalpha())
