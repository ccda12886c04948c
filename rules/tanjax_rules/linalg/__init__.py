"""Linear algebra."""

from . import arithmetic as arithmetic
from . import cholesky as cholesky
from . import determinant as determinant
from . import kron as kron
from . import matmul as matmul
from . import reductions as reductions
from . import solve as solve
