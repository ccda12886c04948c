"""Arithmetic of quantities whose numbers must stay in the range of their dtype.

Operators, namespaces and NumPy's protocols call it; it imports none of them.
"""

from ._arithmetic import (
    add as add,
    divide as divide,
    multiply as multiply,
    on_scale as on_scale,
    span_of as span_of,
)
from ._rounding import UNIT_DEPENDENT as UNIT_DEPENDENT, in_its_unit as in_its_unit
from ._updates import At as At
