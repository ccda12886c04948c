"""What a library author may write in the end: rules that keep a factorisation for the way back.

The rules that tanjax ships call `solve` and `inv` again in their pullbacks, which factorise again.
A natural rule for the type replaces them. It is plain matrix algebra: what becomes of the fields is
said once, in `FeatureCovariance.pullback_of_destructure`.
"""

from __future__ import annotations

import tanjax as tj

from .feature_covariance import FeatureCovariance
from .feature_logdet import inverse, log_determinant
from .feature_solve import whitened, woodbury


@tj.solve.natural_rule(FeatureCovariance, tj.Dense)
def solve_features_rule(k, b):
    kept = whitened(k)
    x = woodbury(k, kept, b)

    def solve_features_pullback(x_bar):
        w = woodbury(k, kept, x_bar)
        return tj.Outer(-w, x), w

    return x, solve_features_pullback


@tj.logdet.natural_rule(FeatureCovariance)
def logdet_features_rule(k):
    kept = whitened(k)

    def logdet_features_pullback(y_bar):
        return y_bar * inverse(k, kept)

    return log_determinant(k, kept), logdet_features_pullback
