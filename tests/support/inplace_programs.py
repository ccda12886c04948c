"""Random programs that write to Refs, each beside its functional form.

A program is a list of instructions over named memory: vectors, a matrix, a scalar, a counter, a
complex vector, a quantity, a symmetric and a diagonal matrix. `OnRefs` runs it in place; `Pure`
runs the same instructions on plain arrays with `.at[]`, and knows no unit and no structure. Value,
gradient, Hessian-vector products (forward over reverse, reverse over reverse), a batch of gradients
and a call of the in-place function on Refs must agree.

    PYTHONPATH=src:rules:tests/support python tests/support/inplace_programs.py --minutes 5
"""

import argparse
import functools
import random
import time
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tanjax as tj

METRE, KILOMETRE = tj.unit("m"), tj.unit("km")
SHAPES = {"a": (5,), "b": (5,), "m": (3, 4), "s": (), "c": (3,), "q": (3,), "S": (3, 3), "D": (3,)}
SIZES = {5: ("a", "b"), 3: ("c", "q")}


def start(seed, narrow):
    """What is in memory before: numbers of order one."""
    rng = np.random.default_rng(seed)
    given = {k: jnp.asarray(rng.uniform(0.3, 1.2, n)) for k, n in SHAPES.items()}
    given["c"] = lax.complex(given["c"], jnp.asarray(rng.uniform(0.3, 1.2, 3)))
    if narrow:
        given["b"] = given["b"].astype(jnp.float32)
    return given


# -- memory ----------------------------------------------------------------------------------------


class OnRefs:
    """Memory of Refs, structured ones among them."""

    def __init__(self, refs):
        self.refs = refs

    @staticmethod
    def hold(given):
        """Arrays as they are handed to an in-place function."""
        return {
            **given,
            "q": given["q"] * METRE,
            "S": tj.Symmetric((given["S"] + given["S"].mT) / 2),
            "D": tj.Diagonal(given["D"]),
            "k": jnp.asarray(1, jnp.int32),
        }

    @classmethod
    def of(cls, given):
        return cls(tj.new_ref(cls.hold(given)))

    def get(self, name, index):
        ref = self.refs[name]
        if name == "q":
            return ref[index].to_value("m")
        if name == "S":
            return ref[...].to_dense() if index is Ellipsis else ref[index]
        return ref.diag[index] if name == "D" else ref[index]

    def set(self, name, index, value):
        ref = self.refs[name]
        if name == "q":
            ref[index] = value * METRE if index is Ellipsis else (value / 1000) * KILOMETRE
        elif name == "S" and index is Ellipsis:
            ref[...] = tj.Symmetric(value)
        elif name == "D":
            ref.diag[index] = value
        else:
            ref[index] = value

    def add(self, name, index, value):
        if name in ("q", "S", "D"):
            self.set(name, index, self.get(name, index) + value)
        else:
            jax.ref.addupdate(self.refs[name], index, value)

    def swap(self, name, index, value):
        return jax.ref.swap(self.refs[name], index, value)

    def loop(self, count, body):
        lax.fori_loop(0, count, lambda i, c: (body(self, i), c)[1], None)

    def scan(self, xs, body):
        return lax.scan(lambda c, x: (c, body(self, x)), None, xs)[1]

    def branch(self, which, bodies):
        lax.switch(which, [functools.partial(b, self) for b in bodies])

    def call(self, body):
        jax.jit(lambda refs: body(OnRefs(refs)))(self.refs)

    def again(self, body):
        jax.checkpoint(lambda: body(self))()

    def inplace(self, names, body):
        function = tj.inplace(lambda refs: body(OnRefs(refs)), mutates="refs")
        function({n: self.refs[n] for n in names})

    def local(self, value, body):
        ref = jax.new_ref(value)
        body(OnRefs({**self.refs, "local": ref}))
        return jax.freeze(ref)

    def result(self):
        found = tj.freeze(self.refs)
        dense = {"q": found["q"].to_value("m"), "S": found["S"].to_dense()}
        return {**found, **dense, "D": found["D"].diag}


