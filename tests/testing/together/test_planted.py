"""Sixty faults that could pass a kit: each is caught by the stage that is there for it.

A fault is planted in one query, map, rule or implementation of something that is right, and only
the stage that should notice runs (so that the table is quick, and no other stage helps). Faults of
maps and rules that any stage finds are in `test_array_type` and `test_operation`.
"""

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


def bidiagonal(*, complex=False, definite=False, **overrides):
    """The type with some of it replaced."""
    body = {k: v for k, v in vars(Right).items() if not k.startswith("__")}
    fields = {"d": Array, "e": Array, "lower": bool, "definite": bool}
    static = {name: tj.static_field(default=False) for name in ("lower", "definite")}
    body |= {"__annotations__": fields, **static, **overrides}
    cls = type("Bidiagonal", (tj.AbstractArray,), body)
    make = Samples(3).complex if complex else Samples(3).normal
    kind = tj.register_array_type(cls, linear=True, injective=True, isometric=True)
    return kind(make(3), make(2), False, definite)


def queries(**overrides):
    return "queries", lambda: bidiagonal(**overrides)


def pulls(change, kind=None):
    """A cotangent of one class pulled back wrong."""

    def pull(self, y):
        right = Right.pullback_of_destructure(self, y)
        return change(right) if kind is None or isinstance(y, kind) else right

    return "lattice", lambda: bidiagonal(pullback_of_destructure=pull)


def lifts(kind):
    """A natural tangent of one class moved wrong."""

    def lift(self, y):
        right = Right.pullback_of_destructure(self, y)
        return double(right) if isinstance(y, kind) else right

    return "lattice", lambda: bidiagonal(pushforward_of_restructure=lift)


def in_silence(**overrides):
    return "memory", lambda: bidiagonal(**overrides)


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

TYPES = {
    "apply: scaled": queries(apply=lambda a, b: 1.001 * apply(a, b)),
    "apply: transposed": queries(apply=lambda a, b: apply(a.replace(lower=True), b)),
    "apply: double precision": queries(apply=lambda a, b: wide(apply(a, b))),
    "apply: no imaginary part": queries(apply=lambda a, b: apply(a, b.real).astype(b.dtype)),
    "apply: conjugated": queries(apply=lambda a, b: apply(a, jnp.conj(b))),
    "apply: first column": queries(
        apply=lambda a, b: apply(a, jnp.broadcast_to(b[:, :1], b.shape) if b.ndim == 2 else b)
    ),
    "apply: vmap rule": queries(apply=lambda a, b: apply(a, forgetful(b) if b.ndim == 1 else b)),
    "apply: Python if": queries(apply=lambda a, b: apply(a, b) if a.d[0] != 5 else b),
    "apply: fields cut off": queries(apply=lambda a, b: apply(jax.lax.stop_gradient(a), b)),
    "apply: vector cut off": queries(apply=lambda a, b: apply(a, jax.lax.stop_gradient(b))),
    "apply: in half precision": queries(apply=lambda a, b: in_half(apply(a, b))),
    "apply: zero": queries(apply=lambda a, b: 0 * apply(a, b)),
    "transposed: itself": queries(transposed=lambda a: a),
    "transposed: conjugated": queries(
        complex=True, transposed=lambda a: a.replace(d=jnp.conj(a.d), lower=not a.lower)
    ),
    "transposed: dense, itself": queries(transposed=lambda a: a.to_dense()),
    "transposed: a field dropped": queries(
        transposed=lambda a: a.replace(e=0 * a.e, lower=not a.lower)
    ),
    "diagonal: zero": queries(diagonal=lambda a: 0 * a.d),
    "diagonal: reversed": queries(diagonal=lambda a: a.d[::-1]),
    "total: a constant": queries(total=lambda a: jnp.ones((), a.d.dtype)),
    "total: one diagonal": queries(total=lambda a: jnp.sum(a.d)),
    "total: cut off": queries(total=lambda a: jax.lax.stop_gradient(Right.total(a))),
    "inner_product: one diagonal": queries(
        inner_product=lambda a, y: jnp.sum(a.d * jnp.diagonal(tj.destructure(y)))
    ),
    "inner_product: wrong for Fill": queries(
        inner_product=lambda a, y: (2 if isinstance(y, tj.Fill) else 1) * Right.inner_product(a, y)
    ),
    "inner_product: conjugated": queries(
        complex=True, inner_product=lambda a, y: Right.inner_product(a, jnp.conj(tj.destructure(y)))
    ),
    "submatrix: columns ignored": queries(submatrix=lambda a, r, c: a.to_dense()[r, r]),
    "submatrix: one too far": queries(submatrix=lambda a, r, c: jnp.roll(a.to_dense(), 1, 0)[r, c]),
    "scaled: by the square": queries(scaled=lambda a, c: a.replace(d=c * c * a.d, e=c * a.e)),
    "scaled: one field": queries(scaled=lambda a, c: a.replace(d=c * a.d)),
    "scaled: the real part": queries(
        scaled=lambda a, c: a.replace(d=jnp.real(c) * a.d, e=jnp.real(c) * a.e)
    ),
    "divided: multiplied": queries(divided=lambda a, c: a.replace(d=c * a.d, e=c * a.e)),
    "shape of a batch": queries(shape=property(lambda a: (3, 3))),
    "definite is not": queries(definite=True),
    "apply: three columns": queries(
        apply=lambda a, b: apply(a, b[:, ::-1] if b.ndim == 2 and b.shape[1] > 2 else b)
    ),
    "transposed: another shape": queries(transposed=lambda a: jnp.zeros((2, 3))),
    "off_diagonal: the main one": queries(off_diagonal=lambda a, k: a.d[: len(a.d) - abs(k)]),
    "conj: itself": queries(complex=True, conj=lambda a: a),
    "conj: one field": queries(complex=True, conj=lambda a: a.replace(d=jnp.conj(a.d))),
    "astype: itself": ("dtype", lambda: bidiagonal(astype=lambda a, dtype: a)),
    "apply: formed": in_silence(apply=lambda a, b: a.to_dense() @ b),
    "transposed: formed": in_silence(transposed=lambda a: a.to_dense().T),
    "diagonal: formed": in_silence(diagonal=lambda a: jnp.diagonal(a.to_dense())),
    "total: formed": in_silence(total=lambda a: jnp.sum(a.to_dense())),
    "submatrix: formed": in_silence(submatrix=lambda a, r, c: a.to_dense()[r, c]),
    "inner_product: formed": in_silence(
        inner_product=lambda a, y: jnp.sum(a.to_dense() * tj.destructure(y))
    ),
    "pullback: Outer formed": in_silence(
        pullback_of_destructure=lambda a, y: Right.pullback_of_destructure(a, tj.destructure(y))
    ),
    "pushforward of restructure: Outer": lifts(tj.Outer),
    "pushforward of restructure: Fill": lifts(tj.Fill),
    "pullback: Tridiagonal": pulls(double, tj.Tridiagonal),
    "pullback: Toeplitz": pulls(double, tj.Toeplitz),
    "pullback: Banded": pulls(double, tj.Banded),
    "pullback: Fill": pulls(double, tj.Fill),
    "pullback: Diagonal": pulls(double, tj.Diagonal),
    "pullback: Masked": pulls(double, tj.Masked),
    "pullback: Outer": pulls(double, tj.Outer),
    "pullback: Kronecker": pulls(double, tj.Kronecker),
    "pullback: Identity": pulls(double, tj.Identity),
    "pullback: its own class": ("lattice", lambda: bidiagonal(pullback_of_destructure=own_class)),
}


