"""Run scripts, each in a process of its own that starts after the imports of JAX and tanjax.

Imports take longer than most pages. A fork of a process that has only imported is like
`python SCRIPT` after its imports: without backend, threads, arrays or registrations. Each line of
the input is JSON, `{"arguments": [SCRIPT, ...], "cwd": FOLDER, "out": FILE}`. When the script has
ended and its output is in the file, a line with the exit status answers.

Sharp edge: a setting that the import of JAX reads, such as `JAX_ENABLE_X64`, comes too late in a
script.
"""

import gc
import json
import os
import runpy
import sys
from pathlib import Path

import jax

import tanjax  # noqa: F401

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from mlir_contexts import reuse_contexts


def serve() -> dict:
    """Fork for every line; return its request in the new process."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            return request
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)
    sys.exit()


def become(arguments: list[str], cwd: str, out: str) -> None:
    """Make this process look like a new one with these arguments."""
    output = os.open(out, os.O_WRONLY | os.O_CREAT)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(target, stream)
    os.chdir(cwd)
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).parent)


if __name__ == "__main__":
    if jax.__version_info__[:2] == (0, 10):
        reuse_contexts(times=10)
    gc.freeze()
    become(**serve())
    runpy.run_path(sys.argv[0], run_name="__main__")
