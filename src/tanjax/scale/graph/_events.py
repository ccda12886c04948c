"""Events of Python that show where NumPy makes arrays: in one function, or in a whole thread.

`sys.monitoring` (Python 3.12) reports the calls at a place in the code until a callback disables
that place. So a trace takes no longer. `sys.setprofile` reports every call, and a trace takes four
times as long. It serves Python 3.11, and programs where all tools of `sys.monitoring` are taken.

    events = listen(made, left)  # made(frame): `np.asarray` has returned to it
    events.follow(frame)  # left(frame, value) is called when it returns
    events.stop()

Sharp edges. If a place first calls another function, it is disabled. An array that `np.asarray`
makes there later is unknown (`_literals.py`). Events of other threads than the listening one are
ignored.
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
_TOOLS = (3, 4)  # tool ids that Python does not reserve: two can listen at once

Made = Callable[[types.FrameType], None]
Left = Callable[[types.FrameType, object], None]


# The events of `sys.setprofile`, and its callback.
_Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
_Profiler = Callable[[types.FrameType, _Event, object], object]


class Events(Protocol):
    """The events heard until `stop`."""

    is_deaf: bool  # another profiler has the place of ours

    def follow(self, frame: types.FrameType) -> None:
        """Call `left` when this frame returns."""

    def stop(self) -> None: ...


def listen(made: Made, left: Left, *, everything: bool = False) -> Events:
    """Start to listen for arrays that NumPy makes.

    **Arguments:** `made`: called with each frame that has called `np.asarray` or `np.array`;
    `left`: called with each followed frame that returns, and its result; `everything`: report all
    returns, and all places, also disabled ones.
    """
    tool = None if everything else _free_tool()
    return _Profile(made, left, everything) if tool is None else _Monitor(tool, made, left)


def _free_tool() -> int | None:
    free = (tool for tool in _TOOLS if _monitoring and _monitoring.get_tool(tool) is None)
    return next(free, None)


class _Monitor:
    """Listens by `sys.monitoring`: only calls of NumPy, and returns of their callers."""

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
    """Listens by `sys.setprofile`, which reports every call and every return."""

    def __init__(self, made: Made, left: Left, everything: bool) -> None:
        self._followed: set[int] = set()
        self._other = sys.getprofile()  # the previous profiler, which still gets every event
        self.is_deaf = not (self._other is None or callable(self._other))
        if not self.is_deaf:
            sys.setprofile(self._profiler(made, left, everything))

    def _profiler(self, made: Made, left: Left, everything: bool) -> _Profiler:
        """Return a fast callback: a closure that compares by `is`, the frequent event first."""
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
