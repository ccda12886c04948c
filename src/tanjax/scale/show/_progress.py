"""A bar for the seconds that planning a large graph takes, where somebody looks.

    with progress(len(nodes), "planning step") as advance:
        for node in nodes:
            ...
            advance(1)

A small graph is planned before a bar could be read, and a log file or a notebook's output is no
place for one: then `advance` does nothing, and costs nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import IO

# Planning takes about 0.1 ms for each equation: below this number less than half a second.
LARGE = 5000


@contextlib.contextmanager
def progress(
    total: int, what: str, *, file: IO[str] | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar of `total` steps on `file` (stderr), taken away at the end; yields `advance(steps)`."""
    stream = sys.stderr if file is None else file
    if total < LARGE or not stream.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
