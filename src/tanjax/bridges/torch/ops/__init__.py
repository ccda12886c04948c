"""The operations of torch on our arrays, a family in each file."""

from . import (
    _arranging as _arranging,
    _binary as _binary,
    _convolution as _convolution,
    _distances as _distances,
    _factorizations as _factorizations,
    _indexing as _indexing,
    _linalg as _linalg,
    _lookups as _lookups,
    _matmul as _matmul,
    _padding as _padding,
    _pointwise as _pointwise,
    _pooling as _pooling,
    _resampling as _resampling,
    _scatters as _scatters,
    _shapes as _shapes,
    _sorting as _sorting,
    _special as _special,
    _unique as _unique,
)
