"""Layer 9: derivatives in natural (co)tangents, compilation, loops and branches, with units."""

from ._control_flow import (
    associative_scan as associative_scan,
    checkpoint as checkpoint,
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    vmap as vmap,
    while_loop as while_loop,
)
from ._custom import custom_vjp as custom_vjp
from ._eager import planned_if_lost as planned_if_lost
from ._free_coordinates import (
    FreeCoordinates as FreeCoordinates,
    free_coordinates as free_coordinates,
)
from ._grad import (
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jvp as jvp,
    linearize as linearize,
    linearize_in_fields as linearize_in_fields,
    natural_pullback as natural_pullback,
    natural_pushforward as natural_pushforward,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vjp_in_fields as vjp_in_fields,
)
from ._jit import jit as jit
from ._natural import (
    natural_tree as natural_tree,
    structural_cotangent as structural_cotangent,
)
from ._ref_functions import (
    Buffers as Buffers,
    RefFunctions as RefFunctions,
    register_ref_functions as register_ref_functions,
)
from ._scale_graph import scale_graph as scale_graph
from ._units import times_unit as times_unit
