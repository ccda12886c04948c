"""Signatures say what a function takes and gives, and say the truth.

Two questions. Does every public function, array type and rule say it? A walk over the face and the
tables of the rules answers. Is it true? `checked_signatures.py` runs all rules in a process of its
own where jaxtyping and beartype check every call; planted lies must be reported there.
"""

import dataclasses
import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path

import jax
import jaxtyping
import numpy as np
import pytest

import tanjax as tj

CHECKED = Path(__file__).parents[1] / "support" / "checked_signatures.py"
# What has no words for what it takes, and why.
UNSAID = {
    "static_field": "the value of a field may be anything that hashes",
    "array_field": "so may that of an array, whose default is an argument of `dataclasses.field`",
    "jit": "its own options and those of `jax.jit`",
}
# What has words although it is no array: options, powers, functions that a rule is handed.
PLAIN = (
    *(bool, str, int, float, float | None),
    *(tj.typing.Axis, tj.typing.Function, tj.linalg.Factorization, tj.rules.Algorithm),
    # Of a rule in place: the state has the shapes of the arguments that are mutated.
    tuple[tj.refs.Transition, tj.typing.Function],
)
# Parameters whose names say that no array is meant: options of JAX, handed through.
OPTIONS = ("in_axes", "out_axes", "options", "kwargs")


def arrays_in(hint: object) -> list[type]:
    """The arrays of jaxtyping in an annotation, however deep."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return [hint]
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return [a for h in typing.get_type_hints(hint).values() for a in arrays_in(h)]
    return [a for part in typing.get_args(hint) for a in arrays_in(part)]


def says_nothing(hint: object) -> bool:
    """Whether an annotation leaves open what is meant: none, `Any`, or an array without a shape."""
    if hint in (inspect.Parameter.empty, typing.Any):
        return True
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return False
    if isinstance(hint, type) and issubclass(hint, jax.Array | np.ndarray | tj.AbstractArray):
        return not issubclass(hint, tj.Quantity)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(says_nothing, typing.get_args(hint)))
    return False


def hints_of(function: object) -> dict[str, object]:
    """The annotations of all parameters and of the result."""
    function = inspect.unwrap(function)
    hints = typing.get_type_hints(function)
    signature = inspect.signature(function)
    names = [n for n in signature.parameters if n not in ("self", "cls", *OPTIONS)]
    return {n: hints.get(n, inspect.Parameter.empty) for n in (*names, "return")}


def unsaid(where: str, function: object, shapes: bool = False) -> list[str]:
    """Report parameters without words; `shapes`: also those that are no arrays with a shape."""
    faults = []
    for name, hint in hints_of(function).items():
        plain = hint in PLAIN
        if says_nothing(hint) or (shapes and not plain and not arrays_in(hint)):
            faults.append(f"{where}: `{name}` is {hint}")
    return faults


def unsaid_of_class(kind: type) -> list[str]:
    """Report the methods of a class, and the fields of an array type, without words."""
    faults = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        public = name in ("__init__", "__call__") or not name.startswith("_")
        own = inspect.isfunction(function) and function.__module__ == kind.__module__
        if public and own and function.__name__ != "<lambda>":
            faults += unsaid(f"{kind.__name__}.{name}", function)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            stored = not (field.metadata.get("static") or field.name.startswith("_"))
            if stored and says_nothing(hints[field.name]):
                faults.append(f"{kind.__name__}: field `{field.name}` is {hints[field.name]}")
    return faults


def unsaid_of(name: str, member: object) -> list[str]:
    if isinstance(member, tj.rules.Operation):
        return unsaid(name, member.__wrapped__, shapes=True)
    if inspect.isclass(member):
        return [] if issubclass(member, Exception) else unsaid_of_class(member)
    return unsaid(name, member) if inspect.isfunction(member) else []


def face() -> list[str]:
    return [n for n in vars(tj) if not n.startswith("_") and callable(getattr(tj, n))]


@pytest.mark.parametrize("name", [n for n in face() if n not in UNSAID])
def test_a_public_name_says_what_it_takes(name):
    assert unsaid_of(name, getattr(tj, name)) == []


def test_exceptions_are_needed():
    """An exception that is none any more is struck out."""
    assert [n for n in UNSAID if not unsaid_of(n, getattr(tj, n))] == []


def registered() -> list[tuple[str, object]]:
    tj.rules.packs()
    rows = [
        (f"{op.name}: {row.entry.function.__qualname__}", row.entry.function)
        for op in tj.rules.operations()
        for table in (op.implementations, op.rules, op.pushforwards)
        for row in table.rows.values()
    ]
    return [(name, f) for name, f in rows if inspect.unwrap(f).__module__.startswith("tanjax")]


def test_every_rule_says_its_shapes():
    functions = registered()
    assert len(functions) > 120, "the rules were not found"
    faults = [fault for name, f in functions for fault in unsaid(name, f, shapes=True)]
    assert not faults, "\n" + "\n".join(faults)


def test_a_signature_without_words_is_reported():
    """Planted: what the walk must not let pass."""

    def bare(a, b: typing.Any, c: jax.Array, d: tj.Diagonal | None = None) -> jax.Array: ...
    def said(a: jaxtyping.Shaped[tj.Diagonal, "n n"]) -> jaxtyping.Shaped[jax.Array, " n"]: ...
    def halfway(a: jaxtyping.PyTree) -> tj.typing.Matrix: ...

    assert len(unsaid("bare", bare)) == 5
    assert unsaid("said", said, shapes=True) == []
    assert len(unsaid("halfway", halfway, shapes=True)) == 1


# -- is it true? --------------------------------------------------------------------------------

PLANTED = """
from jax import Array
from jaxtyping import Float, Shaped
import jax.numpy as jnp
import tanjax as tj
from tanjax.testing import Case, Samples
from tanjax.typing import AnyArray, Pullback

