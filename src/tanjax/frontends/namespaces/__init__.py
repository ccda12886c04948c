"""JAX's namespaces on quantities: what each function does to units, and how it is called.

Most functions are told by a signature in `signatures/`; where the unit depends on flags, on values
or on functions, a handler of this room (`_handler.py`) strips, computes and labels by itself.
"""

from ._namespace import (
    Namespace as Namespace,
    function as function,
    holds_quantity as holds_quantity,
    mirror as mirror,
    numpy_namespace as numpy_namespace,
    scipy_modules as scipy_modules,
)
from ._structured import (
    lifted_by as lifted_by,
    of_structured as of_structured,
)
