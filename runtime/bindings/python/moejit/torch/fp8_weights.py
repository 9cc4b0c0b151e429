# SPDX-License-Identifier: Apache-2.0
"""Experts' weights that are quantized already, as checkpoints have them: used where they are, without a copy."""
from __future__ import annotations

import dataclasses
from typing import NoReturn

import torch

from moejit.torch.checks import name_of

_BLOCK = 128
_SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float8_e8m0fnu)
_NAN = 0x7f  # the code of NaN in E4M3, whatever its sign
# Rows of an expert in the mean from which on FP8 weights are faster than packed ones.
PREFILL_ROWS = 128
# Recipes whose weights have such scales; the first is the default.
_RECIPES = {"block": ("fp8_flow", "fp8_blockwise"), "channel": ("fp8_rowwise",), "tile": ("fp8_flow", "fp8_blockwise"),
            "nvfp4": ("bf16",), "int4": ("bf16",)}
_WHAT = {"block": "FP8 weights with a scale for each 128x128 block", "channel": "FP8 weights with a scale for each channel",
         "tile": "packed MXFP4 weights", "nvfp4": "packed NVFP4 weights", "int4": "packed INT4 weights"}
# The weight_format of layers, of packed weights.
_FORMATS = {"tile": "mxfp4", "nvfp4": "nvfp4", "int4": "int4"}


@dataclasses.dataclass(eq=False)
class FP8Weights:
    """Quantized weights of all experts, made by fp8_weights(), mxfp4_weights(), nvfp4_weights() or int4_weights(). Calls
    read these tensors: what is written to them counts.

    Attributes:
        w1_q: [E, 2I, H] float8_e4m3fn, the caller's; [E, I, H] if the activation has no gate. If `kind` is "tile", uint8
            [E, 2 ceil(I/128), ceil(H/128), 8704]; if "nvfp4" or "int4", [E, 2 ceil(I/128), ceil(H/64), 4608].
        w1_scale_inv: float32 [E, 2 ceil(I/128), ceil(H/128)], or [E, 2I] if `kind` is "channel"; if "nvfp4" or "int4",
            [E, 2], factors of gate and up.
        w2_q: [E, H, I] float8_e4m3fn, the caller's; if `kind` is "tile", uint8 [E, ceil(H/128), ceil(I/128), 8704]; if
            "nvfp4" or "int4", [E, ceil(H/128), ceil(I/64), 4608].
        w2_scale_inv: float32 [E, ceil(H/128), ceil(I/128)], or [E, H], or [E, 1].
        kind: What has a scale: a "block" of 128x128, a "channel", which is a row, or a packed "tile" of MXFP4. Or the
            other formats of packed weights, "nvfp4" and "int4".
        hidden: H.
        intermediate: I.
        prefill: Of packed weights, FP8 weights of the same values for calls with many rows; None: all calls read tiles.
    """
    w1_q: torch.Tensor
    w1_scale_inv: torch.Tensor
    w2_q: torch.Tensor
    w2_scale_inv: torch.Tensor
    kind: str
    hidden: int
    intermediate: int
    prefill: FP8Weights | None = None

    def of_call(self, rows: int, experts: int) -> FP8Weights:
        """Returns the weights that a call over so many rows of experts reads."""
        return self if self.prefill is None or rows < PREFILL_ROWS * experts else self.prefill

    @property
    def weight_format(self) -> str | None:
        """The weight_format of layers that read these weights; None: FP8 codes."""
        return _FORMATS.get(self.kind)

    @property
    def is_packed(self) -> bool:
        """Whether the weights are packed tiles, and not FP8 codes."""
        return self.weight_format is not None

    @property
    def what(self) -> str:
        """What the weights are, for sentences."""
        return _WHAT[self.kind]

    @property
    def experts(self) -> int:
        """E."""
        return self.w1_q.shape[0]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.w1_q.device

    @property
    def recipe(self) -> str:
        """The recipe of calls that name none."""
        return _RECIPES[self.kind][0]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The four tensors by their names in plans."""
        return {"w1_q": self.w1_q, "w1_scale_inv": self.w1_scale_inv, "w2_q": self.w2_q,
                "w2_scale_inv": self.w2_scale_inv}

    def check_recipe(self, recipe: str) -> None:
        """Raises an error unless weights of the recipe have scales of this kind."""
        if recipe in _RECIPES[self.kind]:
            return
        wanted = " or ".join(f'"{each}"' for each in _RECIPES[self.kind])
        raise RuntimeError(f'moejit: unsupported: {_WHAT[self.kind]}: recipe: got "{recipe}", wanted {wanted}\n'
                           "hint: other recipes quantize bf16 weights: multiply codes and scales, and give the products")

    def check_values(self) -> None:
        """Raises an error if a code is NaN, or a scale NaN or infinite. Waits for the device; call it after loading.

        Calls do not look for these: each result that such a weight reaches is NaN.
        """
        for name, tensor in self.tensors.items():
            if name.endswith("_q") and self.is_packed:  # codes of 4 bits have no NaN
                continue
            if name.endswith("_q"):  # expert by expert, so that the copies in between stay small
                bad = torch.stack([((codes.view(torch.uint8) & _NAN) == _NAN).any() for codes in tensor])
            else:
                bad = ~tensor.isfinite().flatten(1).all(1)
            if bad.any():
                expert = int(bad.to(torch.uint8).argmax())
                raise RuntimeError(f"moejit: invalid_value: tensor {name}: expert {expert} has "
                                   f"{'the code of NaN' if name.endswith('_q') else 'a scale that is NaN or infinite'}, "
                                   "wanted numbers\nhint: is the checkpoint damaged, or was the tensor never loaded?")


def fp8_weights(w1_q: torch.Tensor, w1_scale_inv: torch.Tensor, w2_q: torch.Tensor,
                w2_scale_inv: torch.Tensor) -> FP8Weights:
    """Returns FP8 weights for experts(), grouped_experts() and serving.run(), in the place of bf16 weights.

    A weight is its code times its scale. Nothing is quantized, and codes are not copied. Scales are not copied either if
    they are float32 and row-major. Others are widened here, once and exactly: call this again when they change.

    Args:
        w1_q: [E, 2I, H] float8_e4m3fn: gate, then up; [E, I, H] if the activation has no gate.
        w1_scale_inv: [E, 2 ceil(I/128), ceil(H/128)] float32, bfloat16 or float8_e8m0fnu: a scale for each 128x128
            block, whose rows restart where up begins. Or one for each row: [E, 2I] or [E, 2I, 1]. Or one for each
            matrix, which rows then share: [E], or [E, 2] for gate and up.
        w2_q: [E, H, I] float8_e4m3fn.
        w2_scale_inv: [E, ceil(H/128), ceil(I/128)]; or [E, H] or [E, H, 1]; or [E].

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong; the sentence says which.
    """
    _check_codes("w1_q", w1_q)
    _check_codes("w2_q", w2_q)
    experts, hidden, inner = w2_q.shape
    rows = w1_q.shape[1]
    if w1_q.shape not in ((experts, 2 * inner, hidden), (experts, inner, hidden)):
        _refuse("w1_q", f"its shape is {list(w1_q.shape)}", f"{[experts, 2 * inner, hidden]}, or "
                f"{[experts, inner, hidden]} without a gate, since w2_q is {list(w2_q.shape)}")
    for name, tensor in (("w1_scale_inv", w1_scale_inv), ("w2_q", w2_q), ("w2_scale_inv", w2_scale_inv)):
        if tensor.device != w1_q.device:
            _refuse(name, f"it is on {tensor.device}", f"{w1_q.device}, where w1_q is")
    sections = rows // inner
    first, kind = _scales("w1_scale_inv", w1_scale_inv, w1_q, sections)
    second, kind_of_second = _scales("w2_scale_inv", w2_scale_inv, w2_q, 1)
    if kind != kind_of_second:
        _refuse("w2_scale_inv", f"it has a scale for each {kind_of_second}", f"one for each {kind}, as w1_scale_inv")
    return FP8Weights(w1_q, first, w2_q, second, kind, hidden, inner)


def are_codes(first: torch.Tensor | FP8Weights, second: torch.Tensor | None) -> bool:
    """Returns whether a call's weights are FP8; raises an error if the second weights are missing, or are one too many."""
    has_codes = isinstance(first, FP8Weights)
    if has_codes == (second is None):
        return has_codes
    got, wanted = ("a tensor", "none") if has_codes else ("none", "a tensor")
    raise RuntimeError(f"moejit: missing_tensor: the second weights (w2, down_proj): got {got}, wanted {wanted} beside the "
                       "first ones\nhint: fp8_weights() are the weights of both, and bf16 weights are two tensors")


