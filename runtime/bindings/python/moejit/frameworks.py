# SPDX-License-Identifier: Apache-2.0
"""Tells which frameworks are installed, without importing them."""
from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import re

from moejit import library

OLDEST_TORCH = (2, 10)
OLDEST_JAX = (0, 10)
OLDEST_FLAX = (0, 12)
OLDEST_TRANSFORMERS = (5, 0)


def installed_version(name: str) -> str | None:
    """Returns the version of an installed distribution; None if there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def text_of(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def is_new_enough(version: str, oldest: tuple[int, int]) -> bool:
    """Returns whether a version such as "2.11.0+cu130" is at least `oldest`, such as (2, 10)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)) >= oldest


def is_switched_on(name: str) -> bool:
    """Returns whether an environment variable that is a switch is on, as the library reads its own.

    Raises:
        ValueError: The value is neither 1, true, yes or on, nor 0, false, no, off or nothing.
    """
    value = os.environ.get(name, "")
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(f"{name} is {value!r}, wanted 1 or 0")


def torch_library_path() -> pathlib.Path:
    """Returns the path where libmoejit_torch.so should be: the one in MOEJIT_TORCH_LIBRARY, else beside libmoejit.so.
    """
    return _library_path(os.environ.get("MOEJIT_TORCH_LIBRARY"), "libmoejit_torch.so")


def jax_library_path() -> pathlib.Path:
    """Returns the path where libmoejit_jax.so should be: the one in MOEJIT_JAX_LIBRARY, else beside libmoejit.so."""
    return _library_path(os.environ.get("MOEJIT_JAX_LIBRARY"), "libmoejit_jax.so")


def _library_path(given: str | None, name: str) -> pathlib.Path:
    return pathlib.Path(given) if given else library.path().parent / name


def require_torch() -> None:
    """Raises an error if torch is missing or too old.

    Raises:
        ImportError: The sentence says what is wrong and what to do.
    """
    _require("torch", OLDEST_TORCH)


def require_jax() -> None:
    """Raises an error if jax is missing or too old.

    Raises:
        ImportError: The sentence says what is wrong and what to do.
    """
    _require("jax", OLDEST_JAX)


def require_flax() -> None:
    """Raises an error if flax is missing or too old.

    Raises:
        ImportError: The sentence says what is wrong and what to do.
    """
    _require("flax", OLDEST_FLAX, "moejit.jax.flax")


def _require(name: str, oldest: tuple[int, int], module: str | None = None) -> None:
    module = module or f"moejit.{name}"
    version = installed_version(name)
    if version is None and importlib.util.find_spec(name) is None:
        raise ImportError(f"{module} needs {name}, which is not installed\nhint: pip install {name}; the rest of the "
                          "package works without it")
    if version is not None and not is_new_enough(version, oldest):
        raise ImportError(f"{module} needs {name} {text_of(oldest)} or newer, this is {version}\nhint: pip "
                          f"install --upgrade {name}")
