"""Layer 11: structured programs as typed equations; higher-order functions; interpreters.

`_program` captures and replays, `_view` finds the types, and `_print` writes them.
`_higher_order` makes equations of functions of functions, `_transforms` those of tanjax, and
`_class` those of constructions. `_interpreter` walks programs; `passes` are interpreters.
"""

from ._adjoint import adjoint as adjoint
from ._class import CaptureMeta as CaptureMeta
from ._ctrl import ctrl as ctrl
from ._equations import Equation as Equation
from ._higher_order import higher_order as higher_order
from ._interpreter import Interpreter as Interpreter, handles as handles
from ._linear_maps import linearize as linearize, vjp as vjp
from ._program import Program as Program, capture as capture
from ._transforms import (
    associative_scan as associative_scan,
    checkpoint as checkpoint,
    cond as cond,
    for_loop as for_loop,
    fori_loop as fori_loop,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jit as jit,
    jvp as jvp,
    map as map,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vmap as vmap,
    while_loop as while_loop,
)
