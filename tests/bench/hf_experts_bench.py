#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the experts of transformers' models: transformers' own implementations and moejit. Prints a result as JSON.

A step is a forward and a backward pass of one module of experts, with gradients of tokens, probabilities and weights,
which are bf16 and random. Hot times are medians of back-to-back steps, cool times those of single steps after a pause
with an empty L2 cache. Memory is the peak of PyTorch's allocator during a step, less the memory before it (weights,
inputs, the gradient of the result). Errors are relative Frobenius norms against the module of transformers in float32,
with the same bf16 values as weights and inputs.

  python3 tests/bench/hf_experts_bench.py > docs/performance/h200-hf-experts.json
  python3 tests/bench/hf_experts_bench.py --host    # what a call costs the host
  python3 tests/bench/hf_experts_bench.py --moejit-bench --only moejit    # what PyTorch adds to the kernels
  python3 tests/bench/hf_experts_bench.py --tiny    # small sizes; without a GPU in the simulator
"""
import argparse
import copy
import dataclasses
import datetime
import json
import shlex
import sys

import torch

import bench_machine
import experts_cases
import experts_host
import experts_steps
import experts_tool


def reference_results(module, inputs, case):
    """Returns y, dx, dprobs, dw1 and dw2 of transformers' own module in float32, and text that says how it computed.

    If the GPU's memory is too small for it, grouped_mm in bf16 replaces it.
    """
    eager = experts_cases.Implementation("eager", "eager")
    try:
        exact, exact_inputs = copy.deepcopy(module).float(), copy.copy(inputs)
        exact_inputs.x = inputs.x.detach().float().requires_grad_()
        exact_inputs.probs = inputs.probs.detach().clone().requires_grad_()
        exact_inputs.dy = inputs.dy.float()
        return "transformers, eager, float32", experts_cases.Step(exact, eager, exact_inputs, case.tokens).results()
    except torch.OutOfMemoryError:
        pass
    exact = exact_inputs = None
    torch.cuda.empty_cache()
    grouped = experts_cases.Implementation("grouped_mm", "eager")
    results = experts_cases.Step(module, grouped, inputs, case.tokens).results()
    return "transformers, grouped_mm, bf16", {name: tensor.clone() for name, tensor in results.items()}


def measure(case, implementation, module, inputs, reference, device, settings, watch):
    """Returns one row of a result: the figures of one implementation for a case, or the error that stopped it."""
    row = {"implementation": implementation.name, "mode": implementation.mode}
    if implementation.recipe:
        row["recipe"] = implementation.recipe
    try:
        # Each implementation gets its own copy of the module, so that nothing is kept for the next one.
        own = copy.deepcopy(module)
        step = experts_cases.Step(own, implementation, inputs, case.tokens, settings.splits_alignment)
        row["errors"] = {name: experts_steps.relative_error(got, reference[name])
                         for name, got in step.results().items()}
        row["peak_bytes"] = experts_steps.peak_bytes(step, device)
        row.update(experts_steps.time_call(step, device, settings, watch, "step"))
        row.update(experts_steps.time_call(step.infer, device, settings, watch, "forward"))
        if settings.moejit_bench and implementation.recipe:
            row.update(compare_with_tool(step, case, device, settings, watch))
    except Exception as error:  # of any kind: the others must still be timed
        row["error"] = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    print(f"{case.name}: {implementation.label}: "
          + (row.get("error") or f"{row['step_hot_ms']:.3f} ms a step"), file=sys.stderr, flush=True)
    return row


def compare_with_tool(step, case, device, settings, watch):
    """Returns fields about `moejit bench` of the layer that the step runs, and the step's time with as many rows."""
    result = experts_tool.run_tool(experts_tool.layer_of(step), case.tokens, settings.seconds)
    step.inputs = experts_tool.with_rows_of_tool(step.inputs)
    row = experts_steps.time_call(step, device, settings, watch, "tool_rows_step")
    row.update(experts_tool.fields_beside(result, row["tool_rows_step_hot_ms"]))
    print(f"{case.name}: {experts_tool.ratio_text(row)}", file=sys.stderr, flush=True)
    return row


def run_case(case, device, settings, watch):
    """Returns the result of a case: sizes, the reference of the errors, and a row for each implementation."""
    module = experts_cases.make_module(case, device)
    inputs = experts_cases.Inputs(case, device, settings.skew)
    what, reference = reference_results(module, inputs, case)
    rows = []
    for implementation in experts_cases.IMPLEMENTATIONS:
        if settings.only and settings.only not in implementation.label:
            continue
        rows.append(measure(case, implementation, module, inputs, reference, device, settings, watch))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return {"name": case.name, "model_type": case.family, "experts": case.experts, "top_k": case.top_k,
            "hidden": case.hidden, "intermediate": case.intermediate, "tokens": case.tokens, "skew": settings.skew,
            "reference": what, "results": rows}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes and few repeats: to try the program")
    parser.add_argument("--host", action="store_true", help="host time of calls instead of steps")
    parser.add_argument("--moejit-bench", action="store_true",
                        help="compare moejit's steps with `moejit bench` of the same layer, in the same run")
    parser.add_argument("--case", help="only cases whose names contain this")
    parser.add_argument("--only", help='only implementations whose names contain this: "moejit bf16, eager"')
    parser.add_argument("--tokens", type=int, help="instead of the cases' own")
    parser.add_argument("--skew", type=float, default=0.0, help="of the routing, 0 by default")
    parser.add_argument("--seconds", type=float, default=3.0, help="of hot steps, behind half as many of warm-up")
    parser.add_argument("--cool-repeats", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each cool step")
    parser.add_argument("--warm-ups", type=int, default=3)
    parser.add_argument("--splits-alignment", type=int, help="of moejit's layers")
    parser.add_argument("--experts", help="with --host: numbers of experts, 8,64,256 by default")
    parser.add_argument("--group", action="store_true", help="with --host: also modules with a process group of one rank")
    parser.add_argument("--recipe", default="fp8_flow", help="with --host")
    parser.add_argument("--device", help="cuda where there is one, else cpu")
    settings = parser.parse_args(arguments)
    if settings.tiny:
        settings.seconds, settings.cool_repeats, settings.warm_ups = 0.2, 2, 1
    settings.experts = settings.experts or ("4,8" if settings.tiny else "8,64,256")
    return settings


def main(arguments):
    settings = parse(arguments)
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    watch = bench_machine.Watch(device)
    result = {"kind": "hf_experts_host" if settings.host else "hf_experts",
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "command_line": shlex.join(["python3", "tests/bench/hf_experts_bench.py", *arguments]),
              "gpu": bench_machine.gpu_facts(device, watch), "versions": bench_machine.versions()}
    if settings.host:
        result.update(experts_host.measure(device, settings))
    else:
        cases = experts_cases.TINY if settings.tiny else experts_cases.CASES
        if settings.tokens:
            cases = {name: dataclasses.replace(case, tokens=settings.tokens)
                     for name, case in cases.items()}
        result["cases"] = [run_case(case, device, settings, watch) for name, case in cases.items()
                           if (settings.case or "") in name]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
