# SPDX-License-Identifier: Apache-2.0
"""Experts of gpt-oss' MXFP4 checkpoints in transformers: re-encoded as FP8, or packed, while the model is loaded.

The classes are made by functions, so that transformers is imported no earlier than it is used.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from moejit.torch.checks import user_name
from moejit.torch.hf_models import check_module
from moejit.torch.mxfp4_weights import encoded, packed_tiles

_BLOCK = 128
_TILE_BYTES = 8704  # of 128 rows and columns in a packed tile
# The attribute of a model with the first error of its weights, with which loading ends.
_ERROR = "_moejit_load_error"


def load_mxfp4() -> None:
    """Makes from_pretrained(..., experts_implementation=...) load MXFP4 experts as FP8, or packed, where that names moejit.

    Others load as before. transformers finds what loads a format in a table, whose entry this replaces by a class
    derived from it.
    """
    try:
        from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
        from transformers.quantizers.quantizer_mxfp4 import Mxfp4HfQuantizer
    except ImportError:
        return
    if AUTO_QUANTIZER_MAPPING.get("mxfp4") is Mxfp4HfQuantizer:
        AUTO_QUANTIZER_MAPPING["mxfp4"] = quantizer_class()


@functools.cache
def experts_class(packed: bool) -> type:
    """Returns the class of experts that stands in for GptOssExperts."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

    class FP8GptOssExperts(GptOssExperts):
        """gpt-oss' experts with FP8 codes: gate before up in weights and bias, and a scale for each 128x128 block.

        Or with packed tiles, gate before up as well.
        """
        block_size, activation_scheme, restarts_blocks_at_up = (_BLOCK, _BLOCK), "dynamic", True
        has_packed_weights = packed

        def __init__(self, config) -> None:
            super().__init__(config)
            self.is_transposed, self.is_concatenated = False, True
            self.swiglu_alpha = self.alpha
            for name, sections, rows, columns in (("gate_up_proj", 2, self.intermediate_size, self.hidden_size),
                                                  ("down_proj", 1, self.hidden_size, self.intermediate_size)):
                codes = torch.empty(self.num_experts, sections * rows, columns, dtype=torch.float8_e4m3fn)
                scales = torch.empty(self.num_experts, sections * _blocks(rows), _blocks(columns), dtype=torch.float32)
                if packed:
                    codes = torch.empty(*scales.shape, _TILE_BYTES, dtype=torch.uint8)
                setattr(self, name, _frozen(codes))
                setattr(self, name + "_scale_inv", _frozen(scales))

        def forward(self, *args, **kwargs):
            from moejit.torch.hf import options_of  # which imports this file
            if options_of(self) is None:
                form = "packed" if packed else "as FP8 codes"
                raise RuntimeError(f"moejit: unsupported: {user_name(self)}: its weights were loaded {form} for "
                                   f"moejit, got the implementation {self.config._experts_implementation!r}\n"
                                   "hint: load the model again without moejit's experts_implementation")
            return super().forward(*args, **kwargs)

    return _in_this_file(FP8GptOssExperts, "PackedGptOssExperts" if packed else "FP8GptOssExperts")


@functools.cache
def operation_class() -> type:
    """Returns the class of the step of loading that makes codes and scales of blocks of one projection's tensors."""
    from transformers.core_model_loading import ConversionOps

    class Reencode(ConversionOps):

        def __init__(self, hf_quantizer) -> None:
            self.hf_quantizer = hf_quantizer  # by which transformers knows not to cast what it gives

        def convert(self, input_dict: dict[str, Any], full_layer_name: str = "", model=None,
                    **_) -> dict[str, torch.Tensor]:
            names = (full_layer_name, full_layer_name + "_scale_inv")
            if _ERROR not in model.__dict__:
                try:
                    return dict(zip(names, map(_frozen, _made(full_layer_name, input_dict, self.hf_quantizer.packs))))
                except RuntimeError as error:  # transformers would log it, and raise one that does not say it
                    model.__dict__[_ERROR] = error
            given = (model.get_parameter(name) for name in names)
            return {name: _frozen(torch.empty(each.shape, dtype=each.dtype)) for name, each in zip(names, given)}

    return _in_this_file(Reencode)


