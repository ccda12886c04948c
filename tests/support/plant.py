"""Plant bugs in a copy of the tree, one at a time, and print the first test that catches each.

- `python tests/support/plant.py`: run the tests of each bug, by the map.
- `python tests/support/plant.py --only solve`: run only bugs with this text in their line.
- `python tests/support/plant.py --against OLD`: try the test that caught a bug last time first.
- `python tests/support/plant.py --map`: make the map of every test to the lines it runs.

`planted.toml` lists the bugs: a function, a text in the function, and the text that replaces it.
Code that moves takes its bugs along (`tests/library/test_plant.py` fails if a bug has lost its
place). A bug with the field `equivalent` is not run; the field explains why no test can see it.

The map comes from coverage.py, in every process that a test starts. JAX traces a program once, so a
second test of the same program would seem to run nothing: JAX's caches are cleared before each test
function.

The tests of a bug are those that run its text. The order is: tests of the mirror of its module and
folder; one parameter of each test function; the others. Tests that were seen to run the text and
fast tests come first. The first failure ends the bug, or `SECONDS` of tests do. Each catch is
repeated without the bug: the failed test or file, or all tests of a process that crashed or did not
end. If they fail again, they are left out and the bug runs again.

Sharp edges: the map describes the tree at the time of `--map`. Later deletions are left out. Tests
that are not in the map take part if they may be renamed. Their place is the mirror of the
module or a file with deleted tests, or their name is that of a deleted test. For text that runs at
import, all tests of the module count. PyTorch's tests take part if torch is installed.
"""

import argparse
import ast
import collections
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("planted.toml")
FOLDER = ROOT / ".planted"
ROOTS = {
    "tanjax": "src",
    "tanjax_torch": "src",
    "tanjax_rules": "rules",
    "soak": "property_tests",
}
CHECKED = ("tanjax", "tanjax_rules")  # the packages whose cases the kit runs
# Tests of one process, which takes some 4 s to begin: first the likeliest test alone, then batches
# so large that this time hardly counts, and the rest.
BATCHES = (1, 40, 400, 10_000)
SECONDS = 600  # of tests for one bug: the whole list ends within two hours
PATIENCE = 3 * SECONDS  # a bug, or another program beside it, may slow its tests down, or hang them


# ------------------------------------------------------------------------------- the list of bugs


@dataclasses.dataclass(frozen=True)
class Bug:
    """One slip: a text of a function, and its replacement."""

    function: str
    kind: str
    text: str
    planted: str
    equivalent: str = ""

    @property
    def path(self):
        """The module's file, as git names it."""
        module = self.function.partition(":")[0]
        base = Path(ROOTS[module.partition(".")[0]], *module.split("."))
        return base / "__init__.py" if (ROOT / base).is_dir() else base.with_suffix(".py")

    def __str__(self):
        return f"{self.function} [{self.kind}] {' '.join(self.text.split())[:40]}"


def bugs():
    """Return the list, in its order.

    **Raises:** `ValueError` for an invalid entry; it names the file, entry and field.
    """
    entries = tomllib.loads(LIST.read_text())["bug"]
    return [_bug(number, entry) for number, entry in enumerate(entries, 1)]


def _bug(number, entry):
    fields = {field.name: field.default for field in dataclasses.fields(Bug)}
    needed = {name for name, default in fields.items() if default is dataclasses.MISSING}
    root = str(entry.get("function", "")).partition(":")[0].partition(".")[0]
    faults = [f"has no field `{name}`" for name in fields if name in needed - entry.keys()]
    faults += [f"has the unknown field `{name}`" for name in entry if name not in fields]
    faults += [f"`{k}` must be a text" for k, x in entry.items() if not isinstance(x, str)]
    if "function" in entry and root not in ROOTS:
        faults.append(f"`function` must begin with a package of {', '.join(ROOTS)}; got {root!r}")
    if faults:
        what = entry.get("function", "without a function")
        raise ValueError(f"{LIST.name}, entry {number} ({what}): {'; '.join(faults)}.")
    return Bug(**entry)