class Pure:
    """The same on arrays in a dict; a write is another array."""

    def __init__(self, env):
        self.env = env

    @classmethod
    def of(cls, given):
        s = (given["S"] + given["S"].mT) / 2
        return cls({**given, "S": s, "k": jnp.asarray(1, jnp.int32)})

    def get(self, name, index):
        return self.env[name][index]

    def set(self, name, index, value):
        new = self.env[name].at[index].set(value)
        if name == "S" and index is Ellipsis:
            new = jnp.triu(value) + jnp.triu(value, 1).mT  # the upper half is kept
        elif name == "S":
            new = new.at[index[::-1]].set(value)
        self.env[name] = new

    def add(self, name, index, value):
        if name == "S":
            self.set(name, index, self.get(name, index) + value)
        else:
            self.env[name] = self.env[name].at[index].add(value)

    def swap(self, name, index, value):
        old = self.env[name][index]
        self.env[name] = self.env[name].at[index].set(value)
        return old

    def _inside(self, body):
        def pure(env, *more):
            inner = Pure(dict(env))
            out = body(inner, *more)
            return inner.env, out

        return pure

    def loop(self, count, body):
        step = self._inside(body)
        self.env = lax.scan(lambda e, i: (step(e, i)[0], None), self.env, jnp.arange(count))[0]

    def scan(self, xs, body):
        self.env, ys = lax.scan(self._inside(body), self.env, xs)
        return ys

    def branch(self, which, bodies):
        steps = [lambda e, b=b: self._inside(b)(e)[0] for b in bodies]
        self.env = lax.switch(which, steps, self.env)

    def call(self, body):
        self.env = self._inside(body)(self.env)[0]

    again = call

    def inplace(self, names, body):
        inner = Pure({n: self.env[n] for n in names})
        body(inner)
        self.env.update(inner.env)

    def local(self, value, body):
        inner = Pure({**self.env, "local": value})
        body(inner)
        out = inner.env.pop("local")
        around = {k: self.env[k] for k in ("local",) if k in self.env}  # of a local around it
        self.env = {**inner.env, **around}
        return out

    def result(self):
        return self.env


# -- programs --------------------------------------------------------------------------------------


