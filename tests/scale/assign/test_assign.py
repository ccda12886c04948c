"""Exponents: the cheapest ones, under all rows and pins, with a proven bound."""

import itertools
import math
import random
import time

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import optimize

from assignment_problems import Program, assert_valid
from hostile_programs import hostile, problem_of
from tanjax.scale.assign import _assign, _problem
from tanjax.scale.assign._assign import (
    ANY,
    FREE,
    Assignment,
    AssignmentProblem,
    assign,
    evaluate,
)
from tanjax.scale.assign._cells import loosen
from tanjax.scale.assign._conflicts import Propagation
from tanjax.scale.assign._cover import greedy, packing
from tanjax.scale.assign._integer_program import solve
from tanjax.scale.assign._presolve import System
from tanjax.scale.graph._build import build


@st.composite
def programs(draw: st.DrawFn, equations: int, reach: int = 3) -> AssignmentProblem:
    """Any program of a few equations, with intervals anywhere; also loops and narrow intervals."""
    p = Program()
    exponent, cost = st.integers(-reach, reach), st.sampled_from([1.0, 2.0, 5.0])

    def value(pin: int = FREE) -> int:
        a, b = sorted([draw(exponent), draw(exponent)])
        return (
            p.between(min(a, 0), max(b, 0), draw(cost), pin)
            if draw(st.booleans())
            else (p.between(a, b, draw(cost), pin))
        )

    known = [value(0), value(0), p.between(-ANY, ANY, 0.0)]
    for _ in range(draw(st.integers(1, equations))):
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["add", "multiply", "divide", "root", "cube", "tanh", "loop"]))
        out = ("value", value(0 if kind == "tanh" else FREE))
        if kind == "add":
            first, second = p.use(a), p.use(b)
            p.row((1, first), (-1, second))
            p.row((1, first), (-1, out))
        elif kind in ("multiply", "divide"):
            p.row((1, p.use(a)), (1 if kind == "multiply" else -1, p.use(b)), (-1, out))
        elif kind in ("root", "cube"):
            terms = {"root": (1, -2), "cube": (3, -1)}[kind]
            p.row((terms[0], p.use(a)), (terms[1], out))
        elif kind == "tanh":
            p.use(a, 0)
        else:  # the carry of a loop that multiplies it by b
            carry, after = ("value", value()), value()
            p.row((1, p.use(a)), (-1, carry))
            p.row((1, p.use(carry[1])), (1, p.use(b)), (-1, ("value", after)))
            p.row((1, p.use(after)), (-1, carry))
            p.row((1, carry), (-1, out))
        known.append(out[1])
    p.use(known[-1], draw(st.sampled_from([0, 0, FREE])))
    return p.problem()


def cheapest(problem: AssignmentProblem, reach: int) -> float:
    """The least cost over all exponents up to `reach`, by trying them all."""
    n, size = len(problem.low), len(problem.low) + len(problem.use_value)
    pins = [*problem.value_pin.tolist(), *problem.use_pin.tolist()]
    order = list(dict.fromkeys([x for row in problem.rows for _, x in row] + list(range(size))))
    place = {x: i for i, x in enumerate(order)}
    ready: list[list] = [[] for _ in order]
    for row in problem.rows:
        ready[max(place[x] for _, x in row)].append(row)
    low, high = (bound.tolist() for bound in problem.intervals())
    owner, weight = [*range(n), *problem.use_value.tolist()], problem.weight()
    exponents, best = [0] * size, math.inf

    def extend(i: int, penalty: float) -> None:
        nonlocal best
        if penalty >= best:
            return
        if i == size:
            found = np.array(exponents)
            best = min(best, evaluate(problem, found[:n], found[n:])[0])
            return
        x = order[i]
        for e in [pins[x]] if pins[x] != FREE else sorted(range(-reach, reach + 1), key=abs):
            exponents[x] = e
            if all(sum(c * exponents[y] for c, y in row) == 0 for row in ready[i]):
                bits = max(low[owner[x]] - e, 0) + max(e - high[owner[x]], 0)
                extend(i + 1, penalty + weight * bits)

    extend(0, 0.0)
    return best


@hypothesis.settings(max_examples=30, deadline=None, derandomize=True)
@hypothesis.given(programs(equations=2))
def test_exact_on_tiny_programs(problem):
    """No other exponents are cheaper, and the bound says so."""
    found = assign(problem)
    assert_valid(problem, found)
    assert found.objective == pytest.approx(cheapest(problem, 4))
    assert found.gap < 1e-6


