"""Gradients that are added to buffers: equal to `tj.grad`, in one copy of the parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tanjax as tj
from comparisons import assert_close, dense_tree, wave

pytestmark = pytest.mark.core

N = 4
W = wave(jnp.zeros(N), 0.4)
X = wave(jnp.zeros(N), 0.9)


def matrix(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) + 2 * jnp.eye(n)


def parameters():
    """One array of each kind: plain, linear types, non-linear ones, a quantity, no array at all."""
    return {
        "plain": W,
        "Diagonal": tj.Diagonal(X + 2),
        "Symmetric": tj.Symmetric(matrix()),
        "Kronecker": tj.Kronecker(matrix(0.1, 2), matrix(0.2, 2)),
        "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(X + 2), matrix()[:, :1]),
        "Quantity": tj.quantity(X, "m"),
        "Quantity Diagonal": tj.quantity(tj.Diagonal(X + 1), "km"),
        "number": 0.7,
        "steps": jnp.arange(3),
        "nothing": None,
    }


def loss(p, x):
    """A curved function that reads every parameter through its dense array."""
    y = p["plain"] * x
    for name in ("Diagonal", "Symmetric", "Kronecker", "LowRankUpdate"):
        y = jnp.sin(p[name] @ y)
    far = tj.destructure(p["Quantity Diagonal"].to_value("m")) @ p["Quantity"].to_value("m")
    return jnp.sum(y**2) * p["number"] + jnp.sum(far * x) + 0.0 * p["steps"][0].astype(x.dtype)


BATCHES = jnp.stack([X, X**2, 1 - X])


# -- what is added -----------------------------------------------------------------------------


def test_buffers_hold_the_gradient_of_every_kind_of_array():
    """Eagerly, and twice adds; value, types and units are those of `tj.value_and_grad`."""
    p = parameters()
    buffers = tj.refs.zero_refs(p)
    value, want = tj.value_and_grad(loss)(p, X)
    assert_close(tj.value_and_grad(loss, into=buffers)(p, X), value)
    got = tj.refs.gradient(p, buffers)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert got["Quantity"].unit == tj.unit("1 / m")
    assert got["steps"] is None
    assert_close(dense_tree(got), dense_tree(want))
    assert tj.grad(loss, into=buffers)(p, X) is None
    twice = jax.grad(loss, allow_int=True)(p, X)["plain"] * 2
    assert_close(buffers["plain"][...], twice)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_micro_batches_in_a_scan(checkpoint):
    """The buffers are arguments of a compiled function, and what a scan writes to."""
    p = parameters()
    f = jax.checkpoint(loss) if checkpoint else loss

    @jax.jit
    def run(p, buffers, batches):
        step = lambda _, x: (None, tj.value_and_grad(f, into=buffers)(p, x))
        return jax.lax.scan(step, None, batches)[1]

    buffers = tj.refs.zero_refs(p)
    losses = run(p, buffers, BATCHES)
    mean = lambda p: sum(loss(p, x) for x in BATCHES)
    want = jax.jit(lambda p: dense_tree(tj.grad(mean)(p)))(p)
    assert_close(losses, jax.vmap(lambda x: loss(p, x))(BATCHES))
    assert_close(dense_tree(tj.refs.gradient(p, buffers)), want)


def test_several_arguments_aux_and_keywords():
    """One tree of buffers per argument; aux values are no part of what is differentiated."""

    def f(a, x, b, *, power):
        y = a @ (b * x)
        return jnp.sum(y**power), {"y": y, "name": "aux", "far": tj.quantity(y, "km")}

    a, b = tj.Diagonal(W + 2), X
    want = tj.grad(f, (0, -1), has_aux=True)(a, X, b, power=3)
    into = (tj.refs.zero_refs(a), tj.refs.zero_refs(b))
    value, aux = tj.value_and_grad(f, (0, -1), has_aux=True, into=into)(a, X, b, power=3)
    assert_close((value, aux["y"]), (f(a, X, b, power=3)[0], want[1]["y"]))
    assert aux["name"] == "aux"
    assert aux["far"].unit is tj.unit("km")
    assert_close(dense_tree(tj.refs.gradient((a, b), into)), dense_tree(want[0]))
    aux = tj.grad(f, [0, 2], has_aux=True, into=tj.refs.zero_refs((a, b)))(a, X, b, power=3)
    assert_close(aux["y"], want[1]["y"])


def test_buffers_follow_the_order_of_the_arguments_that_are_named():
    """Arguments of one shape, named backwards: each gradient is in its own buffer."""
    f = lambda w, x, y: jnp.sum(w**2) + jnp.sum(x**3) * y
    into = (tj.refs.zero_refs(0.5), tj.refs.zero_refs(X), tj.refs.zero_refs(W))
    tj.grad(f, (2, 1, 0), into=into)(W, X, 0.5)
    assert_close([b[...] for b in into], [jnp.sum(X**3), 1.5 * X**2, 2 * W])


def test_unused_parameters_add_nothing_and_those_used_twice_add_both():
    """A loss that reads none adds nothing, either."""
    p = {"used": W, "unused": X}
    buffers = jax.tree.map(jax.new_ref, p)
    tj.grad(lambda p: jnp.sum(p["used"] * p["used"]) + jnp.sum(p["used"]), into=buffers)(p)
    tj.grad(lambda p: jnp.ones(()), into=buffers)(p)
    assert_close(tj.refs.gradient(p, buffers), {"used": 3 * W + 1, "unused": X})


def test_a_module_with_functions_and_integers():
    """What is no array stays in the tree, and has no buffer."""

    class Model(eqx.Module):
        weight: object
        scale: object
        activation: object
        count: object

    model = Model(W, tj.Diagonal(X + 1), jnp.tanh, jnp.asarray(3))
    f = lambda m, x: jnp.sum(m.activation(m.scale @ (m.weight * x)))
    buffers = tj.refs.zero_refs(model)
    assert buffers.activation is buffers.count is None
    tj.grad(f, into=buffers)(model, X)
    got, want = tj.refs.gradient(model, buffers), tj.grad(f)(model, X)
    assert got.activation is got.count is None
    assert_close(dense_tree((got.weight, got.scale)), dense_tree((want.weight, want.scale)))


def test_integer_arguments():
    """Integers alone are refused, unless they are allowed; then there is nothing to add."""
    steps = jnp.arange(3)
    f = lambda steps: 1.5 * jnp.sum(steps.astype(float))
    with pytest.raises(TypeError, match="argument 0 has nothing to differentiate"):
        tj.grad(f, into=[])(steps)
    assert_close(tj.value_and_grad(f, allow_int=True, into=jax.new_ref(steps))(steps), 4.5)


def test_complex_parameters():
    """Complex arrays, of a real loss and of a holomorphic one."""
    z = jax.lax.complex(W, X)
    real = lambda z: jnp.sum(jnp.abs(z) ** 2)
    buffers = [tj.refs.zero_refs(z), tj.refs.zero_refs(z)]
    tj.grad(real, into=buffers[0])(z)
    tj.grad(lambda z: jnp.sum(z**2), holomorphic=True, into=buffers[1])(z)
    assert_close([b[...] for b in buffers], [jax.grad(real)(z), 2 * z])


def test_buffers_may_be_closed_over_and_be_raw_trees():
    """A tree of Refs made by hand is as good; a compiled function may close over it."""
    assert type(tj.refs.zero_refs(tj.Diagonal(W))) is tj.refs.StructuredRef
    d = tj.Diagonal(W)
    buffers = jax.tree.map(jax.new_ref, tj.Diagonal(jnp.zeros(N)))
    jax.jit(tj.grad(lambda d: jnp.sum((d @ X) ** 2), into=buffers))(d)
    assert_close(buffers.diag[...], 2 * W * X**2)


def test_derivatives_through_buffers_that_convert():
    """Made inside of a compiled function, wider, in another unit; `accumulate` adds to them."""
    p = {"w": W.astype(jnp.float32), "x": X, "q": tj.quantity(X, "km")}
    made_for = {**p, "q": tj.quantity(X, "m")}

    def f(p):
        far = p["q"].to_value("km") ** 2
        return jnp.sum(jnp.sin(p["w"].astype(X.dtype) * p["x"]) * far)

    def numbers(g):
        return 3.0 * jnp.sum(g["w"] ** 2) + jnp.sum(g["x"] ** 2) + 2.0 * jnp.sum(g["q"].value ** 2)

    def through(p, tree):
        buffers = tj.refs.zero_refs(made_for, dtype=jnp.float64)
        value = tj.value_and_grad(f, into=buffers)(p)
        tj.refs.accumulate(buffers, jax.tree.map(jnp.sin, tree))
        return value**2 + numbers(tj.refs.gradient(p, buffers))

    def plain(p, tree):
        tree = jax.tree.map(lambda x: jnp.sin(x).astype(X.dtype), tree)
        g = jax.tree.map(lambda a, b: a.astype(b.dtype) + b, jax.grad(f)(p), tree)
        return f(p) ** 2 + numbers({**g, "q": tj.quantity(g["q"].stored, "1 / km")})

    tree = jax.grad(f)(p)
    reverse = lambda f: jax.value_and_grad(f, (0, 1))(p, tree)
    forward = lambda f: jax.jvp(f, (p, tree), (p, tree))
    got, want = (jax.jit(lambda f=f: (reverse(f), forward(f)))() for f in (through, plain))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_close(a, b, 1e-6 if a.dtype == jnp.float32 else 1e-12)


# -- dtypes ------------------------------------------------------------------------------------


def test_wider_buffers_keep_what_the_parameters_cannot():
    """Of 1000 gradients in bfloat16 a bfloat16 sum stands still; a float32 buffer does not."""
    p = {"w": jnp.ones(3, jnp.bfloat16), "d": tj.Diagonal(jnp.ones(3, jnp.bfloat16))}
    f = lambda p, x: jnp.sum((p["d"] @ p["w"]) * x)
    x = jnp.full((1000, 3), 1.0, jnp.bfloat16)

    @jax.jit
    def run(buffers):
        jax.lax.scan(lambda _, x: (None, tj.grad(f, into=buffers)(p, x)), None, x)

    narrow, wide = tj.refs.zero_refs(p), tj.refs.zero_refs(p, dtype=jnp.float32)
    run(narrow)
    run(wide)
    got = tj.refs.gradient(p, wide)
    assert got["w"].dtype == got["d"].dtype == jnp.float32
    assert_close((got["w"], got["d"].diag), (jnp.full(3, 1000, jnp.float32),) * 2)
    assert float(narrow["w"][0]) == 256
    mixed = {"w": wide["w"], "d": narrow["d"]}
    tj.grad(f, into=mixed)(p, x[0])
    assert float(wide["w"][0]) == 1001


def test_a_gradient_in_wide_buffers_is_made_natural_in_their_dtype():
    """That of a Kronecker product is read at its factors."""
    p = tj.Kronecker(
        jnp.array([[1.0, 2.0], [0.5, 3.0]], jnp.bfloat16), jnp.eye(2, dtype=jnp.bfloat16)
    )
    exact = jax.tree.map(lambda x: x.astype(jnp.float32), p)
    f = lambda p: jnp.sum(p.to_dense() * jnp.arange(16, dtype=p.dtype).reshape(4, 4))
    buffers = tj.refs.zero_refs(p, dtype=jnp.float32)
    tj.grad(f, into=buffers)(p)
    got = tj.refs.gradient(p, buffers)
    assert got.dtype == jnp.float32
    assert_close(dense_tree(got), dense_tree(tj.grad(f)(exact)), 1e-5)


def test_a_wider_dtype_is_at_least_that():
    """What is wider already stays; complex numbers stay complex."""
    x = (jnp.ones(2, jnp.bfloat16), jnp.ones(2), jnp.ones(2, jnp.complex64))
    kinds = [ref.dtype for ref in tj.refs.zero_refs(x, dtype=jnp.float32)]
    assert kinds == [jnp.float32, jnp.float64, jnp.complex64]


# -- units -------------------------------------------------------------------------------------


def energy(w, unit="kJ"):
    return tj.quantity(jnp.sum(w["q"].to_value("m") * w["x"] ** 2), unit)


Q = {"q": tj.quantity(X, "m"), "x": W}


def test_buffers_remember_the_unit_of_the_loss():
    """Losses in kJ, J, kJ are added in one unit, each by itself; the gradient in `[loss]/[x]`."""
    buffers = tj.refs.zero_refs(Q, unit="J")
    value = tj.value_and_grad(energy, into=buffers)(Q)
    assert value.unit == tj.unit("kJ")
    jax.jit(lambda q, b: tj.grad(lambda q: energy(q, "J"), into=b)(q))(Q, buffers)
    again = tj.value_and_grad(lambda q: (energy(q), q["q"]), has_aux=True, into=buffers)
    value, aux = again(Q)
    assert (value.unit, aux.unit) == (tj.unit("kJ"), tj.unit("m"))
    assert buffers.unit == tj.unit("J")
    got = tj.refs.gradient(Q, buffers)
    want = tj.grad(lambda q: 2001 * energy(q, "J"))(Q)
    assert got["q"].unit == tj.unit("J / m")
    assert got["x"].unit == tj.unit("J")
    assert_close(got["q"].to_value("J / m"), want["q"].to_value("J / m"))
    assert_close(got["x"].to_value("J"), want["x"].to_value("J"))


def test_parameters_in_another_unit_than_the_buffers():
    """A parameter in km adds to what was made for m: the same gradient, in the buffer's numbers."""
    far = {"q": Q["q"].to("km"), "x": W}
    near, buffers = tj.refs.zero_refs(Q, unit="J"), tj.refs.zero_refs(Q, unit="J")
    for _ in range(2):
        tj.grad(energy, into=near)(Q)
        tj.grad(energy, into=buffers)(far)
    assert_close(buffers.refs["q"][...].stored, near.refs["q"][...].stored)
    got = tj.refs.gradient(far, near)["q"]
    assert got.unit == tj.unit("J / km")
    assert_close(got.to_value("J / m"), tj.refs.gradient(Q, near)["q"].to_value("J / m"))


