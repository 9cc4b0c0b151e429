#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md from docs/performance/. It takes the text of page.md, in which {{summary}} stands for a
table of all training steps. {{results}} stands for a section per GPU, with one per result file in it. Result files are
*.json, as `moejit bench [--gemms] --json`, hf_experts_bench.py and ranks_bench.py print them, in the order of their
names. A lint test checks that the page is what this script makes.

  python3 docs/generate_performance.py [--check]   --check: write nothing, status 1 where it differs
"""
import json
import pathlib
import re
import sys

import expert_parallel_sections
import hf_experts_sections
from performance_summary import summary
from performance_text import bytes_text, gpu_text, layer_command, table, time_text

SECTIONS = {**hf_experts_sections.SECTIONS, **expert_parallel_sections.SECTIONS,
            "megatron": lambda result: []}  # megatron.md has its plot
DOCS = pathlib.Path(__file__).resolve().parent
SHAPE = ("experts", "local_experts", "top_k", "hidden", "intermediate", "splits_alignment")
PLACE = re.compile(r"^\{\{(summary|results)\}\}$", re.MULTILINE)
SIBLING = re.compile(r"\]\((?=[\w-]+\.md)")  # page.md lies one folder below the page
NO_RESULTS = "None with the present bench yet; [history](performance/history.md) has what was measured before it."


def kernel_row(kernel, copy_bytes_per_second):
    """A line of a layer's table."""
    multiplies = kernel["multiply_adds"] > 0
    hot_bytes_per_second = 1e6 * kernel["min_bytes"] / kernel["hot_us"]
    return {
        "kernel": kernel["operation"],
        "cool": time_text(kernel["cool_us"]),
        "MHz, cool": f"{kernel['cool_mhz']:.0f}",
        "hot": time_text(kernel["hot_us"]),
        "MHz, hot": f"{kernel['hot_mhz']:.0f}",
        "W, hot": f"{kernel['hot_watts']:.0f}" if "hot_watts" in kernel else "",
        "least bytes": bytes_text(kernel["min_bytes"]),
        "share of copy, cool": f"{kernel['share_of_copy']:.2f}",
        "share of copy, hot": f"{hot_bytes_per_second / copy_bytes_per_second:.2f}",
        "TFLOP/s, cool": f"{kernel['flops_cool'] * 1e-12:.0f}" if multiplies else "",
        "util, cool": f"{kernel['util_cool']:.3f}" if multiplies else "",
        "TFLOP/s, hot": f"{kernel['flops_hot'] * 1e-12:.0f}" if multiplies else "",
        "util, hot": f"{kernel['util_hot']:.3f}" if multiplies else "",
    }


def throttle_text(kernels):
    """Which kernels ran hot at a clock that something held down, by reason; empty where none did."""
    held = {}
    for kernel in kernels:
        for reason in kernel.get("hot_throttle_reasons", []):
            held.setdefault(reason, []).append(kernel["operation"])
    sentences = [f"`{reason}` held down the clock of {', '.join(names)}." for reason, names in held.items()]
    return " ".join(sentences)


def clock_text(kernels):
    """A warning where the clock of kernels that multiply is not their own; empty where it is."""
    probed = [kernel["operation"] for kernel in kernels
              if kernel["multiply_adds"] > 0 and kernel.get("clock_of", "probe") == "probe"]
    if not probed:
        return ""
    return (f"The clock of {', '.join(probed)} is a probe's behind them, which saw 1.38 to 1.43 GHz where such a GEMM "
            "itself counted 1.24 to 1.28: their util, hot, is up to 0.1 too low.")


def step_text(result):
    """What was measured of forward and backward passes together, if they were."""
    if "step_hot_us" not in result:
        return ""
    return (f" A forward and a backward pass that adds to `dw1` and `dw2`, hot: "
            f"**{time_text(result['step_hot_us'])}** at {result['step_hot_mhz']:.0f} MHz; workspace "
            f"{bytes_text(result['workspace_bytes'])}, saved for backward "
            f"{bytes_text(result['saved_bytes'])}.")


