"""The operations of torch on our arrays, a family in each file."""

from . import (
    _arranging as _arranging,
    _attention as _attention,
    _convolution as _convolution,
    _distances as _distances,
    _factorizations as _factorizations,
    _fft as _fft,
    _indexing as _indexing,
    _linalg as _linalg,
    _lookups as _lookups,
    _losses as _losses,
    _matmul as _matmul,
    _norms as _norms,
    _padding as _padding,
    _pooling as _pooling,
    _resampling as _resampling,
    _scatters as _scatters,
    _shapes as _shapes,
    _sorting as _sorting,
    _unique as _unique,
)