def test_a_dimensionless_loss_is_a_number():
    """Per cent are converted to what plain buffers hold."""
    buffer = tj.refs.zero_refs(W)
    tj.grad(lambda w: tj.quantity(jnp.sum(w**2), "percent"), into=buffer)(W)
    assert_close(buffer[...], 0.02 * W)


def test_a_loss_with_a_power_of_two():
    """A loss that is stored by its exponent is worth what it says, in each of two buffers."""
    f = lambda w: tj.Quantity(jnp.sum(w**2), "kJ", 40)
    for unit in ("J", tj.quantity(W, "J").unit.scaled(10)):
        buffer = tj.refs.zero_refs(W, unit=unit)
        tj.grad(f, into=buffer)(W)
        assert_close(tj.refs.gradient(W, buffer).to_value("J"), 2**41 * 1000 * W)


@pytest.mark.parametrize(
    ("f", "buffers", "error", "words"),
    [
        (energy, tj.refs.zero_refs(Q), tj.UnitError, r'loss: kJ.*zero_refs\(x, unit="kJ"\)'),
        (energy, tj.refs.zero_refs(Q, unit="m"), tj.UnitError, r"buffers: m \(length\)"),
        (lambda q: 1.0 * q["x"][0], tj.refs.zero_refs(Q, unit="J"), tj.UnitError, "loss: 1 "),
        (
            energy,
            tj.refs.zero_refs({"q": tj.quantity(X, "s"), "x": W}, unit="J"),
            tj.UnitError,
            r"buffer of argument 0\['q'\] is one of another dimension",
        ),
        (
            lambda q: energy(q, "EJ").astype(jnp.float16),
            tj.refs.zero_refs(Q, unit="J"),
            tj.errors.ScaleError,
            "does not fit in float16",
        ),
    ],
)
def test_units_that_do_not_fit(f, buffers, error, words):
    """A dimension that does not fit is refused, and nothing is added."""
    with pytest.raises(error, match=f"(?s){words}"):
        tj.grad(f, into=buffers)(Q)
    assert not any(np.any(ref[...]) for ref in jax.tree.leaves(buffers))


