# SPDX-License-Identifier: Apache-2.0
"""Runs the unittest programs of a folder, several at a time, each as a copy of the process that calls."""
import os
import re
import sys
import tempfile
import time
import unittest


def start(path, output):
    """The id of a process that runs a test, as a copy of this one. It writes to the file `output`."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        unittest.main(module=None, argv=["unittest", path.stem])  # exits
    return process


def run_all(paths, jobs):
    """Yields (a test's name, whether it passed, its output, its CPU seconds) as each ends."""
    pending, running = list(paths), {}
    while pending or running:
        while pending and len(running) < jobs:
            path, output = pending.pop(0), tempfile.TemporaryFile("w+", errors="replace")
            running[start(path, output)] = path, output
        process, status, usage = os.wait4(-1, 0)
        path, output = running.pop(process)
        with output:
            output.seek(0)
            yield path.name, status == 0, output.read(), usage.ru_utime + usage.ru_stime


def last_line(output):
    return (output.strip().splitlines() or ["no output"])[-1]


def count(output, is_passed):
    """How many tests of a program passed, failed, and were skipped, by what unittest wrote at its end."""
    ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    told = {kind: int(number) for kind, number in re.findall(r"(failures|errors|skipped)=(\d+)", last_line(output))}
    failed, skipped = told.get("failures", 0) + told.get("errors", 0), told.get("skipped", 0)
    if not is_passed:
        failed = max(failed, 1)  # a crash tells of none
    return max(int(ran.group(1)) - failed - skipped, 0) if ran else 0, failed, skipped


def run_folder(folder, jobs, package, first=()):
    """Runs all tests of a folder, those named in `first` before the others, and tells how they went. Returns a status."""
    sys.path.insert(0, str(folder))
    tests = sorted(folder.glob("*_test.py"), key=lambda path: (path.name not in first, path.name))
    passed, counts, cpu, begin = True, [], {"imports": time.process_time()}, time.monotonic()
    for name, is_passed, output, seconds in run_all(tests, jobs):
        passed = passed and is_passed
        counts.append(count(output, is_passed))
        cpu[name] = seconds
        print(f"{name}: {'passed' if is_passed else 'FAILED'}, {last_line(output)}, {seconds:.0f} CPU s", flush=True)
        if not is_passed:
            print(output, flush=True)
    print(f"CPU seconds: {sum(cpu.values()):.1f}")
    for name in sorted(cpu, key=cpu.get, reverse=True)[:10]:
        print(f"{cpu[name]:9.1f}  {name}")
    print(f"tests of {package} took {time.monotonic() - begin:.0f} s")
    print("{} passed, {} failed, {} skipped".format(*map(sum, zip(*counts))))
    return 0 if passed else 1
