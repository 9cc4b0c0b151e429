#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/performance/ranks.svg from docs/performance/*-expert-parallel.json, the results of
tests/bench/ranks_bench.py. It shows the time of dispatch and of combine by the number of ranks, 4096 tokens each,
beside the wire and NCCL. A lint test checks that the plot is what this script makes.

  python3 docs/generate_ranks_plot.py [--check]   --check: write nothing, status 1 where it differs
"""
import json
import pathlib
import sys

from expert_parallel_sections import floors
from svg import picture, text

FOLDER = pathlib.Path(__file__).resolve().parent / "performance"
PLOT = FOLDER / "ranks.svg"
TOKENS = 4096
WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 900, 250, 90
ROW, BAR, HEADING, TITLE, MARGIN = 24, 16, 40, 40, 12
COLOURS = {"moejit": "#1a7f37", "wire": "#2f7fd8", "NCCL, rows alone": "#a0793d", "NCCL, eager": "#b0563d"}


def bars_of(result, what):
    """Name, ranks and microseconds of each bar of dispatch or combine."""
    bars = []
    for ranks in result["ranks"]:
        found = {}
        for line in result["exchange"]:
            if (line["ranks"], line["tokens"], line["skew"]) == (ranks, TOKENS, 1):
                found["wire"] = floors(result, ranks, TOKENS)[what == "combine"]
                found["moejit"] = line[f"{what}_us"]
        for line in result.get("nccl", []):
            if (line["ranks"], line["tokens"]) == (ranks, TOKENS):
                found["NCCL, rows alone"] = line[f"{what}_payload_us"]
                found["NCCL, eager"] = line[f"{what}_eager_us"]
        bars += [(name, ranks, found[name]) for name in COLOURS if found.get(name)]
    return bars


def svg(results):
    title = f"Dispatch and combine, {TOKENS} tokens on each rank: less is better"
    parts, y = [text(MARGIN, 24, title, size=17, weight="bold")], TITLE
    room = WIDTH - LABEL_WIDTH - FIGURE_WIDTH
    longest = max(bar[2] for result in results for what in ("dispatch", "combine") for bar in bars_of(result, what))
    for result in results:
        for what in ("dispatch", "combine"):
            parts.append(text(MARGIN, y + 26, f"{what}, {result['gpu']['name']}", size=15, weight="bold"))
            y += HEADING
            for name, ranks, microseconds in bars_of(result, what):
                length = round(room * microseconds / longest, 1)
                parts += [text(LABEL_WIDTH - 10, y + 17, f"{ranks} ranks, {name}", anchor="end"),
                          f'<rect x="{LABEL_WIDTH}" y="{y + (ROW - BAR) // 2}" width="{length}" height="{BAR}" '
                          f'fill="{COLOURS[name]}"/>',
                          text(round(LABEL_WIDTH + length + 8, 1), y + 17, f"{microseconds:.0f} us", weight="bold")]
                y += ROW
    height = y + MARGIN
    return picture(WIDTH, height, title, parts)


def plot(folder):
    """The plot of a folder's result files, None where there are none."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-expert-parallel.json"))]
    return svg(results) if results else None


def main():
    wanted = plot(FOLDER)
    if "--check" not in sys.argv[1:]:
        if wanted is None:
            sys.exit("docs/performance: no result named *-expert-parallel.json, as ranks_bench.py prints it")
        PLOT.write_text(wanted, encoding="utf-8")
    elif (PLOT.read_text(encoding="utf-8") if PLOT.exists() else None) != wanted:
        sys.exit("docs/performance/ranks.svg: differs from what the results give: run python3 docs/generate_ranks_plot.py")


if __name__ == "__main__":
    main()
