"""Layer 8: the API in programs: operators, NumPy's protocols, `tanjax.numpy`, `tj.lift`."""

from ._operators import install
from ._products import dot as dot, vdot as vdot
from ._stacking import concatenate as concatenate, stack as stack
from .lift import lift as lift
from .namespaces import (
    Namespace as Namespace,
    function as function,
    mirror as mirror,
    scipy_modules as scipy_modules,
)

install()