@tj.operation(dense=True)
def wrong_result(a: Shaped[AnyArray, "m n"]) -> Shaped[AnyArray, "m n"]:
    return a.T

@tj.operation(dense=True)
def wrong_argument(a: Shaped[AnyArray, "n n"]) -> Shaped[AnyArray, ""]:
    return jnp.sum(a)

@tj.operation(dense=True)
def wrong_dtype(a: Shaped[AnyArray, "m n"]) -> Float[AnyArray, "m n"]:
    return a * 1j

@tj.operation(dense=True)
def wrong_pullback(a: Shaped[AnyArray, "m n"]) -> Shaped[AnyArray, ""]:
    return jnp.sum(a)

@wrong_pullback.natural_rule
def rule(a: Shaped[AnyArray, "m n"]) -> tuple[Shaped[AnyArray, ""], Pullback]:
    def pullback(y_bar: Shaped[AnyArray, ""]) -> Shaped[Array, " n"]:
        return y_bar * jnp.ones(a.shape)
    return wrong_pullback.primal(a), pullback

@tj.operation(dense=True)
def wrong_class(a: Shaped[AnyArray, "n n"]) -> Shaped[AnyArray, "n n"]:
    return a

@wrong_class.implementation(tj.Symmetric, differentiate=True)
def implementation(a: Shaped[tj.Diagonal, "n n"]) -> Shaped[tj.Diagonal, "n n"]:
    return a

@tj.register_array_type(linear=True)
class WrongField(tj.AbstractArray):
    entries: Shaped[Array, "n n"]

    def to_dense(self) -> Shaped[Array, " n"]:
        return self.entries

    @classmethod
    def examples(cls, samples: Samples) -> list[tj.AbstractArray]:
        return [object.__new__(cls).replace(entries=samples.normal(2))]

    def total(self) -> Shaped[Array, "2"]:
        return jnp.sum(self.entries)

def cases():
    s = Samples(0)
    for op in (wrong_result, wrong_argument, wrong_dtype, wrong_pullback):
        yield Case(op, s.normal(2, 3))
    yield Case(wrong_class, tj.Symmetric(s.normal(2, 2)))
    yield Case(tj.linalg.add, tj.Diagonal(s.normal(2)), tj.Diagonal(s.normal(2)))  # as annotated
"""
LIES = ("wrong_result", "wrong_argument", "wrong_dtype", "wrong_pullback", "wrong_class")


@pytest.mark.slow
@pytest.mark.processes
def test_every_call_is_as_annotated_and_planted_lies_are_reported(tmp_path):
    """All rules, types and families in a process with the checks on; each lie, and nothing else."""
    (tmp_path / "planted_lies.py").write_text(PLANTED)
    command = [sys.executable, str(CHECKED), "planted_lies"]
    paths = [str(tmp_path), *sys.path]
    program = f"import sys; sys.path[:] = {paths!r}; sys.argv = {command[1:]!r}\n"
    program += f"import runpy; runpy.run_path({str(CHECKED)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    reported = [line for line in done.stdout.splitlines() if ": TypeCheckError" in line]
    said = "\n".join(reported) + done.stderr[-2000:]
    for lie in LIES:
        assert any(line.startswith(f"{lie}(") for line in reported), f"{lie} passed\n{said}"
    assert any(line.startswith("WrongField") for line in reported), said
    assert done.stdout.splitlines()[-1].endswith(f" {len(LIES) + 1} not as annotated"), said
    assert done.returncode == len(LIES) + 1
