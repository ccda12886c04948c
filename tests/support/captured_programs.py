"""Random programs over array types, quantities, loops and transformations, captured and replayed.

A program is a list of instructions over named values: dense vectors and matrices, a scalar,
structured matrices of several types, a quantity, a Python number. An instruction replaces a value
by a function of others. Captured, the program must replay with the bits of the function: eager, and
under `jit`, `grad`, `vmap`. The identity rewrite must print the same text and compute the same.

    PYTHONPATH=src:rules:tests/support python tests/support/captured_programs.py --minutes 5
"""

import argparse
import difflib
import random
import time
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tanjax as tj

METRE, KILOMETRE, SECOND = tj.unit("m"), tj.unit("km"), tj.unit("s")
N = 3


def start(seed):
    """Return the initial values: numbers of order one."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.uniform(0.4, 1.3, shape))
    square = draw(N, N)
    return {
        "x": draw(N),
        "y": draw(N),
        "m": square + 2 * jnp.eye(N),
        "s": draw(),
        "D": tj.Diagonal(draw(N)),
        "S": tj.Symmetric(square + 3 * jnp.eye(N), definite=True),
        "T": tj.Triangular(square + jnp.eye(N)),
        "q": draw(N) * METRE,
        "r": draw() * KILOMETRE,
        "n": 2.0,
    }


VECTORS, MATRICES, TYPED = ("x", "y"), ("m", "D", "S", "T"), ("D", "S", "T")
CARRIED = (*VECTORS, *MATRICES, "s", "q", "r")
TABLE = np.array([0.3, 0.7, 1.1])
CLOSED = {"D": tj.Diagonal(TABLE), "q": TABLE * METRE, "x": np.array([0.2, 0.4, 0.6])}


def bounded(v):
    """Map any number to order one, so that programs of any length stay finite."""
    return jnp.tanh(v) + 0.1


# -- single instructions: text, and function of the values ---------------------------------------


class Draw:
    """A random program: `words` describe its steps, `body(env)` runs them."""

    def __init__(self, seed, size=5):
        self.rng = random.Random(seed)
        self.words = []
        self.body = self.block(size, 0)

    def block(self, size, depth):
        steps = [self.step(depth) for _ in range(size)]

        def body(env):
            for step in steps:
                env = {**env, **step(env)}
            return env

        return body

    def say(self, depth, words):
        self.words.append("    " * depth + words)

    def step(self, depth):
        flat = "apply solve scalar make dense number convert physics index library unused closure"
        deep = "loop scan branch each slope call again theirs their_map their_slope switch"
        kinds = flat.split() * 2 + (deep.split() if depth < 2 else [])
        return getattr(self, f"_{self.rng.choice(kinds)}")(depth)

    # -- operations ----------------------------------------------------------------------------

    def _apply(self, depth):
        a, x, y = self.rng.choice(MATRICES), *self.rng.choices(VECTORS, k=2)
        self.say(depth, f"{y} = {a} @ {x}")
        return lambda env: {y: bounded(env[a] @ env[x])}

    def _solve(self, depth):
        a, x = self.rng.choice(MATRICES), self.rng.choice(VECTORS)
        turned = self.rng.random() < 0.3
        self.say(depth, f"{x} = solve({a}{'.mT' if turned else ''}, {x})")
        return lambda env: {x: bounded(tj.solve(env[a].mT if turned else env[a], env[x]))}

    def _scalar(self, depth):
        a, x = self.rng.choice(MATRICES), self.rng.choice(VECTORS)
        name, f = self.rng.choice(
            [
                ("logdet", lambda env: tj.logdet(env[a])),
                ("trace", lambda env: tj.trace(env[a])),
                ("max", lambda env: jnp.max(env[x])),
                ("form", lambda env: env[x] @ (env[a] @ env[x])),
            ]
        )
        self.say(depth, f"s = {name}({a}, {x})")
        return lambda env: {"s": bounded(f(env))}

    def _make(self, depth):
        """Return a structured matrix of vectors and matrices; often a field of another."""
        x, k = self.rng.choice(VECTORS), self.rng.choice(TYPED)
        made = {
            "D": [
                ("Diagonal(x)", lambda env: tj.Diagonal(env[x] + 1)),
                ("D * s", lambda env: env["D"] * (1 + env["s"] ** 2)),
                ("D @ D", lambda env: env["D"] @ tj.Diagonal(bounded(env[x]) + 1)),
                ("inv(D)", lambda env: tj.inv(tj.Diagonal(env[x] ** 2 + 1))),
            ],
            "S": [
                ("Symmetric(m mᵀ + 2)", lambda env: _positive(bounded(env["m"]))),
                ("S + D", lambda env: tj.Symmetric(env["S"].data + jnp.diag(env[x] ** 2))),
                ("S of a field", lambda env: tj.Symmetric(env["T"].data, "mean")),
            ],
            "T": [
                ("cholesky", lambda env: tj.linalg.cholesky(_positive(bounded(env["m"])))),
                ("Tᵀ", lambda env: tj.Triangular(env["T"].data.T + jnp.eye(N), lower=True)),
                ("T * n", lambda env: env["T"] * env["n"]),
            ],
        }
        name, f = self.rng.choice(made[k])
        self.say(depth, f"{k} = {name}, with {x}")
        return lambda env: {k: _small(f(env))}

    def _dense(self, depth):
        a = self.rng.choice(TYPED)
        name, f = self.rng.choice(
            [
                ("to_dense", lambda env: env[a].to_dense()),
                ("@ m", lambda env: tj.matmul(env[a], env["m"])),
                ("+ I", lambda env: (env[a] + tj.Identity(N, jnp.float64)).to_dense()),
                ("expm", lambda env: tj.linalg.expm(env[a].to_dense())),
            ]
        )
        self.say(depth, f"m = {a} {name}")
        return lambda env: {"m": bounded(f(env)) + 2 * jnp.eye(N)}

    def _number(self, depth):
        x, c = self.rng.choice(VECTORS), self.rng.choice([2, 0.5, -1, 3])
        name = self.rng.choice(["multiply", "power", "subtract"])
        self.say(depth, f"{x} = {name}({x}, {c}) * n")
        f = getattr(jnp, name) if name == "power" else getattr(tj, name)
        c = 2 if name == "power" else c
        return lambda env: {x: bounded(f(env[x], c) * env["n"])}

    # -- quantities ----------------------------------------------------------------------------

    def _convert(self, depth):
        unit = self.rng.choice(["m", "km", "cm"])
        self.say(depth, f"q = (q in {unit} + r) in m")
        return lambda env: {"q": _short((env["q"].to(unit) + env["r"]).to("m"))}

    def _physics(self, depth):
        x = self.rng.choice(VECTORS)
        name, f = self.rng.choice(
            [
                ("D q", lambda env: env["D"] @ env["q"]),
                ("q * x", lambda env: env["q"] * env[x]),
                ("where", lambda env: tj.numpy.where(env["q"] > env["r"], env["q"], 2 * env["q"])),
                ("sqrt(q q)", lambda env: tj.numpy.sqrt(env["q"] * env["q"])),
                ("q q / r", lambda env: (env["q"] * env["q"] / env["r"]).to("m")),
                ("solve(D m, q)", lambda env: tj.solve(env["D"] * METRE, env["q"]) * METRE),
                ("-abs(q)", lambda env: -abs(env["q"])),
            ]
        )
        self.say(depth, f"q = {name}; {x} = q in m; r = sum(q)")
        return lambda env: (lambda q: {"q": q, x: bounded(q.to_value("m")), "r": q.sum().to("km")})(
            _short(f(env))
        )

    def _index(self, depth):
        i = self.rng.randrange(N)
        self.say(depth, f"r = q[{i}]; s = T.data[{i}, 0]; q = q.at[{i}].set(r)")
        return lambda env: {
            "s": env["s"] + env["T"].data[i, 0],
            "r": env["q"][i].to("km"),
            "q": env["q"].at[i].set(env["r"]),
        }

    # -- JAX, closures -------------------------------------------------------------------------

    def _library(self, depth):
        x, y = self.rng.choice(VECTORS), self.rng.choice(VECTORS)
        name, f = self.rng.choice(
            [
                ("softmax", lambda v, env: jax.nn.softmax(v)),
                ("sort", lambda v, env: jnp.sort(v)),
                ("relu", lambda v, env: jax.nn.relu(v - 0.3)),
                ("cumsum", lambda v, env: jnp.cumsum(v)),
                ("where", lambda v, env: jnp.where(v > env["s"], v, env["s"])),
                ("solve", lambda v, env: jnp.linalg.solve(env["m"], v)),
                ("roll", lambda v, env: jnp.roll(v, 1) + jnp.arange(float(N))),
                ("D.diag", lambda v, env: env["D"].diag * v),
                ("S.data", lambda v, env: env["S"].data[0] * v),
            ]
        )
        self.say(depth, f"{y} = {name}({x})")
        return lambda env: {y: bounded(f(env[x], env))}

    def _unused(self, depth):
        self.say(depth, "an unused value")

        def step(env):
            tj.Kronecker(env["D"], env["m"])
            tj.logdet(env["S"])
            return {}

        return step

    def _closure(self, depth):
        x = self.rng.choice(VECTORS)
        self.say(depth, f"{x} = closed D @ {x} + closed x; q = q + closed q")
        return lambda env: {
            x: bounded(CLOSED["D"] @ env[x] + CLOSED["x"]),
            "q": _short(env["q"] + CLOSED["q"]),
        }

    # -- loops, branches, maps, derivatives: of tanjax and of JAX --------------------------------

    def _some(self):
        """Return values for a loop to carry; `n` is a number, and no loop changes its type."""
        return sorted(self.rng.sample(CARRIED, self.rng.randrange(1, 4)))

    def _inner(self, depth, size=2):
        some, body = self._some(), self.block(size, depth + 1)
        return some, lambda env: {k: _cast(v, env[k]) for k, v in body(env).items() if k in some}

    def _loop(self, depth, lax=None):
        count, fori = self.rng.randrange(0, 3), (lax or tj).fori_loop
        self.say(depth, f"for i in range({count}), {'jax' if lax else 'tj'}:")
        some, inner = self._inner(depth)
        return lambda env: fori(
            0, count, lambda i, c: inner({**env, **c}), {k: env[k] for k in some}
        )

    def _scan(self, depth, lax=None):
        scan, x = (lax or tj).scan, self.rng.choice(VECTORS)
        self.say(depth, f"scan over m, {x} is the mean of the rows, {'jax' if lax else 'tj'}:")
        some, inner = self._inner(depth)

        def step(env):
            def one(carry, row):
                new = inner({**env, **carry, x: row})
                return new, tj.Diagonal({**env, **new}[x] * row)

            carry, rows = scan(one, {k: env[k] for k in some}, env["m"])
            return {**carry, x: bounded(jnp.mean(rows.diag, axis=0))}

        return step

    def _branch(self, depth, cond=tj.cond):
        self.say(depth, f"if s > 0.6, {cond.__module__.split('.')[0]}:")
        some, first = self._inner(depth)
        self.say(depth, "else:")
        body = self.block(1, depth + 1)

        def step(env):
            other = lambda e: {k: _cast(v, env[k]) for k, v in body(e).items() if k in some}
            carry = {k: env[k] for k in some}
            inside = lambda f: lambda c: f({**env, **c})
            return cond(env["s"] > 0.6, inside(first), inside(other), carry)

        return step

    def _switch(self, depth):
        self.say(depth, "switch on 3 s:")
        some, first = self._inner(depth, 1)

        def step(env):
            index = jnp.clip(jnp.floor(3 * env["s"]).astype(jnp.int32), 0, 2)
            carry = {k: env[k] for k in some}
            cases = [lambda c: first({**env, **c}), lambda c: c, lambda c: first({**env, **c})]
            return tj.programs.switch(index, cases, carry)

        return step

    def _each(self, depth, vmap=tj.vmap):
        x = self.rng.choice(VECTORS)
        self.say(depth, f"m = rows of each row of m as {x}, {vmap.__module__.split('.')[0]}:")
        body = self.block(2, depth + 1)
        return lambda env: {"m": vmap(lambda v: body({**env, x: v})["y"])(env["m"])}

    def _slope(self, depth, grad=tj.grad):
        a, x = self.rng.choice(["x", "m", "D", "S"]), self.rng.choice(VECTORS)
        self.say(depth, f"{x} = gradient of s + sum({x}) by {a}, {grad.__module__.split('.')[0]}:")
        body = self.block(2, depth + 1)

        def step(env):
            def loss(v):
                new = body({**env, a: v})
                return new["s"] + jnp.sum(new[x])

            return {x: bounded(sum(_row(v) for v in jax.tree.leaves(grad(loss)(env[a]))))}

        return step

    def _call(self, depth):
        jit = self.rng.choice([tj.jit, jax.jit])
        self.say(depth, f"compiled by {jit.__module__.split('.')[0]}:")
        _, inner = self._inner(depth)
        return lambda env: jit(inner)(env)

    def _again(self, depth):
        again = self.rng.choice([tj.checkpoint, jax.checkpoint])
        self.say(depth, f"checkpoint of {again.__module__.split('.')[0]}:")
        some, inner = self._inner(depth)
        return lambda env: again(lambda e: inner({**env, **e}))({k: env[k] for k in some})

    def _theirs(self, depth):
        return self.rng.choice(
            [
                lambda d: self._loop(d, lax),
                lambda d: self._scan(d, lax),
                lambda d: self._branch(d, lax.cond),
            ]
        )(depth)

    def _their_map(self, depth):
        return self._each(depth, jax.vmap)

    def _their_slope(self, depth):
        return self._slope(depth, jax.grad)


def _row(v):
    return v if v.ndim == 1 else v[0] if v.ndim else jnp.full(N, v)


def _positive(m):
    return tj.Symmetric(m @ m.T + 2 * jnp.eye(N), definite=True)


def _small(a):
    """Return numbers of order one in the fields, without zeros that a solve would divide by."""
    if isinstance(a, tj.Symmetric):
        return tj.Symmetric(jnp.tanh(a.data) + 3 * jnp.eye(N), definite=True)
    if isinstance(a, tj.Triangular):
        return tj.Triangular(jnp.tanh(a.data) + 2 * jnp.eye(N))
    return tj.Diagonal(jnp.tanh(a.diag) + 1.5)


def _short(q):
    return jnp.tanh(q.to_value("m")) * METRE


def _cast(v, like):
    """Cast to the unit and the dtype that a carry had before."""
    if isinstance(like, tj.Quantity):
        return v.to(like.unit)
    return v


# -- comparing -------------------------------------------------------------------------------------


def function(draw):
    """Return the program as a function of a tree of values."""
    return lambda env: {k: v for k, v in draw.body(env).items() if k in CARRIED}


def loss_of(f):
    def loss(env):
        return sum(jnp.sum(jnp.cos(v)) for v in jax.tree.leaves(f(env)))

    return loss


def batched(f, env):
    """Map over a batch of the vectors and the quantity, with other values fixed."""
    moving = {k: env[k] for k in ("x", "D", "q")}
    rest = {k: v for k, v in env.items() if k not in moving}
    two = jax.tree.map(lambda v: jnp.stack([v, 0.9 * v]), moving)
    return jax.vmap(lambda moving: f({**rest, **moving}))(two)


def different(got, want):
    """Return the places where two trees differ in any bit."""
    if jax.tree.structure(got) != jax.tree.structure(want):
        return ["the trees"]
    pairs = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    same = lambda a, b: np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
    return [jax.tree_util.keystr(p) for (p, a), b in pairs if not same(a, b)]


def check(seed, thorough=True):
    """Check one program; return the differences by the name of the comparison."""
    draw, env = Draw(seed), start(seed)
    f = function(draw)
    program = tj.capture(f)(env)
    found = {}

    def compare(name, transform):
        got, want = jax.jit(transform(program))(env), jax.jit(transform(f))(env)
        if places := different(got, want):
            found[name] = places

    compare("value", lambda g: g)
    again = tj.programs.Interpreter().rewrite(program)
    # JAX's own loops drop unused closed-over values when they are traced again.
    before, after = program.pruned(("class",)), again
    if any("jax" in words and "if s" not in words for words in draw.words):
        before, after = again, tj.programs.Interpreter().rewrite(again)
    lines = [str(p).splitlines() for p in (before, after)]
    if lines[0] != lines[1]:
        found["text of the rewrite"] = list(difflib.unified_diff(*lines, lineterm="", n=1))[2:12]
    if places := different(jax.jit(again)(env), jax.jit(f)(env)):
        found["rewrite"] = places
    moving = {k: v for k, v in env.items() if k not in ("n",)}
    fixed = {"n": env["n"]}
    of = lambda g: lambda e: g({**e, **fixed})
    if thorough:
        compare("grad", lambda g: lambda e: jax.grad(loss_of(of(g)))(
            {k: e[k] for k in moving}))  # fmt: skip
        compare("vmap", lambda g: lambda e: batched(g, e))
        # Outside of a trace JAX runs the body of a checkpoint primitive by primitive.
        whole = not any("checkpoint" in words for words in draw.words)
        if whole and (places := different(program(env), f(env))):
            found["eager value"] = places
    return draw, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", action="store_true", help="only this seed, with its words")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    tj.densify("allow")
    end, seed, wrong = time.time() + 60 * options.minutes, options.seed, 0
    while time.time() < end:
        words = Draw(seed).words
        try:
            _, found = check(seed)
        except Exception:
            found = {"raises": traceback.format_exc(limit=-6)}
        if found or options.one:
            wrong += bool(found)
            print(f"-- seed {seed}", *words, sep="\n")
            for name, places in found.items():
                print(f"   {name}:", places if isinstance(places, str) else "\n".join(places))
        if options.one:
            break
        seed += 1
    print(f"{seed - options.seed} programs, {wrong} wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
