"""PyTorch on our arrays against plain torch, JAX and torchax: operations, models, compiled steps.

    python benchmarks/bench_torch.py [--quick] [--check] [--write PAGE]

Contenders run in turn in one process; steps in a process of their own, with one thread. Ratios are
medians of ratios within rounds; times are the best of the rounds. Torchax runs last, if installed:
after its import torch's compiler no longer runs.
"""

from __future__ import annotations

import os

# JAX hands a product to its threads. A single thread falls asleep between eager operations, and
# waking it takes as long as the operation. So only compiled steps use one thread.
os.environ.setdefault("STEP_THREADS", os.environ.get("NPROC", "1"))
os.environ.setdefault("NPROC", str(os.cpu_count()))

import one_thread  # noqa: F401  # isort: skip

import argparse
import copy
import dataclasses
import functools
import gc
import pathlib
import pickle
import platform
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch_peers as peers
from rich.console import Console
from rich.table import Table
from timing import Times, interleave

import tanjax as tj
from tanjax.bridges import torch as tjt

HERE = pathlib.Path(__file__).parent
OURS, PLAIN, FORWARD = "tanjax", "torch", "forward"
JIT, EXPORTED, COMPILED = "jax.jit", "as_jax, jax.jit", "torch.compile, tjt.backend"
METHOD = """\
Times are the best of calls in turn in one process. Ratios are medians of ratios within a round.

* A step is a loss and the gradients of all parameters, and keeps none from the step before. It ends
  when they are computed. Eager operations of JAX, and ours, return earlier.
* `as_jax, jax.jit` is the function that `tjt.as_jax` makes of the module, under `jax.jit`.
* `torch.compile, tjt.backend` runs on plain torch tensors and fills their `.grad`. It pays torch's
  own guards and autograd. The small model shows this cost and the large one hides it, so only the
  large one has a budget.
* With two threads (`NPROC=2`), arithmetic takes less time, and torch's part as long as before. A
  step of the large model then took 1.0 to 1.3 times `jax.jit`.
"""
OVER = """\
`torch.compile` runs a step as two programs, forward and backward, which torch's autograd joins. The
two together compute for as long as the one of `jax.jit`. Dynamo, autograd and the handing over of
tensors take the rest.
"""
Calls = dict[str, Callable[[], Any]]


@dataclasses.dataclass
class Row:
    """The contenders of one task; `most` is the budget of ours, in microseconds or as a ratio."""

    name: str
    times: Times
    base: str
    ours: str = OURS
    most_us: float = 0.0
    most_ratio: float = 0.0
    shown: tuple[str, ...] = ()  # all by default

    def over(self) -> str:
        """Return a text on an exceeded budget; empty if no budget is exceeded."""
        if self.ours not in self.times.rounds:
            return ""
        us = min(self.times.rounds[self.ours]) * 1e6
        ratio = min(
            self.times.ratio(self.ours, self.base), self.times.ratio_of_minima(self.ours, self.base)
        )
        if 0 < self.most_us < us:
            return f"{self.name}: {us:.1f} us, budget {self.most_us:g}"
        if 0 < self.most_ratio < ratio:
            return f"{self.name}: {ratio:.2f} × {self.base}, budget {self.most_ratio:g}"
        return ""

    def lines(self) -> Iterator[list[str]]:
        """Yield a line for each contender."""
        for name, rounds in self.times.rounds.items():
            if self.shown and name not in self.shown:
                continue
            budget = ""
            if name == self.ours and self.most_us:
                budget = f"≤ {self.most_us:,g} us"
            if name == self.ours and self.most_ratio:
                budget = f"≤ {self.most_ratio:g} ×"
            ratio = f"{self.times.ratio(name, self.base):.2f}"
            yield [self.name, name, f"{min(rounds) * 1e6:,.1f}", ratio, budget]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budget = tomllib.loads((HERE / "budgets.toml").read_text())["torch"]
    if options.rows:
        options.rows.write_bytes(pickle.dumps(with_torchax([steps], options, budget)[0]))
        return 0
    (single, whole), said = with_torchax([operations, models], options, budget)
    groups = {
        "Eager: an operation on 16×16 numbers": single,
        f"Eager: an MLP of {_sizes(peers.SMALL)}": whole,
        "Compiled: loss and gradients of an MLP": _confined(),
    }
    kept = conversions()
    console = Console(width=120)
    for title, found in groups.items():
        table = Table("what", "who", "time, us", f"× {found[0].base}", "budget", title=title)
        for row in found:
            for line in row.lines():
                table.add_row(*line)
            table.add_section()
        console.print(table)
    console.print(f"{said}\nlive objects more after 1,000 conversions each way: {kept}")
    over = [row.over() for found in groups.values() for row in found if row.over()]
    if kept > budget["live_objects"]:
        over.append(
            f"{kept} objects are kept by 1,000 conversions, budget {budget['live_objects']}"
        )
    for line in over:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        options.write.write_text(page(groups, said, kept, over), encoding="utf-8")
    return int(options.check and bool(over))