def functions(tree, qualname):
    """Return the lines (first, last) of each function or class of this name; empty: the module."""
    if not qualname:
        return [(1, sys.maxsize)]
    found = []

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}{child.name}"
                if name == qualname:
                    first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                    found.append((first, child.end_lineno))
                name += "."
            walk(child, name)

    walk(tree, "")
    return found


def place(bug, source):
    """Return where the text of a bug begins in the source, or raise with the reason."""
    lines = source.splitlines(keepends=True)
    places = set()
    for first, last in functions(ast.parse(source), bug.function.partition(":")[2]):
        text = "".join(lines[first - 1 : last])
        start = sum(map(len, lines[: first - 1]))
        found = text.find(bug.text)
        while found >= 0:
            places.add(start + found)
            found = text.find(bug.text, found + 1)
    if len(places) != 1:
        raise LookupError(f"{bug}: the text occurs {len(places)} times in {bug.path}, not once")
    return places.pop()


def planted(bug, source):
    """Return the source with the bug."""
    start = place(bug, source)
    return source[:start] + bug.planted + source[start + len(bug.text) :]


def lines_of(bug, source):
    """Return the numbers of the lines of the text of a bug."""
    first = source.count("\n", 0, place(bug, source)) + 1
    return range(first, first + bug.text.rstrip().count("\n") + 1)


# --------------------------------------------- a pytest plugin: which test runs what, which fails


def stable(nodeid):
    """Return the name of a test; of a case of the kit without its number, which may shift."""
    return re.sub(r"^(::\w+::)\d+:", r"\1", nodeid)


def pytest_configure(config):
    """Measure, clear caches and record failures in each worker."""
    if "PLANT_MAP" in os.environ and hasattr(config, "workerinput"):
        config.pluginmanager.register(Contexts(), "plant-contexts")
    if "PLANT_TESTS" in os.environ:
        config.pluginmanager.register(Chosen(), "plant-chosen")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    """Record the names of all tests."""
    if "PLANT_COLLECTED" in os.environ:
        names = sorted({stable(item.nodeid) for item in session.items})
        Path(os.environ["PLANT_COLLECTED"]).write_text(json.dumps(names))


class Contexts:
    """Measure the lines that each test runs, and its time."""

    def __init__(self):
        import coverage

        self.coverage = coverage.Coverage.current()
        self.function = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        import jax

        function = getattr(item, "originalname", item.name), item.path
        if function != self.function:
            jax.clear_caches()
            self.function = function
        self.coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        yield
        with open(f"{os.environ['PLANT_MAP']}/seconds-{os.getpid()}", "a") as file:
            print(json.dumps([item.nodeid, time.perf_counter() - start]), file=file)
        self.coverage.switch_context("")
        return True


class Chosen:
    """Run the tests of a list, in its order; write the first failure to a file."""

    def __init__(self):
        self.order = {
            name: i
            for i, name in enumerate(json.loads(Path(os.environ["PLANT_TESTS"]).read_text()))
        }

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (item for item in items if stable(item.nodeid) in self.order),
            key=lambda item: self.order[stable(item.nodeid)],
        )

    def pytest_runtest_logreport(self, report):
        self.note(report)

    def pytest_collectreport(self, report):
        self.note(report)

    def note(self, report):
        if report.failed:
            with open(os.environ["PLANT_FAILED"], "a") as file:
                print(stable(report.nodeid), file=file)


# ------------------------------------------------------------------- processes, in a tree of files


