"""Layer 13: the testing kit, for authors of array types and rules.

    tj.testing.check_array_type(Vandermonde(points, 3))
    tj.testing.check_operation(tj.solve, tj.Diagonal(d), b)

The kit never tests a derivative against the algebra of its own rule. It compares with AD of the
definition on dense arrays, with AD of the undecorated implementation, and with finite differences
in stored coordinates, in every mode and transformation of JAX. A check that could not have failed
is a failure.
"""

from tanjax._errors import CheckFailure as CheckFailure

from . import strategies as strategies
from ._adjoint import check_adjoint as check_adjoint
from ._array_type import ARRAY_MODES as ARRAY_MODES, check_array_type as check_array_type
from ._cases import (
    Case as Case,
    Check as Check,
    cases_of as cases_of,
    check_coverage as check_coverage,
    checks_of as checks_of,
)
from ._finite_differences import (
    finite_difference_jvp as finite_difference_jvp,
    finite_difference_vjp as finite_difference_vjp,
)
from ._inplace import INPLACE_MODES as INPLACE_MODES, check_inplace as check_inplace
from ._operation import (
    OPERATION_MODES as OPERATION_MODES,
    check_operation as check_operation,
    check_rule as check_rule,
)
from ._record import CheckResult as CheckResult, Stage as Stage
from ._samples import Samples as Samples, examples_of as examples_of
from ._storage import check_storage as check_storage
