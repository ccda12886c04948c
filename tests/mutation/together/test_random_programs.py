"""Random programs that write to Refs agree with their functional forms, in every mode.

A program is drawn as Python source over named memory: vectors, a matrix, a scalar, a counter, a
complex vector, a quantity, a symmetric and a diagonal matrix. `OnRefs` runs it in place; `Pure`
runs the same source on plain arrays with `.at[]`, and knows no unit and no structure.
"""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = [pytest.mark.core, pytest.mark.slow]

METRE, KILOMETRE = tj.unit("m"), tj.unit("km")
SHAPES = {"a": (5,), "b": (5,), "m": (3, 4), "s": (), "c": (3,), "q": (3,), "S": (3, 3), "D": (3,)}
ROWS = np.array([2, 0])


class Memory:
    """Arrays by their names; subclasses say how one is read and written."""

    def __init__(self, held):
        self.held = held

    def mean(self, f, name, index):
        x = self.get(name, index)
        return jnp.mean(f((jnp.real(x) + 0.3 * jnp.imag(x)).astype(jnp.float64)))

    def like(self, name, index, number):
        """Numbers of the shape and dtype of an entry, each another one."""
        old = self.get(name, index)
        x = jnp.linspace(number, 1.5 * number, old.size, dtype=float).reshape(old.shape)
        return (lax.complex(x, x / 2) if jnp.iscomplexobj(old) else x).astype(old.dtype)

    def set(self, name, index, number):
        self.write(name, index, self.like(name, index, number))


class OnRefs(Memory):
    @classmethod
    def of(cls, given):
        structured = {"S": tj.Symmetric(given["S"]), "D": tj.Diagonal(given["D"])}
        return cls(tj.new_ref({**given, **structured, "q": given["q"] * METRE, "k": jnp.int32(1)}))

    def get(self, name, index):
        ref = self.held[name]
        if name == "q":
            return ref[index].to_value("m")
        if name == "S" and index is ...:
            return ref[...].to_dense()
        return ref.diag[index] if name == "D" else ref[index]

    def write(self, name, index, x):
        ref = self.held[name]
        if name == "q":
            ref[index] = x * METRE if index is ... else x / 1000 * KILOMETRE
        elif name == "S" and index is ...:
            ref[...] = tj.Symmetric(x)
        else:
            (ref.diag if name == "D" else ref)[index] = x

    def add(self, name, index, number):
        jax.ref.addupdate(self.held[name], index, self.like(name, index, number))

    def swap(self, name, index, number):
        return jax.ref.swap(self.held[name], index, self.like(name, index, number))

    def scan(self, body):
        return lax.scan(lambda c, i: (c, body(self, i)), None, jnp.arange(3))[1]

    def switch(self, which, *bodies):
        lax.switch(which, [functools.partial(body, self) for body in bodies])

    def jit(self, body):
        jax.jit(lambda held: body(OnRefs(held)))(self.held)

    def checkpoint(self, body):
        jax.checkpoint(lambda: body(self))()

    def inplace(self, body, names):
        f = tj.inplace(lambda held: body(OnRefs(held)), mutates="held")
        f({name: self.held[name] for name in names})

    def result(self):
        x = tj.refs.freeze(self.held)
        return {**x, "q": x["q"].to_value("m"), "S": x["S"].to_dense(), "D": x["D"].diag}


class Pure(Memory):
    @classmethod
    def of(cls, given):
        return cls({**given, "S": tj.Symmetric(given["S"]).to_dense(), "k": jnp.int32(1)})

    def get(self, name, index):
        return self.held[name][index]

    def write(self, name, index, x):
        new = self.held[name].at[index].set(x)
        if name == "S":  # the upper half is kept
            whole = index is ...
            new = jnp.triu(x) + jnp.triu(x, 1).mT if whole else new.at[index[::-1]].set(x)
        self.held[name] = new

    def add(self, name, index, number):
        self.write(name, index, self.get(name, index) + self.like(name, index, number))

    def swap(self, name, index, number):
        old = self.get(name, index)
        self.set(name, index, number)
        return old

    def _after(self, body):
        """A function of what is held, which returns what is held after `body`, and its output."""

        def pure(held, *more):
            inner = Pure(dict(held))
            out = body(inner, *more)
            return inner.held, out

        return pure

    def scan(self, body):
        self.held, rows = lax.scan(self._after(body), self.held, jnp.arange(3))
        return rows

    def switch(self, which, *bodies):
        self.held = lax.switch(which, [self._after(body) for body in bodies], self.held)[0]

    def jit(self, body, names=()):
        self.held = self._after(body)(self.held)[0]

    checkpoint = inplace = jit

    def result(self):
        return self.held