def environment(tree):
    """Return the variables for a tree other than the installed one."""
    paths = [tree / "src", tree / "rules", tree / "tests" / "support", tree / "property_tests"]
    defaults = {
        "HYPOTHESIS_PROFILE": "ci",
        "JAX_COMPILATION_CACHE_DIR": str(FOLDER / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return defaults | os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def copy_of_tree(folder):
    """Copy what git would: the files of the working tree that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run_pytest(tree, arguments, packages, variables, **how):
    """Run pytest with this plugin in a tree, on its tests and the cases of packages."""
    command = [sys.executable, "-m", "pytest", "-p", "plant", "-p", "no:cacheprovider"]
    command += [*(f"--tanjax-check={package}" for package in sorted(packages)), *arguments]
    return subprocess.run(command, cwd=tree, env=environment(tree) | variables, check=False, **how)


def collected(tree, packages=CHECKED):
    """Return the names of all tests of a tree and of the cases of packages."""
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder, "names")
        told = {"PLANT_COLLECTED": str(names)}
        arguments = ["-q", "--collect-only"]
        done = run_pytest(tree, arguments, packages, told, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout[-2000:]}\npytest cannot collect the tests: mend them first.")
        return set(json.loads(names.read_text()))


def failing(tree, tests, *, first=True):
    """Return the tests that fail in a tree; a name in brackets if no test could report it."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    kit = {test.split("::")[1] for test in tests if test.startswith("::")}  # `::PACKAGE::CASE`
    arguments = ["-x" if first else "--continue-on-collection-errors"]
    arguments += [file for file in files if file] or ["tests/support"]  # a folder without tests
    with tempfile.TemporaryDirectory() as folder:
        listed, failed = Path(folder, "tests"), Path(folder, "failed")
        listed.write_text(json.dumps(tests))
        failed.touch()
        chosen = {"PLANT_TESTS": str(listed), "PLANT_FAILED": str(failed)}
        try:
            hushed = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            done = run_pytest(tree, arguments, kit, chosen, timeout=PATIENCE, **hushed)
        except subprocess.TimeoutExpired:
            return ["[the tests do not end]"]
        names = list(dict.fromkeys(failed.read_text().splitlines()))
    return names or (["[the tests do not begin]"] if done.returncode not in (0, 5) else [])


def unsound(tree, tests):
    """Return the tests that fail in a tree without a bug, crash, or do not end."""
    found = failing(tree, tests, first=False)
    if not any(name.startswith("[") for name in found):
        return found
    if len(tests) == 1:
        return tests
    half = len(tests) // 2
    return unsound(tree, tests[:half]) + unsound(tree, tests[half:])


# ---------------------------------------------------------------------------------------- the map


def make_map(workers, packages=CHECKED):
    """Run every test once under coverage.py; store the lines and the seconds of each."""
    import coverage

    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    settings = data / "coveragerc"
    settings.write_text(
        f"""
[run]
parallel = true
data_file = {data}/coverage
source = {ROOT}/src
    {ROOT}/rules
    {ROOT}/property_tests/soak
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-measured
"""
    )
    # Python imports this module in each process that it starts.
    (data / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    variables = environment(ROOT)
    variables["PYTHONPATH"] = f"{data}{os.pathsep}{variables['PYTHONPATH']}"
    variables.pop("PYTEST_CURRENT_TEST", None)  # set if a test makes a map
    variables |= {"PLANT_MAP": str(data), "COVERAGE_PROCESS_START": str(settings)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "plant", "-n", str(workers)]
    command += ["--dist", "worksteal", *(f"--tanjax-check={package}" for package in packages)]
    wanted = collected(ROOT, packages)
    done = subprocess.run(command, cwd=ROOT, env=variables, check=False)
    seconds = {}
    for path in data.glob("seconds-*"):
        seconds |= dict(map(json.loads, path.read_text().splitlines()))
    missing = sorted(wanted - set(map(stable, seconds)))
    if missing or done.returncode > 1:  # 1: tests have failed; each has its lines
        sys.exit(
            f"pytest ended with status {done.returncode}, and {len(missing)} tests have not run to "
            f"their end: no new map is made. {' '.join(missing[:3])}"
        )

    whole = coverage.Coverage(data_file=str(FOLDER / "coverage"), config_file=False)
    whole.combine(str(path) for path in data.glob("coverage.*"))
    whole.save()
    (FOLDER / "seconds.json").write_text(json.dumps(seconds))
    shutil.rmtree(data)


def mirror(path):
    """Return the prefixes of names of tests that mirror a module, nearest first; kit for rules."""
    if path.parts[0] == "property_tests":
        return ["property_tests/test_soak"]
    parts = [part.strip("_") for part in path.with_suffix("").parts[2:]]
    parts = ["torch", *parts] if path.parts[1] == "tanjax_torch" else parts
    names = ["/".join(["tests", *parts[:-1], f"test_{parts[-1]}"])]
    names += ["/".join(["tests", *parts[:n], ""]) for n in range(len(parts) - 1, 0, -1)]
    return names + ["::tanjax_rules::"] * (path.parts[0] == "rules")


class Map:
    """The map of lines to these tests, and the order to try them."""

    def __init__(self, there):
        import coverage

        self.data = coverage.CoverageData(str(FOLDER / "coverage"))
        self.data.read()
        self.seconds, gone = collections.Counter(), set()
        for name, seconds in json.loads((FOLDER / "seconds.json").read_text()).items():
            if (test := stable(name)) in there:
                self.seconds[test] += seconds
            else:
                gone.add(test)
        new = there - self.seconds.keys()
        if gone or new:
            print(
                f"{len(gone)} tests of the map are gone, {len(new)} are not in it: some of them "
                "are tried where they may be renamed ones; --map makes a new map."
            )
        self.new, self.renamed = new, {test for test in new if self._may_be_renamed(test, gone)}
        guess = sum(self.seconds.values()) / max(1, len(self.seconds))
        self.seconds.update(dict.fromkeys(new, guess))

    @staticmethod
    def _may_be_renamed(test, gone):
        """True if a test that is not in the map may be a renamed one of the deleted ones."""
        file, _, name = test.partition("[")[0].partition("::")
        files = {test.partition("::")[0] for test in gone} - {""}  # "" is the kit's
        names = {test.partition("[")[0].partition("::")[2] for test in gone}
        return file in files or name in names

    def tests(self, bug):
        """Return the tests of a bug, the likeliest and fastest first."""
        lines = self.data.contexts_by_lineno(str(ROOT / bug.path))
        numbers = lines_of(bug, (ROOT / bug.path).read_text())
        contexts = {context for n in numbers for context in lines.get(n, ())} - {""}
        if not contexts:  # it runs at import
            contexts = {context for those in lines.values() for context in those}
        # A process has the name of its test, and the phase of the test: `test (call)`.
        ends = re.compile(r" \((setup|call|teardown)\)$")
        names = run_it = {stable(ends.sub("", context)) for context in contexts}
        if any("" in lines.get(n, ()) for n in numbers):  # it makes parameters of tests
            called = re.compile(rf"\b{re.escape(bug.function.rpartition(':')[2])}\b")
            files = {test.partition("::")[0] for test in self.seconds} - {""}  # "" is the kit's
            names = names | {f for f in files if called.search((ROOT / f).read_text())}
        # A parameter finds the traces of an earlier one: all parameters of a test count.
        names = names | {name.partition("[")[0] for name in names if "::test_" in name}
        parts = lambda test: {test, test.partition("[")[0], test.partition("::")[0]}
        near = mirror(bug.path)
        nearest = (near[0], *(name for name in near if name.startswith("::")))
        tests = {test for test in self.seconds if parts(test) & names} | self.renamed
        tests |= {test for test in self.new if test.startswith(nearest)}
        by_function = collections.defaultdict(list)
        for test in sorted(tests, key=lambda test: (test not in run_it, self.seconds[test], test)):
            by_function[test.partition("[")[0] if "::test_" in test else test].append(test)

        def rank(position, test):
            place = next((i for i, name in enumerate(near) if test.startswith(name)), len(near))
            return position if place > 1 else 0, place, test not in run_it, self.seconds[test]

        ranked = [(rank(i, t), t) for those in by_function.values() for i, t in enumerate(those)]
        return [test for _, test in sorted(ranked)]


# --------------------------------------------------------------------------------------- all bugs


def first_catch(bug, tree, tests, seconds):
    """Return the first test that fails with the bug in this tree, or an empty text.

    **Returns:** its name, and the tests that must pass without the bug for this to be a catch.
    """
    file = tree / bug.path
    source = file.read_text()
    file.write_text(planted(bug, source))
    try:
        spent, at = 0.0, 0
        for size in BATCHES:
            batch = []
            for test in tests[at : at + size]:
                spent += seconds[test]
                if spent > SECONDS:
                    break
                batch.append(test)
            if batch and (found := failing(tree, batch)):
                return found[0], batch if found[0].startswith("[") else found[:1]
            at += size
        return "", []
    finally:
        file.write_text(source)


def run(chosen, tests_of, workers, before, say):
    """Plant each bug. **Returns** the first catch of each, empty if no test caught it."""
    left_out, passed, caught, proofs = set(), set(), {}, {}
    may_run = lambda test: not {test, test.partition("::")[0]} & left_out
    todo = collections.deque(chosen)

    def work():
        with tempfile.TemporaryDirectory() as folder:
            tree = copy_of_tree(Path(folder))
            while todo:
                try:
                    bug = todo.popleft()
                except IndexError:
                    return
                start = time.perf_counter()
                tests = [test for test in tests_of.tests(bug) if may_run(test)]
                tests.sort(key=lambda test: test != before.get(str(bug)))
                caught[bug], proofs[bug] = first_catch(bug, tree, tests, tests_of.seconds)
                say(bug, caught[bug], len(tests), time.perf_counter() - start)

    while todo:
        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tempfile.TemporaryDirectory() as folder:
            tree, wrong = copy_of_tree(Path(folder)), set()
            unproved = sorted({test for proof in proofs.values() for test in proof} - passed)
            for at in range(0, len(unproved), BATCHES[1]):
                wrong.update(unsound(tree, unproved[at : at + BATCHES[1]]))
        left_out |= wrong
        passed.update(filter(may_run, unproved))
        todo.extend(bug for bug, proof in proofs.items() if not all(map(may_run, proof)))
        for test in sorted(wrong):
            print(f"fails without a bug and is left out: {test}", flush=True)
    return {str(bug): test for bug, test in caught.items()}


def keep(caught, listed):
    """Write the catches to `caught.json`; bugs that did not run keep their last catch."""
    file = FOLDER / "caught.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    known = {name: before[name] for name in map(str, listed) if name in before}
    file.write_text(json.dumps(known | caught, indent=1, sort_keys=True))


def main():
    """Read the command line; return exit status 1 if a bug is not caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--map", action="store_true", help="make the map of the tests, no more")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="in a bug's line")
    parser.add_argument("--against", type=Path, metavar="OLD", help="an old caught.json")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    try:
        listed = bugs()
    except ValueError as error:
        sys.exit(str(error))
    wanted = lambda bug: any(text in str(bug) for text in options.only)
    chosen = [bug for bug in listed if not bug.equivalent and wanted(bug)]
    if not chosen:
        sys.exit(f"No bug of {LIST.name} that can be caught has {options.only} in its line.")
    FOLDER.mkdir(exist_ok=True)
    before = json.loads(options.against.read_text()) if options.against else {}
    before = {bug: stable(test) for bug, test in before.items()}
    if options.map or not (FOLDER / "seconds.json").exists():
        make_map(options.workers)
    if options.map:
        return
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: the bugs of tanjax_torch are NOT planted")
        chosen = [bug for bug in chosen if not bug.function.startswith("tanjax_torch")]
    with tempfile.TemporaryDirectory() as folder:
        tests_of = Map(collected(copy_of_tree(Path(folder))))
    start = time.perf_counter()

    def say(bug, test, tests, seconds):
        print(f"{test or 'NOT CAUGHT':<60} {seconds:4.0f} s of {tests:5} tests  {bug}", flush=True)

    caught = run(chosen, tests_of, options.workers, before, say)
    keep(caught, listed)
    missed = [bug for bug, test in caught.items() if not test]
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(caught) - len(missed)} of {len(caught)} caught in {minutes:.0f} minutes;", end=" ")
    print(f"{len(listed) - len(chosen)} not run (equivalent, or not chosen)")
    for bug in missed:
        print(f"NOT CAUGHT{' ANY MORE' if before.get(bug) else ''}: {bug}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
