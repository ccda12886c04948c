"""Code of a library author, last part: rules that keep a factorisation for the pullback.

The pullbacks of tanjax's own rules call `solve` and `inv`, which factorise again. A natural rule
for the type replaces them. It is plain matrix algebra. Only
`FeatureCovariance.pullback_of_destructure` handles the fields.
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
