"""The operations of torch on our arrays, a family in each file."""

from . import _binary as _binary, _pointwise as _pointwise, _special as _special
