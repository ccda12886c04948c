"""Functions of plain arrays, called on quantities: units resolved, numbers kept in range.

`UnitFunction` does it by a unit signature; whoever does it by hand takes what it is made of from
here. `_unit_function` resolves a call, `_cached_call` keeps what was found, `_headroom` asks
whether numbers stay in range, `_overflow` takes care of those that may not, `_meeting` finds a
label for all of them, `_losses` warns where that loses some, `_labels` labels results,
`_surroundings` knows who lifts and who watches.
"""

from ._headroom import (
    SELECTING as SELECTING,
    has_headroom as has_headroom,
    has_headroom_at as has_headroom_at,
    needs_graph as needs_graph,
    numbers_fit as numbers_fit,
    stretch_of as stretch_of,
)
from ._losses import checked as checked
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
from ._surroundings import (
    lifting as lifting,
    note_unit_dependence as note_unit_dependence,
    watching as watching,
)
from ._unit_function import UnitFunction as UnitFunction, refused as refused, unit_of as unit_of
