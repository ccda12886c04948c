"""Random numbers: torch's generator governs, JAX's keys under a trace, and the distributions."""

import contextlib

import jax
import jax.numpy as jnp
import pytest

torch = pytest.importorskip("torch")

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch


def base(n=3):
    return tjt.from_torch(torch.ones(n))


def numbers(t):
    return tjt.to_torch(t).tolist()


def test_the_seed_and_a_restored_state_repeat_numbers():
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append([numbers(torch.rand_like(base())), numbers(torch.randn_like(base()))])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
    state = torch.get_rng_state()
    first = numbers(base().uniform_())
    assert first != drawn[0][0]
    torch.set_rng_state(state)
    assert numbers(base().uniform_()) == first


def test_a_generator_of_ones_own_leaves_the_default_alone():
    """It is drawn from, and the default one is not; also where it is no keyword in C++."""
    before = torch.get_rng_state()
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    first, second = (
        [numbers(base().normal_(generator=g)), numbers(torch.poisson(base() * 20, g))]
        for g in generators
    )
    assert first == second
    assert torch.equal(before, torch.get_rng_state())


def test_a_trace_without_a_key_is_refused():
    def noisy(x):
        return tjt.to_jax(torch.rand_like(tjt.from_jax(x)))

    x = jnp.ones(3)
    with pytest.raises(tj.NoRuleError, match="random_key"):
        jax.jit(noisy)(x)

    def keyed(key, x):
        with tjt.random_key(key):
            return noisy(x), noisy(x)

    a, b = jax.random.key(0), jax.random.key(1)
    compiled = jax.jit(keyed)
    assert not jnp.array_equal(*compiled(a, x))
    first = compiled(a, x)[0]
    torch.manual_seed(17)  # what is drawn follows from the key alone
    state = torch.get_rng_state()
    assert jnp.array_equal(first, keyed(a, x)[0])
    assert not jnp.array_equal(compiled(a, x)[0], compiled(b, x)[0])
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("keyed", [False, True])
def test_a_block_run_again_draws_the_same(keyed):
    """What gradient checkpointing rests on, with a key as without."""
    with tjt.random_key(jax.random.key(5)) if keyed else contextlib.nullcontext():
        state = torch.get_rng_state()
        drawn = numbers(torch.rand_like(base()))
        torch.set_rng_state(state)
        assert numbers(torch.rand_like(base())) == drawn


N = 4000
MOMENTS = {  # mean and standard deviation
    "uniform": (lambda x: x.uniform_(1, 3), 2, 2 / 12**0.5),
    "normal": (lambda x: x.normal_(2, 0.5), 2, 0.5),
    "exponential": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "log_normal": (lambda x: x.log_normal_(0.0, 0.5), 1.1331, 0.6039),
    "geometric": (lambda x: x.geometric_(0.25), 4, 12**0.5),
    "bernoulli": (lambda x: x.bernoulli_(0.3), 0.3, 0.21**0.5),
    "bernoulli_of": (lambda x: torch.bernoulli(x * 0.3), 0.3, 0.21**0.5),
    "random": (lambda x: x.random_(0, 4), 1.5, 1.25**0.5),
    "poisson": (lambda x: torch.poisson(x * 3), 3, 3**0.5),
    "randint_like": (lambda x: torch.randint_like(x, 1, 5), 2.5, 1.25**0.5),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.2, True)[0], 1, 0.5),
    "normal_of": (lambda x: torch.normal(x * 2, 0.5), 2, 0.5),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 1 / 12**0.5),
    "gamma": (lambda x: torch._standard_gamma(x * 2), 2, 2**0.5),
    "binomial": (lambda x: torch.binomial(x * 10, x * 0.3), 3, 2.1**0.5),
    "multinomial": (lambda x: torch.multinomial(x[:4], N, True).to(torch.float32), 1.5, 1.25**0.5),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_are_those_of_the_distribution(name):
    """Within five standard errors."""
    draw, mean, deviation = MOMENTS[name]
    torch.manual_seed(11)
    x = tjt.to_torch(draw(base(N))).double()
    error = 5 * deviation / N**0.5
    assert abs(x.mean().item() - mean) < error
    assert abs(x.std().item() / deviation - 1) < 0.15


def test_without_replacement_no_index_is_drawn_twice():
    drawn = numbers(torch.multinomial(base(9), 9))
    assert sorted(drawn) == list(range(9))
    weighted = tjt.from_torch(torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]))
    assert [sorted(row) for row in numbers(torch.multinomial(weighted, 2))] == [[1, 2], [0, 2]]


def test_bad_parameters_raise():
    for call in (
        lambda x: x.normal_(0, -1),
        lambda x: x.random_(4, 4),
        lambda x: torch.multinomial(x, 5),
        lambda x: x.to(torch.int64).normal_(),
    ):
        with pytest.raises(RuntimeError):
            call(base())


def test_numbers_drawn_in_a_decomposition_are_no_constant():
    """A decomposition is compiled once, and an operation without torch's tag is refused."""
    with torch.library._scoped_library("tanjax_test", "FRAGMENT") as library:
        for name, tags in (("noisy", torch.Tag.nondeterministic_seeded), ("unsaid", ())):
            library.define(f"{name}(Tensor x) -> Tensor", tags=tags)
            library.impl(name, lambda x: x + torch.rand(3), "CompositeExplicitAutograd")
        noisy = torch.ops.tanjax_test.noisy.default
        assert numbers(noisy(base())) != numbers(noisy(base()))
        with pytest.raises(tj.NoRuleError, match="random_key"):
            torch.ops.tanjax_test.unsaid.default(base())


NAN = float("nan")
INVALID = {
    "weights that are no number": lambda c: torch.multinomial(c([NAN, 1.0]), 1),
    "infinite weights": lambda c: torch.multinomial(c([float("inf"), 1.0]), 1),
    "negative weights": lambda c: torch.multinomial(c([-1.0, 1.0]), 1),
    "no weight": lambda c: torch.multinomial(c([[0.0, 1.0], [0.0, 0.0]]), 1),
    "probabilities": lambda c: torch.bernoulli(c([0.5, 1.5])),
    "a probability": lambda c: c([1.0]).bernoulli_(-0.1),
    "probabilities in place": lambda c: c([1.0]).bernoulli_(c([2.0])),
    "deviations": lambda c: torch.normal(c([0.0, 0.0]), c([1.0, -1.0])),
    "rates": lambda c: torch.poisson(c([1.0, -1.0])),
    "a rate": lambda c: c([1.0]).exponential_(0.0),
    "a spread": lambda c: c([1.0]).cauchy_(0.0, -1.0),
    "chances": lambda c: c([1.0]).geometric_(1.5),
    "a deviation": lambda c: c([1.0]).log_normal_(0.0, -1.0),
    "an interval": lambda c: c([1.0]).uniform_(2.0, 1.0),
    "a loss": lambda c: torch.nn.functional.binary_cross_entropy(c([0.5, 1.5]), c([1.0, 1.0])),
}


@pytest.mark.parametrize("name", INVALID)
def test_parameters_that_torch_refuses_are_refused(name):
    for make in (torch.tensor, lambda x: tjt.from_torch(torch.tensor(x))):
        with pytest.raises(RuntimeError):
            INVALID[name](make)


def test_parameters_are_not_asked_for_under_a_trace():
    draw = jax.jit(lambda p, key: tjt.as_jax(torch.bernoulli)[1]({}, p, key=key))
    assert draw(jnp.array([0.0, 1.0]), jax.random.key(0)).tolist() == [0.0, 1.0]
