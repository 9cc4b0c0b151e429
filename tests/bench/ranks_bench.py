#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests and times expert parallelism on the GPUs of this machine, all in one call. Prints JSON and, on the standard
error, a line for each step.

  python3 tests/bench/ranks_bench.py --tools FOLDER [--ranks 2,4] [--without tests,processes,nccl,wire,exchange,steps]

FOLDER holds `moejit`, `exchange_bench`, and the tests exchange_cuda_test, group_cuda_test and
group_processes_cuda_test, of which those for R ranks skip where there are fewer GPUs; `tests/torch/gpu_group.py` runs
with what MOEJIT_LIBRARY and MOEJIT_TORCH_LIBRARY name. Exchanges are those of a layer of DeepSeek-V3: hidden 7168, 8 of
256 experts. A step has 8 experts on each rank, and one of the whole layer has all 256. The exit status is 1 if a test
failed or a program did not end as it should, and 143 if the script itself was ended by SIGTERM, as `timeout` does; what
was measured until then is printed all the same.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
SHAPE = ("7168", "8", "256")  # hidden, top_k, experts
TOKENS = (4096, 2048, 512, 128, 32)
LAYER = {"top_k": 8, "hidden": 7168, "intermediate": 2048, "recipe": "fp8_flow", "max_tokens": 4096,
         "passes": ["forward", "backward"]}
COUNTS = re.compile(r"\[  (PASSED|FAILED|SKIPPED) +\] (\d+) tests?")


class Runs:
    """The programs that were run, each with a limit of time."""

    def __init__(self, tools):
        self.tools, self.failed = pathlib.Path(tools).resolve(), []

    def run(self, name, command, seconds):
        """Returns what a program prints, and whether it ended well."""
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
            printed, status = done.stdout, done.returncode
            errors = done.stderr
        except subprocess.TimeoutExpired as late:
            printed, errors, status = (late.stdout or b"").decode(), (late.stderr or b"").decode(), f"no end in {seconds} s"
        except OSError as error:
            printed, errors, status = "", str(error), "not started"
        taken = time.monotonic() - began
        print(f"{name}: {'ok' if status == 0 else status}, {taken:.1f} s", file=sys.stderr, flush=True)
        if status != 0:
            self.failed.append(name)
            print("\n".join((printed + "\n" + errors).strip().splitlines()[-25:]), file=sys.stderr, flush=True)
        return printed, status == 0, round(taken, 1)

    def figures(self, name, command, seconds):
        """Returns the JSON that a program prints behind anything else, none if it failed."""
        printed, is_well, _ = self.run(name, command, seconds)
        start = printed.find("{")
        return json.loads(printed[start:]) if is_well and start >= 0 else None

    def tool(self, name):
        return str(self.tools / name)


def tests(runs, most, with_processes):
    """The suites, by name: how many tests passed, failed and were skipped."""
    suites = [("exchange_cuda_test", 120), ("group_cuda_test", 240)]
    if with_processes:
        suites.append(("group_processes_cuda_test", 500))
    found = []
    for name, seconds in suites:
        printed, is_well, taken = runs.run(name, [runs.tool(name), "--gtest_color=no"], seconds)
        counts = {word.lower(): int(count) for word, count in COUNTS.findall(printed)}
        found.append({"name": name, "is_well": is_well, "seconds": taken, **counts})
    printed, is_well, taken = runs.run(
        f"gpu_group.py, {most} ranks", ["torchrun", "--nproc-per-node", str(most), str(ROOT / "tests/torch/gpu_group.py")],
        240)
    lines = printed.splitlines()
    found.append({"name": "gpu_group.py", "ranks": most, "is_well": is_well, "seconds": taken,
                  "passed": sum(line.startswith("ok:") for line in lines),
                  "failed": sum(line.startswith("FAILED:") for line in lines)})
    return found


def exchanges(runs, ranks):
    """Dispatch and combine of several numbers of tokens, and with the experts of rank 0 three times as popular."""
    found = []
    for tokens, skew in [(tokens, 1) for tokens in TOKENS] + [(4096, 3)]:
        command = [runs.tool("exchange_bench"), str(ranks), str(tokens), *SHAPE, "40", "0", "0", str(skew)]
        figures = runs.figures(f"exchange, {ranks} ranks, {tokens} tokens, skew {skew}", command, 60)
        if figures is not None:
            found.append({**figures, "skew": skew})
    return found


def nccl(runs, ranks):
    found = []
    for tokens in (4096, 128):
        command = ["torchrun", "--nproc-per-node", str(ranks), str(BENCH / "ranks_nccl.py"), str(tokens), *SHAPE]
        figures = runs.figures(f"NCCL, {ranks} ranks, {tokens} tokens", command, 90)
        if figures is not None:
            found.append(figures)
    return found


def steps(runs, ranks, is_whole):
    """A step of `moejit bench --ranks`, of one rank that of `moejit bench`."""
    experts = 256 if is_whole else 8 * ranks
    layer = {"name": "deepseek_v3" if is_whole else f"deepseek_v3_{experts}", "experts": experts, **LAYER}
    options = []
    if ranks > 1:
        layer.update(dispatch="fp8", expert_parallel={"ranks": ranks, "combine": "partial"})
        options = ["--ranks", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "layer.json"
        path.write_text(json.dumps(layer), encoding="utf-8")
        command = [runs.tool("moejit"), "bench", str(path), *options, "--pass", "training", "--json"]
        figures = runs.figures(f"step, {ranks} ranks, {experts} experts", command, 150)
    if figures is None:
        return []
    kept = ("forward_us", "backward_us", "exchange_us", "forward_hot_us", "step_hot_us", "tokens", "kernels")
    return [{"ranks": ranks, "experts": experts, **{name: figures[name] for name in kept if name in figures}}]


def gpu_facts():
    import torch
    sys.path.insert(0, str(BENCH))
    import bench_machine
    device = torch.device("cuda", 0)
    return {**bench_machine.gpu_facts(device, bench_machine.Watch(device)), "count": torch.cuda.device_count()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--without", default="")
    arguments = parser.parse_args()
    ranks, without = [int(count) for count in arguments.ranks.split(",")], arguments.without.split(",")
    runs = Runs(arguments.tools)
    result = {"kind": "expert_parallel", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "command_line": "python3 " + shlex.join(sys.argv), "gpu": gpu_facts(), "ranks": ranks}
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        measure(runs, ranks, without, result)
    finally:
        print(json.dumps(result, indent=1), flush=True)
    return 1 if runs.failed else 0


def measure(runs, ranks, without, result):
    """Runs everything but what is left out, and puts what it finds into `result` one by one."""
    if "tests" not in without:
        result["tests"] = tests(runs, max(ranks), "processes" not in without)
    for name, of_ranks in (("exchange", exchanges), ("nccl", nccl)):
        if name in without:
            continue
        result[name] = []
        for count in ranks:
            result[name] += of_ranks(runs, count)
    if "wire" not in without:
        measured = [runs.figures(f"wire, {count} ranks", [sys.executable, str(BENCH / "ranks_wire.py"), str(count)], 60)
                    for count in ranks]
        result["wire"] = [line for line in measured if line is not None]
    if "steps" not in without:
        result["steps"] = []
        for count, is_whole in [*((count, False) for count in [1, *ranks]), (max(ranks), True)]:
            result["steps"] += steps(runs, count, is_whole)


if __name__ == "__main__":
    sys.exit(main())
