#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/performance/megatron.svg from docs/performance/*-megatron.json, the results of
tests/bench/megatron_bench.py: for each layer the time of a hot step, and the peak of its memory. A lint test checks that
the plot is what this script makes.

  python3 docs/generate_megatron_plot.py
"""
import json
import pathlib

from generate_step_times import figure_text, longest_of
from svg import picture, text

FOLDER = pathlib.Path(__file__).resolve().parent / "performance"
PLOT = FOLDER / "megatron.svg"

WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 900, 270, 90
ROW, BAR, HEADING, TITLE, MARGIN = 26, 18, 68, 32, 12
ROOM = (WIDTH - LABEL_WIDTH) // 2 - FIGURE_WIDTH
GAP = 24  # of a bar that is cut
COLOURS = {"moejit fp8": "#1a7f37", "moejit bf16": "#2f7fd8"}
OTHER_COLOUR = "#a0793d"
QUANTITIES = (("hot step, ms", "step_hot_ms", 1.0), ("peak memory, MiB", "peak_bytes", 2.0 ** -20))


def colour_of(name):
    return next((colour for begin, colour in COLOURS.items() if name.startswith(begin)), OTHER_COLOUR)


def bar(value, longest, left, y, colour):
    """A bar with its figure. One that is longer than the plot has a gap before its end."""
    top = y + (ROW - BAR) // 2
    length = round(ROOM * min(value / longest, 1.0), 1)
    pieces = [(left, length)] if value <= longest else [(left, ROOM - GAP - 8), (left + ROOM - GAP, GAP)]
    parts = [f'<rect x="{x}" y="{top}" width="{width}" height="{BAR}" fill="{colour}"/>' for x, width in pieces]
    figure = figure_text(value) if value < 999.5 else f"{value:.0f}"
    return [*parts, text(round(left + length + 8, 1), y + 18, figure, weight="bold")]


def group(case, gpu, y):
    """The bars of a case, and where the next group begins."""
    rows = [row for row in case["layers"] if "step_hot_ms" in row]
    parts = [text(MARGIN, y + 28, f"{case['name']}, {gpu}", size=15, weight="bold")]
    for column, (heading, field, unit) in enumerate(QUANTITIES):
        left = LABEL_WIDTH + column * (ROOM + FIGURE_WIDTH)
        parts.append(text(left, y + HEADING - 10, heading))
        values = [unit * row[field] if row[field] is not None else None for row in rows]
        longest = longest_of([value for value in values if value is not None])
        for place, (row, value) in enumerate(zip(rows, values)):
            if value is not None:
                parts += bar(value, longest, left, y + HEADING + place * ROW, colour_of(row["experts"]))
    for place, row in enumerate(rows):
        parts.append(text(LABEL_WIDTH - 10, y + HEADING + place * ROW + 18, row["experts"], anchor="end"))
    return parts, y + HEADING + len(rows) * ROW


def svg(results):
    """The plot of results, as text."""
    title = "MoELayer of Megatron-Core, forward and backward, by its experts: less is better"
    parts, y = [text(MARGIN, 24, title, size=17, weight="bold")], TITLE
    for result in results:
        for case in result["cases"]:
            drawn, y = group(case, result["gpu"]["name"], y)
            parts += drawn
    return picture(WIDTH, y + MARGIN, title, parts)


def plot(folder):
    """The plot of a folder's result files, None where there are none."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-megatron.json"))]
    return svg(results) if results else None


if __name__ == "__main__":
    PLOT.write_text(plot(FOLDER), encoding="utf-8")
