"""Cases: calls of an operation beside its rules, and their collection from packages.

A module of a rule pack ends with a generator `cases()` of `Case`s. An array type has `examples`, or
its module has a generator `arrays()` of instances. `checks_of` collects both from a package. It
adds a check of coverage: some case must run every implementation and rule of the package, and every
array type must have an instance. Questions about a rule alone, such as its composition with
`jax.checkpoint`, are checked for one case of the rule: the report names the skipped stages.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays, registry
from tanjax._errors import CheckFailure, message
from tanjax.mutation import InPlace

from ._array_type import check_array_type
from ._inplace import check_inplace
from ._operation import check_operation, type_name
from ._record import CheckResult, Recorder
from ._samples import examples_of
from ._variety import narrow_cases


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Case:
    """A call to check: `Case(tj.solve, tj.Diagonal(d), b)`. Keywords are static arguments.

    For an in-place function (`tj.inplace`) the arguments are the arrays in its Refs before the
    call; `operation` is its transition.
    """

    operation: registry.Operation
    inplace: InPlace | None
    args: tuple[PyTree, ...]
    static: dict[str, PyTree]
    options: dict[str, PyTree]

    def __init__(
        self, operation: registry.Operation | InPlace, *args: PyTree, **static: PyTree
    ) -> None:
        inplace = operation if isinstance(operation, InPlace) else None
        object.__setattr__(self, "operation", inplace.transition if inplace else operation)
        object.__setattr__(self, "inplace", inplace)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "static", static)
        object.__setattr__(self, "options", {})

    def declare(self, **options: PyTree) -> Case:
        """Return the same case with options of its check (`zero`, `skip`, `generic`, …)."""
        new = Case(self.inplace or self.operation, *self.args, **self.static)
        object.__setattr__(new, "options", {**self.options, **options})
        return new

    @property
    def name(self) -> str:
        """The operation and the types of its arguments."""
        static = [f"{k}={v}" for k, v in self.static.items()]
        return f"{self.operation.name}({', '.join([*map(_type_and_shape, self.args), *static])})"

    def __str__(self) -> str:
        return self.name

    def check(self) -> CheckResult:
        """Run `check_operation`, or `check_inplace` for an in-place function."""
        if self.inplace is not None:
            return check_inplace(self.inplace, *self.args, **self.options, **self.static)
        return check_operation(self.operation, *self.args, **self.options, **self.static)


def _type_and_shape(x: PyTree) -> str:
    shape = "x".join(map(str, getattr(x, "shape", ())))
    return f"{type_name(x)}[{shape}]" if shape else type_name(x)


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of a package: a case, an array, or coverage."""

    package: str
    name: str
    function: Callable[[], CheckResult]
    place: int = 0  # its index in the checks of its package

    def run(self) -> CheckResult:
        """Run it in double precision; raises `CheckFailure`.

        Dtypes promote as by default, and not as the test session sets: a case may mix real and
        complex operands.
        """
        standard = jax.numpy_dtype_promotion("standard")
        with jax.enable_x64(True), standard, arrays.densify("allow"):
            return self.function()


def modules_of(package: str | ModuleType) -> list[ModuleType]:
    """Return a package and all its modules, imported."""
    registry.packs()  # first: rules register through the loader, which records their origin
    root = importlib.import_module(package) if isinstance(package, str) else package
    if not hasattr(root, "__path__"):
        return [root]
    found = pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
    names = [m.name for m in found if not m.name.endswith("__main__")]
    return [root, *filter(None, map(_imported, names))]