def test_buffers_of_two_units():
    """Two arguments share one loss."""
    work = lambda w, x: tj.quantity(w @ x, "J")
    buffers = tj.refs.zero_refs(W, unit="J"), tj.refs.zero_refs(X, unit="kJ")
    with pytest.raises(tj.UnitError, match=r"(?s)argument 0: J.*argument 1: kJ"):
        tj.grad(work, (0, 1), into=buffers)(W, X)
    both = tj.refs.zero_refs((W, X), unit="kJ")
    tj.grad(work, (0, 1), into=both)(W, X)
    assert_close(tj.refs.gradient((W, X), both)[1].to_value("J"), W)


# -- bad input ---------------------------------------------------------------------------------

REF = jax.new_ref(jnp.zeros(N))
OTHER = jax.new_ref(jnp.zeros(N))
NARROW = jax.new_ref(jnp.zeros(N, jnp.float32))
COMPLEX = jax.new_ref(X.astype(complex))
PLAIN = {"a": W, "b": X}
BOTH = {"a": REF, "b": OTHER}
DIAGONAL, SYMMETRIC = tj.Diagonal(W), tj.Symmetric(matrix())


@pytest.mark.parametrize(
    ("p", "into", "error", "words"),
    [
        (PLAIN, {"a": REF, "b": REF}, tj.errors.AliasError, r"first: argument 0\['a'\].*\['b'\]"),
        (PLAIN, {"a": REF}, tj.errors.CotangentError, "argument 0.*Dict key mismatch"),
        (PLAIN, REF, tj.errors.CotangentError, "not like the tree"),
        (
            PLAIN,
            BOTH | {"b": X},
            tj.errors.MutationError,
            r"argument 0\['b'\] has no buffer, but fl",
        ),
        (PLAIN, BOTH | {"b": {"c": OTHER}}, tj.errors.MutationError, "but dict"),
        (
            PLAIN | {"a": W[:2]},
            BOTH,
            tj.errors.CotangentError,
            r"buffer of argument 0\['a'\] has the wrong shape.*float64\[2\].*got.*float64\[4\]",
        ),
        (
            PLAIN | {"a": X.astype(complex)},
            BOTH,
            tj.errors.CotangentError,
            r"\['a'\] has the wrong dtype",
        ),
        (
            PLAIN,
            BOTH | {"b": NARROW},
            tj.errors.CotangentError,
            r"\['b'\] has the wrong dtype.*expected: float64.*got: Ref of float32",
        ),
        (
            PLAIN,
            BOTH | {"b": COMPLEX},
            tj.errors.CotangentError,
            "wrong dtype.*got: Ref of complex128",
        ),
        (
            DIAGONAL,
            jax.tree.map(jax.new_ref, SYMMETRIC),
            tj.errors.CotangentError,
            "not like the tree",
        ),
        (DIAGONAL, tj.new_ref(SYMMETRIC), tj.errors.CotangentError, "not like the tree"),
        (DIAGONAL, REF, tj.errors.CotangentError, "not like the tree"),
    ],
)
def test_buffers_that_do_not_fit(p, into, error, words):
    """Every way to be wrong has a class and a name, eagerly and traced, and nothing is added."""
    f = lambda p: sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(p))
    with pytest.raises(error, match=f"(?s){words}"):
        tj.grad(f, into=into)(p)
    with pytest.raises(error, match=f"(?s){words}"):
        jax.jit(lambda: tj.grad(f, into=into)(p))()
    assert not np.any(REF[...])


