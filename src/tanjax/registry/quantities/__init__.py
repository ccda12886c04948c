"""Functions of plain arrays, called on quantities: units resolved, numbers kept in range.

`UnitFunction` does this by a unit signature. Code that handles units itself uses its parts:

- `_unit_function` resolves a call, and `_cached_call` caches the result;
- `_headroom` checks that numbers stay in range, and `_overflow` handles those that may not;
- `_meeting` finds a common label, and `_losses` warns if entries are lost there;
- `_labels` labels results;
- `_surroundings` records the lifts and watching traces around a call.
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
