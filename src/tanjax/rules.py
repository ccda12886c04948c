"""API for authors of rules and array types: run, choose, lower and list rules.

out, pullback = tj.rules.rrule(tj.solve, a, b)
with tj.rules.lowering("public"):
jax.grad(loss)(a)
start = tj.rules.align(jnp.zeros_like(x), x)  # what a loop in a rule starts with
"""

from .arrays import (
    FreeForm as FreeForm,
    TangentType as TangentType,
    registered_array_types as registered_array_types,
)
from .kernels import WithDifferences as WithDifferences, custom_jvp as custom_jvp
from .operations import (
    Algorithm as Algorithm,
    logdet_by as logdet_by,
    solve_by as solve_by,
)
from .registry import (
    align as align,
    as_custom_vjp as as_custom_vjp,
    constant as constant,
    frule as frule,
    lowering as lowering,
    operations as operations,
    packs as packs,
    rrule as rrule,
)
