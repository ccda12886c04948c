"""A progress bar on a terminal, for the seconds that planning a large graph takes.

    with progress(len(nodes), "planning step") as advance:
        for node in nodes:
            ...
            advance(1)

There is no bar for a small graph, which is planned too fast, nor in a log file or a notebook. Then
`advance` does nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import IO

# Planning takes about 0.1 ms for each equation: half a second for this number.
LARGE = 5000


@contextlib.contextmanager
def progress(
    total: int, what: str, *, file: IO[str] | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a bar of `total` steps on `file` (stderr) until the end; yield `advance(steps)`."""
    stream = sys.stderr if file is None else file
    if total < LARGE or not stream.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