@pytest.mark.parametrize("complex", [False, True])
def test_the_type_is_right(complex):
    result = check_array_type(bidiagonal(complex=complex))
    assert result.stages["queries"].scalars > 100
    assert result.worst_error < 1e-8


@pytest.mark.parametrize("name", TYPES)
def test_fault_of_a_type(name):
    stage, make = TYPES[name]
    with pytest.raises(tj.CheckFailure, match=f": {stage}: "):
        check_stage(make(), stage)


def check_stage(x, stage):
    return check_array_type(x, skip=tuple(m for m in ARRAY_MODES if m != stage))


NAMED = {
    "the class of a cotangent": (*pulls(double, tj.Outer), "cotangent `Outer` is wrong"),
    "the query that it is AD of": (
        "lattice",
        lambda: without_pullback(apply=lambda a, b: 2 * apply(a, b)),
        r"`Outer` \(by AD of `apply`\) is wrong",
    ),
    "a query before what is made of it": (
        *queries(transposed=lambda a: a.replace(e=2 * a.e, lower=not a.lower)),
        "queries: transposed is wrong",
    ),
    "the shape of a transpose": (*queries(transposed=lambda a: jnp.zeros((2, 3))), "`transposed`"),
    "a map before what is derived of it": (
        "maps",
        lambda: bidiagonal(pullback_of_restructure=lambda a, c: double(c)),
        r"pullback_of_restructure \(J⁺ᵀ, least norm\) is wrong",
    ),
}


def without_pullback(**overrides):
    """The type with the library's own Jᵀ."""
    kept = {k: v for k, v in vars(Right).items() if not k.startswith("__")} | overrides
    del kept["pullback_of_destructure"]
    body = {"__annotations__": {"d": Array, "e": Array}, "lower": False, **kept}
    kind = tj.register_array_type(type("Bidiagonal", (tj.AbstractArray,), body), linear=True)
    return kind(Samples(3).normal(3), Samples(3).normal(2))


