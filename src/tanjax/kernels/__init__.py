"""Layer 3: numerics in plain JAX, without types of tanjax: Schur, `logm`, secular equations.

JAX cannot differentiate a Schur factorisation, and this layer does not need to. The derivative of
each function of a matrix solves a linear equation whose coefficients depend on the value alone.
The Schur factors solve that equation and its transpose. So one factorisation serves the value, both
modes, and second derivatives, under every transformation.
"""

from ._band_factor import (
    BandFactor as BandFactor,
    band_factor as band_factor,
    diagonal_columns as diagonal_columns,
    diagonal_of_rows as diagonal_of_rows,
    diagonal_padding as diagonal_padding,
    inverse_band as inverse_band,
    pivots_and_sign as pivots_and_sign,
    solve_band as solve_band,
    solve_band_transposed as solve_band_transposed,
    transposed_rows as transposed_rows,
)
from ._custom_jvp import custom_jvp as custom_jvp
from ._definite_band import (
    DefiniteFactor as DefiniteFactor,
    definite_factor as definite_factor,
    solve_definite as solve_definite,
)
from ._determinant import det as det, sign_and_logarithm as sign_and_logarithm
from ._divide_and_conquer import tridiagonal_eigenpairs as tridiagonal_eigenpairs
from ._divided_differences import WithDifferences as WithDifferences
from ._equations import (
    discrete_lyapunov as discrete_lyapunov,
    lyapunov as lyapunov,
    sylvester as sylvester,
)
from ._exponential import exponential as exponential, frechet as frechet
from ._exported import exported as exported
from ._logarithm import logarithm as logarithm
from ._parity import parity as parity
from ._powers import fractional_power as fractional_power
from ._pseudo_inverse import pseudo_inverse as pseudo_inverse
from ._schur import inexact as inexact
from ._singular_values import spectral_norm as spectral_norm
from ._spectral import multiply_hermitian as multiply_hermitian, of_hermitian as of_hermitian
from ._square_root import square_root as square_root
from ._sturm import tridiagonal_eigenvalues as tridiagonal_eigenvalues
from ._toeplitz import (
    half_turn as half_turn,
    is_hermitian_toeplitz as is_hermitian_toeplitz,
    toeplitz_by_elimination as toeplitz_by_elimination,
    toeplitz_by_schur as toeplitz_by_schur,
    toeplitz_inverse_product as toeplitz_inverse_product,
    toeplitz_sides as toeplitz_sides,
    transform_dtype as transform_dtype,
)
from ._tridiagonal_pivots import slogdet_tridiagonal as slogdet_tridiagonal
