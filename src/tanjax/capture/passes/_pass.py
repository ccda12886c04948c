"""The form of every pass: a function of a function, and of a program.

    tj.jit(f, passes=[tj.programs.passes.share_factorizations])
    tj.programs.passes.share_factorizations(f)(x)
    tj.programs.passes.share_factorizations.rewrite(program)

Sharp edge. A pass on a function captures the function at every call; `tj.jit` captures it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import PyTree

from tanjax._errors import CaptureError, describe, message

from .._equations import Body
from .._interpreter import Interpreter
from .._program import Program


class Rewriter(Interpreter):
    """An interpreter that is new for every program, and counts its changes.

    **Fields:** `changes`; `frame`: the result of `frame_of` for the innermost running program.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._frames: list[Any] = []

    @property
    def frame(self) -> Any:
        return self._frames[-1]

    def frame_of(self, program: Body) -> Any:
        """Return the state of one run of a program, also of inner ones; `None` by default."""
        return None

    def run(
        self,
        program: Body,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree] | None = None,
        consts: Sequence[PyTree] | None = None,
    ) -> PyTree:
        self._frames.append(self.frame_of(program))
        try:
            return super().run(program, args, kwargs, consts)
        finally:
            self._frames.pop()


class Pass:
    """A rewriting of programs that keeps results up to rounding; applied only on request."""

    def __init__(self, name: str, rewriter: type[Rewriter], doc: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._rewriter = rewriter

    def __call__(self, f: Callable[..., PyTree] | Program) -> Callable[..., PyTree]:
        """Return a function that runs `f`, or a program, rewritten; JAX can transform it."""
        self._check(callable(f), f)
        return self._rewriter()(f)

    def rewrite(self, program: Program) -> Program:
        """Return the rewritten program, or the program itself if nothing changed."""
        self._check(isinstance(program, Program), program)
        rewriter = self._rewriter()
        new = rewriter.rewrite(program)
        return new if rewriter.changes else program

    def _check(self, fits: bool, given: object) -> None:
        if not fits:
            raise CaptureError(
                message(
                    f"passes.{self.__name__}: it takes a function or a program.",
                    f"got: {describe(given)}",
                    hint=f"write `tj.programs.passes.{self.__name__}(f)(x)`, or of a program "
                    f"`tj.programs.passes.{self.__name__}.rewrite(program)`.",
                )
            )

    def __repr__(self) -> str:
        return f"<tanjax pass {self.__name__}>"
