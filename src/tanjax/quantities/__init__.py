"""Layer 5: a value with a unit: its type, calls of functions on it, its arithmetic, headroom.

From below: `_range` (the bits of numbers), `_conversion` (from unit to unit), `_text`, `_quantity`
(the type), `_constructors`, `_exponents` (powers of two in labels), `_common_labels`. A call of a
function: `_operands` (roles and places), `_headroom` (do the numbers stay in range), `_losses`
(warnings), `_call` (resolve, convert, call, label). Then `_arithmetic`, `_rounding`, `_updates`.
"""

from ._arithmetic import (
    add as add,
    divide as divide,
    multiply as multiply,
    on_scale as on_scale,
    span_of as span_of,
)
from ._call import (
    UnitFunction as UnitFunction,
    captured as captured,
    is_traced as is_traced,
    refused as refused,
)
from ._common_labels import (
    centred_call as centred_call,
    centred_label as centred_label,
    meeting as meeting,
)
from ._constructors import floating as floating, quantity as quantity
from ._contexts import (
    lifting as lifting,
    note_unit_dependence as note_unit_dependence,
    watching as watching,
)
from ._conversion import (
    bits_in as bits_in,
    convert as convert,
    is_planned as is_planned,
    planned as planned,
)
from ._exponents import (
    labelled as labelled,
    plain_result as plain_result,
    rooted as rooted,
    settle as settle,
    unscale as unscale,
)
from ._headroom import fits as fits, graphed as graphed
from ._losses import checked as checked
from ._operands import unit_of as unit_of
from ._quantity import (
    Quantity as Quantity,
    bits_of as bits_of,
    is_quantity as is_quantity,
    label_of as label_of,
    note_bits as note_bits,
    number_in as number_in,
    split_unit as split_unit,
    stored_of as stored_of,
    taken_apart as taken_apart,
    unitful as unitful,
)
from ._range import (
    NOTHING as NOTHING,
    Bits as Bits,
    measure as measure,
    shift as shift,
)
from ._rounding import UNIT_DEPENDENT as UNIT_DEPENDENT, in_its_unit as in_its_unit
from ._updates import At as At