def with_torchax(
    measured: list[Any], options: argparse.Namespace, budget: dict[str, float]
) -> tuple[list[list[Row]], str]:
    """Return the rows of some groups, with torchax's, and a remark on it."""
    groups = [list(rows(options, budget)) for rows in measured]
    torchax, said = peers.torchax()
    for rows, found in zip(measured, groups, strict=True):
        order = list(dict.fromkeys(row.name for row in found))
        found += TORCHAX[rows](torchax, options) if torchax else ()
        found.sort(key=lambda row: order.index(row.name))
    return groups, said


def _confined() -> list[Row]:
    """Return the rows of `steps`, from a process with one thread or `NPROC` threads."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows"
        command = [sys.executable, __file__, *sys.argv[1:], "--rows", str(path)]
        subprocess.run(command, env={**os.environ, "NPROC": os.environ["STEP_THREADS"]}, check=True)
        (rows,) = pickle.loads(path.read_bytes())
    return list(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    parser.add_argument("--rows", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = 5 if options.quick else 25
    return options


OPERATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "add": (lambda x: x + x, lambda x: x + x),
    "mm": (lambda x: x @ x, lambda x: x @ x),
    "sin": (torch.sin, jnp.sin),
}


def operations(options: argparse.Namespace, budget: dict[str, float]) -> Iterator[Row]:
    """Measure single operations without a gradient."""
    plain = torch.randn(16, 16)
    array = jnp.asarray(plain.numpy())
    ours = tjt.from_jax(array)
    for name, (f, g) in OPERATIONS.items():
        calls: Calls = {
            PLAIN: functools.partial(f, plain),
            "JAX": functools.partial(g, array),
            OURS: functools.partial(f, ours),
        }
        times = interleave(calls, options.rounds)
        yield Row(name, times, "JAX", most_us=budget["operation_us"])


def models(options: argparse.Namespace, budget: dict[str, float]) -> Iterator[Row]:
    """Measure a small model, operation by operation: the cost of Python."""
    model, x = peers.mlp(peers.SMALL[1]), peers.rows(peers.SMALL)
    ours, mine = tjt.convert(copy.deepcopy(model)), tjt.from_torch(x)
    forward: Calls = {PLAIN: lambda: model(x), OURS: lambda: ours(mine)}
    yield Row(FORWARD, interleave(forward, options.rounds), PLAIN)
    both: Calls = {PLAIN: peers.backward(model, x), OURS: peers.backward(ours, mine)}
    times = interleave(both, options.rounds)
    yield Row("forward and backward", times, PLAIN, most_us=budget["model_us"])


def steps(options: argparse.Namespace, budget: dict[str, float]) -> Iterator[Row]:
    """Measure compiled loss and gradients; the base is the same model in JAX under `jax.jit`."""
    for size in (peers.SMALL, peers.LARGE):
        model, x = peers.mlp(size[1]), peers.rows(size)
        by_us = functools.partial(torch.compile, backend=tjt.backend)
        calls = {
            JIT: _jax_step(model, x, peers.jax_mlp),
            EXPORTED: _jax_step(model, x, None),
            COMPILED: peers.backward(copy.deepcopy(model), x, by_us),
            "torch eager": peers.backward(model, x),
        }
        times = interleave(calls | _inductor(model, x), options.rounds, 20e-3)
        most = budget["step_ratio"] if size is peers.LARGE else 0.0
        names = (*calls, "torch.compile, inductor")
        yield Row(_sizes(size), times, JIT, EXPORTED, 0, most, names[:2])
        yield Row(_sizes(size), times, JIT, COMPILED, 0, most, names[2:])


def _jax_step(model: torch.nn.Module, x: torch.Tensor, f: Any) -> Callable[[], Any]:
    """Return value and gradients under `jax.jit`, of a function or of the model by `as_jax`."""
    params, exported = tjt.as_jax(tjt.convert(copy.deepcopy(model)))
    f, given = f or exported, jnp.asarray(x.numpy())
    step = jax.jit(jax.value_and_grad(lambda p, x: peers.loss_of(f(p, x))))
    return lambda: jax.block_until_ready(step(params, given))


def _inductor(model: torch.nn.Module, x: torch.Tensor) -> Calls:
    """Return torch's own compiler, if it finds a compiler for C++."""
    step = peers.backward(copy.deepcopy(model), x, torch.compile)
    try:
        step()
    except Exception as error:
        print(f"torch.compile by inductor does not run here: {type(error).__name__}")
        return {}
    return {"torch.compile, inductor": step}