def section(result):
    layer = result["description"]
    shape = ", ".join(f"`{name}` {layer[name]}" for name in SHAPE)
    paragraphs = [
        f"### {result['layer']}, {result['tokens']} tokens{', training' if 'step_hot_us' in result else ''}",
        f"{gpu_text(result['gpu'])}, {result['date'][:10]}. {shape}, `recipe` {layer['recipe']}: "
        f"{result['routed_rows']} routed rows, {result['padded_rows']} with pad rows. Copy bandwidth "
        f"{result['copy_bytes_per_second'] * 1e-12:.2f} TB/s. A forward pass, hot: "
        f"{time_text(result['forward_hot_us'])} at {result['forward_hot_mhz']:.0f} MHz."
        + step_text(result),
        f"```sh\n{layer_command(result['command_line'])}\n```",
        table([kernel_row(kernel, result["copy_bytes_per_second"]) for kernel in result["kernels"]]),
        throttle_text(result["kernels"]),
        clock_text(result["kernels"]),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def speed_columns(gemm):
    return {
        "cool": time_text(gemm["cool_us"]),
        "TFLOP/s, cool": f"{gemm['flops_cool'] * 1e-12:.0f}",
        "util, cool": f"{gemm['util_cool']:.3f}",
        "hot": time_text(gemm["hot_us"]),
        "MHz, hot": f"{gemm['hot_mhz']:.0f}",
        "TFLOP/s, hot": f"{gemm['flops_hot'] * 1e-12:.0f}",
        "util, hot": f"{gemm['util_hot']:.3f}",
        "TB/s, hot": f"{gemm['min_bytes'] / gemm['hot_us'] * 1e-6:.2f}",
    }


def gemm_row(gemm):
    rows = f"{gemm['rows_per_group']}{' +- 30 %' if gemm['ragged'] else ''}"
    return {
        "case": gemm["name"],
        "groups x rows": f"{gemm['groups']} x {rows}",
        "N, K": f"{gemm['n']}, {gemm['k']}",
        **speed_columns(gemm),
    }


def gradient_row(gemm):
    columns = f"{gemm['columns_per_group']}{' +- 30 %' if gemm['ragged'] else ''}"
    return {
        "case": gemm["name"],
        "groups x tokens": f"{gemm['groups']} x {columns}",
        "rows, N": f"{gemm['rows']}, {gemm['n']}",
        "scales, output": f"{gemm['scales']}, {gemm['output']}",
        **speed_columns(gemm),
    }


def gemms_sections(result):
    """A section for each operation that the cases have."""
    rows = [gemm_row(gemm) for gemm in result["gemms"] if gemm["operation"] == "grouped_gemm"]
    gradient_rows = [gradient_row(gemm) for gemm in result["gemms"] if gemm["operation"] == "contraction_grouped_gemm"]
    sections = []
    if rows:
        sections.append(
            gemms_section(result, rows, "Grouped GEMMs",
                          "Only the useful multiply-adds of real rows and columns are counted; TB/s are least bytes "
                          "over time. `shared` stands for `scale_sharing_k` 2, `ragged` for `splits_alignment` 1 where "
                          "groups are small."))
    if gradient_rows:
        sections.append(
            gemms_section(result, gradient_rows, "Weight gradients",
                          "Only the useful multiply-adds of real tokens are counted; TB/s are least bytes over time: "
                          "operands once, and the gradient once or, with `f32_add`, twice."))
    return sections


def gemms_section(result, rows, heading, explanation):
    paragraphs = [
        f"### {heading}",
        f"{gpu_text(result['gpu'])}, {result['date'][:10]}. {explanation}",
        f"```sh\n{result['command_line']}\n```",
        table(rows),
    ]
    return "\n\n".join(paragraphs)


def sections_of(result):
    if "kind" in result:
        return SECTIONS[result["kind"]](result)
    return gemms_sections(result) if "gemms" in result else [section(result)]


def gpu_sections(results):
    """All sections, each GPU's behind its name; GPUs in the order of their first results."""
    by_gpu = {}
    for result in results:
        by_gpu.setdefault(result["gpu"]["name"], []).extend(sections_of(result))
    return [text for name, sections in by_gpu.items() for text in [f"## {name}", *sections]]


def page(folder):
    """The text of docs/performance.md from the files of a folder."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]

    def filled(match):
        if match.group(1) == "summary":
            return summary(results) if results else NO_RESULTS
        return "\n\n".join(gpu_sections(results)) or NO_RESULTS

    text = (folder / "page.md").read_text(encoding="utf-8")
    return PLACE.sub(filled, SIBLING.sub("](performance/", text))


def main():
    target = DOCS / "performance.md"
    text = page(DOCS / "performance")
    if "--check" not in sys.argv[1:]:
        target.write_text(text, encoding="utf-8")
    elif target.read_text(encoding="utf-8") != text:
        sys.exit("docs/performance.md: differs from what docs/performance/ gives: "
                 "run python3 docs/generate_performance.py")


if __name__ == "__main__":
    main()
