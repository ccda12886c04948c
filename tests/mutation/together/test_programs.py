"""Programs of several fields, written with Refs as their textbooks write them in place.

Each stands beside its functional form; value, jvp, gradient, Hessian and a batch of gradients must
agree. The functional forms are plain Python on lists of scalars wherever that is short enough.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

X = jnp.array([0.9, -0.4, 1.3, 0.6])
T = jnp.array([0.3, 1.0, -0.6, 0.5])
N = 4
PROGRAMS = {}


def program(reference):
    """Register a program beside its functional form."""

    def register(f):
        PROGRAMS[f.__name__] = (f, reference)
        return f

    return register


def matrix(x):
    """A well-conditioned matrix that depends on all of `x`."""
    return 4.0 * jnp.eye(N) + jnp.outer(jnp.sin(x), jnp.cos(x))


def loop(start, stop, body):
    """A loop without a carry: everything is in Refs."""
    lax.fori_loop(start, stop, lambda i, c: (body(i), c)[1], None)


def gauss_seidel_by_lists(x):
    a, u = matrix(x), [jnp.zeros(())] * N
    for _ in range(2):
        for i in range(N):
            rest = sum(a[i, j] * u[j] for j in range(N) if j != i)
            u[i] = (x[i] - rest) / a[i, i]
    return sum(v**2 for v in u)


@program(gauss_seidel_by_lists)
def gauss_seidel(x):
    a, u, b = jax.new_ref(matrix(x)), jax.new_ref(jnp.zeros(N)), jax.new_ref(x)

    def update(i):
        u[i] = u[i] + (b[i] - jnp.dot(a[i], u[...])) / a[i, i]

    loop(0, 2, lambda _: loop(0, N, update))
    return jnp.sum(u[...] ** 2)


def alignment_by_lists(x):
    table = [[jnp.zeros(())] * N for _ in range(N)]
    for i in range(1, N):
        for j in range(1, N):
            match = table[i - 1][j - 1] + x[i] * x[j]
            table[i][j] = jnp.logaddexp(match, jnp.logaddexp(table[i - 1][j], table[i][j - 1]))
    return table[-1][-1]


@program(alignment_by_lists)
def alignment(x):
    """A dynamic programme: each entry from its three neighbours."""
    table = jax.new_ref(jnp.zeros((N, N)))

    def fill(i, j):
        match = table[i - 1, j - 1] + x[i] * x[j]
        table[i, j] = jnp.logaddexp(match, jnp.logaddexp(table[i - 1, j], table[i, j - 1]))

    loop(1, N, lambda i: loop(1, N, lambda j: fill(i, j)))
    return table[-1, -1]


@program(lambda x: jnp.sum(jnp.stack([x[0] ** 2 + x[2] ** 2 + x[3] ** 2, x[1] ** 2]) ** 2))
def histogram(x):
    bins = jax.new_ref(jnp.zeros(2))
    jax.ref.addupdate(bins, (x < 0).astype(jnp.int32), x**2)
    return jnp.sum(bins[...] ** 2)


@program(lambda x: jnp.dot(jnp.sort(jnp.sin(x)), jnp.arange(4.0)))
def sorting_network(x):
    r = jax.new_ref(jnp.sin(x))

    def exchange(i, j):
        low, high = jnp.minimum(r[i], r[j]), jnp.maximum(r[i], r[j])
        r[i], r[j] = low, high

    for i, j in ((0, 1), (2, 3), (0, 2), (1, 3), (1, 2)):
        exchange(i, j)
    return jnp.dot(r[...], jnp.arange(4.0))


@program(lambda x: jnp.linalg.slogdet(matrix(x))[1] + jnp.sum(jnp.linalg.solve(matrix(x), x)))
def lu_in_place(x):
    """LU without pivoting, and two substitutions, all in place."""
    a, b = jax.new_ref(matrix(x)), jax.new_ref(x)
    below = jnp.arange(N)

    def eliminate(k):
        factors = jnp.where(below > k, a[:, k] / a[k, k], 0.0)
        a[...] = a[...] - jnp.outer(factors, a[k])
        b[...] = b[...] - factors * b[k]

    def substitute(i):
        k = N - 1 - i
        b[k] = b[k] / a[k, k]
        b[...] = b[...] - jnp.where(below < k, a[:, k], 0.0) * b[k]

    loop(0, N, eliminate)
    loop(0, N, substitute)
    return jnp.sum(jnp.log(jnp.diagonal(a[...]))) + jnp.sum(b[...])


@program(lambda x: jnp.sum(jnp.cumsum(jnp.exp(x)) ** 2))
def blelloch_scan(x):
    """A prefix sum by strides: up, then down."""
    r = jax.new_ref(jnp.exp(x))
    r[1::2] = r[1::2] + r[0::2]
    r[3] = r[3] + r[1]
    r[2] = r[2] + r[1]
    return jnp.sum(r[...] ** 2)


def tridiagonal_by_solve(x):
    a = jnp.diag(3 + x**2) + jnp.diag(x[1:], -1) + jnp.diag(jnp.sin(x[:-1]), 1)
    return jnp.sum(jnp.linalg.solve(a, jnp.cos(x)) ** 3)


@program(tridiagonal_by_solve)
def thomas(x):
    """The tridiagonal solve that overwrites its right-hand side."""
    diag, b = jax.new_ref(3 + x**2), jax.new_ref(jnp.cos(x))
    low, up = jax.new_ref(x[1:]), jax.new_ref(jnp.sin(x[:-1]))

    def forward(i):
        w = low[i - 1] / diag[i - 1]
        diag[i] = diag[i] - w * up[i - 1]
        b[i] = b[i] - w * b[i - 1]

    def backward(i):
        k = N - 2 - i
        b[k] = (b[k] - up[k] * b[k + 1]) / diag[k]

    loop(1, N, forward)
    b[-1] = b[-1] / diag[-1]
    loop(0, N - 1, backward)
    return jnp.sum(b[...] ** 3)


def stencil_by_arrays(x):
    for _ in range(3):
        x = 0.5 * x + 0.25 * (jnp.roll(x, 1) + jnp.roll(x, -1)) ** 2
    return jnp.sum(x)


@program(stencil_by_arrays)
def ping_pong(x):
    """Two buffers that are swapped: the old one is read while the new one is written."""
    now, then = jax.new_ref(x), jax.new_ref(jnp.zeros(N))

    def step(_):
        def point(i):
            then[i] = 0.5 * now[i] + 0.25 * (now[i - 1] + now[(i + 1) % N]) ** 2

        loop(0, N, point)
        then[...] = jax.ref.swap(now, ..., then[...])

    loop(0, 3, step)
    return jnp.sum(now[...])


def leapfrog_by_arrays(x):
    q, p = x[:2], x[2:]
    for _ in range(3):
        p = p - 0.05 * jnp.sin(q)
        q = q + 0.1 * p
        p = p - 0.05 * jnp.sin(q)
    return jnp.sum(p**2) - jnp.sum(jnp.cos(q))


@program(leapfrog_by_arrays)
def leapfrog(x):
    state = jax.new_ref(x.reshape(2, 2))

    @jax.jit
    def kick():
        state[1] = state[1] - 0.05 * jnp.sin(state[0])

    def step(_):
        kick()
        state[0] = state[0] + 0.1 * state[1]
        kick()

    loop(0, 3, step)
    return jnp.sum(state[1] ** 2) - jnp.sum(jnp.cos(state[0]))


@program(lambda x: jnp.var(x) + jnp.mean(x) ** 3)
def welford(x):
    mean, spread, count = jax.new_ref(0.0), jax.new_ref(0.0), jax.new_ref(0)

    def see(carry, value):
        count[...] += 1
        delta = value - mean[...]
        mean[...] += delta / count[...].astype(x.dtype)
        spread[...] += delta * (value - mean[...])
        return carry, None

    lax.scan(see, None, x, unroll=2)
    return spread[...] / N + mean[...] ** 3


def shortest_paths_by_arrays(x):
    d = jnp.abs(x[:, None] - x[None] ** 2) + 0.1
    for k in range(N):
        d = jnp.minimum(d, d[:, k : k + 1] + d[k : k + 1])
    return jnp.sum(d**2)


@program(shortest_paths_by_arrays)
def floyd_warshall(x):
    d = jax.new_ref(jnp.abs(x[:, None] - x[None] ** 2) + 0.1)

    def through(k):
        d[...] = jnp.minimum(d[...], d[:, k][:, None] + d[k][None])

    loop(0, N, through)
    return jnp.sum(d[...] ** 2)


@program(lambda x: jnp.sum(jnp.where(x > 0, x**2, 0.0)) * 3.0 + x[1])
def compaction(x):
    """Positive entries moved to the front: an integer counter is the index, a branch decides."""
    out, used = jax.new_ref(jnp.zeros(N)), jax.new_ref(0)

    def keep(i):
        def yes():
            out[used[...]] = x[i] ** 2
            used[...] += 1

        lax.cond(x[i] > 0, yes, lambda: None)

    loop(0, N, keep)
    return jnp.sum(out[...]) * used[...].astype(x.dtype) + lax.cond(
        used[...] > 2, lambda: x[1], lambda: out[0]
    )


@program(lambda x: x[0] * x[1] * x[2] + x[3])
def union_find(x):
    """Integers alone are looked for in a `while_loop`: no gradient goes through it."""
    parent = jax.new_ref(jnp.array([0, 0, 1, 3]))

    def root(i):
        return lax.while_loop(lambda i: parent[i] != i, lambda i: parent[i], i)

    product = jax.new_ref(jnp.ones(N))

    def join(i):
        top = root(i)
        parent[i] = top
        product[top] = product[top] * x[i]

    loop(0, N, join)
    return product[0] + product[3]


def givens_by_qr(x):
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(jnp.linalg.qr(matrix(x)[:3, :3])[1]))))


@program(givens_by_qr)
def givens(x):
    a = jax.new_ref(matrix(x)[:3, :3])

    @tj.inplace(mutates="a")
    def rotate(a, i, j):
        length = jnp.hypot(a[j, j], a[i, j])
        c, s = a[j, j] / length, a[i, j] / length
        a[j], a[i] = c * a[j] + s * a[i], c * a[i] - s * a[j]

    for j in range(3):
        for i in range(j + 1, 3):
            rotate(a, i, j)
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(a[...]))))


@program(lambda x: jnp.sum(jnp.abs(jnp.fft.fft(x**2)[1:]) ** 4))
def butterflies(x):
    """A complex FFT of four in place, by bit reversal and two layers of strides."""
    r = jax.new_ref(lax.complex(x**2, jnp.zeros(N)))
    r[...] = r[jnp.array([0, 2, 1, 3])]
    for half in (1, 2):
        for k in range(half):
            turn = jnp.exp(lax.complex(0.0, -np.pi * k / half))
            even, odd = r[k :: 2 * half], r[k + half :: 2 * half] * turn
            r[k :: 2 * half], r[k + half :: 2 * half] = even + odd, even - odd
    return jnp.sum(jnp.abs(r[1:]) ** 4)


def descent_by_arrays(x):
    loss = lambda w: jnp.sum((w * x - jnp.cos(w)) ** 2)
    w, m = jnp.ones(N), jnp.zeros(N)
    for _ in range(2):
        m = 0.9 * m + jax.grad(loss)(w)
        w = w - 0.05 * x[0] * m
    return loss(w)


@program(descent_by_arrays)
def descent(x):
    """Differentiation inside of the program, and through it."""
    w, m = jax.new_ref(jnp.ones(N)), jax.new_ref(jnp.zeros(N))
    loss = lambda w: jnp.sum((w * x - jnp.cos(w)) ** 2)

    def step(_):
        m[...] = 0.9 * m[...] + jax.grad(loss)(w[...])
        w[...] = w[...] - 0.05 * x[0] * m[...]

    loop(0, 2, step)
    return loss(w[...])


@program(lambda x: jnp.sum(jnp.cumsum(jnp.outer(x, jnp.sin(x)), 1)[:, 2] ** 2))
def batched_inside(x):
    """`vmap` of a function that makes a Ref, inside of a discharged one."""

    def one(row):
        r = jax.new_ref(row)

        def add(i):
            r[i] = r[i] + r[i - 1]

        loop(1, N, add)
        return lax.cond(row[0] > 0, lambda: r[2], lambda: -r[2])

    # Discharged where it is mapped: JAX does not map a branch that writes.
    out = jax.new_ref(jax.vmap(tj.discharge(one))(jnp.outer(x, jnp.sin(x))))
    return jnp.sum(out[...] ** 2)


@program(lambda x: jnp.sum(jnp.array([1.0, -1.0, 2.0, 1.0]) * x * jax.nn.relu(x)) * x[0])
def masks_and_closures(x):
    """Flags in a Ref, a writer handed around as a function, a custom derivative of JAX inside."""
    seen = jax.new_ref(jnp.zeros(N, bool))
    total = jax.new_ref(jnp.zeros(N))
    writers = [lambda i, v: total.__setitem__(i, v), lambda i, v: jax.ref.addupdate(total, i, v)]

    def visit(i, writer):
        def first():
            seen[i] = True
            writer(i, x[i] * jax.nn.relu(x[i]))

        lax.cond(seen[i], lambda: None, first)

    for writer in writers:
        loop(0, N, functools.partial(visit, writer=writer))
    jax.ref.addupdate(
        total, jnp.array([2, 1, 1]), total[1:][jnp.array([1, 0, 0])] * jnp.array([1.0, -1.0, -1.0])
    )
    return jnp.sum(total[...] * x[0])


def remembered_by_arrays(x):
    c = x[0]
    y = x
    for i in range(3):
        c = jnp.sin(c * y[i])
        y = y.at[i + 1].set(y[i + 1] * c)
    return jnp.sum(y**2) + c


@program(remembered_by_arrays)
def checkpointed_loop(x):
    r = jax.new_ref(x)

    @jax.checkpoint
    def step(c, i):
        c = jnp.sin(c * r[i])
        r[i + 1] = r[i + 1] * c
        return c, None

    c, _ = lax.scan(step, x[0], jnp.arange(3))
    return jnp.sum(r[...] ** 2) + c


def kalman_by_arrays(x):
    m, p, score = x[:2], jnp.eye(2), jnp.zeros(())
    f = jnp.array([[1.0, 0.1], [-0.2, 0.9]])
    for z in (x[2], x[3], x[0] * x[1]):
        m, p = f @ m, f @ p @ f.T + 0.1 * jnp.eye(2)
        s, e = p[0, 0] + 1.0, z - m[0]
        m, p = m + p[:, 0] * e / s, p - jnp.outer(p[:, 0], p[0]) / s
        score = score + e**2 / s + jnp.log(s)
    return score


@program(kalman_by_arrays)
def kalman(x):
    m, p, score = jax.new_ref(x[:2]), jax.new_ref(jnp.eye(2)), jax.new_ref(0.0)
    f = jnp.array([[1.0, 0.1], [-0.2, 0.9]])

    def observe(carry, z):
        m[...] = f @ m[...]
        p[...] = f @ p[...] @ f.T + 0.1 * jnp.eye(2)
        s, e = p[0, 0] + 1.0, z - m[0]
        m[...] += p[:, 0] * e / s
        p[...] -= jnp.outer(p[:, 0], p[0]) / s
        score[...] += e**2 / s + jnp.log(s)
        return carry, None

    lax.scan(observe, None, jnp.stack([x[2], x[3], x[0] * x[1]]))
    return score[...]


def walk_by_lists(x):
    place, key = x[0], jax.random.key(2)
    for i in range(3):
        key, drawn = jax.random.split(key)
        place = place + x[i + 1] * jax.random.normal(drawn, dtype=x.dtype)
    return place**3


@program(walk_by_lists)
def random_walk(x):
    key, place = jax.new_ref(jax.random.key(2)), jax.new_ref(x[0])

    def step(i):
        key[...], drawn = jax.random.split(key[...])
        place[...] += x[i + 1] * jax.random.normal(drawn, dtype=x.dtype)

    loop(0, 3, step)
    return place[...] ** 3


def recursion_by_lists(x):
    a = list(x)
    for i in range(6):
        a.append(a[-1] * a[-2] + jnp.sin(a[-3]))
        del a[0]
        if i % 2:
            a[0] = a[0] ** 2
    return a[-1]


@program(recursion_by_lists)
def ring_buffer(x):
    """Indices that run around, some negative, some of another width."""
    ring = jax.new_ref(x)

    def push(i):
        at = (i % N).astype(jnp.int32)
        ring[at] = ring[at - 1] * ring[at - 2] + jnp.sin(ring[at - 3])
        oldest = (i.astype(jnp.int64) + 1) % N
        lax.cond(i % 2 == 1, lambda: ring.__setitem__(oldest, ring[oldest] ** 2), lambda: None)

    loop(0, 6, push)
    return ring[(6 - 1) % N]


def results(f):
    """Value, jvp, gradient and second derivatives, and gradients that take other branches."""
    gradient = jax.grad(f)
    second = lambda t: jax.jvp(gradient, (X,), (t,))
    return {
        "value, jvp": jax.jvp(f, (X,), (T,)),
        "gradient, Hessian": jax.vmap(second, out_axes=(None, 0))(jnp.stack([T, X])),
        "batch": jax.vmap(gradient)(jnp.stack([X, -T + 0.1])),
    }


def keeps_branch(name):
    """Programs whose functional form is for one side of a branch only."""
    return name in ("compaction", "histogram", "masks_and_closures", "union_find")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    f, reference = PROGRAMS[name]
    got, expected = jax.jit(lambda: (results(tj.discharge(f)), results(reference)))()
    for mode, value in expected.items():
        if mode == "batch" and keeps_branch(name):
            value, got[mode] = value[0], got[mode][0]
        close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9, err_msg=mode)
        jax.tree.map(close, got[mode], value)