def test_a_buffer_that_the_function_reads():
    """A function that is given its own buffer would see half of a gradient."""
    with pytest.raises(tj.errors.AliasError, match="buffer of argument 0 is an argument"):
        tj.grad(lambda w, r: jnp.sum(w * r[...]), into=REF)(W, REF)


def test_one_tree_of_buffers_per_argument():
    """With several arguments `into` is a tuple of as many trees."""
    for into in (REF, (REF,), {"a": REF, "b": OTHER}):
        with pytest.raises(tj.errors.CotangentError, match="one tree of buffers per argument"):
            tj.grad(lambda w, x: w @ x, (0, 1), into=into)(W, X)
    with pytest.raises(tj.errors.AliasError, match="names an argument twice"):
        tj.grad(lambda w, x: w @ x, (0, -2), into=(REF, OTHER))(W, X)


@pytest.mark.parametrize(
    "f",
    [lambda w: w, lambda w: (w[0], w[1]), lambda w: w[0].astype(complex), lambda w: tj.Diagonal(w)],
)
def test_a_loss_is_one_real_number(f):
    """As for `tj.grad`, a `TypeError`."""
    with pytest.raises(TypeError, match="must return one real number"):
        tj.grad(f, into=REF)(W)


def test_vmap_with_one_buffer_for_many():
    """JAX refuses, and we say what to do; a mapped buffer is right."""
    f = tj.grad(lambda w, x: jnp.sum(jnp.sin(w * x)), into=REF)
    with pytest.raises(Exception, match="vmapped value") as caught:
        jax.vmap(f, (None, 0))(W, BATCHES)
    assert "scan" in caught.value.__notes__[0]
    buffers = jax.new_ref(jnp.zeros_like(BATCHES))
    many = lambda x, b: tj.grad(lambda w: jnp.sum(jnp.sin(w * x)), into=b)(W)
    jax.vmap(many)(BATCHES, buffers)
    assert_close(buffers[...], BATCHES * jnp.cos(W * BATCHES))


