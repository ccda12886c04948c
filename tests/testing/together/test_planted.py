"""Faults that could pass a kit: each is caught by the stage that is there for it.

A fault is planted in one query, map, rule or implementation of something that is right, and only
the stage that should notice runs (so that the table is quick, and no other stage helps). Faults of
maps and rules that any stage finds are in `test_array_type` and `test_operation`.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import Array

import tanjax as tj
from tanjax.testing import ARRAY_MODES, OPERATION_MODES, Samples, check_array_type, check_operation

# -- an array type: two diagonals -----------------------------------------------------------------


def shifted(e, lower):
    """`e` beside the diagonal of a square matrix."""
    return jnp.diag(e, -1 if lower else 1)


def off(natural, offset):
    """A diagonal of any array, asked for."""
    own = isinstance(natural, tj.AbstractArray)
    return natural.off_diagonal(offset) if own else jnp.diagonal(natural, offset)


def beside(natural, lower):
    return off(natural, -1 if lower else 1)


class Right:
    """All that the type says of itself, closed forms."""

    core_ndim = 2

    @property
    def shape(self):
        return (*self.d.shape, self.d.shape[-1])

    def to_dense(self):
        return jnp.diag(self.d) + shifted(self.e, self.lower)

    def pullback_of_destructure(self, y):
        return self.replace(d=off(y, 0), e=beside(y, self.lower))

    def apply(self, b):
        d, e = (v.reshape(-1, *(1,) * (b.ndim - 1)) for v in (self.d, self.e))
        zero = jnp.zeros((1, *b.shape[1:]), jnp.result_type(e, b))
        parts = (zero, e * b[:-1]) if self.lower else (e * b[1:], zero)
        return d * b + jnp.concatenate(parts)

    def transposed(self):
        return self.replace(lower=not self.lower)

    def diagonal(self):
        return self.d

    def total(self):
        return jnp.sum(self.d) + jnp.sum(self.e)

    def inner_product(self, other):
        return jnp.sum(self.d * off(other, 0)) + jnp.sum(self.e * beside(other, self.lower))

    def off_diagonal(self, offset):
        n = len(self.d) - abs(offset)
        known = {0: self.d, -1 if self.lower else 1: self.e}
        return known.get(offset, jnp.zeros(n, self.d.dtype))

    def conj(self):
        return self.replace(d=jnp.conj(self.d), e=jnp.conj(self.e))


def kind_of(fields, body, **facts):
    cls = type("Bidiagonal", (tj.AbstractArray,), {"__annotations__": fields, **body})
    return tj.register_array_type(cls, linear=True, **facts)


BODY = {k: v for k, v in vars(Right).items() if not k.startswith("__")}


def bidiagonal(*, complex=False, definite=False, **overrides):
    """The type with some of it replaced."""
    static = {name: tj.rules.static_field(default=False) for name in ("lower", "definite")}
    fields = {"d": Array, "e": Array, "lower": bool, "definite": bool}
    kind = kind_of(fields, BODY | static | overrides, injective=True, isometric=True)
    draw = Samples(3).complex if complex else Samples(3).normal
    return kind(draw(3), draw(2), False, definite)


def without_pullback(**overrides):
    """The type with the library's own Jᵀ."""
    body = BODY | {"lower": False} | overrides
    del body["pullback_of_destructure"]
    return kind_of({"d": Array, "e": Array}, body)(Samples(3).normal(3), Samples(3).normal(2))


def doubling(kind):
    """A map that is wrong for what is of one class."""

    def pull(self, y):
        right = Right.pullback_of_destructure(self, y)
        return double(right) if isinstance(y, kind) else right

    return pull


def own_class(self, y):
    right = Right.pullback_of_destructure(self, y)
    return right.replace(e=2 * right.e) if type(y) is type(self) else right


def double(c):
    return c.replace(d=2 * c.d)


def in_half(x):
    """Right in double precision, three digits too few in single."""
    return x.astype("float16").astype(x.dtype) if x.dtype == jnp.float32 else x


def wide(x):
    return x.astype(jnp.complex128 if jnp.iscomplexobj(x) else jnp.float64)


@jax.custom_batching.custom_vmap
def forgetful(x):
    return 1.0 * x


@forgetful.def_vmap
def _(size, batched, x):
    return x[::-1], True


apply = Right.apply

