"""`jax.random`: samples have the unit of their bounds or of the array that they come from."""

from ._notation import each

TABLE = {
    # keys, and numbers without a unit
    **each(
        "Key PRNGKey key key_data key_dtype key_impl wrap_key_data split fold_in clone", "plain"
    ),
    **each("bits normal ball cauchy gumbel laplace logistic maxwell double_sided_maxwell", "plain"),
    **each("exponential rademacher orthogonal", "plain"),
    # bounds and scales
    "uniform": "minval: U, maxval: U -> U!",
    "randint": "minval: U, maxval: U -> U",
    "triangular": "left: U, mode: U, right: U -> U",
    "rayleigh": "scale: u -> u",
    "weibull_min": "scale: u, concentration: 1 -> u",
    "multivariate_normal": "special",
    # entries of an array
    "permutation": "x: U -> U",
    "choice": "a: U, p: 1 -> U",
    # pure numbers
    "truncated_normal": "lower: 1, upper: 1 -> 1",
    **each("gamma loggamma", "a: 1 -> 1"),
    "beta": "a: 1, b: 1 -> 1",
    **each("chisquare t", "df: 1 -> 1"),
    "f": "dfnum: 1, dfden: 1 -> 1",
    "dirichlet": "alpha: 1 -> 1",
    "pareto": "b: 1 -> 1",
    "wald": "mean: 1 -> 1",
    "lognormal": "sigma: 1 -> 1",
    "generalized_normal": "p: 1 -> 1",
    # counts
    "poisson": "lam: 1 -> -",
    **each("bernoulli geometric", "p: 1 -> -"),
    **each("binomial multinomial", "n: 1, p: 1 -> -"),
    "categorical": "logits: 1 -> -",
}
