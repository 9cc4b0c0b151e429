# SPDX-License-Identifier: Apache-2.0
"""The commands of a page of the docs, read out of its fenced blocks.

A block marked `sh` is run, all of it; of other blocks the lines that begin with `$ `, as a terminal shows them. A block
marked `cmake` whose first line is a comment with the name of a file is that file. What cannot run
here says why, in a comment right above the block: <!-- not run: REASON -->, with one of REASONS."""
import dataclasses
import re
import subprocess

REASONS = ("needs a GPU", "needs another machine", "shows a failure", "takes minutes")
FENCE = re.compile(r"^```(\w*)$")
MARK = re.compile(r"^<!-- not run: (.+) -->$")
# A command that nobody marked as one would never be run.
COMMAND = re.compile(r"^([A-Z_]+=\S+ )*(moejit|cmake|cc|make) \S")


@dataclasses.dataclass
class Command:
    line: int  # of the page, from 1
    text: str
    shown: tuple = ()  # the lines below it that the page shows as its output


@dataclasses.dataclass
class File:
    line: int
    name: str
    text: str


@dataclasses.dataclass
class Page:
    steps: list  # of Command and File, in their order
    not_run: dict  # of reasons, how many commands
    problems: list  # sentences


# A command that would write, or read, outside of the reader's own folders.
ABSOLUTE = re.compile(r"(?:^|[\s=\"'])/(?!dev/)\w")


def is_whole(text):
    """Whether a shell would run the text now instead of waiting for more of it."""
    if text.endswith("\\"):
        return False
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0


def shell_commands(lines, first):
    """The commands in lines of a shell, of which the first has this number."""
    commands, text, start = [], "", first
    for number, line in enumerate(lines, start=first):
        if not text:
            start = number
        text += ("\n" if text else "") + line
        if is_whole(text):
            if text.split("#")[0].strip():
                commands.append(Command(start, text))
            text = ""
    return commands + ([Command(start, text)] if text else [])


def block_steps(language, lines, first):
    if language == "sh":
        return shell_commands(lines, first)
    if language == "cmake" and lines and lines[0].startswith("# ") and lines[0].endswith(".txt"):
        return [File(first, lines[0][2:], "\n".join(lines) + "\n")]
    commands = []
    for number, line in enumerate(lines, start=first):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:]))
        elif commands:
            commands[-1].shown += (line,)
    return commands


NUMBER = re.compile(r"[0-9a-f]{7,}|\d[\d.]*")


def shape_of(line):
    """A line without what differs from machine to machine: numbers, paths and, in rows of tables, all but the first
    cell. A line of cells without any number is a heading, and whole."""
    cells = re.split(r"  +", line.strip())
    if len(cells) > 2 and not NUMBER.search(line):
        return " ".join(cells)
    return NUMBER.sub("#", re.sub(r"/\S+", "/", cells[0]))


def unprinted(command, output):
    """The lines that the page shows and the command did not print, in any order; `...` stands for any lines."""
    printed = {shape_of(line) for line in output.splitlines()}
    return [line for line in command.shown if line.strip() not in ("", "...") and shape_of(line) not in printed]


def read_page(name, text):
    page = Page([], {}, [])
    language, reason, lines, first = None, None, [], 0
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if language is None:
            mark = MARK.match(line)
            if fence:
                language, lines, first = fence.group(1), [], number + 1
            else:
                reason = mark.group(1) if mark else None
                if reason is not None and reason not in REASONS:
                    page.problems.append(f"{name}:{number}: not run: {reason}; wanted one of {', '.join(REASONS)}")
        elif line == "```":
            steps = block_steps(language, lines, first)
            if reason is None:
                page.steps += steps
                page.problems += [f"{name}:{step.line}: names a folder of the machine: {step.text}" for step in steps
                                  if isinstance(step, Command) and ABSOLUTE.search(step.text)]
            else:
                page.not_run[reason] = page.not_run.get(reason, 0) + len(steps)
                if not steps:
                    page.problems.append(f"{name}:{first}: a mark on a block without commands")
            language, reason = None, None
        else:
            if language != "sh" and COMMAND.match(line):
                page.problems.append(f"{name}:{number}: a command in a block that is not marked sh: {line}")
            lines.append(line)
    return page