class Draw:
    """Instructions, each a function of memory and of the indices of the loops around it."""

    def __init__(self, seed, size=6):
        self.rng = random.Random(seed)
        self.narrow = self.rng.random() < 0.25
        self.words = []
        self.body = self.block(size, 0, [*SHAPES, "k"])

    def index(self, name, loops, write):
        """An index of memory, with the shape of what it takes, as words and as a function."""
        r, shape = self.rng, SHAPES[name]
        if name == "S":
            i, j = r.randrange(3), r.randrange(3)
            return ("...", lambda _: ...) if r.random() < 0.3 else (f"{i},{j}", lambda _: (i, j))
        if not shape or r.random() < 0.15:
            return "...", lambda _: ...
        if len(shape) == 2:
            kind, i, j = r.randrange(4), r.randrange(shape[0]), r.randrange(shape[1])
            if loops and r.random() < 0.5:
                n = r.choice(loops)
                return f"{n}%3,{j}", lambda at: (at[n] % 3, j)
            rows = np.array([2, 0])
            return [
                (f"{i}", lambda _: i),
                (f":,{j}", lambda _: (slice(None), j)),
                (f"{i},1:3", lambda _: (i, slice(1, 3))),
                ("[2,0]", lambda _: rows),
            ][kind]
        n = shape[0]
        kind = r.randrange(6)
        if kind == 0 or name == "D":
            i = r.randrange(n)
            return f"{i}", lambda _: i
        if kind in (1, 2) and loops:
            loop = r.choice(loops)
            return f"{loop}%{n}", lambda at: at[loop] % n
        if kind == 3:
            lo = r.randrange(n - 1)
            return f"{lo}:{lo + 2}", lambda _: slice(lo, lo + 2)
        if kind == 4:
            return "::2", lambda _: slice(None, None, 2)
        many = np.array(r.sample(range(n), 2) if write else [r.randrange(n) for _ in range(2)])
        return f"{many.tolist()}", lambda _: many

    def value(self, names, loops):
        """A number that depends on what is in memory, and on the loop."""
        r = self.rng
        terms = []
        for _ in range(r.randrange(1, 3)):
            name = r.choice([n for n in names if n not in ("k",)])
            words, index = self.index(name, loops, False)
            terms.append((name, words, index, r.choice((jnp.sin, jnp.tanh, jnp.square))))
        loop = r.choice(loops) if loops and r.random() < 0.3 else None

        def value(mem, at):
            total = 0.4 + (0.1 * at[loop].astype(jnp.float64) if loop else 0.0)
            for name, _, index, f in terms:
                x = mem.get(name, index(at))
                x = jnp.real(x) + 0.3 * jnp.imag(x) if jnp.iscomplexobj(x) else x
                total = total + 0.3 * jnp.mean(f(x.astype(jnp.float64)))
            return total

        shown = " + ".join(f"{f.__name__}({n}[{w}])" for n, w, _, f in terms)
        return shown + (f" + {loop}" if loop else ""), value

    def block(self, size, depth, names, loops=()):
        steps = [self.step(depth, names, list(loops)) for _ in range(size)]

        def body(mem, at=None):
            for step in steps:
                step(mem, at or {})

        return body

    def say(self, depth, words):
        self.words.append("    " * depth + words)

    def step(self, depth, names, loops):
        kinds = ["set", "set", "set", "add", "mix", "count"]
        if depth < 2:
            kinds += ["loop", "scan", "branch", "call", "inplace", "local", "again"]
        kind = self.rng.choice(kinds)
        return getattr(self, f"_{kind}")(depth, names, loops)

    def _change(self, depth, names, loops, how):
        name = self.rng.choice([n for n in names if n != "k"])
        words, index = self.index(name, loops, True)
        shown, value = self.value(names, loops)
        self.say(depth, f"{name}[{words}] {how} {shown}")

        def step(mem, at):
            i = index(at)
            old = mem.get(name, i)
            new = jnp.broadcast_to(value(mem, at), old.shape)
            weights = jnp.linspace(1.0, 1.5, max(old.size, 1))[: old.size].reshape(old.shape)
            new = new * weights
            if jnp.iscomplexobj(old):
                new = lax.complex(new, 0.5 * new)
            getattr(mem, how)(name, i, new.astype(old.dtype))

        return step

    def _set(self, depth, names, loops):
        return self._change(depth, names, loops, "set")

    def _add(self, depth, names, loops):
        return self._change(depth, names, loops, "add")

    def _mix(self, depth, names, loops):
        """Exchange an entry and use the old one."""
        name = self.rng.choice([n for n in names if n in ("a", "b", "s")] or ["none"])
        if name == "none":
            return self._set(depth, names, loops)
        words, index = self.index(name, loops, True)
        shown, value = self.value(names, loops)
        self.say(depth, f"swap {name}[{words}] with {shown}, add what was there")

        def step(mem, at):
            i = index(at)
            like = mem.get(name, i)
            new = jnp.broadcast_to(value(mem, at), like.shape).astype(like.dtype)
            old = mem.swap(name, i, new)
            mem.add(name, i, 0.3 * jnp.sin(old))

        return step

    def _count(self, depth, names, loops):
        """The counter chooses where to write."""
        if "k" not in names or "a" not in names:
            return self._set(depth, names, loops)
        shown, value = self.value(names, loops)
        self.say(depth, f"a[k % 5] set {shown}; k += 1")

        def step(mem, at):
            k = mem.get("k", ...)
            mem.set("a", k % 5, value(mem, at))
            mem.set("k", ..., k + 1)

        return step

    def _loop(self, depth, names, loops):
        count, name = self.rng.randrange(1, 4), f"i{depth}"
        self.say(depth, f"for {name} in range({count}):")
        body = self.block(2, depth + 1, names, [*loops, name])
        return lambda mem, at: mem.loop(count, lambda m, i: body(m, {**at, name: i}))

    def _scan(self, depth, names, loops):
        name = f"j{depth}"
        self.say(depth, f"scan {name}, whose rows are added to s:")
        body = self.block(2, depth + 1, names, [*loops, name])
        shown, value = self.value(names, [*loops, name])
        self.say(depth + 1, f"yield {shown}")

        def step(mem, at):
            def one(m, i):
                body(m, {**at, name: i})
                return value(m, {**at, name: i})

            ys = mem.scan(jnp.arange(3), one)
            if "s" in names:
                mem.add("s", ..., 0.2 * jnp.sum(ys))

        return step

    def _branch(self, depth, names, loops):
        shown, value = self.value(names, loops)
        self.say(depth, f"switch on {shown}:")
        bodies = []
        for k in range(self.rng.randrange(2, 4)):
            self.say(depth, f"case {k}:")
            bodies.append(self.block(self.rng.randrange(1, 3), depth + 1, names, loops))

        def step(mem, at):
            which = (jnp.floor(10 * value(mem, at)).astype(jnp.int32)) % len(bodies)
            mem.branch(which, [lambda m, b=b: b(m, at) for b in bodies])

        return step

    def _call(self, depth, names, loops):
        self.say(depth, "jit:")
        body = self.block(2, depth + 1, names, loops)
        return lambda mem, at: mem.call(lambda m: body(m, at))

    def _again(self, depth, names, loops):
        self.say(depth, "checkpoint:")
        body = self.block(2, depth + 1, names, loops)
        return lambda mem, at: mem.again(lambda m: body(m, at))

    def _inplace(self, depth, names, loops):
        some = self.rng.sample(names, self.rng.randrange(1, len(names) + 1))
        if not set(some) - {"k"}:
            some = names
        self.say(depth, f"in-place function of {some}:")
        body = self.block(2, depth + 1, some, [])
        return lambda mem, at: mem.inplace(some, lambda m: body(m, {}))

    def _local(self, depth, names, loops):
        shown, value = self.value(names, loops)
        self.say(depth, f"local = {shown}, which is added to s:")
        body = self.block(2, depth + 1, names, loops)

        def step(mem, at):
            def inside(m):
                body(m, at)
                m.set("local", 1, value(m, at) * m.get("local", 0))

            first = jnp.full(3, value(mem, at))
            last = mem.local(first, inside)
            if "s" in names:
                mem.add("s", ..., 0.2 * jnp.sum(last))

        return step


