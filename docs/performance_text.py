# SPDX-License-Identifier: Apache-2.0
"""Figures as text, as the pages and plots of docs/performance/ have them."""
import re


def time_text(microseconds):
    """As the tool prints it (cli/terminal/table.cpp)."""
    if microseconds < 999.95:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1e3:.2f} ms" if microseconds < 999.995e3 else f"{microseconds / 1e6:.2f} s"


def bytes_text(count):
    """As the tool prints it."""
    if count < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024 or unit == "TiB":
            return f"{count:.1f} {unit}"


def table(rows):
    """A table with the keys of the first row as headings; columns that are empty in all rows go."""
    headings = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(row[name] for name in headings) + " |" for row in rows]
    return re.sub(r"\|  (?=\|)", "| ", "\n".join(lines))


def layer_command(command_line):
    """The command with the folder of its layer, which was the working directory when it ran."""
    return re.sub(r"(?<= )(?=[\w.-]+\.json\b)", "docs/performance/layers/", command_line, count=1)


def gpu_text(gpu):
    facts = [gpu["name"], f"{gpu['sm_count']} SMs"]
    if "power_limit_watts" in gpu:
        facts.append(f"{gpu['power_limit_watts']:.0f} W")
    if "most_mhz" in gpu:
        facts.append(f"at most {gpu['most_mhz']} MHz")
    if "driver" in gpu:
        facts.append(f"driver {gpu['driver']}")
    if "cuda" in gpu:
        facts.append(f"CUDA {gpu['cuda']}")
    return ", ".join(facts)
