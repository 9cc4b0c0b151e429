# SPDX-License-Identifier: Apache-2.0
"""How compiled graphs of torch and jax name a plan: "moejit VERSION TARGET DIGEST JSON" for a layer or an operation.

For a layer of a group "@GROUP " comes before the JSON. The name belongs to a group of this process only.
"""
from __future__ import annotations

import json
from typing import Any, NamedTuple

from moejit import library


class Text(NamedTuple):
    """The parts of a text. The version and the digest come from the library that planned the description."""
    version: str
    target: str
    digest: str
    json: str
    group: str = ""  # the name of the group; empty for layers of one rank and operations


def make(target: str, digest: str, description: dict[str, Any], group: str = "") -> str:
    """Returns the text of a plan. The description has every field."""
    canonical = json.dumps(description, separators=(",", ":"))
    return f"moejit {library.version()} {target} {digest} {f'@{group} ' if group else ''}{canonical}"


def read(text: str) -> Text:
    """Returns the parts of the text in the argument "plan".

    Raises:
        RuntimeError: The argument is no such text.
    """
    words = text.split(" ", 4)
    if len(words) != 5 or words[0] != "moejit":
        raise RuntimeError(f'moejit: argument plan: it begins with "{text[:60]}", wanted "moejit VERSION TARGET DIGEST '
                           'JSON"\nhint: make it with moejit.torch.layer_text(), operation_text() or moejit.jax.plan()')
    *words, rest = words[1:]
    group = ""
    if rest.startswith("@"):
        group, _, rest = rest[1:].partition(" ")
    return Text(*words, rest, group)


def check_is_current(text: Text, digest: str) -> None:
    """Checks that a text has this library's version, and its plan's digest.

    Raises:
        RuntimeError: The text belongs to another version or plan.
    """
    version = library.version()
    if (text.version, text.digest) != (version, digest):
        raise RuntimeError(f"moejit: the compiled graph is stale: it was made with moejit {text.version} for the plan "
                           f"{text.digest}, this is moejit {version} with the plan {digest}\n"
                           "hint: compile or export it again; torch keeps compiled graphs in TORCHINDUCTOR_CACHE_DIR, "
                           "jax in jax_compilation_cache_dir")
