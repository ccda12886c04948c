"""The operations of torch on our arrays, a family in each file."""

from . import (
    _alignments as _alignments,
    _binary as _binary,
    _pointwise as _pointwise,
    _recurrent as _recurrent,
    _special as _special,
    _transformer as _transformer,
)
