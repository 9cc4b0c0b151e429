#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times grouped GEMMs of moejit and DeepGEMM in one process, in turns on the same data. Prints a table.

Rows are E4M3 with a scale for each 1x128 values, weights with one for each 128x128 tile, results bf16. Values are
normal numbers, divided by powers of two that let them reach E4M3's largest. Each gets the scales of rows in the layout
that it wants.

Groups are those of `moejit bench --gemms`; ragged ones differ by up to 30 % from their size. DeepGEMM wants each group
to start at a multiple of 128 rows, which is moejit's default, too; pad rows are zeros, and DeepGEMM is told that they
belong to no group. Where a case has another "splits_alignment", moejit's rows lie as it says, and DeepGEMM's at
multiples of 128. FLOPs are those of real rows.

For each case the GPU is heated with moejit's usual choices. Then rounds begin: a block of back-to-back launches of each
variant, as CUDA graphs, in random order. At the power limit a block has to last until the clock is that of its kernel;
15 ms are not enough. A ratio is DeepGEMM's time by the variant's in the same round; its median, least and greatest are
printed. All use one set of operands and one place for results, since a set is several times as large as the L2 cache, and
a result elsewhere in memory changes a time by up to 3 %. Longer
blocks follow, there and back again, for the energy of a FLOP: clock and power of a block are those that NVML tells
while it runs, power from the steps of its energy counter. Results of moejit and DeepGEMM are compared (relative
Frobenius norm), those of moejit's variants bit for bit. Kernels are compiled before, in processes of their own.
The exit status is 1 if results differ or a case fails.

  export PYTHONPATH=runtime/bindings/python:FOLDER_OF_DEEP_GEMM DG_JIT_CACHE_DIR=/tmp/deep_gemm
  python3 tests/bench/deep_gemm_bench.py
  python3 tests/bench/deep_gemm_bench.py --tuning h200.json --names dsv3_fc1,dsv3_fc2 --output deep_gemm.json
"""
import argparse
import concurrent.futures
import datetime
import gc
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import traceback

import torch

import moejit

import bench_machine
import deep_gemm_cases
import deep_gemm_rounds

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_ERROR = 0.01  # of results: both add in float32 and round to bf16


def variants_of(data, settings):
    """Returns what is timed by name, functions that launch once, and views of the one result that they write."""
    import deep_gemm
    tensors = data.tensors()
    calls, results = {}, {}

    def add(name, tuning):
        operation = data.case.operation("cuda:sm_90a", tuning).prepare()
        calls[name] = lambda: operation.run(tensors, stream=torch.cuda.current_stream().cuda_stream)
        results[name] = tensors["d"]
        return operation.info.plan_digest

    usual = add("usual", [])
    calls["DeepGEMM"], results["DeepGEMM"] = data.call_of_deep_gemm(deep_gemm)
    if settings.tuning and add("tuned", settings.tuning) == usual:
        print(f"{data.case.name}: the record has nothing but the usual choices", file=sys.stderr)
    return calls, results


def measure(case, settings, watch, order):
    """Returns the result of a case."""
    data = deep_gemm_cases.Data(case, torch.device("cuda"))
    calls, results = variants_of(data, settings)
    for name, call in calls.items():
        results[name].fill_(torch.nan)
        call()
        results[name] = results[name].clone()
    found = {"name": case.name, "groups": case.groups, "rows": sum(case.counts()), "n": case.n, "k": case.k,
             "flops": case.flops, "error": data.relative_error(results["usual"], results["DeepGEMM"])}
    if "tuned" in calls:
        found["tuned_same_bits"] = torch.equal(results["usual"].view(torch.int16), results["tuned"].view(torch.int16))
    results.clear()
    blocks, energy = deep_gemm_rounds.run(calls, settings, watch, order)
    found["variants"] = deep_gemm_rounds.summarize(blocks, energy, case.flops)
    return {**found, "blocks": blocks, "energy_blocks": energy}


def line_of(found):
    """Returns a case's line of the table."""
    variants = found["variants"]
    figures = [f"{variants[name]['tflops']:.0f}" if name in variants else ""
               for name in ("usual", "DeepGEMM", "tuned")]
    ratios = [f"{variants[name]['ratio']:.3f} ({variants[name]['least']:.3f}..{variants[name]['greatest']:.3f})"
              if name in variants else "" for name in ("usual", "tuned")]

    def of_all(key, form):
        return "/".join(format(each[key], form) if each.get(key) is not None else "-" for each in variants.values())

    bits = {True: "same bits", False: "OTHER BITS"}.get(found.get("tuned_same_bits"), "")
    if any(each["host_bound_blocks"] for each in variants.values()):
        bits += " HOST TOO SLOW"
    return (f"{found['name']:18} {figures[0]:>8} {figures[1]:>8} {figures[2]:>8}  {ratios[0]:>21} {ratios[1]:>21}  "
            f"{of_all('mhz', '.0f'):>14} {of_all('watts', '.0f'):>11} {of_all('pj_per_flop', '.3f'):>17}  "
            f"{found['error']:.1e} {bits}").rstrip()


