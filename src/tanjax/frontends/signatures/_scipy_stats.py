"""`jax.scipy.stats`: a density is per unit of its variable, its logarithm needs pure numbers.

The default scale is the number 1, which is not a length; `!` says that it counts as given.
"""

from ._notation import each


def continuous(names: str, shape: str = "", quantile: str = "q") -> dict[str, str]:
    """Return the functions of a distribution with a location, a scale and pure shape parameters."""
    more = f", {shape}" if shape else ""
    entries = {
        "pdf": f"x: u{more}, loc: u, scale: u! -> 1/u",
        "logpdf": f"x: 1{more}, loc: 1, scale: 1 -> 1",
        **each("cdf sf logcdf logsf", f"x: u{more}, loc: u, scale: u! -> 1"),
        **each("ppf isf", f"{quantile}: 1{more}, loc: u, scale: u! -> u"),
    }
    return {name: entries[name] for name in names.split()}


_ALL = "cdf logcdf logpdf logsf pdf sf"

TABLES: dict[str, dict[str, str]] = {
    "stats": {
        "gaussian_kde": "refuse: the object mixes coordinates, densities and bandwidths",
        "mode": "a: U -> (U, -)",
        "rankdata": "a: U -> -",
        "sem": "a: u -> u",
    },
    # continuous, with a location and a scale
    "stats.beta": continuous(_ALL, "a: 1, b: 1"),
    "stats.cauchy": continuous(f"{_ALL} isf ppf"),
    "stats.chi2": continuous(_ALL, "df: 1"),
    "stats.expon": continuous(f"{_ALL} ppf"),
    "stats.gamma": continuous(_ALL, "a: 1"),
    "stats.gumbel_l": continuous(f"{_ALL} ppf", quantile="p"),
    "stats.gumbel_r": continuous(f"{_ALL} ppf", quantile="p"),
    "stats.laplace": continuous("cdf logpdf pdf"),
    "stats.logistic": continuous("cdf logpdf pdf sf isf ppf", quantile="x"),
    "stats.norm": continuous(f"{_ALL} isf ppf"),
    "stats.pareto": continuous(f"{_ALL} ppf", "b: 1"),
    "stats.t": continuous("logpdf pdf", "df: 1"),
    "stats.truncnorm": continuous(_ALL, "a: 1, b: 1"),
    "stats.uniform": continuous("cdf logpdf pdf ppf"),
    # continuous, of pure numbers and angles
    "stats.gennorm": each("cdf logpdf pdf", "x: 1, beta: 1 -> 1"),
    "stats.vonmises": each("logpdf pdf", "x: 1, kappa: 1 -> 1"),
    "stats.wrapcauchy": each("logpdf pdf", "x: 1, c: 1 -> 1"),
    "stats.dirichlet": each("logpdf pdf", "x: 1, alpha: 1 -> 1"),
    "stats.multivariate_normal": each("logpdf pdf", "special"),
    # discrete: counts and probabilities are pure numbers
    "stats.bernoulli": {
        "cdf": "k: 1, p: 1 -> 1",
        "ppf": "q: 1, p: 1 -> 1",
        **each("logpmf pmf", "k: 1, p: 1, loc: 1 -> 1"),
    },
    "stats.betabinom": each("logpmf pmf", "k: 1, n: 1, a: 1, b: 1, loc: 1 -> 1"),
    "stats.binom": each("logpmf pmf", "k: 1, n: 1, p: 1, loc: 1 -> 1"),
    "stats.geom": each("logpmf pmf", "k: 1, p: 1, loc: 1 -> 1"),
    "stats.multinomial": each("logpmf pmf", "x: 1, n: 1, p: 1 -> 1"),
    "stats.nbinom": each("logpmf pmf", "k: 1, n: 1, p: 1, loc: 1 -> 1"),
    "stats.poisson": {
        **each("cdf logpmf pmf", "k: 1, mu: 1, loc: 1 -> 1"),
        "entropy": "mu: 1, loc: 1 -> 1",
    },
}
