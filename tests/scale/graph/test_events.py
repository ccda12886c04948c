"""Which functions of a thread have NumPy make arrays, and what they return."""

import sys
import threading

import numpy as np
import pytest

from tanjax.scale.graph import _events

pytestmark = pytest.mark.core

ENGINES = ["profile", *(["monitor"] if hasattr(sys, "monitoring") else [])]


@pytest.fixture(params=ENGINES)
def listen(request, monkeypatch):
    if request.param == "profile":
        monkeypatch.setattr(_events, "_monitoring", None)
    return _events.listen


class Heard:
    """The functions that made arrays, and the returns of those that are named."""

    def __init__(self, *names):
        self.names, self.made, self.left, self.events = names, [], [], None

    def note(self, frame):
        self.made.append(frame.f_code.co_name)
        if frame.f_code.co_name in self.names:
            self.events.follow(frame)

    def returned(self, frame, value):
        self.left.append((frame.f_code.co_name, value))


def one(x):
    return np.asarray(x, np.float32).item()


def other(x):
    made = np.array(x)
    return one(x) + made.item()


def neither(x):
    return np.sqrt(x) + len([x])


def test_who_makes_arrays_and_what_is_returned(listen):
    heard = Heard("other")
    heard.events = listen(heard.note, heard.returned)
    try:
        total = neither(4.0) + other(2.0) + one(1.0)
    finally:
        heard.events.stop()
    assert total == 8.0
    assert heard.made == ["other", "one", "one"]
    assert heard.left == [("other", 4.0)]
    other(1.0)
    assert len(heard.made) == 3, "after the end nothing is heard"


def test_another_thread_is_not_heard(listen):
    heard = Heard("one", "other")
    heard.events = listen(heard.note, heard.returned)
    try:
        one(1.0)
        thread = threading.Thread(target=other, args=(3.0,))
        thread.start()
        thread.join()
    finally:
        heard.events.stop()
    assert heard.made == ["one"]
    assert heard.left == [("one", 1.0)]


def test_four_listen_at_once(listen):
    """Of a trace within a trace both are told; what has no room left listens as it can."""
    all_of_them = [Heard("one") for _ in range(4)]
    for heard in all_of_them:
        heard.events = listen(heard.note, heard.returned)
    one(5.0)
    for heard in reversed(all_of_them):
        heard.events.stop()
    assert [heard.made for heard in all_of_them] == [["one"]] * 4
    assert [heard.left for heard in all_of_them] == [[("one", 5.0)]] * 4
    assert sys.getprofile() is None


def test_everything_is_all_returns(listen):
    heard = Heard()
    heard.events = listen(heard.note, heard.returned, everything=True)
    try:
        neither(1.0)
        one(1.0)
    finally:
        heard.events.stop()
    assert heard.made == ["one"]
    assert ("neither", 2.0) in heard.left
    assert ("one", 1.0) in heard.left


def call(function, x):
    return function(x)


def test_a_place_that_calls_one_function_and_then_numpy():
    """Told by whom hears everything; the other one does not look at that place again."""
    for everything in (False, True):
        heard = Heard()
        heard.events = _events.listen(heard.note, heard.returned, everything=everything)
        try:
            call(abs, 1.0)
            call(np.asarray, 1.0)
        finally:
            heard.events.stop()
        expected = everything or not hasattr(sys, "monitoring")
        assert ("call" in heard.made) == expected


def test_the_profiler_of_somebody_else_goes_on(monkeypatch):
    monkeypatch.setattr(_events, "_monitoring", None)
    names, heard = [], Heard()
    profiler = lambda frame, event, arg: names.append((frame.f_code.co_name, event))
    sys.setprofile(profiler)
    try:
        events = _events.listen(heard.note, heard.returned)
        one(1.0)
        events.stop()
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert heard.made == ["one"]
    assert ("one", "call") in names
