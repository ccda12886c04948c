"""JAX's namespaces on quantities: the effect of each function on units, and its calls.

A signature in `frontends/signatures/` describes most functions. If the unit depends on flags,
values or functions, a handler (`_handler.py`) strips, computes and labels.
"""

from ._namespace import (
    Namespace as Namespace,
    function as function,
    holds_quantity as holds_quantity,
    mirror as mirror,
    numpy_namespace as numpy_namespace,
    scipy_modules as scipy_modules,
)
from ._structured import of_structured as of_structured
