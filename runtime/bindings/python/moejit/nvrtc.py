# SPDX-License-Identifier: Apache-2.0
"""Finds the NVRTC of installed wheels: nvidia-cuda-nvrtc, which moejit[cuda] and torch depend on.

The library does not know Python's folders, but takes the path of NVRTC from MOEJIT_NVRTC (docs/environment.md).
"""
from __future__ import annotations

import importlib.util
import os
import pathlib
import re

_CUDA_13 = "cu13/lib/libnvrtc.so.13"
_CUDA_12 = "cuda_nvrtc/lib/libnvrtc.so.12"
_OLDEST = (12, 4)
_TOOLKIT = "/usr/local/cuda"


def find() -> pathlib.Path | None:
    """Returns the best NVRTC among the installed wheels; None if there is none.

    Any version of CUDA 13 will do. A version of CUDA 12 must be 12.4 or newer, and is taken only if there is no CUDA
    toolkit, which the library prefers.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    for place in (_CUDA_13,) if _has_toolkit() else (_CUDA_13, _CUDA_12):
        for folder in folders:
            if (folder / place).is_file() and _release(folder / place) >= _OLDEST:
                return folder / place
    return None


def _has_toolkit() -> bool:
    return any(os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")) or os.path.isdir(_TOOLKIT)


def _release(file: pathlib.Path) -> tuple[int, int]:
    """Returns the major and minor version, taken from the name of the built-in functions' library beside it."""
    for builtins in file.parent.glob("libnvrtc-builtins.so.*"):
        found = re.fullmatch(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)", builtins.name)
        if found:
            return int(found.group(1)), int(found.group(2))
    return 0, 0


def choose() -> pathlib.Path | None:
    """Sets MOEJIT_NVRTC to a wheel's NVRTC, if it is not set and there is one; returns that path."""
    if os.environ.get("MOEJIT_NVRTC"):
        return None
    file = find()
    if file is not None:
        os.environ["MOEJIT_NVRTC"] = str(file)
    return file
