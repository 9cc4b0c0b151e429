# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests that a change can break, for `make test CHANGED=1`. Arguments: the build folder, how many
jobs, and a commit to compare with, or 1: that of the last whole run that passed here, else where main was left.

What it cannot decide runs all tests, and it says why. Of the suites in the simulator it knows those that recorded the
headers of their kernels (tests/support/kernels_ahead.h); the others run with every kernel.
"""
import functools
import json
import pathlib
import re
import subprocess
import sys

import cpu_table

ROOT = pathlib.Path(__file__).resolve().parents[1]
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
# Labels whose tests no kernel's text can fail, unless it fails those of others: they neither compile nor run kernels
# (texts, parsers, how ranks meet), launch them where nothing runs (driver), or ask who compiles them first and what
# becomes of files, whatever is in them (flight, fault).
WITHOUT_KERNELS = {"driver", "error", "fault", "flight", "fuzz", "lint", "ranks"}
# In the build folder: the last whole run that passed.
PASSED = "passed-tests.json"
HOST = ("compiler", "runtime", "cli", "cache", "tests")


class Undecided(Exception):
    """Why all tests have to run."""


def includes(path):
    """The names that a file includes."""
    return QUOTED.findall(path.read_text(errors="replace"))


def reached(names):
    """All headers of kernels that these names reach, with themselves."""
    found, pending = set(), list(names)
    while pending:
        name = pending.pop().removeprefix("templates/")
        if name in found or not name.startswith("moejit_"):
            continue
        found.add(name)
        # A kernel in the simulator sees its file of the same name; either may have changed.
        for file in (name, name.replace("moejit_device/ptx/", "moejit_sim/ptx/")):
            if (ROOT / "templates" / file).is_file():
                found.add(file)
                pending += includes(ROOT / "templates" / file)
    return found


def sources(*folders):
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp", ".cuh", ".c", ".hpp"):
                yield path


@functools.cache
def headers_of_host():
    """Headers of kernels that host code includes as well."""
    return reached(name for path in sources(*HOST, "docs") for name in includes(path)
                   if name.startswith(("moejit_", "templates/moejit_")))


def users_of_cli():
    """Tests that call code of cli/, other than its units: there are none as long as what suites share lies below it."""
    return {str(path.relative_to(ROOT)) for path in sources("tests") if "tests/unit/cli/" not in str(path)
            and any(name.startswith("cli/") for name in includes(path))}


def name_of(test):
    return test["name"]


def labels_of(test):
    return next((each["value"] for each in test["properties"] if each["name"] == "LABELS"), [])


def program_of(test):
    """The first argument behind cpu_seconds: a test program, or Python."""
    return pathlib.Path((test.get("command") or ["", ""])[1]).name


def of_kernel(header, tests, records):
    """Tests that a kernel's header can break. `records` has the headers that suites recorded."""
    chosen = set()
    for test in tests:
        recorded = records.get(program_of(test))
        if not WITHOUT_KERNELS & set(labels_of(test)) and (recorded is None or header in recorded):
            chosen.add(name_of(test))
    return chosen


def of_tool(tests, tool):
    """Tests that run the tool, or the units of cli. Some know it without an argument; programs of the label error call
    the libraries below it."""
    return {name_of(test) for test in tests
            if tool in test.get("command", ()) or "/tests/unit/cli/" in "".join(test.get("command", ())[1:2])
            or {"cli", "flight", "package"} & set(labels_of(test))
            or "error" in labels_of(test) and not program_of(test).endswith("_test")}


def choose(files, tests, records, tool):
    """Names of the tests that these changed files can break."""
    chosen = {name_of(test) for test in tests if "lint" in labels_of(test)}
    for file in files:
        if file.endswith(".md"):
            chosen |= {"cli.docs", "package.docs_commands"}
        elif file.startswith("templates/moejit_") and file.endswith(".cuh"):
            header = file.removeprefix("templates/")
            if records is None:
                raise Undecided(f"{file}: no whole run passed in this build folder yet")
            if header in headers_of_host():
                raise Undecided(f"{file}: host code includes it too")
            chosen |= of_kernel(header, tests, records)
        elif file.startswith("cli/") and file.endswith((".cpp", ".h")):
            if users := users_of_cli():
                raise Undecided(f"{file}: {min(users)} calls cli/")
            chosen |= of_tool(tests, tool)
        elif re.fullmatch(r"tests/(cli|python|package|lint|error|fault)/\w+_test\.py", file):
            chosen |= {name_of(test) for test in tests if str(ROOT / file) in test.get("command", ())}
        elif not file.startswith((".github/", "tests/torch/", "tests/jax/", "docs/performance/")):
            raise Undecided(f"{file} can change any test")
    return chosen


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Undecided(f"git {' '.join(arguments)}: {done.stderr.strip() or 'failed'}")
    return done.stdout.split("\0") if "-z" in arguments else done.stdout.split()


