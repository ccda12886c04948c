"""The laws of primitives, by family; importing this fills `LAWS`."""

from . import (
    _arithmetic as _arithmetic,
    _comparisons as _comparisons,
    _contractions as _contractions,
    _control as _control,
    _functions as _functions,
    _indexing as _indexing,
    _integers as _integers,
    _linalg as _linalg,
    _random as _random,
    _reductions as _reductions,
    _rounding as _rounding,
    _shapes as _shapes,
    _windows as _windows,
)
from ._expansions import expansion as expansion, is_expanded as is_expanded
from ._law import LAWS as LAWS
