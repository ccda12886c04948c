"""Random numbers: each entry draws its key by `next_key`, from a source that the kernel sets.

Distributions are torch's, numbers are JAX's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax._typing import DType
from tanjax_torch._typing import Argument, Dtype, Generator, Number
from tanjax_torch.arguments._dtypes import default_float
from tanjax_torch.arguments._keys import next_key
from tanjax_torch.arguments._promotion import category, jax_dtype, needs
from tanjax_torch.table._registry import implements

from ._binary import mul
from ._tools import aten, is_traced, prims, require


def _float(dtype: Dtype, otherwise: DType | None = None) -> DType:
    wanted = jax_dtype(dtype) if dtype is not None else otherwise
    return default_float() if wanted is None else wanted


def _drawn(draw: Callable[..., jax.Array], shape: Sequence[int], *args: Argument) -> jax.Array:
    """`draw(key, shape, *args)`, drawn along one axis, which compiles faster than several."""
    return draw(next_key(), (math.prod(shape),), *args).reshape(tuple(shape))


def _chosen(chance: Argument, shape: Sequence[int]) -> jax.Array:
    flat = chance.reshape(-1) if getattr(chance, "ndim", 0) else chance
    return _drawn(lambda key, size: jax.random.bernoulli(key, flat, size), shape)


def _refusing(text: str, holds: Callable[..., Argument]) -> Callable[..., None]:
    """Return a check of an entry: `holds` must be true for all known numbers."""

    def check(*args: Argument, generator: Generator = None, **kwargs: Argument) -> None:
        known = [a for a in (*args, *kwargs.values()) if not isinstance(a, torch.Generator)]
        if not is_traced(*known):
            numbers = [np.asarray(a) for a in known]
            require(bool(np.all(holds(*numbers))), f"{text}, but found {numbers[-1]}")

    return check


_NO_CHANCE = "bernoulli expects probabilities from 0 to 1"


def _is_chance(p: Argument) -> Argument:
    return (p >= 0) & (p <= 1)


def _ascending(_: Argument, low: Number = 0.0, to: Number = 1.0) -> Argument:
    return np.asarray(low) <= to


# From a shape.
@implements(aten.rand)
def rand(size: Sequence[int], *, dtype: Dtype = None, **_: object) -> jax.Array:
    return _drawn(jax.random.uniform, size, _float(dtype))


@implements(aten.randn)
def randn(size: Sequence[int], *, dtype: Dtype = None, **_: object) -> jax.Array:
    return _drawn(jax.random.normal, size, _float(dtype))


@implements(aten.randint.default, aten.randint.generator)
def randint(
    high: int, size: Sequence[int], *, dtype: Dtype = torch.int64, **_: object
) -> jax.Array:
    return integers(size, 0, high, _float(dtype))


@implements(aten.randint.low, aten.randint.low_generator)
def randint_from(
    low: int, high: int, size: Sequence[int], *, dtype: Dtype = torch.int64, **_: object
) -> jax.Array:
    return integers(size, low, high, _float(dtype))


def integers(size: Sequence[int], low: int, high: int, dtype: DType) -> jax.Array:
    """Whole numbers from `low` to below `high`, in any dtype."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    wide = jax_dtype(torch.int64)
    return jax.random.randint(next_key(), tuple(size), low, high, wide).astype(dtype)


@implements(aten.randperm)
def randperm(n: int, *, dtype: Dtype = torch.int64, **_: object) -> jax.Array:
    return jax.random.permutation(next_key(), n).astype(_float(dtype))


