"""Where NumPy makes arrays of numbers, as Python tells it: a function, or all of a thread's.

`sys.monitoring` (Python 3.12) reports the calls of a place in the code until it is told that none
of interest happens there, so that a trace takes no longer; `sys.setprofile` reports every call,
which takes four times as long, and is for Python 3.11 and where the first one has no room.

    events = listen(made, left)  # made(frame): `np.asarray` has returned to it
    events.follow(frame)  # left(frame, value) is called when it returns
    events.stop()

Sharp edges. A place where another function was called first is not looked at again: an array that
is made there by `np.asarray` later is one of which nothing is known (`_literals.py`). Threads other
than the one that listens are not heard.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np

MAKERS = (np.asarray, np.array)
_monitoring: Any = getattr(sys, "monitoring", None)
_TOOLS = (3, 4)  # without a name of their own: two that listen at once

Made = Callable[[types.FrameType], None]
Left = Callable[[types.FrameType, object], None]


# What `sys.setprofile` says, and whom it tells.
_Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
_Profiler = Callable[[types.FrameType, _Event, object], object]


class Events(Protocol):
    """The events heard until `stop`."""

    is_deaf: bool  # somebody else's profiler has the place of ours

    def follow(self, frame: types.FrameType) -> None:
        """Hear when this frame returns."""

    def stop(self) -> None: ...


def listen(made: Made, left: Left, *, everything: bool = False) -> Events:
    """Begin to hear of arrays that NumPy makes.

    **Arguments:** `made`: called with each frame that has called `np.asarray` or `np.array`;
    `left`: with frames that are followed when they return, and what they return; `everything`: all
    returns, and places that were of no interest before.
    """
    tool = None if everything else _free_tool()
    return _Profile(made, left, everything) if tool is None else _Monitor(tool, made, left)


def _free_tool() -> int | None:
    free = (tool for tool in _TOOLS if _monitoring and _monitoring.get_tool(tool) is None)
    return next(free, None)


class _Monitor:
    """By `sys.monitoring`: only calls of NumPy, and returns of the functions that made them."""

    is_deaf = False

    def __init__(self, tool: int, made: Made, left: Left) -> None:
        self._tool, self._made, self._left = tool, made, left
        self._thread, self._followed = threading.get_ident(), dict[int, types.CodeType]()
        monitoring = _monitoring
        events = monitoring.events
        monitoring.use_tool_id(tool, "tanjax")
        monitoring.register_callback(tool, events.CALL, self._called)
        monitoring.register_callback(tool, events.C_RETURN, self._returned)
        monitoring.register_callback(tool, events.PY_RETURN, self._ended)
        monitoring.set_events(tool, events.CALL | events.C_RETURN | events.C_RAISE)

    def _called(
        self, code: types.CodeType, place: int, function: object, argument: object
    ) -> object:
        return None if function in MAKERS else _monitoring.DISABLE

    def _returned(
        self, code: types.CodeType, place: int, function: object, argument: object
    ) -> None:
        if function in MAKERS and threading.get_ident() == self._thread:
            self._made(sys._getframe(1))

    def _ended(self, code: types.CodeType, place: int, value: object) -> None:
        if threading.get_ident() == self._thread:
            self._left(sys._getframe(1), value)

    def follow(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if id(code) not in self._followed:
            self._followed[id(code)] = code
            _monitoring.set_local_events(self._tool, code, _monitoring.events.PY_RETURN)

    def stop(self) -> None:
        monitoring, tool = _monitoring, self._tool
        monitoring.set_events(tool, 0)
        for code in self._followed.values():
            monitoring.set_local_events(tool, code, 0)
        events = monitoring.events
        for event in (events.CALL, events.C_RETURN, events.PY_RETURN):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


class _Profile:
    """By `sys.setprofile`, which is called for every call and every return."""

    def __init__(self, made: Made, left: Left, everything: bool) -> None:
        self._followed: set[int] = set()
        self._other = sys.getprofile()  # somebody's profiler, which goes on
        self.is_deaf = not (self._other is None or callable(self._other))
        if not self.is_deaf:
            sys.setprofile(self._profiler(made, left, everything))

    def _profiler(self, made: Made, left: Left, everything: bool) -> _Profiler:
        """A closure, which compares by `is`, and asks for what is frequent first."""
        followed, other = self._followed, self._other
        asarray, array = MAKERS

        def profile(frame: types.FrameType, event: _Event, arg: object) -> None:
            if other is not None:
                other(frame, event, arg)
            if event == "c_return":
                if arg is asarray or arg is array:
                    made(frame)
            elif event == "return" and (everything or id(frame) in followed):
                followed.discard(id(frame))
                left(frame, arg)

        return profile

    def follow(self, frame: types.FrameType) -> None:
        self._followed.add(id(frame))

    def stop(self) -> None:
        if not self.is_deaf:
            sys.setprofile(self._other)