def _imported(name: str) -> ModuleType | None:
    """Return a module; `None` for a bridge to a library that is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if "is not installed" in str(error) and ".bridges." in name:
            return None
        raise


def cases_of(package: str | ModuleType) -> list[Case]:
    """Return the cases of all `cases()` generators in a package, in the order of its modules."""
    with jax.enable_x64(True):
        return [c for m in modules_of(package) for c in _yielded(m, "cases")]


def _yielded(module: ModuleType, name: str) -> Iterator[PyTree]:
    generator = vars(module).get(name)
    if callable(generator) and getattr(generator, "__module__", "") == module.__name__:
        yield from generator()


def checks_of(package: str | ModuleType) -> list[Check]:
    """Return all checks of a package.

    **Raises:** `CheckFailure` if there is nothing: neither cases nor array types.
    """
    return [dataclasses.replace(c, place=k) for k, c in enumerate(_checks_of(package))]


def _checks_of(package: str | ModuleType) -> list[Check]:
    if isinstance(package, str) and package == "tanjax":
        with jax.enable_x64(True):
            found = [x for t in arrays.registered_array_types() for x in examples_of(t)]
        return [_array_check(package, x) for x in found]
    name = package if isinstance(package, str) else package.__name__
    modules = modules_of(package)
    cases = cases_of(package)
    types = [t for t in arrays.registered_array_types() if _inside(t.__module__, name)]
    with jax.enable_x64(True):
        instances = [x for m in modules for x in _yielded(m, "arrays")]
        instances += [x for t in types for x in examples_of(t)]
    checks = [Check(name, c.name, c.check) for c in _asked_once(cases)]
    checks += [_array_check(name, x) for x in instances]
    if not checks and not types:
        raise CheckFailure(
            message(
                f"{name} has no cases: nothing would be checked.",
                hint="end a module with a generator `cases()` that yields `tj.testing.Case`s.",
            )
        )
    checks.append(Check(name, "coverage of rules", lambda: check_coverage(name, cases)))
    if types:
        seen = {type(x) for x in instances}
        checks.append(Check(name, "coverage of types", lambda: _check_types(name, types, seen)))
    return checks


# Stages that depend on an implementation and its rule, and not on the numbers of a case.
_OF_THE_RULE = (
    *("hessian", "vmap", "one argument", "checkpoint", "scan", "public lowering", "variants"),
)


def _asked_once(cases: list[Case]) -> Iterator[Case]:
    """Yield the cases; stages of the rule run for its first real and its first complex case."""
    seen = set()
    for case in cases:
        try:
            found = case.operation.resolve(case.args, case.static)
        except (TypeError, ValueError, NotImplementedError):  # the check itself reports it
            yield case
            continue
        parts = (found.implementation, found.rule, found.push)
        is_complex = any(map(jnp.iscomplexobj, jax.tree.leaves(case.args)))
        key = (case.operation, *(p and p.function for p in parts), is_complex)
        if key in seen and case.inplace is None:
            case = case.declare(skip=(*case.options.get("skip", ()), *_OF_THE_RULE))
        seen.add(key)
        yield case


def _array_check(package: str, x: PyTree) -> Check:
    return Check(package, f"{_type_and_shape(x)} (array type)", lambda: check_array_type(x))


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def check_coverage(package: str, cases: list[Case]) -> CheckResult:
    """Check that some case runs every implementation and rule that a package registers."""
    recorder = Recorder(f"{package}: coverage of rules")
    run: set[int] = set()
    for case in cases:
        resolution = case.operation.resolve(case.args, case.static)
        used = [resolution.implementation, resolution.rule, resolution.push]
        run |= {id(entry.function) for entry in used if entry is not None}
    missing, covered = [], 0
    for op in registry.operations():
        if _gives_an_object(op):
            continue
        for table in (op.implementations, op.rules, op.pushforwards):
            for row in table.rows.values():
                if not _inside(row.entry.function.__module__, package):
                    continue
                covered += 1
                if id(row.entry.function) not in run:
                    signature = ", ".join(c.__name__ for c in row.signature)
                    missing.append(f"{op.name}({signature}): {row.origin}")
    if missing:
        raise recorder.fail(
            "coverage", f"no case runs {len(missing)} of the registered functions.", *missing,
            hint="add a case on these types.",
        )  # fmt: skip
    recorder.result.notes.append(f"{covered} functions are run")
    recorder.result.warnings += narrow_cases(cases)
    return recorder.finish()


def _gives_an_object(op: registry.Operation) -> bool:
    """True if the result is no array but an object with methods, as of `tj.factorize`.

    Its result cannot be compared; cases of the operations that use the object do that.
    """
    result = inspect.signature(inspect.unwrap(op)).return_annotation
    if isinstance(result, str):
        result = getattr(inspect.unwrap(op), "__globals__", {}).get(result)
    is_class = inspect.isclass(result) and dataclasses.is_dataclass(result)
    return is_class and not issubclass(result, arrays.AbstractArray)


def _check_types(package: str, types: list[type], seen: set[type]) -> CheckResult:
    recorder = Recorder(f"{package}: coverage of types")
    for kind in types:
        recorder.holds(
            "coverage", f"no instance of {kind.__name__} is checked.", kind in seen,
            hint="give it `examples`, or yield one from a generator `arrays()` in its module.",
        )  # fmt: skip
    return recorder.finish()
