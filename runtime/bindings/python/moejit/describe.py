# SPDX-License-Identifier: Apache-2.0
"""Layer descriptions from models' published configurations."""
from __future__ import annotations

import json
import os
from ctypes import byref, c_void_p
from typing import Any, Mapping

from moejit import records
from moejit.library import get_info, load
from moejit.sources import read_source


class Description(dict):
    """A layer description: a dict of its fields, ready for moejit.Layer().

    Attributes:
        model_type: The configuration's model type.
        used_keys: Which key gave which field: "num_experts_per_tok -> top_k = 8", ...
        notes: Sentences about parts of the model that a description does not express.
        router: How the model chooses experts, a formula of docs/router.md; None if there is none, and a note says why.
        shared: The field `shared` for the model's shared experts; None if it has none, or a note says why.
    """

    def __init__(self, fields: Mapping[str, Any], model_type: str, used_keys: list[str], notes: list[str],
                 router: dict[str, Any] | None = None, shared: dict[str, Any] | None = None) -> None:
        super().__init__(fields)
        self.model_type, self.used_keys, self.notes = model_type, used_keys, notes
        self.router, self.shared = router, shared


def describe(config: Mapping[str, Any] | str | os.PathLike | Any, *, recipe: str = "fp8_flow", max_tokens: int = 8192,
             expert_parallel: int = 1) -> Description:
    """Returns the layer description that a Hugging Face configuration implies, as `moejit layer --from-hf` does.

    Args:
        config: A dict, a configuration object of transformers, the path of a config.json or of the folder of a model,
            or JSON.
        recipe: The description's recipe.
        max_tokens: The largest T of a call.
        expert_parallel: Ranks that share the experts evenly.

    Raises:
        Error: The configuration lacks something ("missing_key", ...), contradicts itself, or belongs to a model whose
            layer a description cannot express ("unsupported"); an option is out of range ("invalid_value").
        OSError: There is no such file.

    Example:
        >>> description = moejit.describe(transformers.AutoConfig.from_pretrained("Qwen/Qwen3-30B-A3B"))
        >>> description["passes"] = ["forward", "backward"]
    """
    if hasattr(config, "to_dict"):
        # A dict may hold dtypes and other objects, which go through JSON as transformers writes it.
        config = json.loads(json.dumps(config.to_dict(), default=str))
    text, name = read_source(config, "config", file_in_folder="config.json")
    options = records.HuggingFaceOptions(source_name=os.fsencode(name), recipe=recipe.encode(), max_tokens=max_tokens,
                                         expert_parallel=expert_parallel)
    library = load()
    pointer = c_void_p()
    library.moejit_describe_hugging_face(text, len(text), byref(options), byref(pointer))
    try:
        info = get_info(records.DescriptionInfo, "moejit_description_get_info", pointer)
        return Description(json.loads(info.json), info.model_type.decode(),
                           [key.decode() for key in info.used_keys[:info.used_key_count]],
                           [note.decode() for note in info.notes[:info.note_count]],
                           *(None if text is None else json.loads(text) for text in (info.router, info.shared)))
    finally:
        library.moejit_description_destroy(pointer)
