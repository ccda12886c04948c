"""`jax.lax`, opened to quantities: the same names and signatures.

Loops and branches are those of `tanjax`: a carry keeps its unit, branches convert to the first.
"""

from .frontends import mirror
from .transforms import (
    associative_scan as associative_scan,
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)

__getattr__, __dir__ = mirror(__name__, "lax", "jax.lax", ("linalg",))
