# SPDX-License-Identifier: Apache-2.0
"""Runs the command line tool of the package."""
from __future__ import annotations

import os
import pathlib
import sys

from moejit import nvrtc


def tool_path() -> pathlib.Path:
    """Returns the path of the program moejit: the one in MOEJIT_TOOL, else the one in the package.

    Raises:
        FileNotFoundError: The program is missing.
    """
    given = os.environ.get("MOEJIT_TOOL")
    path = pathlib.Path(given) if given else pathlib.Path(__file__).resolve().parent / "bin" / "moejit"
    if not path.is_file():
        raise FileNotFoundError(
            f"moejit: the program moejit is missing: there is no file {path}\n"
            "hint: install the package (pip install . in a checkout), or set MOEJIT_TOOL to the path of a program that "
            "was built (build/release/moejit)")
    return path


def main() -> None:
    """Turns this process into the program moejit, with the same arguments; `env` also reports on Python."""
    arguments = sys.argv[1:]
    nvrtc.choose()
    try:
        program = str(tool_path())
    except FileNotFoundError as error:
        sys.exit(str(error))
    if arguments[:1] == ["env"] and not {"--help", "-h"} & set(arguments):
        from moejit import environment  # imported only here, since it imports much

        sys.exit(environment.report(program, arguments))
    os.execv(program, ["moejit", *arguments])