# Like another tensor.
@implements(aten.rand_like)
def rand_like(self: jax.Array, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return _drawn(jax.random.uniform, self.shape, _float(dtype, self.dtype))


@implements(aten.randn_like)
def randn_like(self: jax.Array, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return _drawn(jax.random.normal, self.shape, _float(dtype, self.dtype))


@implements(aten.randint_like.default, aten.randint_like.generator)
def randint_like(self: jax.Array, high: int, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return integers(self.shape, 0, high, _float(dtype, self.dtype))


@implements(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def randint_like_from(
    self: jax.Array, low: int, high: int, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return integers(self.shape, low, high, _float(dtype, self.dtype))


def _uniform(like: jax.Array) -> jax.Array:
    """Draw from (0, 1), never 0, so that the logarithm is finite."""
    tiny = jnp.finfo(like.dtype).tiny
    return _drawn(jax.random.uniform, like.shape, like.dtype, tiny)


@implements(aten.uniform, check=_refusing("uniform_ expects from <= to", _ascending))
def uniform(self: jax.Array, low: Number = 0.0, to: Number = 1.0, **_: object) -> jax.Array:
    needs("uniform", (2,), self)
    span = jnp.asarray(to, self.dtype) - jnp.asarray(low, self.dtype)
    return _drawn(jax.random.uniform, self.shape, self.dtype) * span + low


@implements(aten.normal_functional, static=("std",))
def normal_functional(
    self: jax.Array, mean: Number = 0.0, std: float = 1.0, **_: object
) -> jax.Array:
    needs("normal", (2, 3), self)
    return _normal(self.shape, self.dtype, mean, _positive(std))


@implements(aten.normal.float_float, static=("std",))
def normal_of_size(
    mean: Number, std: float, size: Sequence[int], *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return _normal(tuple(size), _float(dtype), mean, _positive(std))


@implements(aten.normal.Tensor_float, static=("std",))
def normal_around(mean: jax.Array, std: float = 1.0, **_: object) -> jax.Array:
    return _normal(mean.shape, mean.dtype, mean, _positive(std))


@implements(
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
    check=_refusing("normal expects all elements of std >= 0.0", lambda _, std: std >= 0),
)
def normal_spread(mean: Number, std: jax.Array, **_: object) -> jax.Array:
    shape = jnp.broadcast_shapes(jnp.shape(mean), std.shape)
    return _normal(
        shape, getattr(mean, "dtype", std.dtype) if jnp.ndim(mean) else std.dtype, mean, std
    )


def _normal(shape: tuple[int, ...], dtype: DType, mean: Number, std: Number) -> jax.Array:
    drawn = _drawn(jax.random.normal, shape, dtype)
    return drawn * jnp.asarray(std, dtype) + jnp.asarray(mean, dtype)


def _positive(std: float) -> float:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return std


@implements(prims.normal)
def normal_prim(
    shape: Sequence[int], *, mean: Number, std: Number, dtype: torch.dtype, **_: object
) -> jax.Array:
    return _normal(tuple(shape), jax_dtype(dtype), mean, std)


@implements(prims.uniform)
def uniform_prim(
    shape: Sequence[int], *, low: Number, high: Number, dtype: torch.dtype, **_: object
) -> jax.Array:
    return uniform(jnp.zeros(shape, jax_dtype(dtype)), low, high)


# Choices.
@implements(aten.bernoulli.default, check=_refusing(_NO_CHANCE, _is_chance))
def bernoulli(self: jax.Array, **_: object) -> jax.Array:
    """Ones with the probabilities that `self` holds."""
    needs("bernoulli", (2,), self)
    return _chosen(self, self.shape).astype(self.dtype)


@implements(
    aten.bernoulli.p,
    aten.bernoulli.Tensor,
    check=_refusing(_NO_CHANCE, lambda _, p=0.5: _is_chance(p)),
)
def bernoulli_like(self: jax.Array, p: Number = 0.5, **_: object) -> jax.Array:
    whole = getattr(p, "ndim", 0)
    chance = jnp.broadcast_to(p, self.shape) if whole else jnp.asarray(p, default_float())
    return _chosen(chance, self.shape).astype(self.dtype)


@implements(aten.native_dropout, static=("p",))
def native_dropout(input: jax.Array, p: float, train: bool | None) -> tuple[jax.Array, jax.Array]:
    """Keep each element with probability `1 - p`, divided by `1 - p`; also return the mask."""
    if train is False or p == 0:
        return input, jnp.ones(input.shape, jnp.bool_)
    if p == 1:
        return jnp.zeros_like(input), jnp.zeros(input.shape, jnp.bool_)
    kept = _chosen(1 - p, input.shape)
    return jnp.where(kept, input * (1 / (1 - p)), 0), kept


@implements(aten.native_dropout_backward)
def native_dropout_backward(grad_output: jax.Array, mask: jax.Array, scale: Number) -> jax.Array:
    return mul(grad_output, mul(mask, scale))


def _weights(self: jax.Array, *_: Argument, **__: Argument) -> None:
    """**Raises:** `RuntimeError` for weights that are negative, not finite or sum to 0."""
    if not is_traced(self):
        known = np.asarray(self)
        text = "probability tensor contains either `inf`, `nan` or element < 0"
        require(bool((np.isfinite(known) & (known >= 0)).all()), text)
        text = "invalid multinomial distribution (sum of probabilities <= 0)"
        require(bool((known.sum(-1) > 0).all()), text)


@implements(aten.multinomial, check=_weights)
def multinomial(
    self: jax.Array, num_samples: int, replacement: bool = False, **_: object
) -> jax.Array:
    """Draw indices with weights; without replacement by the Gumbel top-k trick."""
    needs("multinomial", (2,), self)
    require(self.ndim in (1, 2), "prob_dist must be 1 or 2 dim")
    require(num_samples > 0, f"cannot sample n_sample <= 0 samples, but found {num_samples}")
    if not replacement and num_samples > self.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    weights = jnp.log(self)
    if not replacement:
        noise = _drawn(jax.random.gumbel, self.shape, self.dtype)
        index = jax.lax.top_k(weights + noise, num_samples)[1]
        return index.astype(jax_dtype(torch.int64))
    shape = (num_samples, *self.shape[:-1])
    index = jax.random.categorical(next_key(), weights, axis=-1, shape=shape)
    return jnp.moveaxis(index, 0, -1).astype(jax_dtype(torch.int64))


# Other distributions, in place in torch.
def _from_uniform(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return an entry that draws by the inverse of the distribution function."""

    def entry(self: jax.Array, *parameters: Number, **_: object) -> jax.Array:
        whole = category(self.dtype) < 2
        like = jnp.zeros(self.shape, default_float()) if whole else self
        return function(_uniform(like), *parameters).astype(self.dtype)

    return entry


def _cauchy(u: jax.Array, median: Number = 0.0, sigma: Number = 1.0) -> jax.Array:
    return median + sigma * jnp.tan(jnp.pi * (u - 0.5))


_decay = _refusing("exponential_ expects lambda > 0.0", lambda _, lambd=1.0: lambd > 0)
_spread = _refusing("cauchy_ expects sigma > 0.0", lambda _, median=0.0, sigma=1.0: sigma > 0)
_rare = _refusing("geometric_ expects p to be in (0, 1)", lambda _, p: (p > 0) & (p < 1))
implements(aten.exponential, check=_decay)(_from_uniform(lambda u, lambd=1.0: -jnp.log(u) / lambd))
implements(aten.cauchy, check=_spread)(_from_uniform(_cauchy))
implements(aten.geometric, check=_rare)(
    _from_uniform(lambda u, p: jnp.ceil(jnp.log(u) / jnp.log1p(-p)))
)


@implements(
    aten.log_normal,
    check=_refusing("log_normal_ expects std > 0.0", lambda _, mean=1.0, std=2.0: std > 0),
)
def log_normal(self: jax.Array, mean: Number = 1.0, std: Number = 2.0, **_: object) -> jax.Array:
    return jnp.exp(_normal(self.shape, self.dtype, mean, std))


@implements(aten.poisson, check=_refusing("invalid Poisson rate, expected >= 0", lambda x: x >= 0))
def poisson(self: jax.Array, generator: Generator = None) -> jax.Array:
    return jax.random.poisson(next_key(), self).astype(self.dtype)


@implements(aten.binomial)
def binomial(count: jax.Array, prob: jax.Array, generator: Generator = None) -> jax.Array:
    return jax.random.binomial(next_key(), count, prob).astype(count.dtype)


@implements(aten._standard_gamma)
def standard_gamma(self: jax.Array, generator: Generator = None) -> jax.Array:
    return jax.random.gamma(next_key(), self)


@implements(aten._sample_dirichlet)
def sample_dirichlet(self: jax.Array, generator: Generator = None) -> jax.Array:
    return jax.random.dirichlet(next_key(), self)


@implements(aten.random.default)
def random(self: jax.Array, **_: object) -> jax.Array:
    """Draw whole numbers from 0 to the largest one that the dtype holds exactly."""
    if self.dtype == jnp.bool_:
        return _chosen(0.5, self.shape)
    if category(self.dtype) == 2:
        most = 2 ** (jnp.finfo(self.dtype).nmant + 1)
    else:
        most = min(jnp.iinfo(self.dtype).max, jnp.iinfo(jax_dtype(torch.int64)).max)
    return integers(self.shape, 0, int(most), self.dtype)


@implements(aten.random.to)
def random_to(self: jax.Array, to: int, **_: object) -> jax.Array:
    return integers(self.shape, 0, to, self.dtype)


@implements(getattr(aten.random, "from"))
def random_from(self: jax.Array, low: int, to: int | None, **_: object) -> jax.Array:
    if to is None:
        to = int(jnp.iinfo(jax_dtype(torch.int64)).max)
    return integers(self.shape, low, to, self.dtype)


@implements(aten.rrelu_with_noise_functional, static=("lower", "upper"))
def rrelu(
    self: jax.Array,
    noise: jax.Array,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Generator = None,
) -> tuple[jax.Array, jax.Array]:
    """Return a leaky relu, with slopes drawn in training, and the slopes."""
    negative = self <= 0
    if not training:
        return jnp.where(negative, self * ((lower + upper) / 2), self), noise
    drawn = _drawn(jax.random.uniform, self.shape, self.dtype, lower, upper)
    slope = jnp.where(negative, drawn, 1)
    return self * slope, slope


@implements(aten.rrelu_with_noise)
def rrelu_and_noise(
    self: jax.Array, noise: jax.Array, *args: Argument, **kwargs: Argument
) -> tuple[jax.Array, jax.Array]:
    return rrelu(self, noise, *args, **kwargs)
