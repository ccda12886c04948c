"""Layer 7: functions that write to their arguments, on `jax.Ref`s."""

from ._refs import (
    StructuredRef as StructuredRef,
    freeze as freeze,
    is_ref as is_ref,
    new_ref as new_ref,
)
