"""Layer 5: the shipped operations, operators, NumPy's protocols."""

from ._operations import (
    SlogdetResult as SlogdetResult,
    add as add,
    cholesky as cholesky,
    det as det,
    diagonal as diagonal,
    divide as divide,
    dot as dot,
    inv as inv,
    kron as kron,
    logdet as logdet,
    matmul as matmul,
    multiply as multiply,
    negative as negative,
    norm as norm,
    quadratic_form as quadratic_form,
    slogdet as slogdet,
    solve as solve,
    subtract as subtract,
    sum as sum,
    trace as trace,
    transpose as transpose,
)
from ._operators import install
from .lift import lift as lift
from .namespaces import (
    Namespace as Namespace,
    function as function,
    mirror as mirror,
    scipy_modules as scipy_modules,
)

install()
