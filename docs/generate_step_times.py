#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/performance/step_times.svg from docs/performance/*-hf-experts.json, the results of
tests/bench/hf_experts_bench.py. It has a bar for the hot step of each implementation, the groups in the order of the
files' names. A lint test checks that the plot is what this script makes.

  python3 docs/generate_step_times.py [--check]   --check: write nothing, status 1 where it differs
"""
import json
import pathlib
import sys

from svg import picture, text

FOLDER = pathlib.Path(__file__).resolve().parent / "performance"
PLOT = FOLDER / "step_times.svg"
BASELINE = ("grouped_mm", "eager")

WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 900, 290, 150
ROW, BAR, HEADING, TITLE, MARGIN = 26, 18, 44, 52, 12
COLOURS = {"moejit fp8_flow": "#1a7f37", "moejit bf16": "#2f7fd8"}
OTHER_COLOUR = "#a0793d"


def figure_text(value):
    """Three digits: 3.75, 10.6, 249."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def label_of(row):
    """What a bar is called."""
    name = row["implementation"]
    if not name.startswith("moejit"):
        name = "transformers " + name
    return name + (", compiled" if row["mode"] == "compiled" else "")


def baseline_of(rows):
    """The hot step that others are compared with, None where it did not run."""
    return next((row["step_hot_ms"] for row in rows if (row["implementation"], row["mode"]) == BASELINE), None)


def longest_of(steps):
    """What the whole width stands for: the longest step, without those that would make all others too short to see.

    transformers' loop over experts may take twenty times as long as the next one.
    """
    ordered = sorted(steps)
    while len(ordered) > 1 and ordered[-1] > 2 * ordered[-2]:
        ordered.pop()
    return ordered[-1] if ordered else 1.0


def bar(row, y, longest, baseline):
    """One row: label, bar, figure. A bar that is longer than the plot is cut, with a gap before its end."""
    step = row["step_hot_ms"]
    room = WIDTH - LABEL_WIDTH - FIGURE_WIDTH
    length = round(room * min(step / longest, 1.0), 1)
    colour = COLOURS.get(row["implementation"], OTHER_COLOUR)
    top = y + (ROW - BAR) // 2
    parts = [text(LABEL_WIDTH - 10, y + 18, label_of(row), anchor="end")]
    if step <= longest:
        parts.append(f'<rect x="{LABEL_WIDTH}" y="{top}" width="{length}" height="{BAR}" fill="{colour}"/>')
    else:
        for x, width in ((LABEL_WIDTH, room - 30), (LABEL_WIDTH + room - 22, 22)):
            parts.append(f'<rect x="{x}" y="{top}" width="{width}" height="{BAR}" fill="{colour}"/>')
    figure = f"{figure_text(step)} ms"
    if baseline is not None and row["implementation"].startswith("moejit"):
        figure += f" ({figure_text(baseline / step)} x)"
    parts.append(text(round(LABEL_WIDTH + length + 8, 1), y + 18, figure, weight="bold"))
    return parts


def group(case, gpu, y):
    """The bars of a case, and where the next group begins."""
    rows = [row for row in case["results"] if "step_hot_ms" in row]
    baseline = baseline_of(rows)
    longest = longest_of(row["step_hot_ms"] for row in rows)
    parts = [text(MARGIN, y + 28, f"{case['name']}, {case['tokens']} tokens, {gpu}", size=15, weight="bold")]
    y += HEADING
    for row in rows:
        parts += bar(row, y, longest, baseline)
        y += ROW
    return parts, y


def svg(results):
    """The plot of results, as text."""
    title = "The experts of one layer, a forward and a backward pass: less is better"
    note = "In parentheses: how many times as fast as transformers grouped_mm, the default."
    parts, y = [text(MARGIN, 24, title, size=17, weight="bold"), text(MARGIN, 46, note)], TITLE
    for result in results:
        for case in result["cases"]:
            drawn, y = group(case, result["gpu"]["name"], y)
            parts += drawn
    height = y + MARGIN
    return picture(WIDTH, height, title, parts)


def plot(folder):
    """The plot of a folder's result files, None where there are none."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-hf-experts.json"))]
    return svg(results) if results else None


def main():
    wanted = plot(FOLDER)
    if "--check" not in sys.argv[1:]:
        if wanted is None:
            sys.exit("docs/performance: no result named *-hf-experts.json, as hf_experts_bench.py prints it")
        PLOT.write_text(wanted, encoding="utf-8")
    elif (PLOT.read_text(encoding="utf-8") if PLOT.exists() else None) != wanted:
        sys.exit(f"docs/performance/{PLOT.name}: differs from what the results give: "
                 "run python3 docs/generate_step_times.py")


if __name__ == "__main__":
    main()