def changed_files(base):
    """Files that differ from a commit, committed or not, and new ones."""
    listed = git("diff", "--name-only", "--no-renames", "-z", base) + git("ls-files", "-z", "--others",
                                                                         "--exclude-standard")
    return sorted({name for name in listed if name})


def shown_tests(folder):
    """What ctest shows of all tests, in the order of their numbers."""
    shown = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, check=True)
    tests = json.loads(shown.stdout)["tests"]
    for test in tests:
        if name_of(test).endswith("_NOT_BUILT"):
            raise Undecided(f"{name_of(test)}: its cases are not known")
    return tests


def targets_of(tests, chosen):
    """What to build: the labels of what was chosen, of suites in the simulator only those suites."""
    targets = {"moejit", "moejit_cpu_seconds"}
    for test in tests:
        if name_of(test) in chosen:
            suite = program_of(test)
            targets |= {suite} if labels_of(test) == ["sim"] and suite.endswith("_test") else \
                {f"tests_{label}" for label in labels_of(test)}
    return sorted(targets)


def run_all(folder, jobs):
    """Builds and runs all tests."""
    status = cpu_table.main(folder, "build", "cmake", "--build", folder, "--parallel", jobs)
    status = status or cpu_table.main(folder, "tests", "ctest", "--preset", "ci", "--parallel", jobs)
    if status == 0:
        note_passed(folder)
    return status


def note_passed(folder):
    """Notes the commit of a whole run that passed, with the headers that its suites recorded, for later changes to
    compare with. A run with uncommitted changes is of no commit."""
    try:
        head = git("rev-parse", "HEAD")[0]
        if changed_files(head):
            return
    except Undecided:
        return  # no repository: every run is a whole one
    records = {path.name: path.read_text().split() for path in (pathlib.Path(folder) / "kernel-headers").glob("*")}
    (pathlib.Path(folder) / PASSED).write_text(json.dumps({"commit": head, "headers": records}))


def run_changed(folder, jobs, base):
    """Builds and runs what differs from a commit; 1 names the default one."""
    path = pathlib.Path(folder) / PASSED
    passed = json.loads(path.read_text()) if path.exists() else None
    if base == "1":
        base = passed["commit"] if passed else git("merge-base", "main", "HEAD")[0]
    files = changed_files(base)
    tests = shown_tests(folder)
    records = {program: reached(headers) for program, headers in passed["headers"].items()} if passed else None
    chosen = choose(files, tests, records, str((pathlib.Path(folder) / "moejit").resolve()))
    if missing := chosen - {name_of(test) for test in tests}:
        raise Undecided(f"{', '.join(sorted(missing))}: there is no such test any more")
    print(f"{len(files)} files differ from {base[:12]}: {len(chosen)} of {len(tests)} tests run", flush=True)
    status = cpu_table.main(folder, "build", "cmake", "--build", folder, "--parallel", jobs, "--target",
                            *targets_of(tests, chosen))
    if status != 0:
        return status
    tests = shown_tests(folder)
    numbers = [str(i + 1) for i, test in enumerate(tests) if name_of(test) in chosen]
    return cpu_table.main(folder, "tests", "ctest", "--preset", "ci", "--parallel", jobs, "-I",
                          "0,0,0," + ",".join(numbers))


def main(folder, jobs, base):
    try:
        return run_changed(folder, jobs, base)
    except (Undecided, OSError, ValueError, subprocess.CalledProcessError) as problem:
        print(f"All tests run: {problem}", flush=True)
        return run_all(folder, jobs)


if __name__ == "__main__":
    if sys.argv[1] == "passed":
        note_passed(sys.argv[2])
    else:
        sys.exit(main(*sys.argv[1:]))