@functools.cache
def quantizer_class() -> type:
    """Returns the class that loads models in MXFP4, for moejit or as its base does."""
    from transformers.core_model_loading import WeightConverter
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
    from transformers.quantizers.quantizer_mxfp4 import Mxfp4HfQuantizer

    class MoejitMxfp4HfQuantizer(Mxfp4HfQuantizer):
        is_for_moejit = packs = False

        # What the format needs else, such as Triton, is asked once the model's implementation is known.
        def validate_environment(self, *args, **kwargs) -> None:
            self.environment = args, kwargs

        def _process_model_before_weight_loading(self, model, **kwargs):
            from moejit.torch.hf import is_ours, packs  # which imports this file
            names = [name for name, module in model.named_modules() if type(module) is GptOssExperts]
            self.is_for_moejit = (not self.quantization_config.dequantize and bool(names)
                                  and is_ours(model.get_submodule(names[0]).config._experts_implementation))
            if not self.is_for_moejit:
                super().validate_environment(*self.environment[0], **self.environment[1])
                return super()._process_model_before_weight_loading(model, **kwargs)
            self.packs = packs(model.get_submodule(names[0]).config._experts_implementation)
            for name in names:
                with torch.device("meta"):
                    model.set_submodule(name, experts_class(self.packs)(model.get_submodule(name).config))
            return model

        def get_weight_conversions(self) -> list:
            if not self.is_for_moejit:
                return super().get_weight_conversions()
            return [WeightConverter([f"{name}_blocks", f"{name}_scales"], name, [operation_class()(self)])
                    for name in ("gate_up_proj", "down_proj")]

        def param_needs_quantization(self, model, param_name: str, **kwargs) -> bool:
            return not self.is_for_moejit and super().param_needs_quantization(model, param_name, **kwargs)

        def _process_model_after_weight_loading(self, model, **kwargs):
            if not self.is_for_moejit:
                return super()._process_model_after_weight_loading(model, **kwargs)
            if _ERROR in model.__dict__:
                raise model.__dict__.pop(_ERROR)
            from moejit.torch.hf import options_of
            for name, module in model.named_modules():
                if type(module) is experts_class(self.packs):
                    bias = module.gate_up_proj_bias
                    bias.data = torch.cat((bias.data[:, ::2], bias.data[:, 1::2]), 1)
                    fields, max_tokens, _ = options_of(module)
                    check_module(name, module, fields, max_tokens, model.config)
            return model

        def is_serializable(self, *args, **kwargs) -> bool:
            return not self.is_for_moejit and super().is_serializable(*args, **kwargs)

    return _in_this_file(MoejitMxfp4HfQuantizer)


def __getattr__(name: str) -> type:
    made = {"FP8GptOssExperts": functools.partial(experts_class, False), "PackedGptOssExperts": functools.partial(experts_class, True),
            "Reencode": operation_class, "MoejitMxfp4HfQuantizer": quantizer_class}
    if name in made:  # as pickled models name them
        return made[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _in_this_file(made: type, name: str | None = None) -> type:
    """Names a class as if it were at the top of this file, where unpickling looks for it."""
    made.__name__ = made.__qualname__ = name or made.__name__
    return made


def _made(name: str, given: dict[str, Any], packs: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns codes, or packed tiles, and scales of a projection, of its blocks and scales as transformers collects them."""
    tensors = {key.rpartition("_")[2]: value[0] if isinstance(value, list) else value for key, value in given.items()}
    for part in ("blocks", "scales"):
        if part not in tensors:
            raise RuntimeError(f"moejit: missing_tensor: the checkpoint has no {name}_{part}\nhint: is a shard missing?")
    is_first = name.endswith("gate_up_proj")
    make = packed_tiles if packs else encoded
    return make(name, tensors["blocks"], tensors["scales"], sections=2 if is_first else 1,
                gate_up_layout="interleaved" if is_first else "concat")


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _frozen(tensor: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(tensor, requires_grad=False)
