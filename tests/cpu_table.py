# SPDX-License-Identifier: Apache-2.0
"""Runs a command for `make test` and tells the CPU seconds (user and system) of it and its parts, not the time on the
clock, which says little on a shared machine. Ends with the command's status. Arguments:

  FOLDER build COMMAND...    a command of the build
  FOLDER tests COMMAND...    ctest; prints the table of FOLDER, with the builds since the last table

FOLDER is the build folder; its tests run under cpu_seconds.cpp, which notes what each takes.
"""
import collections
import json
import os
import pathlib
import resource
import subprocess
import sys

SLOWEST = 20


def run(command, **variables):
    """(the status of a command, its CPU seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def noted(log):
    """CPU seconds of each command in the notes."""
    seconds = collections.Counter()
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        cpu, *command = line.split("\x1f")
        seconds[tuple(command)] += float(cpu)
    return seconds


def described(tests, seconds):
    """(name, label, CPU seconds) of each test that was noted; `tests` is what ctest shows as JSON."""
    rows = []
    for test in tests:
        command = tuple(test.get("command", ())[1:])  # without cpu_seconds
        if command in seconds:
            labels = next((each["value"] for each in test["properties"] if each["name"] == "LABELS"), ["none"])
            rows.append((test["name"], "+".join(labels), seconds[command]))
    return rows


def table(rows, builds):
    """The lines to print."""
    labels, counts = collections.Counter(), collections.Counter()
    for _, label, cpu in rows:
        labels[label] += cpu
        counts[label] += 1
    total = sum(builds) + sum(labels.values())
    lines = [f"CPU seconds: {total:.1f}"]
    if builds:
        lines.append(f"{sum(builds):9.1f}  build")
    lines += [f"{cpu:9.1f}  {label} ({counts[label]})" for label, cpu in labels.most_common()]
    if rows:
        lines.append("CPU seconds of the slowest tests:")
        slowest = sorted(rows, key=lambda row: -row[2])[:SLOWEST]
        lines += [f"{cpu:9.1f}  {name} [{label}]" for name, label, cpu in slowest]
    return lines


def main(folder, kind, *command):
    folder = pathlib.Path(folder)
    log, builds = folder / "cpu-tests.log", folder / "cpu-builds.log"
    if kind == "build":
        status, cpu = run(command)
        with builds.open("a") as file:
            file.write(f"{cpu}\n")
        return status
    log.unlink(missing_ok=True)
    status, _ = run(command, CPU_LOG=str(log.resolve()))
    shown = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    since = [float(line) for line in builds.read_text().split()] if builds.exists() else []
    builds.unlink(missing_ok=True)
    print("\n".join(table(described(json.loads(shown.stdout)["tests"], noted(log)), since)), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
