"""Layer 4: array types, cotangents that stay small, the four maps."""

from ._abstract import (
    AbstractArray as AbstractArray,
    Dense as Dense,
    array_field as array_field,
    static_field as static_field,
)
from ._batches import (
    batch_of as batch_of,
    broadcast as broadcast,
    counted as counted,
    leading as leading,
    over_batches as over_batches,
)
from ._densify import densified as densified, densify as densify, densify_mode as densify_mode
from ._export import read_static as read_static, write_static as write_static
from ._free_forms import FreeForm as FreeForm, entries as entries
from ._leaves import (
    as_array as as_array,
    frozen as frozen,
    held as held,
    holds_array as holds_array,
    is_inexact as is_inexact,
)
from ._queries import (
    apply as apply,
    diagonal as diagonal,
    entries_at as entries_at,
    is_hermitian as is_hermitian,
    is_real as is_real,
    shape as shape,
    submatrix as submatrix,
    total as total,
    without_promise as without_promise,
    without_unit as without_unit,
)
from ._register import register_array_type as register_array_type
from ._show import show as show
from ._table import (
    ArrayType as ArrayType,
    answers as answers,
    array_type as array_type,
    fact as fact,
    is_own as is_own,
    is_structured as is_structured,
    registered_array_types as registered_array_types,
)
from .cotangents._fill import Fill as Fill
from .cotangents._masked import Masked as Masked
from .cotangents._outer import Outer as Outer
from .cotangents._scaled import Scaled as Scaled, scaled as scaled
from .cotangents._sum import Sum as Sum, add as add
from .cotangents._zero import Zero as Zero
from .maps._destructure import (
    check_structural as check_structural,
    destructure as destructure,
    fit_structural as fit_structural,
    pullback_of_destructure as pullback_of_destructure,
    pushforward_of_destructure as pushforward_of_destructure,
)
from .maps._restructure import (
    has_exact_naturals as has_exact_naturals,
    is_visible as is_visible,
    natural as natural,
    project as project,
    pullback_of_restructure as pullback_of_restructure,
    pushforward_of_restructure as pushforward_of_restructure,
    restructure as restructure,
    structural as structural,
    warn_if_hidden as warn_if_hidden,
)
from .maps._tangents import (
    TangentType as TangentType,
    add_tangents as add_tangents,
    fit_leaf as fit_leaf,
    inner_product as inner_product,
    tangent_type as tangent_type,
    zero_leaf as zero_leaf,
    zero_tangent as zero_tangent,
)
from .types._banded import Banded as Banded
from .types._block_diagonal import BlockDiagonal as BlockDiagonal
from .types._circulant import Circulant as Circulant
from .types._diagonal import Diagonal as Diagonal
from .types._hermitian import Hermitian as Hermitian
from .types._identity import Identity as Identity
from .types._kronecker import Kronecker as Kronecker
from .types._kronecker_sum import KroneckerSum as KroneckerSum
from .types._low_rank import LowRank as LowRank
from .types._low_rank_update import LowRankUpdate as LowRankUpdate
from .types._permutation import Permutation as Permutation
from .types._sparse import Sparse as Sparse
from .types._sym_tridiagonal import SymTridiagonal as SymTridiagonal
from .types._symmetric import Symmetric as Symmetric
from .types._toeplitz import Toeplitz as Toeplitz
from .types._triangular import Triangular as Triangular
from .types._tridiagonal import Tridiagonal as Tridiagonal