# -- frozen parameters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frozen", [("w",), ("layers", "d"), ("layers",), ("q", "k"), ("layers", "q", "k", "w")]
)
def test_a_buffer_that_is_none_freezes_its_parameter(frozen):
    """A leaf, a structured array, a quantity or a part of the tree; the others are as without."""
    p = {
        "layers": {"a": X, "d": tj.Diagonal(W)},
        "w": W,
        "q": W * tj.units.m,
        "k": tj.Kronecker(matrix(), jnp.eye(2)),
    }

    def loss(p):
        dense = jnp.sum(jnp.sin(p["layers"]["d"] @ p["layers"]["a"] * p["w"]))
        return dense + (p["q"] @ p["q"]).to_value("m2") + jnp.sum(p["k"].to_dense() ** 2)

    @jax.jit
    def run(p):
        buffers = tj.refs.zero_refs(p)
        for name in frozen:
            if name in buffers:
                buffers[name] = None
            elif buffers["layers"] is not None:
                buffers["layers"][name] = None
        value = tj.value_and_grad(loss, into=buffers)(p)
        return value, tj.refs.gradient(p, buffers)

    value, gradient = run(p)
    want = tj.grad(loss)(p)
    for part in (want["layers"], want):
        part.update({name: None for name in frozen if name in part and name != "layers"})
    if "layers" in frozen:
        want["layers"] = dict.fromkeys(want["layers"])
    assert_close(value, loss(p))
    assert_close(dense_tree(gradient), dense_tree(want))


