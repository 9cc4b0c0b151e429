# SPDX-License-Identifier: Apache-2.0
"""`moejit env` of the Python package: the tool's report, and the lines that Python adds."""
from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

from moejit import frameworks, library


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report: its subject, whether all is well, and what was found or what to do."""
    name: str
    is_found: bool
    text: str


def _find_package() -> Finding:
    try:
        return Finding("Python package", True, f"moejit {library.version()}, {pathlib.Path(__file__).parent}")
    except ImportError as error:
        return Finding("Python package", False, _one_line(error))


def _find_python() -> Finding:
    return Finding("Python", True, f"{sys.version.split()[0]}, {sys.executable}")


def _find_torch() -> Finding:
    version = frameworks.installed_version("torch")
    if version is None:
        return Finding("torch", False, "not installed: moejit.torch cannot be imported; pip install torch")
    if not frameworks.is_new_enough(version, frameworks.OLDEST_TORCH):
        return Finding("torch", False, f"{version}: moejit.torch cannot be imported; wanted "
                                       f"{frameworks.text_of(frameworks.OLDEST_TORCH)} or newer: "
                                       "pip install --upgrade torch")
    return Finding("torch", True, version)


def _find_operators() -> Finding:
    file = frameworks.torch_library_path()
    if file.is_file():
        return Finding("torch operators", True, str(file))
    return Finding("torch operators", False,
                   f"there is no {file}: moejit.torch cannot be imported; reinstall the package")


def _find_transformers() -> Finding:
    version = frameworks.installed_version("transformers")
    if version is None:
        return Finding("transformers", False, "not installed: moejit.torch.register_hf() fails; pip install "
                                              "transformers")
    if not frameworks.is_new_enough(version, frameworks.OLDEST_TRANSFORMERS):
        return Finding("transformers", False, f"{version}: moejit.torch.register_hf() fails; wanted "
                                              f"{frameworks.text_of(frameworks.OLDEST_TRANSFORMERS)} or newer: "
                                              "pip install --upgrade transformers")
    return Finding("transformers", True, version)


def _find_nvrtc(tools: dict) -> Finding:
    found = tools.get("compiler of cuda", {})
    if found.get("found"):
        return Finding("NVRTC", True, found["text"])
    return Finding("NVRTC", False, "not found: kernels for GPUs cannot be compiled; pip install "
                                   "'moejit[cuda]', or set MOEJIT_NVRTC")


def _one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", "; ", str(error))


def findings(tools: dict) -> list[Finding]:
    """Returns the lines that Python adds to a report of the tool, given its JSON."""
    return [_find_package(), _find_python(), _find_nvrtc(tools), _find_torch(), _find_operators(), _find_transformers()]


def report(program: str, arguments: list[str]) -> int:
    """Prints the report of `moejit env` and returns the exit status.

    Args:
        program: The path of the tool.
        arguments: The command line's arguments, "env" first.
    """
    told = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if told.returncode != 0:
        sys.stdout.write(told.stdout)
        return told.returncode
    if "--json" in arguments:
        tools = json.loads(told.stdout)
        tools["python"] = {found.name: {"found": found.is_found, "text": found.text} for found in findings(tools)}
        print(json.dumps(tools, indent=2))
        return 0
    asked = subprocess.run([program, "env", "--json"], stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(told.stdout + "\n")
    for found in findings(json.loads(asked.stdout) if asked.returncode == 0 else {}):
        print(f"{found.name:<25}{'' if found.is_found else 'missing: '}{found.text}")
    return 0