# -- comparing -------------------------------------------------------------------------------------


def measured(loss, which, given):
    """Value and gradient, and one of what JAX does besides, in turn."""
    tangent = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), given)
    tangent = jax.tree.map(lambda t, x: t.astype(x.dtype), tangent, given)
    gradient = jax.grad(loss)

    def dot(g):
        pairs = zip(jax.tree.leaves(g), jax.tree.leaves(tangent), strict=True)
        return sum(jnp.sum(jnp.real(x * t)) for x, t in pairs)

    def batch():
        both = jax.tree.map(lambda x: jnp.stack([x, (0.9 * x).astype(x.dtype)]), given)
        return jax.vmap(gradient)(both)

    others = {
        "forward over reverse": lambda: jax.jvp(gradient, (given,), (tangent,))[1],
        "batch": batch,
        "reverse over reverse": lambda: jax.grad(lambda x: dot(gradient(x)))(given),
        "jvp": lambda: jax.jvp(loss, (given,), (tangent,))[1],
        "checkpoint": lambda: jax.grad(jax.checkpoint(loss))(given),
    }
    name = list(others)[which % len(others)]
    value, slope = jax.value_and_grad(loss)(given)
    return {"value": value, "gradient": slope, name: others[name]()}


def loss_of(program, memory):
    def loss(given):
        mem = memory.of(given)
        program.body(mem)
        total = jnp.zeros(())
        for name, x in sorted(mem.result().items()):
            w = jnp.cos(jnp.arange(x.size) + len(name)).reshape(x.shape)
            x = jnp.real(x) + 0.5 * jnp.imag(x) if jnp.iscomplexobj(x) else x
            total = total + jnp.sum(w * x.astype(jnp.float64))
        return total

    return loss


def assert_functional(seed, size=6):
    """Compare one program with its functional form. **Raises:** `AssertionError` with its words."""
    program = Draw(seed, size)
    given = start(seed, program.narrow)
    want = jax.jit(functools.partial(measured, loss_of(program, Pure), seed))(given)
    got = jax.jit(functools.partial(measured, tj.discharge(loss_of(program, OnRefs)), seed))(given)
    assert_agree(program, want, got)
    function = tj.inplace(lambda refs: program.body(OnRefs(refs)), mutates="refs")
    refs = tj.new_ref(OnRefs.hold(given))
    function(refs)
    pure = Pure.of(given)

    @jax.jit
    def after(env):
        mem = Pure(dict(env))
        program.body(mem)
        return mem.env

    assert_agree(program, {"call": after(pure.env)}, {"call": OnRefs(refs).result()})


def assert_agree(program, want, got):
    tolerance = 3e-4 if program.narrow else 1e-9
    for what, right in want.items():
        scale = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(right))
        for (path, x), y in zip(
            jax.tree_util.tree_flatten_with_path(right)[0], jax.tree.leaves(got[what]), strict=True
        ):
            message = f"{what}{jax.tree_util.keystr(path)}\n" + "\n".join(program.words)
            assert x.dtype == y.dtype, message
            np.testing.assert_allclose(
                y, x, rtol=tolerance, atol=tolerance * scale, err_msg=message
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", type=int, default=6)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    end, seed, failures = time.time() + 60 * options.minutes, options.first, 0
    while time.time() < end:
        try:
            assert_functional(seed, options.size)
        except Exception as error:
            failures += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
            if not isinstance(error, AssertionError):
                print("\n".join(Draw(seed, options.size).words))
                print("".join(traceback.format_tb(error.__traceback__)[-3:]), flush=True)
        seed += 1
    print(f"{seed - options.first} programs, {failures} failures")


if __name__ == "__main__":
    main()
