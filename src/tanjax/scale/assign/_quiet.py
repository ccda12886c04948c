"""Silence for HiGHS, which prints a line that none of its options turns off.

In rare solves it calls `printf` while it repairs a solution (HiGHS.jl, issue 312). C's `printf`
writes to whatever the variable `stdout` of the C library points to; while HiGHS runs, that is the
null device. Python's own output does not pass through that variable, and the file descriptors stay
as they are: what other threads print and what subprocesses inherit is not touched.

    with quiet():
        result = scipy.optimize.milp(...)

Sharp edges: what C code of *other* threads prints meanwhile is lost, too. Where the C library has
no such variable under a name that is known here (Windows), nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

NAMES = "stdout", "__stdoutp"  # of Linux's C libraries, and of macOS's
_lock = threading.Lock()
_running = 0  # solves that run now, in any thread
_usual: int | None = None


class _Stream(NamedTuple):
    """The variable `stdout` of the C library, and a stream to the null device."""

    variable: ctypes.c_void_p
    nowhere: int


@functools.cache
def _stream() -> _Stream | None:
    if os.name != "posix":
        return None
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    nowhere = library.fopen(os.devnull.encode(), b"w")
    for name in NAMES if nowhere else ():
        with contextlib.suppress(ValueError):
            return _Stream(ctypes.c_void_p.in_dll(library, name), nowhere)
    return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let `printf` print nothing here; solves of several threads may overlap."""
    global _running, _usual
    stream = _stream()
    if stream is None:
        yield
        return
    with _lock:
        if _running == 0:
            _usual, stream.variable.value = stream.variable.value, stream.nowhere
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                stream.variable.value = _usual