@hypothesis.settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.filter_too_much],  # five of six have no conflict
)
@hypothesis.given(programs(equations=8, reach=20))
def test_bound_of_conflicts_is_not_above_that_of_the_integer_program(problem):
    """The two ways to a bound know nothing of each other."""
    system = System(problem)
    hypothesis.assume(loosen(system) == 0)
    bounds = Propagation(system)
    for _ in range(4):
        bounds.propagate()
        bounds.choose(greedy(bounds.conflicts, system.cost))
    hypothesis.assume(bounds.conflicts)
    bound = packing(bounds.conflicts, system.cost)
    best = solve(system)
    cost = evaluate(problem, best.values, best.uses)[0] - problem.unavoidable()
    assert bound <= cost * (1 + 1e-6)


def test_the_integer_program_alone_shares_conversions():
    p = Program()
    x = p.input(100.0, cost=7.0)
    p.use(p.divide(p.multiply(x, x), p.multiply(x, x)), 0)
    problem = p.problem()
    best = solve(System(problem))
    assert evaluate(problem, best.values, best.uses)[0] == pytest.approx(7.0)
    assert best.bound == pytest.approx(7.0)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(programs(equations=12, reach=30), st.booleans())
def test_rows_and_pins_hold_also_without_the_integer_program(problem, is_small):
    with pytest.MonkeyPatch.context() as patch:
        if not is_small:
            patch.setattr(_assign, "SMALL", 0)
        assert_valid(problem, assign(problem))


def test_a_program_in_range_keeps_exponent_zero_everywhere():
    p = Program()
    x = p.input(3.0)
    for _ in range(50):
        x = p.root(p.add(p.multiply(x, x), p.constant(2.0)))
    p.use(x, 0)
    found = assign(p.problem())
    assert (found.method, found.objective, found.gap) == ("identity", 0.0, 0.0)
    assert not found.values.any()
    assert not found.uses.any()


def test_a_conversion_is_paid_once_for_all_readings_at_one_exponent():
    p = Program()
    x = p.input(100.0, cost=7.0)
    p.use(p.divide(p.multiply(x, x), p.multiply(x, x)), 0)
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert (found.conversions, found.objective, found.gap) == (1, 7.0, 0.0)


def test_constants_are_converted_for_nothing():
    """A thousand times 1e3, then back: the exponents go along in the constants."""
    p = Program()
    x = p.input(0.0)
    for factor in [10.0] * 1000 + [-10.0] * 1000:
        x = p.multiply(x, p.constant(factor))
    p.use(x, 0)
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert (found.conversions, found.objective, found.violations) == (0, 0.0, 0)
    assert found.method == "presolve"
    assert found.values.max() >= 10_000 - 128


def test_a_value_that_is_read_often_has_a_proven_bound():
    """Each of seven readings asks for an exponent of its own: that is a conversion each but one."""
    p = Program()
    x = p.between(-ANY, ANY, cost=3.0)
    for k in range(7):
        out = p.between(20 * k + 10, 20 * k + 15)
        p.row((1, p.use(x)), (-1, ("value", out)))
    problem = p.problem()
    best = solve(System(problem))
    assert 12.0 - 1e-6 <= best.bound <= 18.0
    found = assign(problem)
    assert_valid(problem, found)
    assert (found.objective, found.violations) == (18.0, 0)


def test_two_far_products_of_an_input_are_two_conversions_of_it_or_of_others():
    p = Program()
    x, huge, tiny = p.input(100.0), p.input(100.0, 50.0), p.input(-250.0, 50.0)
    a, b = p.multiply(x, huge), p.multiply(x, tiny)
    p.use(p.divide(a, p.constant(200.0)), 0)
    p.use(p.divide(b, p.constant(-150.0)), 0)
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert (found.conversions, found.objective) == (2, 2.0)
    assert found.gap < 1e-9