class Source:
    """Draws the source of `program(m)`."""

    def __init__(self, seed, size):
        self.rng, self.lines, self.count = random.Random(seed), [], 0
        self.function("program", size, 0, list(SHAPES))

    def function(self, name, size, depth, names, loops=(), argument=""):
        """Write a function of memory and of the index of a loop that runs it; return its name."""
        self.lines.append(f"{'    ' * depth}def {name}(m{argument}):")
        for _ in range(size):
            self.step(depth + 1, names, loops)
        return name

    def index(self, name, loops):
        r, shape = self.rng, SHAPES[name]
        traced = r.choice([*loops, 'm.get("k", ...)'])  # of a loop, or from memory
        one = lambda n: f"{traced} % {n}" if r.random() < 0.4 else r.randrange(n)
        if not shape or r.random() < 0.15:
            return "..."
        if name == "S":
            return r.randrange(3), r.randrange(3)
        if name == "m":
            i, j = one(3), one(4)
            return r.choice([f"({i}, {j})", f"np.s_[:, {j}]", f"np.s_[{i}, 1:3]", "ROWS"])
        some = "np.s_[0:2]", "np.s_[::2]", f"np.array({r.sample(range(3), 2)})"
        return one(3) if name == "D" else r.choice([one(shape[0]), one(shape[0]), *some])

    def number(self, names, loops):
        """A number that depends on memory, and sometimes on the index of a loop."""
        terms = ["0.4"]
        for name in self.rng.sample(names, self.rng.randrange(1, 3)):
            f = self.rng.choice(["jnp.sin", "jnp.tanh", "jnp.square"])
            terms.append(f'0.3 * m.mean({f}, "{name}", {self.index(name, loops)})')
        if loops and self.rng.random() < 0.3:
            terms.append(f"0.1 * {self.rng.choice(loops)}.astype(float)")
        return " + ".join(terms)

    def step(self, depth, names, loops):
        """One instruction; those that run functions write these before them."""
        self.count += 1
        name, body, i = self.rng.choice(names), f"body{self.count}", f"i{self.count}"
        index, number = self.index(name, loops), self.number(names, loops)
        kinds = ["set", "set", "add", "swap", "count"]
        nested = ["scan", "scan", "switch", "jit", "checkpoint", "inplace"]
        kind = self.rng.choice(kinds + nested * (depth < 3))
        add = "add" if name in "abmsc" else "set"
        say = lambda text: self.lines.append("    " * depth + text)
        if kind == "count":
            say('m.add("k", ..., 1)')
        elif kind == "swap" and name in ("a", "b", "s", "m"):
            say(f'm.add("{name}", ..., 0.3 * jnp.mean(m.swap("{name}", {index}, {number})))')
        elif kind == "scan":
            self.function(body, 2, depth, names, [*loops, i], f", {i}")
            say(f"    return {self.number(names, [*loops, i])}")
            say(f'm.{add}("{name}", ..., 0.2 * jnp.sum(m.scan({body})))')
        elif kind == "switch":
            bodies = [self.function(body + c, 1, depth, names, loops) for c in "xyz"]
            say(f"m.switch(jnp.int32(10 * ({number})) % 3, {', '.join(bodies)})")
        elif kind == "inplace":  # closes over no index
            some = self.rng.sample(names, 2)
            say(f"m.inplace({self.function(body, 2, depth, some)}, {[*some, 'k']})")
        elif kind in nested:
            say(f"m.{kind}({self.function(body, 2, depth, names, loops)})")
        else:
            say(f'm.{add if kind == "add" else "set"}("{name}", {index}, {number})')


def results(program, memory, turn, given):
    """What is held at the end; value and gradient of it; one of what JAX does besides, in turn."""

    def loss(given):
        m, total = memory.of(given), jnp.zeros(())
        program(m)
        for name, x in sorted(m.result().items()):
            weights = jnp.cos(jnp.arange(x.size) + ord(name)).reshape(x.shape)
            total += jnp.sum(weights * (x.astype(complex) * (1 - 0.5j)).real)
        return total, m.result()

    loss = tj.refs.discharge(loss) if memory is OnRefs else loss
    gradient = lambda x: jax.grad(loss, has_aux=True)(x)[0]
    tangent = jax.tree.map(lambda x: jnp.cos(x.astype(complex)).real.astype(x.dtype), given)
    (value, held), slope = jax.value_and_grad(loss, has_aux=True)(given)
    if turn % 3 == 0:
        other = jax.jvp(gradient, (given,), (tangent,))[1]
    elif turn % 3 == 1:
        other = jax.grad(lambda x: tj.tangents.inner_product(gradient(x), tangent))(given)
    else:
        other = jax.vmap(gradient)(jax.tree.map(lambda x: jnp.stack([x, x * x]), given))
    return held, (value, slope, other)


def assert_functional(seed, size=3):
    """Compare a program with its functional form: discharged, and called on Refs."""
    source, rng = "\n".join(Source(seed, size).lines), np.random.default_rng(seed)
    exec(source, globals(), scope := {})
    program, narrow = scope["program"], seed % 3 == 0
    given = {name: jnp.asarray(rng.uniform(0.3, 1.2, n)) for name, n in SHAPES.items()}
    given["c"] = lax.complex(given["c"], given["q"] ** 2)
    given["b"] = given["b"].astype(jnp.float32 if narrow else jnp.float64)
    want, got = (
        jax.jit(functools.partial(results, program, memory, seed))(given)
        for memory in (Pure, OnRefs)
    )
    called = OnRefs.of(given)
    tj.inplace(lambda held: program(OnRefs(held)), mutates="held")(called.held)
    want, got = (*want, want[0]), (*got, called.result())
    assert jax.tree.structure(got) == jax.tree.structure(want)
    tolerance = 3e-4 if narrow else 1e-9
    scale = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(want))
    for x, y in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        assert x.dtype == y.dtype, source
        np.testing.assert_allclose(y, x, tolerance, tolerance * scale, err_msg=source)


@pytest.mark.parametrize("seed", [2, 4, 5, 6, 7])
def test_random_programs_agree_with_their_functional_forms(seed):
    assert_functional(seed)


def test_random_programs_show_a_planted_fault(monkeypatch):
    """A write that is scaled in the functional form alone."""
    write = Pure.write
    more = lambda x: jnp.asarray(1.001, x.dtype) * x
    monkeypatch.setattr(Pure, "write", lambda m, name, index, x: write(m, name, index, more(x)))
    with pytest.raises(AssertionError, match=r"m\.set"):
        assert_functional(5)
