"""Calls on quantities: the answers that tanjax must give, and the calls that it must refuse."""

from . import _lax, _linalg, _nonsense, _numpy, _scipy, _shapes
from ._call import (
    FACTORS as FACTORS,
    SINGLE_VERSION as SINGLE_VERSION,
    Call as Call,
    Q as Q,
    compare as compare,
    face as face,
    raw as raw,
    unit as unit,
)
from ._doors import DOORS as DOORS

GROUPS = {
    "numpy: element by element": _numpy.ELEMENTWISE,
    "numpy: reductions and products": _numpy.REDUCTIONS,
    "numpy: polynomials": _numpy.POLYNOMIALS,
    "numpy: shapes and indices": _shapes.SHAPES,
    "linalg": _linalg.LINALG,
    "fft": _linalg.FFT,
    "lax": _lax.LAX,
    "lax.linalg": _linalg.LAX,
    "scipy.linalg": _linalg.SCIPY,
    "scipy.special": _scipy.SPECIAL,
    "scipy.signal": _scipy.SIGNAL,
    "scipy.stats": _scipy.STATS,
    "scipy: the rest": _scipy.REST,
}
CALLS = [call for group in GROUPS.values() for call in group if raw(call) is not None]
NONSENSE = _nonsense.NONSENSE