def loop(factor: float) -> Program:
    """`carry = carry * factor * constant`, with a carry too large for exponent 0."""
    p = Program()
    start, x = p.input(10.0), p.input(factor)
    carry = p.value(200.0, cost=100.0)
    p.row((1, p.use(p.multiply(start, p.constant(190.0)))), (-1, ("value", carry)))
    step = p.multiply(carry, x, cost=100.0)
    p.row((1, p.use(step)), (-1, ("value", carry)))
    out = p.value(200.0)
    p.row((1, ("value", carry)), (-1, ("value", out)))
    p.use(p.multiply(out, p.constant(-190.0)), 0)
    return p


def test_a_carry_keeps_its_exponent_around_the_loop():
    problem = loop(0.0).problem()
    found = assign(problem)
    assert_valid(problem, found)
    assert found.objective == 0.0
    assert found.values[2] >= 72


def test_a_loop_that_cannot_keep_its_exponent_converts_the_cheapest_value():
    """A carry that is squared in each turn doubles its exponent: one conversion in the loop."""
    p = Program()
    carry = p.value(200.0, cost=100.0)
    p.row((1, p.use(p.multiply(p.input(10.0), p.constant(190.0)))), (-1, ("value", carry)))
    step = p.between(-10, 425, cost=3.0)
    p.row((1, p.use(carry)), (1, p.use(carry)), (-1, ("value", step)))
    p.row((1, p.use(step)), (-1, ("value", carry)))
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert (found.objective, found.conversions, found.violations) == (3.0, 1, 0)


def test_a_value_that_nothing_can_hold_is_counted_and_the_rest_is_solved():
    p = Program()
    x = p.input(100.0)
    y = p.multiply(x, x)
    p.use(y, 0)  # leaves the program at exponent 0, where it overflows
    p.use(p.multiply(y, p.constant(-200.0)), 0)
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert (found.violations, found.gap) == (1, 0.0)
    assert found.values[y] >= 72


def test_a_product_whose_operands_cannot_reach_it_violates_as_little_as_possible():
    p = Program()
    a, b, out = p.between(-2, 2), p.between(-3, 3), p.between(12, 20)
    p.row((1, p.use(a)), (1, p.use(b)), (-1, ("value", out)))
    problem = p.problem()
    found = assign(problem)
    assert_valid(problem, found)
    assert math.floor(found.objective / problem.weight()) == 7


def steps(count: int, seed: int = 0) -> AssignmentProblem:
    """Steps of a simulation in SI units, out of range every few equations."""
    draw, p = random.Random(seed), Program()
    x, mass = p.input(37.0, 10.0), p.input(draw.uniform(95, 101))
    other = p.input(draw.uniform(95, 101))
    for _ in range(count):
        distance = p.add(x, p.input(draw.uniform(36, 38), 10.0))
        square = p.multiply(distance, distance)
        cube = p.multiply(square, p.root(square))
        force = p.multiply(p.multiply(mass, other), distance)
        change = p.multiply(p.divide(p.divide(force, cube), mass), p.constant(10.0))
        x = p.add(x, change)
        p.size[x] = 37.0
        y = p.multiply(x, p.input(draw.uniform(-100, 100), 10.0))
        p.tanh(p.divide(y, p.input(p.size[y], 10.0)))
    p.use(x, 0)
    return p.problem()


def test_a_large_program_is_proven_best_to_a_percent():
    problem = steps(90)
    assert len(problem.rows) > 1000
    found = assign(problem)
    assert_valid(problem, found)
    assert found.method in ("presolve", "search")
    assert found.gap <= 0.01
    assert found.excess <= 0.01
    assert found.violations == 0


def test_one_number_out_of_range_does_not_make_a_program_a_hostile_one():
    """It is nearly all of the objective, and conversions are the best ones all the same."""
    problem = steps(90)
    low, high = (np.append(b, e) for b, e in ((problem.low, 5), (problem.high, 9)))
    more = {"low": low, "high": high, "cost": np.append(problem.cost, 1.0)}
    n = len(problem.low)
    rows = [tuple((c, x + (x >= n)) for c, x in row) for row in problem.rows]
    problem = problem._replace(
        **more,
        value_pin=np.append(problem.value_pin, FREE),
        use_value=np.append(problem.use_value, n),
        use_pin=np.append(problem.use_pin, 0),
        rows=rows,
    )
    found = assign(problem)
    assert_valid(problem, found)
    assert found.gap <= found.excess <= 0.01
    assert found.violations == 1


