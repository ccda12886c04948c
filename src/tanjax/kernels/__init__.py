"""Layer 3: numerics in plain JAX, without types of tanjax: Schur, `logm`, secular equations.

JAX cannot differentiate a Schur factorisation, and this layer does not need to. The derivative of
each function of a matrix solves a linear equation whose coefficients depend on the value alone.
The Schur factors solve that equation and its transpose. So one factorisation serves the value, both
modes, and second derivatives, under every transformation.
"""

from ._custom_jvp import custom_jvp as custom_jvp
from ._determinant import det as det, sign_and_logarithm as sign_and_logarithm
from ._divide_and_conquer import tridiagonal_eigenpairs as tridiagonal_eigenpairs
from ._divided_differences import WithDifferences as WithDifferences
from ._equations import (
    discrete_lyapunov as discrete_lyapunov,
    lyapunov as lyapunov,
    sylvester as sylvester,
)
from ._exponential import exponential as exponential, frechet as frechet
from ._logarithm import logarithm as logarithm
from ._powers import fractional_power as fractional_power
from ._pseudo_inverse import pseudo_inverse as pseudo_inverse
from ._schur import inexact as inexact
from ._singular_values import spectral_norm as spectral_norm
from ._spectral import multiply_hermitian as multiply_hermitian, of_hermitian as of_hermitian
from ._square_root import square_root as square_root
from ._sturm import tridiagonal_eigenvalues as tridiagonal_eigenvalues
