"""Programs: typed equations of a function, loops and branches in them, interpreters, passes."""

from .capture import (
    CaptureMeta as CaptureMeta,
    Equation as Equation,
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
    handles as handles,
    higher_order as higher_order,
    map as map,
    passes as passes,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)

__all__ = sorted(name for name in globals() if name[0].isalpha())