HEAD = (f"{'case, TFLOP/s hot':18} {'usual':>8} {'DeepGEMM':>8} {'tuned':>8}  {'usual by DeepGEMM':>21} "
        f"{'tuned by DeepGEMM':>21}  {'MHz':>14} {'W':>11} {'pJ/FLOP':>17}  error; a/b/c: usual/DeepGEMM/tuned")


def compile_kernels(cases, settings):
    """Compiles the kernels of all cases, each in a process of its own, and leaves them in the caches."""
    def compile_case(case):
        command = [sys.executable, os.path.abspath(__file__), "--compile-only", "--gemms", settings.gemms, "--names",
                   case.name, *(["--tuning", settings.tuning] if settings.tuning else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print(f"{case.name}: not compiled beforehand, status {done.returncode}: {done.stdout[-2000:]}",
                  file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(min(len(cases), len(os.sched_getaffinity(0)))) as pool:
        list(pool.map(compile_case, cases))


def compile_only(cases, settings):
    """Calls everything once, so that it is compiled."""
    for case in cases:
        calls, _ = variants_of(deep_gemm_cases.Data(case, torch.device("cuda"), is_random=False), settings)
        calls["DeepGEMM"]()
        torch.cuda.synchronize()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gemms", default=str(ROOT / "docs/examples/gemms/hopper.json"), help="a list of GEMMs")
    parser.add_argument("--names", help="cases of the list, separated by commas; all that DeepGEMM has by default")
    parser.add_argument("--tuning", help="a tuning record: also time moejit with its choices")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-ms", type=float, default=250.0, help="least time of a block")
    parser.add_argument("--heat-seconds", type=float, default=1.5)
    parser.add_argument("--energy-ms", type=float, default=600.0, help="time of a block for energy, 0: none")
    parser.add_argument("--seed", type=int, default=1, help="of the order of variants")
    parser.add_argument("--output", help="a file for all blocks as JSON")
    parser.add_argument("--compile-only", action="store_true", help="fill the kernel caches, time nothing")
    return parser.parse_args(arguments)


def facts_of_run(arguments, watch):
    """Returns the fields of a result before its cases."""
    import deep_gemm
    return {"kind": "deep_gemm", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command_line": shlex.join(["python3", "tests/bench/deep_gemm_bench.py", *arguments]),
            "gpu": bench_machine.gpu_facts(torch.device("cuda"), watch),
            "versions": {"torch": torch.__version__, "moejit": moejit.__version__, "deep_gemm": deep_gemm.__version__}}


def run_cases(cases, settings, result, watch):
    """Adds the cases' results, prints a line for each, and returns whether all ran and agree."""
    order, is_right = random.Random(settings.seed), True
    for case in cases:
        try:
            found = measure(case, settings, watch, order)
        except Exception as error:  # of any kind: the other cases must still be timed
            traceback.print_exc()
            found, is_right = {"name": case.name, "failure": f"{type(error).__name__}: {error}"}, False
        else:
            print(line_of(found), flush=True)
            is_right = is_right and found["error"] <= MOST_ERROR and found.get("tuned_same_bits", True)
        result["cases"].append(found)
        gc.collect()
        torch.cuda.empty_cache()
        if settings.output:  # after each case, so that a run that is ended leaves what it has measured
            pathlib.Path(settings.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return is_right


def main(arguments):
    settings = parse(arguments)
    names = settings.names.split(",") if settings.names else deep_gemm_cases.NAMES
    cases = deep_gemm_cases.read_cases(settings.gemms, names)
    if settings.compile_only:
        compile_only(cases, settings)
        return 0
    compile_kernels(cases, settings)
    watch = deep_gemm_rounds.EnergyWatch(torch.device("cuda"))
    result = {**facts_of_run(arguments, watch), "cases": []}
    print(HEAD, flush=True)
    is_right = run_cases(cases, settings, result, watch)
    measured = [found["variants"] for found in result["cases"] if "variants" in found]
    for name in ("usual", "tuned"):
        print(deep_gemm_rounds.mean_text(name, measured), end="", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # DeepGEMM's destructors fail when they run behind those of the CUDA runtime