# The query before the colon is replaced by the function.
QUERIES = {
    "apply: scaled": lambda a, b: 1.001 * apply(a, b),
    "apply: transposed": lambda a, b: apply(a.replace(lower=True), b),
    "apply: double precision": lambda a, b: wide(apply(a, b)),
    "apply: no imaginary part": lambda a, b: apply(a, b.real).astype(b.dtype),
    "apply: conjugated": lambda a, b: apply(a, jnp.conj(b)),
    "apply: first column": lambda a, b: apply(
        a, jnp.broadcast_to(b[:, :1], b.shape) if b.ndim == 2 else b
    ),
    "apply: three columns": lambda a, b: apply(
        a, b[:, ::-1] if b.ndim == 2 and b.shape[1] > 2 else b
    ),
    "apply: vmap rule": lambda a, b: apply(a, forgetful(b) if b.ndim == 1 else b),
    "apply: Python if": lambda a, b: apply(a, b) if a.d[0] != 5 else b,
    "apply: fields cut off": lambda a, b: apply(jax.lax.stop_gradient(a), b),
    "apply: vector cut off": lambda a, b: apply(a, jax.lax.stop_gradient(b)),
    "apply: in half precision": lambda a, b: in_half(apply(a, b)),
    "apply: zero": lambda a, b: 0 * apply(a, b),
    "transposed: itself": lambda a: a,
    "transposed: dense, itself": lambda a: a.to_dense(),
    "transposed: a field dropped": lambda a: a.replace(e=0 * a.e, lower=not a.lower),
    "transposed: another shape": lambda a: jnp.zeros((2, 3)),
    "diagonal: zero": lambda a: 0 * a.d,
    "diagonal: reversed": lambda a: a.d[::-1],
    "off_diagonal: the main one": lambda a, k: a.d[: len(a.d) - abs(k)],
    "total: a constant": lambda a: jnp.ones((), a.d.dtype),
    "total: one diagonal": lambda a: jnp.sum(a.d),
    "total: cut off": lambda a: jax.lax.stop_gradient(Right.total(a)),
    "inner_product: one diagonal": lambda a, y: jnp.sum(a.d * jnp.diagonal(tj.destructure(y))),
    "inner_product: wrong for Fill": lambda a, y: (
        (2 if isinstance(y, tj.Fill) else 1) * Right.inner_product(a, y)
    ),
    "submatrix: columns ignored": lambda a, r, c: a.to_dense()[r, r],
    "submatrix: one too far": lambda a, r, c: jnp.roll(a.to_dense(), 1, 0)[r, c],
    "scaled: by the square": lambda a, c: a.replace(d=c * c * a.d, e=c * a.e),
    "scaled: one field": lambda a, c: a.replace(d=c * a.d),
    "scaled: the real part": lambda a, c: a.replace(d=jnp.real(c) * a.d, e=jnp.real(c) * a.e),
    "divided: multiplied": lambda a, c: a.replace(d=c * a.d, e=c * a.e),
    "shape: of a batch": property(lambda a: (3, 3)),
    "definite: is not": True,
}
COMPLEX = {
    "transposed: conjugated": lambda a: a.replace(d=jnp.conj(a.d), lower=not a.lower),
    "inner_product: conjugated": lambda a, y: Right.inner_product(a, jnp.conj(tj.destructure(y))),
    "conj: itself": lambda a: a,
    "conj: one field": lambda a: a.replace(d=jnp.conj(a.d)),
}
FORMS = {
    "apply: formed": lambda a, b: a.to_dense() @ b,
    "transposed: formed": lambda a: a.to_dense().T,
    "diagonal: formed": lambda a: jnp.diagonal(a.to_dense()),
    "total: formed": lambda a: jnp.sum(a.to_dense()),
    "submatrix: formed": lambda a, r, c: a.to_dense()[r, c],
    "inner_product: formed": lambda a, y: jnp.sum(a.to_dense() * tj.destructure(y)),
    "pullback_of_destructure: Outer formed": lambda a, y: Right.pullback_of_destructure(
        a, tj.destructure(y)
    ),
}
LATTICE = (tj.Outer, tj.Fill, tj.Diagonal, tj.tangents.Masked, tj.Kronecker, tj.Identity)
LATTICE += (tj.Tridiagonal, tj.Toeplitz, tj.Banded)
COTANGENTS = {
    "pushforward_of_restructure: Outer": doubling(tj.Outer),
    "pushforward_of_restructure: Fill": doubling(tj.Fill),
    **{f"pullback_of_destructure: {kind.__name__}": doubling(kind) for kind in LATTICE},
    "pullback_of_destructure: its own class": own_class,
}


