"""Layer 7: the shipped operations: names, signatures, and dense implementations."""

from ._batched import refused as refused
from ._definite import assert_definite as assert_definite
from ._factorization import (
    Factorization as Factorization,
    FactorizationPlan as FactorizationPlan,
    Root as Root,
)
from ._factorizations import (
    EighResult as EighResult,
    LUResult as LUResult,
    QRResult as QRResult,
    SVDResult as SVDResult,
    condition_number as condition_number,
    eigh as eigh,
    eigvalsh as eigvalsh,
    factorize as factorize,
    inv_quad_logdet as inv_quad_logdet,
    lstsq as lstsq,
    lu as lu,
    matrix_rank as matrix_rank,
    pinv as pinv,
    qr as qr,
    solve_triangular as solve_triangular,
    svd as svd,
)
from ._iterative import (
    Algorithm as Algorithm,
    logdet_by as logdet_by,
    solve_by as solve_by,
)
from ._matrix_functions import (
    DIFFERENTIABLE as DIFFERENTIABLE,
    OF_MATRICES as OF_MATRICES,
    complex_sqrtm as complex_sqrtm,
    expm as expm,
    fractional_matrix_power as fractional_matrix_power,
    funm_hermitian as funm_hermitian,
    funm_multiply as funm_multiply,
    logm as logm,
    matrix_power as matrix_power,
    solve_discrete_lyapunov as solve_discrete_lyapunov,
    solve_lyapunov as solve_lyapunov,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from ._operations import (
    BY_NAME as BY_NAME,
    SlogdetResult as SlogdetResult,
    add as add,
    cholesky as cholesky,
    det as det,
    diagonal as diagonal,
    divide as divide,
    inv as inv,
    kron as kron,
    logdet as logdet,
    matmul as matmul,
    multiply as multiply,
    negative as negative,
    norm as norm,
    pairing as pairing,
    quadratic_form as quadratic_form,
    slogdet as slogdet,
    solve as solve,
    subtract as subtract,
    sum as sum,
    trace as trace,
    transpose as transpose,
)