def torchax_operations(torchax: Any, options: argparse.Namespace) -> Iterator[Row]:
    """Measure torchax at single operations."""
    plain = torch.randn(16, 16)
    with torchax.default_env():
        theirs = plain.to("jax")
    array = jnp.asarray(plain.numpy())
    for name, (f, g) in OPERATIONS.items():
        calls = {
            "JAX": functools.partial(g, array),
            "torchax": functools.partial(_inside, torchax, functools.partial(f, theirs)),
        }
        yield Row(name, interleave(calls, options.rounds), "JAX", shown=("torchax",))


def torchax_models(torchax: Any, options: argparse.Namespace) -> Iterator[Row]:
    """Measure torchax at a small model; its `backward` does not reach a layer."""
    model, x = peers.mlp(peers.SMALL[1]), peers.rows(peers.SMALL)
    with torchax.default_env():
        other, given = copy.deepcopy(model).to("jax"), x.to("jax")
    calls = {
        PLAIN: lambda: model(x),
        "torchax": functools.partial(_inside, torchax, lambda: other(given)),
    }
    yield Row(FORWARD, interleave(calls, options.rounds), PLAIN, shown=("torchax",))


def torchax_steps(torchax: Any, options: argparse.Namespace) -> Iterator[Row]:
    """Measure torchax at compiled steps."""
    for size in (peers.SMALL, peers.LARGE):
        model, x = peers.mlp(size[1]), peers.rows(size)
        step = functools.partial(_inside, torchax, peers.torchax_step(torchax, model, x))
        calls = {JIT: _jax_step(model, x, peers.jax_mlp), "torchax, jax_jit": step}
        times = interleave(calls, options.rounds, 20e-3)
        yield Row(_sizes(size), times, JIT, shown=("torchax, jax_jit",))


TORCHAX = {operations: torchax_operations, models: torchax_models, steps: torchax_steps}


def _inside(torchax: Any, call: Callable[[], Any]) -> Any:
    """Return a call within torchax's modes, which it requires."""
    with torchax.default_env():
        return call()


def conversions(count: int = 1000) -> int:
    """Count the objects that stay alive after dropped conversions both ways."""

    def convert() -> None:
        t = tjt.from_torch(torch.ones(4, 4))
        tjt.to_torch(t)
        tjt.from_jax(tjt.to_jax(t + 1.0))

    for _ in range(10):
        convert()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(count):
        convert()
    gc.collect()
    return max(0, len(gc.get_objects()) - before)


def _sizes(size: tuple[int, tuple[int, ...]]) -> str:
    return f"{' → '.join(map(str, size[1]))}, {size[0]} rows"


def page(groups: dict[str, list[Row]], said: str, kept: int, over: list[str]) -> str:
    """Return the page of the documentation."""
    lines = [
        "# Benchmarks of PyTorch",
        "",
        "This page is for readers who run PyTorch on tanjax. It compares operations, models and "
        "compiled steps with torch, JAX and torchax.",
        "",
        "Written by `python benchmarks/bench_torch.py --write docs/pages/benchmarks_torch.md`.",
        f"tanjax {tj.__version__}, JAX {jax.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}. "
        f"Steps run on {os.environ['STEP_THREADS']} thread of a CPU. {said}",
        "",
        METHOD,
        "",
    ]
    for title, found in groups.items():
        lines += [f"## {title}", "", f"| what | who | time, us | × {found[0].base} | budget |"]
        lines.append("| --- | --- | ---: | ---: | ---: |")
        lines += ["| " + " | ".join(line) + " |" for row in found for line in row.lines()]
        lines.append("")
    lines += [
        "## What is kept",
        "",
        f"1,000 conversions each way, with dropped results, leave {kept} more objects alive.",
        "",
    ]
    lines += ["## Over budget", "", *([f"* {line}" for line in over] or ["Nothing."]), ""]
    if over:
        lines += [OVER, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # peers warn about themselves
    sys.exit(main())
