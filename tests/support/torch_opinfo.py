"""Torch's own OpInfo database run through the bridge, operation by operation.

    python tests/support/torch_opinfo.py --samples 6 --json results.json [--only add,mul]

What is counted. The names of core ATen are those of the operations with an overload that torch tags
`Tag.core`. Every OpInfo belongs to one group:

* `core`: its name (`aten_name` or `name`) is such a name;
* `reach`: a function with another name (`nn.functional.linear`, `fft.rfft`, `std`) whose first
  sample inputs, run on plain torch, reach operations of core ATen and no others, but for those that
  `torch._decomp.core_aten_decompositions()`, the table of `torch.export`, defines by core ATen;
* `more`: all the others. They are measured too, and counted apart.

The goal of the bridge is about the first two.

The cases of an OpInfo are its first `--samples` sample inputs for the CPU in float32 and float64
(forward, and backward where the database says that there is one), in int64, bool and complex64
(forward); for the first sample in float32 the in-place and the `out=` variant; and its error
inputs, where torch raises and so must we. Random results are compared in dtype and shape only,
unless eight seeds give the same on plain torch; so are those of `empty_like` and its kin, which are
undefined.

Each operation has `--limit` seconds. A worker process runs them one after the other; it is started
anew when it hangs or dies, and after each 40 operations.
"""

import argparse
import json
import os
import platform
import select
import subprocess
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import jax
import torch

from torch_cases import (
    TOLERANCE,
    Run,
    answer_of,
    check,
    check_error,
    compare_plain,
    plain,
    seeded,
)
from torch_database import (
    BACKWARD,
    CORE,
    DTYPES,
    LESS_EXACT,
    MORE,
    REACH,
    TIES,
    UNDEFINED,
    database,
    group_of,
    is_random,
    samples_of,
)


class Measured:
    """The cases of one OpInfo, run one after the other."""

    def __init__(self, op, samples, seed, limit, errors=True):
        self.op, self.samples, self.seed = op, samples, seed
        self.until, self.errors = time.monotonic() + limit, errors
        self.counts, self.wrong = {}, []
        self.random = is_random(op)

    def note(self, mode, n, answer, words):
        if answer is None:  # plain torch raises too
            return
        counts = self.counts.setdefault(mode, {})
        counts[answer] = counts.get(answer, 0) + 1
        if answer != "right":
            self.wrong.append([mode, n, answer, words])

    def late(self, mode):
        if time.monotonic() < self.until:
            return False
        self.note(mode, -1, "too slow", "the time of the operation was over")
        return True

    def run(self):
        """**Returns:** what goes into the results."""
        for dtype in DTYPES:
            if dtype in self.op.dtypes and not self.dtype(dtype):
                break
        else:
            if self.errors:
                self.error_inputs()
        return {
            "op": self.op.name,
            "variant": self.op.variant_test_name,
            "group": group_of(self.op),
            "counts": self.counts,
            "wrong": self.wrong,
        }

    def dtype(self, dtype):
        op, mode = self.op, str(dtype).removeprefix("torch.")
        backward = op.supports_autograd and dtype in BACKWARD and dtype in op.backward_dtypes
        for n, sample in zip(
            range(self.samples), samples_of(op, dtype, backward, self.seed), strict=False
        ):
            if self.late(mode):
                return False
            process = sample.output_process_fn_grad
            values = self.comparable(self.call, sample)
            how = {"process": process, "backward": backward, "values": values, "seed": self.seed}
            how["ties"] = op.name in TIES
            with mock.patch.dict(TOLERANCE, LESS_EXACT.get(op.name, {})):
                self.note(mode, n, *answer_of(check, self.call, sample, **how))
            if n == 0 and dtype is torch.float32:
                self.variants(sample, backward, values)
        return True

    def call(self, first, args, kwargs):
        return self.op.gradcheck_wrapper(self.op.op, first, *args, **kwargs)

    def comparable(self, call, sample):
        """Whether the values are defined by the arguments."""
        if self.op.name in UNDEFINED:
            return False
        if not self.random:
            return True
        try:
            runs = []
            for seed in range(8):
                seeded(seed)
                with mock.patch("torch.manual_seed"):  # some OpInfos set one themselves
                    runs.append(Run(call, plain, sample).raw)
            return all(compare_plain(runs[0], run) for run in runs[1:])
        except Exception:
            return True

    def variants(self, sample, backward, values):
        op = self.op
        if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):

            def in_place(first, args, kwargs):
                written = first.clone()
                return op.inplace_variant(written, *args, **kwargs), written

            backward = backward and op.supports_inplace_autograd
            self.note(
                "in place",
                0,
                *answer_of(check, in_place, sample, None, backward, values, self.seed),
            )
        if op.supports_out and values:

            def out(first, args, kwargs):
                with torch.no_grad():
                    made = op.op(first, *args, **kwargs)
                    empty = torch.utils._pytree.tree_map_only(torch.Tensor, torch.zeros_like, made)
                    if isinstance(empty, list):
                        return made
                    op.op(
                        first,
                        *args,
                        **kwargs,
                        out=tuple(empty) if isinstance(empty, tuple) else empty,
                    )
                return empty

            answer = answer_of(
                check, out, sample, sample.output_process_fn_grad, False, values, self.seed
            )
            self.note("out=", 0, *answer)

    def error_inputs(self):
        if self.op.error_inputs_func is None:
            return
        for n, given in enumerate(self.op.error_inputs("cpu")):
            if self.late("errors"):
                return
            answer, _ = answer_of(check_error, self.plain_call, given.sample_input)
            if answer in ("refused", "raises"):
                answer = "right"
            self.note(
                "errors",
                n,
                answer,
                f"torch raises {given.error_type.__name__}: {given.error_regex[:100]}",
            )

    def plain_call(self, first, args, kwargs):
        return self.op.op(first, *args, **kwargs)


