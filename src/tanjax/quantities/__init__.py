"""Layer 6: a value with a unit: its type, calls of functions on it, its arithmetic, headroom."""

from ._arithmetic import (
    add as add,
    divide as divide,
    multiply as multiply,
    on_scale as on_scale,
    span_of as span_of,
)
from ._conversion import (
    bits_in as bits_in,
    convert as convert,
    factor_of as factor_of,
    is_planned as is_planned,
    planned as planned,
)
from ._headroom import (
    SELECTING as SELECTING,
    has_headroom as has_headroom,
    has_headroom_at as has_headroom_at,
    needs_graph as needs_graph,
    numbers_fit as numbers_fit,
    stretch_of as stretch_of,
)
from ._losses import checked as checked
from ._making import floating as floating, quantity as quantity
from ._marking import captured as captured, is_traced as is_traced
from ._meeting import (
    centred_call as centred_call,
    centred_label as centred_label,
    meeting as meeting,
)
from ._overflow import (
    graphed as graphed,
    labelled as labelled,
    plain_result as plain_result,
    through_graph as through_graph,
    unscale as unscale,
)
from ._quantity import (
    Unitful as Unitful,
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
    measure_pure as measure_pure,
    shift as shift,
)
from ._rounding import UNIT_DEPENDENT as UNIT_DEPENDENT, in_its_unit as in_its_unit
from ._scaling import (
    common_label as common_label,
    divisible_exponent as divisible_exponent,
    joined as joined,
    rooted as rooted,
    settle as settle,
    warn_too_wide as warn_too_wide,
)
from ._surroundings import (
    lifting as lifting,
    note_unit_dependence as note_unit_dependence,
    watching as watching,
)
from ._unit_function import UnitFunction as UnitFunction, refused as refused, unit_of as unit_of
from ._updates import At as At
