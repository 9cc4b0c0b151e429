#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/training/losses.svg from docs/training/losses.json, which docs/examples/train/train.cpp writes with
--losses. It shows how far the loss of each recipe is from bf16's, step by step, as the mean of 25 steps. A lint test
checks that the plot is what this script makes.

  python3 docs/generate_training_plot.py
"""
import json
import math
import pathlib
import statistics

from svg import TEXT, picture, text

FOLDER = pathlib.Path(__file__).resolve().parent / "training"
PLOT = FOLDER / "losses.svg"
WINDOW = 25

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 70, 150, 56, 44
GRID = TEXT + "55"
COLOURS = ("#1a7f37", "#2f7fd8", "#a0793d", "#b3478f", "#c0392b", "#6c5fc7", "#148f8f")


def deviations(losses, bf16):
    """Percent that a loss lies above bf16's, the mean over a window behind each step from the first whole one on."""
    percent = [100.0 * (loss - base) / base for loss, base in zip(losses, bf16)]
    return [statistics.fmean(percent[i - WINDOW:i]) for i in range(WINDOW, len(percent) + 1)]


def grid(steps, low, high, x, y):
    """Lines at tenths of a percent from low to high, with their numbers, and the numbers of hundreds of steps."""
    parts = []
    for tenth in range(low, high + 1):
        height = round(y(tenth / 10), 1)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}" '
                     f'stroke="{TEXT if tenth == 0 else GRID}"/>')
        parts.append(text(LEFT - 8, height + 5, f"{tenth / 10:+.1f} %" if tenth else "0", anchor="end"))
    for step in range(0, steps + 1, 100):
        parts.append(text(round(x(step), 1), HEIGHT - BOTTOM + 22, str(step), anchor="middle"))
    return parts


def labels(ends):
    """The heights of labels at the ends of lines, moved apart where lines end together."""
    ordered = sorted(ends.items(), key=lambda end: end[1])
    heights, last = {}, float("-inf")
    for name, height in ordered:
        heights[name] = last = max(height + 5, last + 18)
    last = HEIGHT - BOTTOM + 18
    for name, _ in reversed(ordered):
        heights[name] = last = min(heights[name], last - 18)
    return {name: round(height, 1) for name, height in heights.items()}


def svg(result):
    """The plot of a result, as text."""
    bf16 = result["losses"]["bf16"]
    lines = {name: deviations(losses, bf16) for name, losses in result["losses"].items() if name != "bf16"}
    steps = len(bf16)
    values = [value for line in lines.values() for value in line]
    low, high = min(-1, math.floor(10 * min(values))), max(1, math.ceil(10 * max(values)))  # in tenths

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(percent):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - 10 * percent) / (high - low)

    title = f"Loss above bf16's, mean of {WINDOW} steps: two MoE blocks, same weights, same tokens"
    parts = [text(12, 24, title, size=17, weight="bold"), *grid(steps, low, high, x, y)]
    heights = labels({name: y(line[-1]) for name, line in lines.items()})
    for (name, line), colour in zip(lines.items(), COLOURS):
        points = " ".join(f"{x(WINDOW + i):.1f},{y(value):.1f}" for i, value in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(text(WIDTH - RIGHT + 8, heights[name], name, weight="bold", colour=colour))
    return picture(WIDTH, HEIGHT, title, parts)


def plot(folder):
    """The plot of a folder's result."""
    return svg(json.loads((folder / "losses.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    PLOT.write_text(plot(FOLDER), encoding="utf-8")