def _work(args):
    """Answer each number read with the results of that operation, one line of JSON."""
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    ops = database()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what torch prints does not mix with the answers
    for line in sys.stdin:
        op, found = ops[int(line)], {}
        if not args.group or group_of(op) in args.group.split(","):
            found = Measured(op, args.samples, args.seed, args.limit).run()
        answers.write(json.dumps(found) + "\n")
        answers.flush()


class _Worker:
    def __init__(self, args):
        command = [sys.executable, __file__, "--worker", "--samples", args.samples]
        command += ["--seed", args.seed, "--limit", args.limit]
        command += ["--group", args.group]
        self.process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if args.loud else subprocess.DEVNULL,
            text=True,
        )
        self.done = 0

    def ask(self, n, limit):
        """The answer, or `None` where the worker hangs or died."""
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], limit)[0]:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(args):
    """Run the chosen operations. **Returns:** the results as they are written."""
    ops, worker, found = database(), None, {}
    if args.update:
        before = json.loads(Path(args.json).read_text())["ops"]
        found = {(op["op"], op["variant"]): op for op in before}
    chosen = [n for n, op in enumerate(ops) if not args.only or op.name in args.only.split(",")]
    for n in chosen:
        worker = worker or _Worker(args)
        answer = worker.ask(n, 3 * args.limit + 30)
        if answer is None:
            words = "the process hung or died"
            answer = {
                "op": ops[n].name,
                "variant": ops[n].variant_test_name,
                "group": group_of(ops[n]),
                "counts": {"process": {"too slow": 1}},
                "wrong": [["process", -1, "too slow", words]],
            }
        if not answer:
            continue
        worker.done += 1
        found[answer["op"], answer["variant"]] = answer
        if args.verbose:
            print(
                answer["op"],
                answer["variant"],
                answer["counts"],
                *answer["wrong"][:2],
                file=sys.stderr,
            )
        if worker.done >= 40 or answer["counts"].get("process"):
            worker.end()
            worker = None
        if args.json:
            Path(args.json).write_text(written(results(args, found)))
    if worker:
        worker.end()
    return results(args, found)


def results(args, found):
    """What is written: versions, options, and each operation."""
    versions = {
        "torch": torch.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    options = {"samples": args.samples, "seed": args.seed, "group": args.group}
    ops = sorted(found.values(), key=lambda op: (op["op"], op["variant"]))
    return {"versions": versions, "options": options, "ops": ops}


def written(data):
    """As JSON, an operation in each line."""
    head = json.dumps({name: data[name] for name in ("versions", "options")})
    return head[:-1] + ', "ops": [\n' + ",\n".join(map(json.dumps, data["ops"])) + "\n]}\n"


def totals(found, group=None):
    """How many cases of a group have each answer."""
    sums = {}
    for op in found:
        if group in (None, op["group"]):
            for counts in op["counts"].values():
                for answer, n in counts.items():
                    sums[answer] = sums.get(answer, 0) + n
    return sums


def main():
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--group", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--update", action="store_true", help="keep what --json has of others")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--loud", action="store_true")
    parser.add_argument("--worker", action="store_true")
    args = parser.parse_args()
    if args.worker:
        return _work(args)
    warnings.simplefilter("ignore")
    found = measure(args)["ops"]
    for group in (CORE, REACH, MORE):
        sums = totals(found, group)
        print(f"{group:6}{sum(sums.values()):6} cases", dict(sorted(sums.items())))
    return None


if __name__ == "__main__":
    main()
