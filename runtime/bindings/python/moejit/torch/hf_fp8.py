# SPDX-License-Identifier: Apache-2.0
"""Experts of transformers' models that were loaded quantized: their codes are used where they are."""
from __future__ import annotations

import json
from typing import NoReturn

import torch

from moejit.torch.checks import user_name
from moejit.torch.fp8_weights import FP8Weights, fp8_weights

_BLOCK = 128
_HINT = "load the model with dequantize=True in its quantization_config, and moejit quantizes bf16 weights"


def is_packed(module: torch.nn.Module) -> bool:
    """Returns whether a module of experts has packed MXFP4 weights."""
    return getattr(module, "has_packed_weights", False)


def packed_format(module: torch.nn.Module) -> str | None:
    """Returns the weight_format of a module's packed weights; None: it has none."""
    return "mxfp4" if is_packed(module) else None


def has_codes(module: torch.nn.Module) -> bool:
    """Returns whether a module of experts has FP8 codes with scales, as transformers' FP8Experts, or packed weights."""
    if is_packed(module):
        return True
    down = module._parameters.get("down_proj")
    return (down is not None and down.dtype == torch.float8_e4m3fn
            and isinstance(getattr(module, "down_proj_scale_inv", None), torch.Tensor))


def weights_of(module: torch.nn.Module) -> FP8Weights:
    """Returns the weights of a module that has_codes(); they share its memory.

    Raises:
        RuntimeError: No call would compute what the module computes; the sentence says why.
    """
    if is_packed(module):
        return FP8Weights(module.gate_up_proj, module.gate_up_proj_scale_inv, module.down_proj, module.down_proj_scale_inv,
                          "tile", module.hidden_size, module.intermediate_size)
    owner = user_name(module)
    scheme, block = getattr(module, "activation_scheme", "dynamic"), getattr(module, "block_size", None)
    if scheme != "dynamic":
        _refuse(owner, "activation_scheme", scheme, "dynamic: scales of tokens follow from the tokens")
    if block is None or tuple(block) != (_BLOCK, _BLOCK):
        _refuse(owner, "block_size", block, f"[{_BLOCK}, {_BLOCK}]")
    has_gate = getattr(module, "has_gate", True)
    inner = module.down_proj.shape[-1]
    # FP8Experts counts blocks from the first row of gate on, moejit anew from up's.
    if has_gate and inner % _BLOCK != 0 and not getattr(module, "restarts_blocks_at_up", False):
        _refuse(owner, "the width of an expert", inner, f"a multiple of {_BLOCK}, so that no block lies across gate and up")
    name = "gate_up_proj" if has_gate else "up_proj"
    try:
        return fp8_weights(getattr(module, name), getattr(module, name + "_scale_inv"), module.down_proj,
                           module.down_proj_scale_inv)
    except RuntimeError as error:
        raise RuntimeError(f"moejit: FP8 experts of {owner}: {str(error).removeprefix('moejit: ')}") from error


def check_formula(module: torch.nn.Module, description: str) -> None:
    """Raises an error unless a module that has_codes() computes the activation of a layer description, JSON.

    FP8Experts heeds numbers of the configuration in every family, also where the family's own experts do not know them.
    """
    for name in ("gate_softcap", "up_softcap"):
        if getattr(module, name, None) is not None:
            _refuse(user_name(module), name, getattr(module, name), "none")
    limit, alpha = getattr(module, "limit", None), getattr(module, "swiglu_alpha", None)
    got = None if limit is None and alpha is None else (limit, 1 if alpha is None else alpha, 0 if alpha is None else 1)
    wanted = _clamp_of(description)
    if got != wanted:
        _refuse(user_name(module), "limit, alpha and offset of the activation", got,
                f"{wanted}, as the experts of this family have them")


@torch.compiler.assume_constant_result
def _clamp_of(description: str) -> tuple[float, float, float] | None:
    """Returns limit, alpha and offset of a clamped activation; None: it is not clamped."""
    activation = json.loads(description)["activation"]
    if not isinstance(activation, dict) or activation.get("preset") != "clamped_swiglu":
        return None
    return activation["limit"], activation["alpha"], activation["offset"]


def _refuse(owner: str, what: str, got: object, wanted: str) -> NoReturn:
    raise RuntimeError(f"moejit: unsupported: FP8 experts of {owner}: {what}: got {got}, wanted {wanted}\nhint: {_HINT}")