@pytest.mark.parametrize("name", NAMED)
def test_message_of_a_type(name):
    """What is named is what the author has to change."""
    stage, make, words = NAMED[name]
    with pytest.raises(tj.CheckFailure, match=words):
        check_stage(make(), stage)


def test_formed_aloud():
    """A query that forms the array and says so is as good as the default."""
    aloud = lambda a, b: tj.densified(a, "apply", "have patience") @ b
    assert check_stage(bidiagonal(apply=aloud), "memory").scalars > 0


# -- an operation: a weighted product -------------------------------------------------------------


def entries(n, *, symmetric=False):
    """A matrix behind a type that stores all of it."""
    data = Samples(4).normal(n, n)
    return tj.Scaled(data + data.T if symmetric else data, jnp.asarray(0.7))


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


def vector(weights=False, n=3):
    s = Samples(5)
    some = (tj.Diagonal(s.normal(n)), s.normal(n))
    return (*some, s.normal(n)) if weights else some


def changed(change):
    """The pullback with its cotangents changed."""
    return lambda a, x, w, negate: lambda y: change(a, x, *right_pull(a, x, w, negate)(y))


def op(*args, given=None, **faults):
    return lambda: (product(**faults), given or vector(*args), {})


def squares(a, c):
    """A gram matrix that promises too much."""
    return tj.Symmetric(
        a.to_dense() @ a.to_dense().T - c * jnp.eye(3, dtype=c.dtype), definite=True
    )


def promising():
    @tj.operation
    def gram(a, c):
        return a @ a.mT - c * jnp.eye(3, dtype=c.dtype)

    gram.implementation(tj.Diagonal, differentiate=True)(squares)
    return gram, (tj.Diagonal(Samples(5).normal(3)), jnp.asarray(1.7)), {"generic": False}


def two_outputs(pull):
    @tj.operation
    def both(a, x):
        return a @ x, jnp.sum(a @ x)

    both.natural_rule(tj.AbstractArray)(lambda a, x: (both.primal(a, x), lambda c: pull(a, x, c)))
    return both, vector(), {}


def right_sum(a, x, c):
    y = c[0] + c[1]
    return tj.Outer(y, x), a.mT @ y


def remembering():
    """A pullback that is right once."""

    def pull(a, x, weights, negate):
        residuals = [x]

        def product_pullback(y):
            right = right_pull(a, residuals[-1], weights, negate)(y)
            residuals.append(2 * x)
            return right

        return product_pullback

    return pull


def labelled(signature):
    """An operation with a unit signature."""

    @tj.operation(units=signature)
    def times(a, x):
        return a @ x

    unit = tj.unit("m")
    a, x = vector()
    return times, (tj.Unitful(a, unit), x), {}


def doubled_without_weights(a, x, w, negate):
    right = right_pull(a, x, w, negate)
    return right if w is not None else lambda y: (tj.Outer(2 * y, x), *right(y)[1:])


def reversed_if(ndim):
    return lambda a, x, w, n: right_value(a, x[::-1] if x.ndim == ndim else x, w, n)


def push_of_the_vector(a, x, weights=None, *, negate=False):
    return right_value(a, x, weights, negate), lambda da, dx, dw=None: a @ dx


def symmetric_case():
    """A transposed cotangent where value, matrix and probe cannot tell."""

    @tj.operation
    def form(a):
        return jnp.sum(a * a)

    form.implementation(tj.Scaled)(lambda a: jnp.sum(a.to_dense() ** 2))
    form.natural_rule(tj.Scaled)(lambda a: (form.primal(a), lambda y: 2 * y * tj.destructure(a).T))
    return form, (entries(2, symmetric=True),), {"generic": False}


def in_columns(x):
    """Right along the first axis alone."""
    return forgetful(x)


