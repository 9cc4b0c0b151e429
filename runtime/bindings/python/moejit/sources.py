# SPDX-License-Identifier: Apache-2.0
"""Reads JSON from mappings, texts and files."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping, Sequence, Union

# One path or several; None leaves the choice to an environment variable.
Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]], None]


def read_source(source: Mapping[str, Any] | str | os.PathLike, name: str,
                file_in_folder: str = "") -> tuple[bytes, str]:
    """Returns JSON and its name in errors.

    Args:
        source: A mapping; JSON, which begins with "{"; or a path.
        name: The name in errors of a source that is no file.
        file_in_folder: The file to read if the path is a folder.

    Raises:
        OSError: The file cannot be read.
        TypeError: The source is none of these.
    """
    if isinstance(source, Mapping):
        return json.dumps(dict(source)).encode(), name
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return source.encode(), name
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"{name} is a {type(source).__name__}, wanted a dict, JSON or a path")
    path = pathlib.Path(source)
    if file_in_folder and path.is_dir():
        path /= file_in_folder
    return path.read_bytes(), str(path)


def join_paths(paths: Paths) -> bytes | None:
    """Returns one path or several as the C interface takes them, separated by ":"; None stays None."""
    if paths is None:
        return None
    if isinstance(paths, (str, os.PathLike)):
        return os.fsencode(paths)
    return b":".join(map(os.fsencode, paths))
