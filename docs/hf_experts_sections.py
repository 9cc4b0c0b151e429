# SPDX-License-Identifier: Apache-2.0
"""Sections of docs/performance.md from results of tests/bench/hf_experts_bench.py."""
from performance_text import bytes_text, gpu_text, table, time_text

ERRORS = ("y", "dx", "dprobs", "dw1", "dw2")


def milliseconds_text(row, name):
    return time_text(1e3 * row[name]) if name in row else ""


def error_text(error):
    return f"{error:.4f}" if error < 0.01 else f"{error:.3f}"


def step_row(row):
    """A line of a case's table."""
    return {
        "implementation": row["implementation"],
        "torch.compile": "yes" if row["mode"] == "compiled" else "",
        "step, hot": milliseconds_text(row, "step_hot_ms"),
        "MHz": f"{row['step_hot_mhz']:.0f}" if "step_hot_mhz" in row else "",
        "W": f"{row['step_hot_watts']:.0f}" if "step_hot_watts" in row else "",
        "step, cool": milliseconds_text(row, "step_cool_ms"),
        "forward, hot": milliseconds_text(row, "forward_hot_ms"),
        "forward, cool": milliseconds_text(row, "forward_cool_ms"),
        "peak memory": bytes_text(row["peak_bytes"]) if row.get("peak_bytes") is not None else "",
        "error of " + ", ".join(ERRORS):
            ", ".join(error_text(row["errors"][name]) for name in ERRORS) if "errors" in row else "",
        "did not run": row.get("error", "").replace("|", "\\|"),
    }


def source_text(result):
    versions = result["versions"]
    return (f"{gpu_text(result['gpu'])}, {result['date'][:10]}. PyTorch {versions['torch']}, transformers "
            f"{versions['transformers']}.")


def step_sections(result):
    """A section for each case: a step of transformers' experts in each implementation."""
    sections = []
    for case in result["cases"]:
        sections.append("\n\n".join([
            f"### {case['name']}, {case['tokens']} tokens: experts of transformers",
            f"{source_text(result)} `experts` {case['experts']}, `top_k` {case['top_k']}, `hidden` {case['hidden']}, "
            f"`intermediate` {case['intermediate']}. A step is a forward and a backward pass in PyTorch; a forward "
            "pass alone has no gradients and keeps quantized weights. Peak memory counts what a step takes beyond "
            f"weights, inputs and the gradient of the result. Errors are relative to: {case['reference']}.",
            f"```sh\n{result['command_line']}\n```",
            table([step_row(row) for row in case["results"]])]))
    return sections


def host_row(row):
    return {
        "call": row["call"],
        "experts": str(row["experts"]),
        "outside of the driver": f"{row['own_us']:.1f} us" if "own_us" in row else "",
        "after a wait": f"{row['cool_own_us']:.1f} us" if "cool_own_us" in row else "",
        "in the driver": f"{row['driver_us']:.1f} us" if "driver_us" in row else "",
        "whole": f"{row['whole_us']:.1f} us",
        "launches": str(row["launches"]) if "launches" in row else "",
        "waits": str(row["waits"]) if "waits" in row else "",
        "allocations": str(row["allocations"]) if row.get("allocations") is not None else "",
    }


def host_sections(result):
    """A section: what calls of PyTorch's operators and modules cost the host."""
    return ["\n\n".join([
        "### Host time of a call from PyTorch",
        f"{source_text(result)} `recipe` {result['recipe']}, {result['tokens']} tokens. Calls follow one "
        "another. Calls \"after a wait\" follow a wait for the GPU, and find caches cool. Launches and waits are "
        "`moejit`'s own.",
        f"```sh\n{result['command_line']}\n```",
        table([host_row(row) for row in result["calls"]])])]


SECTIONS = {"hf_experts": step_sections, "hf_experts_host": host_sections}
