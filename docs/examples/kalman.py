"""A Kalman filter and a smoother in structured covariances, with gradients of the likelihood.

    python docs/examples/kalman.py

Sixteen sensors with their own noise watch four bodies that move on a line. The covariance of the
state is and stays `Symmetric`. The covariance of an observation is `Diagonal` noise plus a low
rank. So an update solves by Woodbury's identity, without a factorisation of sixteen rows.

Gradients through the filter fit the noises. The script compares value, gradient and smoothed states
with dense code that conditions one large normal distribution. It exits with an error if they
disagree.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import tanjax as tj  # noqa: E402

BODIES, SENSORS, TIMES, STEP = 4, 16, 20, 0.1
STATES = 2 * BODIES


class Model(NamedTuple):
    """The law of the state, and the sensors."""

    transition: Any  # Kronecker: the same two-by-two law for each body
    process: Any  # Symmetric: the noise of a step
    sensors: Any  # (sensors, states)
    noise: Any  # Diagonal: the noise of each sensor


class Belief(NamedTuple):
    """A normal distribution of the state."""

    mean: Any
    covariance: Any


def model(log_process: Any, log_noise: Any) -> Model:
    """Return the model for the logarithms of the noise of accelerations, and of each sensor."""
    law = jnp.array([[1.0, STEP], [0.0, 1.0]])
    push = jnp.array([STEP**2 / 2, STEP])
    transition = tj.Kronecker(tj.Identity(BODIES, jnp.float64), law)
    process = jnp.kron(jnp.eye(BODIES), jnp.exp(log_process) * jnp.outer(push, push))
    process = tj.Symmetric(process + 1e-6 * jnp.eye(STATES))
    angles = np.arange(SENSORS)[:, None] * (1 + np.arange(STATES)) / 5
    return Model(transition, process, jnp.cos(angles), tj.Diagonal(jnp.exp(log_noise)))


START = Belief(jnp.zeros(STATES), tj.Symmetric(jnp.eye(STATES)))


def predict(m: Model, now: Belief) -> Belief:
    """Return the belief about the next state, before its observation."""
    moved = m.transition @ tj.destructure(now.covariance)
    covariance = (m.transition @ moved.T).T + m.process.data
    return Belief(m.transition @ now.mean, tj.Symmetric(covariance, "mean"))


def update(m: Model, before: Belief, y: Any) -> tuple[Belief, Any]:
    """Return the belief after an observation, and the logarithm of its likelihood."""
    # H P Hᵀ + R is a diagonal plus the low rank (H L)(H L)ᵀ with P = L Lᵀ
    root = tj.linalg.cholesky(before.covariance).to_dense()
    seen = tj.LowRankUpdate(m.noise, m.sensors @ root)
    surprise = y - m.sensors @ before.mean
    cross = before.covariance @ m.sensors.T
    mean = before.mean + cross @ tj.solve(seen, surprise)
    covariance = tj.destructure(before.covariance) - cross @ tj.solve(seen, cross.T)
    value = surprise @ tj.solve(seen, surprise) + tj.logdet(seen) + len(y) * jnp.log(2 * jnp.pi)
    return Belief(mean, tj.Symmetric(covariance, "mean")), -value / 2


def kalman(m: Model, ys: Any) -> tuple[Any, tuple[Belief, Belief]]:
    """Return the log-likelihood, and the belief before and after each observation."""

    def step(now: Belief, y: Any) -> tuple[Belief, Any]:
        before = predict(m, now)
        after, value = update(m, before, y)
        return after, (value, (before, after))

    _, (values, beliefs) = jax.lax.scan(step, START, ys)
    return jnp.sum(values), beliefs


def smooth(m: Model, beliefs: tuple[Belief, Belief]) -> Belief:
    """Return the belief about each state from all observations (Rauch, Tung, Striebel 1965)."""
    before, after = beliefs

    def step(later: Belief, both: tuple[Belief, Belief]) -> tuple[Belief, Belief]:
        ahead, now = both
        gain = tj.solve(ahead.covariance, m.transition @ tj.destructure(now.covariance)).T
        mean = now.mean + gain @ (later.mean - ahead.mean)
        change = tj.destructure(later.covariance) - tj.destructure(ahead.covariance)
        covariance = tj.destructure(now.covariance) + gain @ change @ gain.T
        found = Belief(mean, tj.Symmetric(covariance, "mean"))
        return found, found

    last = jax.tree.map(lambda v: v[-1], after)
    shifted = jax.tree.map(lambda v: v[1:], before), jax.tree.map(lambda v: v[:-1], after)
    _, found = jax.lax.scan(step, last, shifted, reverse=True)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), found, last)


def dense(log_process: Any, log_noise: Any, ys: Any) -> tuple[Any, Any]:
    """Compute the same by one normal distribution of all states and all observations."""
    m = jax.tree.map(tj.destructure, model(log_process, log_noise), is_leaf=tj.rules.is_structured)
    # Each state is a linear combination of the first state and of all pushes since.
    size = STATES * (TIMES + 1)
    parts = jnp.eye(size).reshape(TIMES + 1, STATES, size)
    step = lambda before, push: (m.transition @ before + push,) * 2
    _, rows = jax.lax.scan(step, parts[0], parts[1:])
    rows = rows.reshape(-1, size)
    noises = jnp.kron(jnp.eye(TIMES), m.process)
    prior = rows @ jax.scipy.linalg.block_diag(jnp.eye(STATES), noises) @ rows.T
    sensors = jnp.kron(jnp.eye(TIMES), m.sensors)
    seen = sensors @ prior @ sensors.T + jnp.kron(jnp.eye(TIMES), m.noise)
    y = ys.reshape(-1)
    value = y @ jnp.linalg.solve(seen, y) + jnp.linalg.slogdet(seen)[1]
    means = prior @ sensors.T @ jnp.linalg.solve(seen, y)
    return -(value + len(y) * jnp.log(2 * jnp.pi)) / 2, means.reshape(TIMES, STATES)


def observations() -> Any:
    """Simulate the observations of all sensors, with noise variances from exp(-4) to 1."""
    draw = np.random.default_rng(0)
    truth = model(0.0, np.linspace(-4, 0, SENSORS))
    state, ys = draw.normal(size=STATES), []
    for _ in range(TIMES):
        push = draw.multivariate_normal(np.zeros(STATES), np.asarray(truth.process.data))
        state = np.asarray(truth.transition @ jnp.asarray(state)) + push
        noise = np.sqrt(np.asarray(truth.noise.diag)) * draw.normal(size=SENSORS)
        ys.append(np.asarray(truth.sensors) @ state + noise)
    return jnp.asarray(np.stack(ys))


def main() -> None:
    ys = observations()
    value = lambda p: kalman(model(*p), ys)[0]
    both = jax.jit(jax.value_and_grad(value))
    p = (jnp.asarray(0.5), jnp.full(SENSORS, -1.0))
    (ours, bar), smoothed = (
        both(p),
        jax.jit(lambda p: smooth(model(*p), kalman(model(*p), ys)[1]))(p),
    )
    reference = jax.jit(jax.value_and_grad(lambda p: dense(*p, ys), has_aux=True))
    (theirs, means), their_bar = reference(p)
    errors = {
        "log-likelihood": abs(ours - theirs) / abs(theirs),
        "its gradient": max(jnp.max(jnp.abs(a - b)) for a, b in zip(bar, their_bar, strict=True)),
        "smoothed means": jnp.max(jnp.abs(smoothed.mean - means)),
    }
    for name, error in errors.items():
        print(f"{name}: the difference from one dense distribution is {float(error):.0e}")
    if max(map(float, errors.values())) > 1e-7:
        sys.exit("the filter and the dense code disagree")
    for _ in range(100):
        found, bar = both(p)
        p = jax.tree.map(lambda v, g: v + 0.02 * g, p, bar)
    print(
        f"log-likelihood of the fit: {float(ours):.1f} at first, {float(found):.1f} after 100 steps"
    )
    wrong = np.sqrt(np.mean((np.asarray(p[1]) - np.linspace(-4, 0, SENSORS)) ** 2))
    print(f"logarithms of the noises: {wrong:.2f} off (root mean square), from 1.6 at the start")
    if not (float(found) > float(ours) and wrong < 0.8):
        sys.exit("the fit has not found the noises")


if __name__ == "__main__":
    main()
