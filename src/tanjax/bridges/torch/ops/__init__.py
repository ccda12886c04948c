"""The tables of operations: importing this package fills the one of `_registry`."""

from . import _binary as _binary, _pointwise as _pointwise