def _refuse(name: str, got: str, wanted: str, hint: str = "") -> NoReturn:
    raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: {got}, wanted {wanted}" + (f"\nhint: {hint}" if hint else ""))


def _check_codes(name: str, codes: torch.Tensor) -> None:
    if codes.dtype != torch.float8_e4m3fn:
        _refuse(name, f"its dtype is {name_of(codes.dtype)}", "float8_e4m3fn",
                "codes that were loaded as bytes are codes again by .view(torch.float8_e4m3fn)")
    if codes.dim() != 3 or codes.numel() == 0:
        _refuse(name, f"its shape is {list(codes.shape)}", "experts, rows and columns, and one of each or more")
    if not codes.is_contiguous():
        _refuse(name, f"its strides are {list(codes.stride())}", "rows one behind the other",
                ".contiguous() makes a copy; free the first one")


def _scales(name: str, scales: torch.Tensor, codes: torch.Tensor, sections: int) -> tuple[torch.Tensor, str]:
    """Returns scales as calls read them, and what has one.

    Args:
        sections: 2 if the rows of the codes are those of gate and of up.
    """
    if scales.dtype not in _SCALE_DTYPES:
        _refuse(name, f"its dtype is {name_of(scales.dtype)}", "float32, bfloat16 or float8_e8m0fnu")
    experts, rows, columns = codes.shape
    blocks = experts, sections * _blocks(rows // sections), _blocks(columns)
    shape = tuple(scales.shape)
    wide = scales if scales.dtype == torch.float32 else scales.to(torch.float32)
    if shape == blocks:
        return wide.contiguous(), "block"
    channels = experts, rows
    if shape in (channels, (*channels, 1)):
        return wide.reshape(channels).contiguous(), "channel"
    for matrices in {1, sections}:
        if shape in ((experts,), (experts, 1), (experts, 1, 1)) and matrices == 1 or shape in (
                (experts, matrices), (experts, matrices, 1)):
            return wide.reshape(experts, matrices, 1).expand(-1, -1, rows // matrices).reshape(channels), "channel"
    _refuse(name, f"its shape is {list(shape)}", f"{list(blocks)} for 128x128 blocks, or {list(channels)} for channels, "
            f"since the codes are {list(codes.shape)}")


def _blocks(elements: int) -> int:
    return (elements + _BLOCK - 1) // _BLOCK