def test_of_a_frozen_parameter_no_cotangent_is_made():
    model = lambda w, x: jnp.sum((x @ w[0]) @ w[1])
    weights, x = (jnp.ones((2, 3)), jnp.ones((3, 4))), jnp.ones((5, 2))

    def products(first):
        def step(x, second):
            tj.grad(model, into=(first, second))(weights, x)

        return str(jax.make_jaxpr(step)(x, jax.new_ref(weights[1]))).count("dot_general")

    assert products(None) < products(jax.new_ref(weights[0]))


# -- accumulate and gradient -------------------------------------------------------------------


def test_accumulate_adds_what_jax_gives():
    """Trees of `jax.grad`, with float0 and None for integers; also inside of a compiled loop."""
    p = parameters()
    buffers = tj.refs.zero_refs(p)
    structural = jax.grad(loss, allow_int=True)(p, X)
    tj.refs.accumulate(buffers, structural)
    assert_close(dense_tree(tj.refs.gradient(p, buffers)), dense_tree(tj.grad(loss)(p, X)))
    ref = jax.new_ref(X)
    three = lambda ref, x: jax.lax.fori_loop(0, 3, lambda i, _: tj.refs.accumulate(ref, x), None)
    jax.jit(three)(ref, W.astype(jnp.float32))
    assert_close(ref[...], X + 3 * W, 1e-6)