def test_covers_meet_every_conflict_and_packings_cost_no_more_than_the_cheapest():
    draw = random.Random(0)
    for _ in range(30):
        cost = [draw.choice([1.0, 2.0, 5.0]) for _ in range(8)]
        conflicts = [frozenset(draw.sample(range(8), draw.randint(1, 4))) for _ in range(6)]
        subsets = ({v for v in range(8) if k >> v & 1} for k in range(2**8))
        covers = {
            sum(cost[v] for v in c): c for c in subsets if all(map(c.intersection, conflicts))
        }
        assert all(map(greedy(conflicts, cost).intersection, conflicts))
        assert packing(conflicts, cost) <= min(covers)


def powers(low: int, high: int, a: int, b: int) -> AssignmentProblem:
    """`a` times the exponent of a value is `b` times that of another, and both are in intervals."""
    p = Program()
    p.row((a, p.use(p.between(low, low + 3))), (-b, ("value", p.between(high - 3, high))))
    return p.problem()


@pytest.mark.parametrize("a", [-3, -2, 1, 2, 3, 12])
@pytest.mark.parametrize("b", [1, 2, 3, 5])
@pytest.mark.parametrize(("low", "high"), [(5, 30), (-40, 9), (20, -4), (-31, -3), (1, 4)])
def test_powers_whose_operand_cannot_reach_them_violate_as_few_bits_as_possible(a, b, low, high):
    problem = powers(low, high, a, b)
    found = assign(problem)
    assert_valid(problem, found)
    pairs = [(b * k // math.gcd(a, b), a * k // math.gcd(a, b)) for k in range(-200, 201)]
    ends = (low, low + 3), (high - 3, high)
    bits = [sum(max(s - e, e - t, 0) for e, (s, t) in zip(p, ends, strict=True)) for p in pairs]
    assert found.objective // problem.weight() == min(bits)
    assert found.gap < 1e-6


def test_a_cell_of_an_unusual_form_out_of_range_keeps_its_rows_and_proves_nothing():
    """No law has such a row: an operand counts twice, and no exponents in range fulfil it."""
    p = Program()
    a, b, out = p.between(-2, 2), p.between(-3, 3), p.between(12, 20)
    p.row((2, p.use(a)), (1, p.use(b)), (-1, ("value", out)))
    found = assign(p.problem())
    assert_valid(p.problem(), found)
    assert found.bound <= 5 * p.problem().weight()


def in_another_time(problem: AssignmentProblem, monkeypatch: pytest.MonkeyPatch) -> Assignment:
    """The answer of a machine whose clocks advance by an hour whenever they are read."""
    hours = itertools.count(0, 3600)
    with monkeypatch.context() as patch:
        for clock in ("perf_counter", "thread_time", "process_time", "monotonic", "time"):
            patch.setattr(time, clock, lambda: float(next(hours)))
        return assign(problem)


@pytest.mark.parametrize(
    ("make", "nodes"),
    [
        (lambda: steps(90), []),
        (lambda: problem_of(*hostile(40, near=20)), [50, 50]),
        (lambda: problem_of(*hostile(40, 3)), [50, 50]),  # HiGHS stops at its last node
    ],
)
def test_the_same_problem_has_the_same_answer_however_slow_the_machine_is(make, nodes, monkeypatch):
    problem, plain, options = make(), optimize.milp, []
    seen = lambda *a, **k: options.append(dict(k["options"])) or plain(*a, **k)
    monkeypatch.setattr(optimize, "milp", seen)
    first, second = assign(problem), in_another_time(problem, monkeypatch)
    assert first.values.tolist() == second.values.tolist()
    assert first.uses.tolist() == second.uses.tolist()
    assert first[2:-1] == second[2:-1]
    assert [o["node_limit"] for o in options] == nodes
    assert not any("time_limit" in o for o in options)


def test_a_conversion_in_a_loop_costs_as_often_as_the_loop_runs():
    body = lambda c, x: (c * x, None)
    f = lambda x: jax.lax.scan(body, x, jnp.ones((10, 3)))[0] * 2.0
    graph = build(jax.make_jaxpr(f)(jnp.ones(3)))
    nothing = [None] * len(graph.values)
    problem = _problem.problem_of(graph, nothing, [False], _problem.DEMANDS[0])
    products = [problem.cost[v.index] for v in graph.values if v.node and v.node.primitive == "mul"]
    assert sorted(products) == [3.0, 30.0]
