"""Functions of matrices, and Sylvester and Lyapunov equations."""

from . import (
    elementary as elementary,
    equations as equations,
    kronecker as kronecker,
    powers as powers,
)