def replaced(stage, faults, **options):
    make = lambda name: bidiagonal(**options, **{name.split(":")[0]: faults[name]})
    return {name: (stage, functools.partial(make, name)) for name in faults}


TYPES = {
    **replaced("queries", QUERIES),
    **replaced("queries", COMPLEX, complex=True),
    **replaced("memory", FORMS),
    **replaced("lattice", COTANGENTS),
    **replaced("dtype", {"astype: itself": lambda a, dtype: a}),
}


@pytest.mark.slow
@pytest.mark.parametrize("complex", [False, True])
def test_the_type_is_right(complex):
    result = check_array_type(bidiagonal(complex=complex))
    assert result.stages["queries"].scalars > 100
    assert result.worst_error < 1e-8


@pytest.mark.parametrize("name", TYPES)
def test_fault_of_a_type(name):
    stage, make = TYPES[name]
    with pytest.raises(tj.errors.CheckFailure, match=f": {stage}: "):
        check_stage(make(), stage)


def check_stage(x, stage):
    return check_array_type(x, skip=tuple(m for m in ARRAY_MODES if m != stage))


NAMED = {
    "the class of a cotangent": (
        *TYPES["pullback_of_destructure: Outer"],
        "cotangent `Outer` is wrong",
    ),
    "the query that it is AD of": (
        "lattice",
        lambda: without_pullback(apply=lambda a, b: 2 * apply(a, b)),
        r"`Outer` \(by AD of `apply`\) is wrong",
    ),
    "a query before what is made of it": (
        "queries",
        lambda: bidiagonal(transposed=lambda a: a.replace(e=2 * a.e, lower=not a.lower)),
        "queries: transposed is wrong",
    ),
    "the shape of a transpose": (*TYPES["transposed: another shape"], "`transposed`"),
    "a map before what is derived of it": (
        "maps",
        lambda: bidiagonal(pullback_of_restructure=lambda a, c: double(c)),
        r"pullback_of_restructure \(J⁺ᵀ, least norm\) is wrong",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_message_of_a_type(name):
    """What is named is what the author has to change."""
    stage, make, words = NAMED[name]
    with pytest.raises(tj.errors.CheckFailure, match=words):
        check_stage(make(), stage)


def test_formed_aloud():
    """A query that forms the array and says so is as good as the default."""
    aloud = lambda a, b: tj.rules.densified(a, "apply", "have patience") @ b
    assert check_stage(bidiagonal(apply=aloud), "memory").scalars > 0


# -- an operation: a weighted product -------------------------------------------------------------


def right_pull(a, x, weights, negate):
    w = -1.0 if negate else 1.0

    def pull(y_bar):
        scaled = w * y_bar if weights is None else w * weights * y_bar
        third = None if weights is None else w * y_bar * (a @ x)
        return tj.Outer(scaled, x), a.mT @ scaled, third

    return pull


def right_value(a, x, weights, negate):
    y = a @ x
    y = y if weights is None else weights * y
    return -y if negate else y


def product(value=right_value, pull=right_pull, rule_value=None, push=None):
    """`±weights * (a @ x)` for diagonal matrices, some of it replaced."""

    @tj.operation
    def product(a, x, weights=None, *, negate=False):
        return right_value(a, x, weights, negate)

    @product.implementation(tj.AbstractArray)
    def product_implementation(a, x, weights=None, *, negate=False):
        return value(a, x, weights, negate)

    @product.natural_rule(tj.AbstractArray)
    def product_rule(a, x, weights=None, *, negate=False):
        out = product.primal(a, x, weights, negate=negate)
        out = out if rule_value is None else rule_value(out)
        return out, pull(a, x, weights, negate)

    if push is not None:
        product.natural_pushforward(tj.AbstractArray)(push)
    return product


def vector(weights=False):
    s = Samples(5)
    some = (tj.Diagonal(s.normal(3)), s.normal(3))
    return (*some, s.normal(3)) if weights else some


def op(stage, weights=False, given=None, **faults):
    return stage, lambda: (product(**faults), given or vector(weights), {})


def values(stage, change, given=None):
    """An operation with another value."""
    return op(stage, given=given, value=lambda *a: change(right_value, *a))


def bars(stage, change, weights=False):
    """An operation with other cotangents, of `a`, `x` and the weights."""
    pull = lambda a, x, w, negate: lambda y: change(*right_pull(a, x, w, negate)(y))
    return op(stage, weights, pull=pull)


def promising():
    """A gram matrix that promises too much."""

    @tj.operation
    def gram(a, c):
        return a @ a.mT - c * jnp.eye(3, dtype=c.dtype)

    squares = lambda a, c: a.to_dense() @ a.to_dense().T - c * jnp.eye(3, dtype=c.dtype)
    gram.implementation(tj.Diagonal, differentiate=True)(
        lambda a, c: tj.Symmetric(squares(a, c), definite=True)
    )
    return gram, (tj.Diagonal(Samples(5).normal(3)), jnp.asarray(1.7)), {"generic": False}


def two_outputs(ignored=0):
    both = tj.operation(lambda a, x: (a @ x, jnp.sum(a @ x)))

    def pull(a, x, c):
        y = c[0] + (0 if ignored else c[1])
        return tj.Outer(y, x), a.mT @ y

    both.natural_rule(tj.AbstractArray)(lambda a, x: (both.primal(a, x), lambda c: pull(a, x, c)))
    return both, vector(), {}


def remembering(a, x, weights, negate):
    """A pullback that is right once."""
    residuals = [x]

    def product_pullback(y):
        right = right_pull(a, residuals[-1], weights, negate)(y)
        residuals.append(2 * x)
        return right

    return product_pullback


def labelled():
    """An operation with a wrong unit signature."""
    times = tj.operation(lambda a, x: a @ x, units="a: u, x: v -> v")
    a, x = vector()
    return times, (tj.Quantity(a, tj.unit("m")), x), {}


def doubled_without_weights(a, x, w, negate):
    right = right_pull(a, x, w, negate)
    return right if w is not None else lambda y: (tj.Outer(2 * y, x), *right(y)[1:])


def reversed_if(ndim):
    return lambda right, a, x, w, n: right(a, x[::-1] if x.ndim == ndim else x, w, n)


def push_of_the_vector(a, x, weights=None, *, negate=False):
    return right_value(a, x, weights, negate), lambda da, dx, dw=None: a @ dx


def outer_of_cotangents(a, x, w, negate):
    def pull(y):
        _, x_bar, w_bar = right_pull(a, x, w, negate)(y)
        return tj.Outer(x_bar, x), x_bar, w_bar

    return pull


def primal_for_cotangent(a, x, w, negate):
    return lambda y: (a, *right_pull(a, x, w, negate)(y)[1:])


def symmetric_case():
    """A transposed cotangent where value, matrix and probe cannot tell."""
    form = tj.operation(lambda a: jnp.sum(a * a))
    form.implementation(tj.Scaled)(lambda a: jnp.sum(a.to_dense() ** 2))
    form.natural_rule(tj.Scaled)(lambda a: (form.primal(a), lambda y: 2 * y * tj.destructure(a).T))
    data = Samples(4).normal(2, 2)
    return form, (tj.Scaled(data + data.T, jnp.asarray(0.7)),), {"generic": False}


OPERATIONS = {
    "value of the rule alone": op("rule", rule_value=lambda y: 1.01 * y),
    "wrong in single precision": bars(
        "dtype", lambda p, q, r: (p, q * (2 if q.dtype == jnp.float32 else 1), r)
    ),
    "value wrong in single precision": values("dtype", lambda right, *a: in_half(right(*a))),
    "single precision widened": values("dtype", lambda right, *a: right(*a).astype("float64")),
    "complex vector, real matrix": values(
        "variants", lambda right, a, x, *rest: right(a, x.real.astype(x.dtype), *rest)
    ),
    "conjugated, real case": bars("variants", lambda p, q, r: (p, jnp.conj(q), r)),
    "matrix conjugated, real case": values(
        "variants", lambda right, a, *rest: right(a.replace(diag=jnp.conj(a.diag)), *rest)
    ),
    "keyword at its default": values("variants", lambda right, a, x, w, n: right(a, x, w, False)),
    "keyword at its default, rule": op(
        "variants", pull=lambda a, x, w, n: right_pull(a, x, w, False)
    ),
    "argument left out": op(
        "variants",
        True,
        value=lambda a, x, w, n: (2 if w is None else 1) * right_value(a, x, w, n),
    ),
    "argument left out, rule": op("variants", True, pull=doubled_without_weights),
    "matrix instead of a vector": values("variants", reversed_if(2)),
    "vector instead of a matrix": values(
        "variants", reversed_if(1), given=(vector()[0], Samples(6).normal(3, 2))
    ),
    "a broken promise": ("promises", promising),
    "n x n cotangent": bars("memory", lambda p, q, r: (tj.destructure(p), q, r)),
    "transposed, symmetric case": ("sensitivity", symmetric_case),
    "batched rows": values("vmap", lambda right, a, x, *rest: right(a, forgetful(x), *rest)),
    "right once": op("rule", pull=remembering),
    "pushforward": op("rule", push=push_of_the_vector),
    "argument given, cotangent dropped": bars("rule", lambda p, q, r: (p, q, None), True),
    "second output ignored": ("rule", lambda: two_outputs(1)),
    "matrix cotangent of another argument": op("rule", pull=outer_of_cotangents),
    "structural for natural": op("rule", pull=primal_for_cotangent),
    "unit signature": ("units", labelled),
    "not finite": bars("vjp", lambda p, q, r: (p, q / 0.0, r)),
    "second order": op(
        "hessian",
        pull=lambda a, x, w, n: right_pull(*jax.lax.stop_gradient((a, x)), w, n),
    ),
}


def check(make, *stages):
    operation, args, options = make()
    rest = tuple(m for m in OPERATION_MODES if m not in stages)
    return check_operation(operation, *args, skip=rest, **options)


RIGHT = {
    "product": op("")[1],
    "given": op("", True)[1],
    "none given": op("", given=(*vector(), None))[1],
    "two outputs": two_outputs,
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_operation_is_right(name):
    stages = ("rule", "vmap", "dtype", "variants", "memory", "sensitivity")
    assert check(RIGHT[name], *stages).scalars > 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_fault_of_an_operation(name):
    stage, make = OPERATIONS[name]
    with pytest.raises(tj.errors.CheckFailure, match=f": {stage}: ") as failure:
        check(make, stage)
    assert "implementation: " in str(failure.value)


right_outer = lambda y, x: tj.Outer(y, x)
TRANSPOSED = {"diagonal": lambda a: a.d, "transposed": lambda a: a}
SLOW_PULL = lambda a, y: a.replace(d=jnp.diagonal(tj.destructure(y)))
FORMED = {
    "by the rule": (jnp.outer, TRANSPOSED, "the rule forms it"),
    "by a type without a transpose": (
        right_outer,
        {"diagonal": lambda a: a.d},
        "needs `transposed` of Plain",
    ),
    "by Jᵀ of the type": (
        right_outer,
        TRANSPOSED | {"pullback_of_destructure": SLOW_PULL},
        "`pullback_of_destructure` of the type forms it",
    ),
}


@pytest.mark.parametrize("who", FORMED)
def test_cotangent_formed_by_a_rule_or_a_type_is_blamed_on_it(who):
    """The rule is not blamed for what the type of its argument lacks."""
    outer, body, words = FORMED[who]
    methods = {"to_dense": lambda a: jnp.diag(a.d), "apply": lambda a, b: (a.d * b.T).T, **body}
    cls = type("Plain", (tj.AbstractArray,), {"__annotations__": {"d": Array}, **methods})
    kind = tj.register_array_type(cls, linear=True)

    @tj.operation
    def times(a, x):
        return a @ x

    times.natural_rule(lambda a, x: (a @ x, lambda y: (outer(y, x), a.mT @ y)))
    s = Samples(5)
    with pytest.raises(tj.errors.CheckFailure, match=f"memory: .*{words}"):
        check(lambda: (times, (kind(s.normal(3)), s.normal(3)), {}), "memory")


def test_a_vector_only_says_what_to_declare():
    """A rule that refuses a matrix where the operation takes one says so too late."""
    pull = lambda a, x, w, n: lambda y: (tj.Outer(y.reshape(3), x), a.mT @ y, None)
    with pytest.raises(tj.errors.CheckFailure, match=r"two columns: it raised(.|\n)*core_ndims"):
        check(op("", pull=pull)[1], "variants")


def test_numbers_that_are_looked_at():
    """An operation that cannot be compiled fails as a check, by its name."""

    @tj.operation
    def repeated(a, n):
        return a * int(n)

    with pytest.raises(tj.errors.CheckFailure, match="repeated: value: it raised under jit"):
        check_operation(repeated, Samples(5).normal(3), 2)
