"""`jax.numpy`: reductions, products, statistics, calculus, polynomials, searches."""

from ._notation import each

TABLE = {
    # sums
    **each("sum nansum", "a: u, initial: u -> u"),
    **each("cumsum nancumsum", "a: u -> u"),
    "cumulative_sum": "x: u -> u",
    "trace": "a: u -> u",
    # extrema
    **each("max min amax amin nanmax nanmin", "a: U, initial: U -> U kept"),
    "minmax": "a: U, initial: U -> (U, U)",
    **each("argmax argmin nanargmax nanargmin", "a: U -> - kept"),
    # the unit depends on the number of factors
    **each("prod nanprod", "special"),
    **each("cumprod nancumprod", "a: 1 -> 1"),
    "cumulative_prod": "x: 1 -> 1",
    # truth and counts
    **each("all any count_nonzero nonzero flatnonzero argwhere", "a: u -> - kept"),
    "bincount": "x: -, weights: u -> u",
    # statistics
    **each("mean nanmean median nanmedian", "a: U -> U"),
    "average": "special",
    **each("quantile nanquantile", "a: U, q: 1, weights: v -> U"),
    **each("percentile nanpercentile", "a: U, q: -, weights: v -> U"),
    **each("std nanstd var nanvar ptp", "special"),
    "cov": "m: u, y: u -> u^2",
    "corrcoef": "x: u, y: v -> 1",
    **each("histogram histogram2d histogramdd histogram_bin_edges", "special"),
    # products of arrays
    **each("dot inner outer kron vdot cross tensordot", "a: u, b: v -> u*v"),
    **each("convolve correlate", "a: u, v: v -> u*v"),
    **each("vecdot matvec vecmat", "x1: u, x2: v -> u*v"),
    "matmul": "a: u, b: v -> u*v",
    "einsum": "special",
    # differences and integrals
    **each("diff ediff1d", "special"),
    "trapezoid": "y: u, x: v, dx: v -> u*v",
    "gradient": "special",
    "interp": "x: U, xp: U, period: u, fp: V, left: V, right: V -> V",
    # polynomials: a list of coefficients may have a unit for each
    "poly": "seq_of_zeros: 1 -> 1",
    **each("polyadd polysub", "a1: u, a2: u -> u"),
    "polymul": "a1: u, a2: v -> u*v",
    "polydiv": "u: u, v: v -> (u/v, u)",
    **each("polyder polyint polyval polyfit roots", "special"),
    "vander": "x: 1 -> 1",
    # order
    "sort": "a: U -> U kept",
    "sort_complex": "a: u -> u",
    "partition": "a: U -> U kept",
    **each("argsort argpartition", "a: U -> - kept"),
    "lexsort": "keys: [*] -> - kept",
    "top_k": "a: U -> (U, -)",
    "searchsorted": "a: U, v: U -> - kept",
    "digitize": "x: U, bins: U -> - kept",
    # sets
    "unique": "special",
    "unique_all": "x: U, fill_value: U -> (U, -, -, -)",
    **each("unique_counts unique_inverse", "x: U, fill_value: U -> (U, -)"),
    "unique_values": "x: U, fill_value: U -> U",
    **each("union1d setdiff1d setxor1d", "ar1: U, ar2: U, fill_value: U -> U"),
    "intersect1d": "special",
    "isin": "element: U, test_elements: U -> - kept",
}