def test_no_cotangent_adds_nothing():
    """`float0` and `None` leave a Ref as it is: of integers, and of numbers."""
    refs = {k: jax.new_ref(x) for k, x in {"w": W, "steps": jnp.arange(N), "x": X}.items()}
    float0 = np.zeros(N, jax.dtypes.float0)
    for tree in ({"w": W, "steps": float0, "x": None}, {"w": W, "steps": None, "x": float0}):
        tj.refs.accumulate(refs, tree)
    assert_close([refs["w"][...], refs["x"][...]], [3 * W, X])
    assert refs["steps"][...].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("refs", "tree", "error"),
    [
        ((REF, REF), (W, X), tj.errors.AliasError),
        ((REF, OTHER), (W,), tj.errors.CotangentError),
        ((OTHER, REF), (W, X[:2]), tj.errors.CotangentError),
        ((OTHER, REF), (W, X.astype(complex)), tj.errors.CotangentError),
        ((OTHER, jax.new_ref(X.astype(complex))), (W, X), tj.errors.CotangentError),
        ((OTHER, REF), (W, jnp.arange(4)), tj.errors.CotangentError),
        ((OTHER, None), (W, X), tj.errors.MutationError),
        ((OTHER, REF), (W, jax.new_ref(X)), tj.errors.MutationError),
        ((OTHER, jnp.ones(4)), (W, X), tj.errors.MutationError),
        ((OTHER, REF), (W, tj.Diagonal(X)), tj.errors.CotangentError),
        ((OTHER, tj.Quantity(REF, "m")), (W, tj.quantity(X, "1 / m")), tj.UnitError),
    ],
)
def test_accumulate_refuses_a_tree_before_it_adds(refs, tree, error):
    """Errors come before anything is added."""
    with pytest.raises(error, match="accumulate"):
        tj.refs.accumulate(refs, tree)
    assert not np.any(REF[...])
    assert not np.any(OTHER[...])


def test_hidden_parts_are_warned_of_when_the_gradient_is_read():
    """As `tj.grad` does: a part of the cotangent that no natural gradient can show."""
    k = tj.Kronecker(matrix(0.1, 2), matrix(0.2, 2))
    buffers = tj.refs.zero_refs(k)
    tj.grad(lambda k: jnp.sum(k.factors[0] ** 2), into=buffers)(k)
    with pytest.warns(tj.errors.HiddenCotangentWarning):
        tj.refs.gradient(k, buffers)


def test_gradient_refuses_buffers_of_another_tree():
    with pytest.raises(tj.errors.CotangentError, match="gradient: the buffer of the array"):
        tj.refs.gradient(W[:2], REF)


# -- memory and devices ------------------------------------------------------------------------


def test_a_scan_needs_one_buffer():
    """Temporary memory at most half of the parameters, every buffer aliased, no new outputs."""
    p = {"w": [jnp.ones((128, 128)) / 128] * 4, "d": tj.Diagonal(jnp.ones(128))}

    def f(p, x):
        for w in p["w"]:
            x = jnp.tanh(x @ w)
        return jnp.sum((p["d"] @ x.T) ** 2)

    @jax.jit
    def run(p, buffers, batches):
        step = lambda _, x: (None, tj.value_and_grad(f, into=buffers)(p, x))
        return jax.lax.scan(step, None, batches)[1]

    buffers = tj.refs.zero_refs(p)
    compiled = run.lower(p, buffers, jnp.ones((8, 4, 128))).compile()
    memory = compiled.memory_analysis()
    size = sum(x.nbytes for x in jax.tree.leaves(p))
    assert memory.alias_size_in_bytes == size
    assert memory.temp_size_in_bytes <= 0.5 * size
    assert memory.output_size_in_bytes - size < 1024


def test_sharded_buffers_stay_where_they_are():
    """Buffers are made in the sharding of the parameters, and keep it in compiled loops."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    p = jax.tree.map(lambda x: jax.device_put(x, sharding), {"w": W, "d": tj.Diagonal(X)})
    f = lambda p, x: jnp.sum(jnp.sin(p["d"] @ (p["w"] * x)))

    @jax.jit
    def run(p, buffers, batches):
        step = lambda _, x: (None, tj.value_and_grad(f, into=buffers)(p, x))
        return jax.lax.scan(step, None, batches)[1]

    for dtype in (None, jnp.float64):
        buffers = tj.refs.zero_refs(p, dtype=dtype)
        run(p, buffers, BATCHES)
        want = tj.grad(lambda p: sum(f(p, x) for x in BATCHES))(p)
        assert_close(dense_tree(tj.refs.gradient(p, buffers)), dense_tree(want))
        for ref in jax.tree.leaves(buffers):
            assert ref[...].sharding.is_equivalent_to(sharding, 1)