OPERATIONS = {
    "value of the rule alone": ("rule", op(rule_value=lambda y: 1.01 * y)),
    "wrong in single precision": (
        "dtype",
        op(pull=changed(lambda a, x, p, q, r: (p, q * (2 if q.dtype == jnp.float32 else 1), r))),
    ),
    "value wrong in single precision": ("dtype", op(value=lambda *a: in_half(right_value(*a)))),
    "single precision widened": (
        "dtype",
        op(value=lambda *a: right_value(*a).astype("float64")),
    ),
    "complex vector, real matrix": (
        "variants",
        op(value=lambda a, x, w, n: right_value(a, x.real.astype(x.dtype), w, n)),
    ),
    "conjugated, real case": (
        "variants",
        op(pull=changed(lambda a, x, p, q, r: (p, jnp.conj(q), r))),
    ),
    "matrix conjugated, real case": (
        "variants",
        op(value=lambda a, x, w, n: right_value(a.replace(diag=jnp.conj(a.diag)), x, w, n)),
    ),
    "keyword at its default": (
        "variants",
        op(value=lambda a, x, w, n: right_value(a, x, w, False)),
    ),
    "keyword at its default, rule": (
        "variants",
        op(pull=lambda a, x, w, n: right_pull(a, x, w, False)),
    ),
    "argument left out": (
        "variants",
        op(True, value=lambda a, x, w, n: (2 if w is None else 1) * right_value(a, x, w, n)),
    ),
    "argument left out, rule": (
        "variants",
        op(True, pull=doubled_without_weights),
    ),
    "matrix instead of a vector": (
        "variants",
        op(value=reversed_if(2)),
    ),
    "vector instead of a matrix": (
        "variants",
        op(given=(vector()[0], Samples(6).normal(3, 2)), value=reversed_if(1)),
    ),
    "a broken promise": ("promises", promising),
    "n x n cotangent": (
        "memory",
        op(pull=changed(lambda a, x, p, q, r: (tj.destructure(p), q, r))),
    ),
    "transposed, symmetric case": ("sensitivity", symmetric_case),
    "batched rows": ("vmap", op(value=lambda a, x, w, n: right_value(a, in_columns(x), w, n))),
    "right once": ("rule", op(pull=remembering())),
    "pushforward": (
        "rule",
        op(push=push_of_the_vector),
    ),
    "argument given, cotangent dropped": (
        "rule",
        op(True, pull=changed(lambda a, x, p, q, r: (p, q, None))),
    ),
    "second output ignored": (
        "rule",
        lambda: two_outputs(lambda a, x, c: (tj.Outer(c[0], x), a.mT @ c[0])),
    ),
    "matrix cotangent of another argument": (
        "rule",
        op(pull=changed(lambda a, x, p, q, r: (tj.Outer(q, x), q, r))),
    ),
    "structural for natural": (
        "rule",
        op(pull=changed(lambda a, x, p, q, r: (a, q, r))),
    ),
    "unit signature": ("units", lambda: labelled("a: u, x: v -> v")),
    "not finite": ("vjp", op(pull=changed(lambda a, x, p, q, r: (p, q / 0.0, r)))),
    "second order": (
        "hessian",
        op(pull=lambda a, x, w, n: right_pull(*jax.lax.stop_gradient((a, x)), w, n)),
    ),
}


def check(make, *stages):
    operation, args, options = make()
    rest = tuple(m for m in OPERATION_MODES if m not in stages)
    return check_operation(operation, *args, skip=rest, **options)


@pytest.mark.parametrize(
    "make",
    [op(), op(True), lambda: two_outputs(right_sum)],
    ids=["product", "given", "two outputs"],
)
def test_the_operation_is_right(make):
    stages = ("rule", "vmap", "dtype", "variants", "memory", "sensitivity")
    assert check(make, *stages).scalars > 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_fault_of_an_operation(name):
    stage, make = OPERATIONS[name]
    with pytest.raises(tj.CheckFailure, match=f": {stage}: ") as failure:
        check(make, stage)
    assert "implementation: " in str(failure.value)


FORMED = {
    "by the rule": (
        lambda y, x: jnp.outer(y, x),
        {"diagonal": lambda a: a.d, "transposed": lambda a: a},
        "the rule forms it",
    ),
    "by a type without a transpose": (
        lambda y, x: tj.Outer(y, x),
        {"diagonal": lambda a: a.d},
        "needs `transposed` of Plain",
    ),
    "by Jᵀ of the type": (
        lambda y, x: tj.Outer(y, x),
        {
            "diagonal": lambda a: a.d,
            "transposed": lambda a: a,
            "pullback_of_destructure": lambda a, y: a.replace(d=jnp.diagonal(tj.destructure(y))),
        },
        "`pullback_of_destructure` of the type forms it",
    ),
}


@pytest.mark.parametrize("who", FORMED)
def test_who_forms_a_cotangent(who):
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
    with pytest.raises(tj.CheckFailure, match=f"memory: .*{words}"):
        check(lambda: (times, (kind(s.normal(3)), s.normal(3)), {}), "memory")


def test_a_vector_only_says_what_to_declare():
    """A rule that refuses a matrix where the operation takes one says so too late."""
    pull = lambda a, x, w, n: lambda y: (tj.Outer(y.reshape(3), x), a.mT @ y, None)
    with pytest.raises(tj.CheckFailure, match=r"two columns: it raised(.|\n)*core_ndims"):
        check(op(pull=pull), "variants")


def test_numbers_that_are_looked_at():
    """An operation that cannot be compiled fails as a check, by its name."""

    @tj.operation
    def repeated(a, n):
        return a * int(n)

    with pytest.raises(tj.CheckFailure, match="repeated: value: it raised under jit"):
        check_operation(repeated, Samples(5).normal(3), 2)


def test_there_are_sixty():
    assert len(TYPES) + len(OPERATIONS) >= 60
