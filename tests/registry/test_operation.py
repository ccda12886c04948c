"""Operations: every kind of argument and of result that a rule can have."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import Counter, assert_close, assert_same_derivatives, wave

pytestmark = pytest.mark.core


def diagonal(*values):
    return tj.Diagonal(jnp.asarray(values, float))


A, X = (2.0, 3.0, 0.5), jnp.asarray([1.0, -2.0, 0.7])


@tj.operation
def power_form(a, x, scale=2.0, *, power=2, flip=False):
    y = scale * jnp.sum(x * (a @ x)) ** power
    return -y if flip else y


@power_form.natural_rule
def power_form_rule(a, x, scale, *, power, flip):
    rule_ran()
    inner = jnp.sum(x * (a @ x))
    sign = -1 if flip else 1

    def power_form_pullback(y_bar):
        outer = sign * y_bar * scale * power * inner ** (power - 1)
        return (
            tj.Outer(outer * x, x),
            outer * (a @ x + a.mT @ x),
            sign * y_bar * inner**power,
        )

    return power_form.primal(a, x, scale, power=power, flip=flip), power_form_pullback


rule_ran = Counter()


@pytest.mark.parametrize("lowering", ["linear", "public"])
@pytest.mark.parametrize("statics", [{}, {"power": 3, "flip": True}])
def test_static_default_and_keyword_arguments(lowering, statics):
    before = rule_ran.count
    plain = power_form.__wrapped__
    with tj.rules.lowering(lowering):
        assert_same_derivatives(
            lambda a, x, s: power_form(x=x, a=a, scale=s, **statics),
            lambda a, x, s: plain(a, x, s, **statics),
            diagonal(*A),
            X,
            jnp.asarray(1.5),
        )
        assert_same_derivatives(
            lambda a, x: power_form(a, x, **statics),
            lambda a, x: plain(a, x, **statics),
            diagonal(*A),
            X,
        )
    assert rule_ran.count > before


def test_values_of_static_arguments_can_be_checked():
    def small(operation, name, value):
        if value > 3:
            raise ValueError(f"{operation}: {name} is {value}")

    @tj.operation(static={"power": small})
    def to_the(a, power):
        return a**power

    assert to_the(jnp.float32(2), 3) == 8
    for call in (to_the, jax.jit(lambda a, n: to_the(a, n), static_argnums=1)):
        with pytest.raises(ValueError, match="to_the: power is 4"):
            call(jnp.float32(2), 4)


def test_each_static_value_compiles_once():
    traced = Counter()

    @tj.operation
    def times(a, *, factor):
        traced()
        return factor * a.total()

    for _ in range(3):
        assert times(diagonal(*A), factor=2.0) == 11.0
        assert times(diagonal(*A), factor=4.0) == 22.0
    assert traced.count == 2


@pytest.mark.parametrize("scalar", [3.0, 3, np.float64(3.0), np.int32(3), True])
def test_python_and_numpy_scalars(scalar):
    @tj.operation
    def times(a, s):
        return jnp.asarray(s, a.dtype) * a.total()

    @times.natural_rule
    def times_rule(a, s):
        fill = lambda y_bar: tj.Fill(y_bar * jnp.asarray(s, a.dtype), a.shape)
        return times.primal(a, s), lambda y_bar: (fill(y_bar), y_bar * a.total())

    a = diagonal(*A)
    bar = jax.grad(times, allow_int=True)(a, scalar)
    assert_close(bar, tj.Diagonal(jnp.full(3, float(scalar))))
    scalar_bar = jax.grad(times, 1, allow_int=True)(a, jnp.asarray(scalar))
    if isinstance(scalar, float):
        assert scalar_bar == 5.5
    else:
        assert scalar_bar.dtype == jax.dtypes.float0


def test_variadic_operations():
    @tj.operation
    def total(*args):
        return sum(jnp.sum(jnp.cos(tj.destructure(a))) for a in args)

    @total.natural_rule(tj.Diagonal)
    def total_rule(*args):
        y = total.primal(*args)
        return y, lambda y_bar: tuple(-y_bar * jnp.sin(tj.destructure(a)) for a in args)

    reference = lambda *args: sum(jnp.sum(jnp.cos(a)) for a in args)
    assert_same_derivatives(total, reference, diagonal(*A), jnp.diag(X), X)
    assert_same_derivatives(total, reference, diagonal(*A))


def test_none_and_integer_arguments():
    @tj.operation
    def shifted(a, b, places):
        y = jnp.sum(a.diag * jnp.roll(a.diag, places))
        return y if b is None else y + jnp.sum(b)

    @shifted.natural_rule
    def shifted_rule(a, b, places):
        def shifted_pullback(y_bar):
            d = jnp.roll(a.diag, places) + jnp.roll(a.diag, -places)
            return tj.Diagonal(y_bar * d), None if b is None else y_bar * jnp.ones(b.shape), None

        return shifted.primal(a, b, places), shifted_pullback

    a = diagonal(*A)
    assert_same_derivatives(
        lambda a: shifted(a, None, 1), lambda a: jnp.diag(a) @ jnp.roll(jnp.diag(a), 1), a
    )
    bars = jax.grad(shifted, (0, 1, 2), allow_int=True)(a, X, jnp.asarray(2))
    assert_close(bars[0], tj.Diagonal(jnp.roll(a.diag, 2) + jnp.roll(a.diag, -2)))
    assert_close(bars[1], jnp.ones(3))
    assert bars[2].dtype == jax.dtypes.float0


class Model(eqx.Module):
    weight: tj.Diagonal
    bias: jax.Array
    name: str = eqx.field(static=True, default="model")


@tj.operation
def affine(model, x):
    weight, bias = jax.tree.leaves(model, is_leaf=tj.rules.is_structured)[:2]
    return jnp.sum(jnp.sin(weight @ x + bias))


@affine.natural_rule
def affine_rule(model, x):
    (weight, bias), tree = jax.tree.flatten(model, is_leaf=tj.rules.is_structured)

    def affine_pullback(y_bar):
        inner = y_bar * jnp.cos(weight @ x + bias)
        return jax.tree.unflatten(tree, [tj.Outer(inner, x), inner]), weight.mT @ inner

    return affine.primal(model, x), affine_pullback


@pytest.mark.parametrize("kind", ["dict", "tuple", "module"])
def test_pytree_arguments(kind):
    weight, bias = diagonal(*A), X
    model = {
        "dict": {"a": weight, "b": bias},
        "tuple": (weight, bias),
        "module": Model(weight, bias),
    }[kind]

    def reference(model, x):
        weight, bias = jax.tree.leaves(model)
        return jnp.sum(jnp.sin(weight @ x + bias))

    assert_same_derivatives(affine, reference, model, X)
    bars = jax.grad(affine)(model, X)
    assert jax.tree.structure(bars) == jax.tree.structure(model)


@tj.operation
def apply_to_diagonal(f, a):
    return jnp.sum(f(a.diag))


@apply_to_diagonal.natural_rule
def apply_rule(f, a):
    rule_of_apply()
    y, vjp = jax.vjp(f, a.diag)
    return jnp.sum(y), lambda y_bar: (None, tj.Diagonal(vjp(y_bar * jnp.ones_like(y))[0]))


rule_of_apply = Counter()


def test_a_callable_argument_with_constants_uses_the_rule():
    before = rule_of_apply.count
    f = lambda d: jnp.sin(d * X)
    ours, reference = lambda a: apply_to_diagonal(f, a), lambda a: jnp.sum(f(jnp.diag(a)))
    assert_same_derivatives(ours, reference, diagonal(*A))
    assert rule_of_apply.count > before


class Wave:
    def __init__(self, s):
        self.s = s

    def __call__(self, d):
        return jnp.sin(d * self.s)


@jax.tree_util.register_pytree_node_class
class WaveTree(Wave):
    def tree_flatten(self):
        return (self.s,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


CALLABLES = {
    "closure": lambda s: lambda d: jnp.sin(d * s),
    "partial": lambda s: functools.partial(lambda s, d: jnp.sin(d * s), s),
    "nested": lambda s: lambda d: CALLABLES["closure"](s)(d),
    "default": lambda s: lambda d, s=s: jnp.sin(d * s),
    "object": Wave,
    "method": lambda s: Wave(s).__call__,
    "closure over an object": lambda s: (lambda o: lambda d: o(d))(Wave(s)),
    "tree": WaveTree,
    "tree partial": lambda s: jax.tree_util.Partial(lambda s, d: jnp.sin(d * s), s),
}


@pytest.mark.parametrize("how", CALLABLES)
def test_a_callable_argument_that_closes_over_tracers_is_differentiated_in_them(how):
    reference = lambda s, a: jnp.sum(jnp.sin(jnp.diag(a) * s))
    ours = lambda s, a: apply_to_diagonal(CALLABLES[how](s), a)
    assert_same_derivatives(ours, reference, jnp.asarray(0.7), diagonal(*A))


@pytest.mark.parametrize("how", ["tree", "tree partial"])
def test_a_pushforward_rule_sees_no_callable_that_is_a_tree(how):
    apply = tj.operation(lambda f, a: jnp.sum(f(a.diag)))

    @apply.natural_pushforward
    def apply_pushforward(f, a):
        push = lambda f_dot, a_dot: jnp.sum(jax.jvp(f, (a.diag,), (a_dot.diagonal(),))[1])
        return apply.primal(f, a), push

    reference = lambda s, a: jnp.sum(jnp.sin(jnp.diag(a) * s))
    ours = lambda s, a: apply(CALLABLES[how](s), a)
    assert_same_derivatives(ours, reference, jnp.asarray(0.7), diagonal(*A))


def test_a_body_that_closes_over_tracers_is_differentiated_in_them():
    def scaled_sum(s, a):
        times = tj.operation(lambda a: jnp.sum(jnp.sin(a.diag * s)))

        @times.natural_rule
        def times_rule(a):
            return times.primal(a), lambda y_bar: tj.Diagonal(y_bar * s * jnp.cos(a.diag * s))

        return times(a)

    reference = lambda s, a: jnp.sum(jnp.sin(jnp.diag(a) * s))
    assert_same_derivatives(scaled_sum, reference, jnp.asarray(0.7), diagonal(*A))


@pytest.mark.parametrize("how", ["attribute", "cell", "static instance", "captured cell"])
def test_state_that_was_a_number_when_a_call_was_compiled_is_differentiated(how):
    held, wave, spring = jnp.asarray(0.7), Wave(0.7), Spring(0.7)
    form = tj.operation(lambda a: jnp.sum(jnp.sin(a.diag * held)))
    form.natural_rule(
        lambda a: (form.primal(a), lambda y: tj.Diagonal(y * held * jnp.cos(a.diag * held)))
    )

    def call(s):
        nonlocal held
        held = wave.s = spring.stiffness = s
        if how == "attribute":
            return apply_to_diagonal(wave, diagonal(*A))
        if how == "static instance":
            return spring.energy(jnp.asarray(A))
        a = diagonal(*A)
        return form(a) if how == "cell" else tj.capture(lambda a: form(a))(a)(a)

    reference = lambda s: jnp.sum(jnp.sin(jnp.asarray(A) * s))
    if how == "static instance":
        reference = lambda s: s / 2 * jnp.sum(jnp.asarray(A) ** 2)
    call(jnp.asarray(0.7))  # compiles
    assert_same_derivatives(call, reference, jnp.asarray(1.3))


def test_a_module_that_holds_functions_is_a_callable_argument():
    net = eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0))
    ours = eqx.filter_jit(eqx.filter_grad(lambda net: apply_to_diagonal(net, diagonal(*A))))
    plain = eqx.filter_grad(lambda net: jnp.sum(net(jnp.asarray(A))))
    for got, want in zip(jax.tree.leaves(ours(net)), jax.tree.leaves(plain(net)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.isfinite(apply_to_diagonal(eqx.nn.Lambda(jnp.sin), diagonal(*A)))


def test_a_custom_jvp_that_closes_over_tracers_is_refused_as_by_jax():
    def call(s):
        f = jax.custom_jvp(lambda x: s * x)
        f.defjvp(lambda x, x_dot: (s * x[0], s * x_dot[0]))
        return apply_to_diagonal(f, diagonal(*A))

    with pytest.raises(Exception, match="racer"):
        jax.jit(jax.grad(call))(2.0)


def test_several_outputs_in_a_dictionary_with_structured_ones():
    @tj.operation
    def parts(a, b):
        return {"product": tj.Diagonal(a.diag * b), "sums": (jnp.sum(a.diag), jnp.sum(b)), "n": 3}

    @parts.natural_rule
    def parts_rule(a, b):
        def parts_pullback(bar):
            product = bar["product"].diagonal()
            a_bar = product * b + bar["sums"][0]
            return tj.Diagonal(a_bar), product * a.diag + bar["sums"][1]

        return parts.primal(a, b), parts_pullback

    def reference(a, b):
        return {"product": jnp.diag(jnp.diag(a) * b), "sums": (jnp.trace(a), jnp.sum(b))}

    def without_integers(a, b):
        out = parts(a, b)
        assert isinstance(out["product"], tj.Diagonal)
        return {k: out[k] for k in ("product", "sums")}

    assert_same_derivatives(without_integers, reference, diagonal(*A), X)


def test_narrowed_rules_choose_by_the_classes_of_the_call():
    seen = []
    total = tj.operation(lambda a, b: a.total() + jnp.sum(b))

    def register(name, *kinds, **options):
        def total_rule(a, b):
            seen.append(name)
            bars = lambda y_bar: (tj.Fill(y_bar, a.shape), y_bar * jnp.ones(jnp.shape(b)))
            return total.primal(a, b), bars

        total.natural_rule(*kinds, **options)(total_rule)

    register("generic")
    register("symmetric", tj.Symmetric)
    register("symmetric, dense", tj.Symmetric, tj.Dense)
    jax.grad(total)(diagonal(*A), X)
    jax.grad(total)(tj.Symmetric(jnp.eye(2)), X)
    assert seen[0] == "generic"
    assert seen[-1] == "symmetric, dense"
    again = r"(?s)a natural rule for \(Symmetric\).*by: .*now: "
    with pytest.raises(tj.errors.RegistrationError, match=again):
        register("again", tj.Symmetric)
    register("replaced", tj.Symmetric, tj.Dense, override=True)
    jax.grad(total)(tj.Symmetric(jnp.eye(2)), X)
    assert seen[-1] == "replaced"


def test_registrations_are_checked():
    with pytest.raises(tj.errors.RegistrationError, match="static arguments must be named"):
        tj.operation(lambda a: a, static=["b"])
    op = tj.operation(lambda a: a)
    with pytest.raises(tj.errors.RegistrationError, match="made of classes"):
        op.implementation("Diagonal")(lambda a: a)
    with pytest.raises(tj.errors.RegistrationError, match=r"1 array argument.*2 types"):
        op.implementation(tj.Diagonal, tj.Dense)(lambda a: a)
    with pytest.raises(tj.errors.RegistrationError, match="unknown convention 'julia'"):
        op.natural_rule(convention="julia")
    with pytest.raises(tj.errors.RegistrationError, match="hidden 'maybe'"):
        op.natural_rule(hidden="maybe")


def test_primal_runs_the_implementation_alone():
    assert power_form.primal(diagonal(*A), X, power=1) == power_form(diagonal(*A), X, power=1)
    assert repr(power_form).startswith("<tanjax operation power_form(a, x")


def test_wave_has_no_symmetry():
    """The comparisons of these tests would be blind if their weights were."""
    w = np.asarray(wave(jnp.zeros((3, 3))))
    assert np.linalg.norm(w - w.T) > 1


# -- mistakes, and what is said of them ------------------------------------------------------------


def test_an_implementation_for_any_type_is_registered_bare():
    @tj.operation
    def first(a):
        return tj.destructure(a)[0]

    @first.implementation
    def first_of_any(a):
        return 42.0

    assert first_of_any.__name__ == "first_of_any"
    assert first(diagonal(*A)) == 42.0


@pytest.mark.parametrize("kind", [float, int, complex, np.float32, jax.Array])
def test_a_signature_that_no_call_would_find_is_refused(kind):
    @tj.operation
    def halved(a):
        return a / 2

    with pytest.raises(tj.errors.RegistrationError, match=r"write `tj\.Dense`"):
        halved.implementation(kind)(lambda a: a)
    with pytest.raises(tj.errors.RegistrationError, match="made of classes"):
        halved.implementation(Any)(lambda a: a)


@pytest.mark.parametrize("flip", [True, False])
def test_a_python_bool_is_static_wherever_it_stands(flip):
    """Python may branch on it, in the implementation, in the rule, and under every transform."""

    @tj.operation
    def flipped(a, flip, scale=1.0):
        return -scale * tj.trace(a) if flip else scale * tj.trace(a)

    @flipped.natural_rule
    def flipped_rule(a, flip, scale):
        sign = -1 if flip else 1
        pull = lambda y_bar: (
            tj.Diagonal(jnp.full(a.shape[0], sign * scale * y_bar)),
            None,
            sign * y_bar * tj.trace(a),
        )
        return flipped.primal(a, flip, scale), pull

    sign = -1 if flip else 1
    a = diagonal(*A)
    assert flipped(a, flip) == sign * sum(A)
    for gradient in (jax.grad(flipped), jax.jit(jax.grad(flipped), static_argnums=1)):
        np.testing.assert_allclose(gradient(a, flip).diag, sign * jnp.ones(3))
    np.testing.assert_allclose(tj.rules.rrule(flipped, a, flip)[1](1.0)[0].diag, sign * jnp.ones(3))
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose((a * flip).to_dense(), a.to_dense() * flip)


def test_messages_name_the_operation_and_the_argument():
    a = diagonal(*A)
    with pytest.raises(TypeError, match=r"power_form\(a, x.*unexpected keyword argument 'pow'"):
        power_form(a, X, pow=2)
    with pytest.raises(TypeError, match=r"power_form\(a, x.*missing a required argument: 'x'"):
        power_form(a)
    for f in (
        lambda: power_form(a, X, power=np.ones(2)),
        lambda: jax.jit(lambda p: power_form(a, X, power=p))(2),
    ):
        with pytest.raises(TypeError, match="power_form: `power` is a static argument"):
            f()
    with pytest.raises(TypeError, match="unsupported operand"):
        a @ "abc"


def test_a_cotangent_of_one_of_many_is_named_by_its_place():
    @tj.operation
    def traces(*arrays):
        return sum(map(tj.trace, arrays))

    @traces.natural_rule
    def traces_rule(*arrays):
        return traces.primal(*arrays), lambda y_bar: (None, jnp.ones(3))

    with pytest.raises(tj.errors.CotangentError, match=r"cotangent of arrays\[1\]"):
        jax.grad(traces, 1)(diagonal(*A), diagonal(*A))


def test_a_list_of_cotangents_is_called_a_list():
    @tj.operation
    def times(a, x):
        return a @ x

    @times.natural_rule
    def times_rule(a, x):
        return times.primal(a, x), lambda y_bar: [tj.Outer(y_bar, x), a.mT @ y_bar]

    with pytest.raises(tj.errors.CotangentError, match=r"in a tuple[\s\S]*got: a list of 2"):
        jax.grad(lambda a: jnp.sum(times(a, X)))(diagonal(*A))


def test_state_that_a_body_reads_is_compiled_in_unless_jit_is_false():
    gain = 2.0

    def times(x):
        return x * gain

    compiled, anew = tj.operation(times), tj.operation(jit=False)(times)
    assert (compiled(X)[1], anew(X)[1]) == (2 * X[1], 2 * X[1])
    gain = 10.0
    assert (compiled(X)[1], anew(X)[1]) == (2 * X[1], 10 * X[1])
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(anew(x)))(X), jnp.full(X.shape, 10.0))
    np.testing.assert_allclose(anew(diagonal(*A)).diag, 10 * diagonal(*A).diag)


class Spring:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    @tj.operation
    def energy(self, x):
        """Half the stiffness times the square."""
        return self.stiffness / 2 * jnp.sum(x**2)

    @energy.natural_rule
    def energy_rule(self, x):
        return self.stiffness / 2 * jnp.sum(x**2), lambda y_bar: (None, y_bar * self.stiffness * x)


def test_a_method_is_an_operation_of_the_instance():
    soft, stiff = Spring(1.0), Spring(3.0)
    assert Spring.energy.__doc__ == "Half the stiffness times the square."
    for spring in (soft, stiff):
        np.testing.assert_allclose(spring.energy(X), spring.stiffness / 2 * jnp.sum(X**2))
        for transform in (lambda f: f, jax.jit, tj.jit):
            gradient = transform(jax.grad(spring.energy))(X)
            np.testing.assert_allclose(gradient, spring.stiffness * X)
    np.testing.assert_allclose(jax.grad(lambda k: Spring(k).energy(X))(2.0), jnp.sum(X**2) / 2)
