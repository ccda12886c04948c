"""The operations of torch on our arrays, a family in each file."""

from . import (
    _activations as _activations,
    _binary as _binary,
    _pointwise as _pointwise,
    _reductions as _reductions,
    _scans as _scans,
    _special as _special,
    _ternary as _ternary,
)
