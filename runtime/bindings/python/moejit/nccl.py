# SPDX-License-Identifier: Apache-2.0
"""NCCL, which moves the bytes of groups between hosts: the library of installed wheels, and ids of groups."""
from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
from ctypes import c_uint8

from moejit.library import load

ID_BYTES = 128
_NAME = "libnccl.so.2"


@functools.lru_cache(maxsize=None)
def open_wheel() -> ctypes.CDLL | None:
    """Opens the NCCL of an installed wheel, unless the process has one: torch brings the same wheel.

    The library asks the dynamic linker for libnccl.so.2, which takes one that is open already before it searches.

    Returns:
        What it opened, which stays open.
    """
    try:
        ctypes.CDLL(_NAME, os.RTLD_NOW | os.RTLD_NOLOAD)
        return None
    except OSError:
        pass
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = pathlib.Path(folder) / "nccl" / "lib" / _NAME
        if file.is_file():
            return ctypes.CDLL(str(file))
    return None


def nccl_make_id() -> bytes:
    """Returns the id by which the ranks of a group over NCCL find each other: 128 bytes, for one group.

    One rank makes it, and sends it to all others by its own means: a broadcast, a store, a file.

    Raises:
        Error: "driver_missing": there is no libnccl.so.2, or it is older than 2.18; "driver": in NCCL's words.
    """
    open_wheel()
    made = (c_uint8 * ID_BYTES)()
    load().moejit_nccl_make_id(made)
    return bytes(made)
