# SPDX-License-Identifier: Apache-2.0
"""Experts' weights in NVFP4 and INT4, as checkpoints have them, for calls: packed, once, beside tokens in bf16."""
from __future__ import annotations

from typing import NoReturn

import torch

from moejit.torch.checks import name_of
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.operations import run

_INT4_GROUP = 128
_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # where a word of AWQ has the codes of eight neighbors
_ORDERS = ("compressed_tensors", "awq", "gptq", "gptq_v2")
_SYMMETRIC = 8  # the zero point of codes without zero points


def nvfp4_weights(w1_q: torch.Tensor, w1_scales: torch.Tensor, w1_factors: torch.Tensor, w2_q: torch.Tensor,
                  w2_scales: torch.Tensor, w2_factors: torch.Tensor, *, gate_up_layout: str = "concat") -> FP8Weights:
    """Returns packed NVFP4 weights for calls of layers with the recipe "bf16".

    A weight is its code times the scale of its group times the factor of its matrix. The first product is a bf16 number:
    nothing is rounded. The factor multiplies complete sums, once, in fp32.

    Call it once after loading, and drop the arguments but the factors: the result has memory of its own. A weight takes
    4.5 bits, with the widths rounded up to multiples of 128 rows and 64 columns. Such weights have no backward pass.
    Waits for the device.

    Args:
        w1_q: [E, 2I, H / 2] uint8: two E2M1 codes a byte, the first one in the low half, as `weight` and
            `weight_packed` have them; [E, I, H / 2] if the activation has no gate.
        w1_scales: [E, 2I, H / 16] float8_e4m3fn: the scale of 16 neighbors in a row, `weight_scale`.
        w1_factors: [E, 2] float32, of gate and of up: `weight_scale_2` of ModelOpt. `weight_global_scale` of
            compressed-tensors is its reciprocal: give 1 / weight_global_scale. [E] if both have the same, or without a
            gate.
        w2_q: [E, H, I / 2].
        w2_scales: [E, H, I / 16].
        w2_factors: [E] float32.
        gate_up_layout: "concat": w1 has gate, then up. "interleaved": its rows alternate, gate first. The result is
            "concat"; the layer's gate_up_layout tells the order of the bias alone.

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong, or a scale is NaN; the sentence says which.
    """
    sections = _sections(gate_up_layout, "nvfp4_weights", w1_q, w2_q, 2)
    made = []
    for name, codes, scales, factors, count in (("w1", w1_q, w1_scales, w1_factors, sections),
                                                ("w2", w2_q, w2_scales, w2_factors, 1)):
        _check(f"{name}_q", codes, (torch.uint8, torch.int8), None, codes.device)
        _check(f"{name}_scales", scales, (torch.float8_e4m3fn,), [*codes.shape[:2], codes.shape[2] // 8], codes.device)
        made += [_packed("nvfp4", name, codes.view(torch.uint8), scales, None, count, gate_up_layout),
                 _factors(f"{name}_factors", factors, codes, count)]
    return FP8Weights(*made, "nvfp4", 2 * w1_q.shape[2], 2 * w2_q.shape[2])


def int4_weights(w1_q: torch.Tensor, w1_scales: torch.Tensor, w2_q: torch.Tensor, w2_scales: torch.Tensor, *,
                 w1_zeros: torch.Tensor | None = None, w2_zeros: torch.Tensor | None = None,
                 order: str = "compressed_tensors", gate_up_layout: str = "concat") -> FP8Weights:
    """Returns packed INT4 weights, with scales of 128 of a row, for calls of layers with the recipe "bf16".

    A weight is (code - zero point) times the scale of its group. The integer is a bf16 number, and the scale multiplies
    sums of 128 products in fp32: nothing else is rounded.

    Call it once after loading, and drop the arguments: the result has memory of its own. A weight takes 4.5 bits, with
    rows rounded up to multiples of 128. Such weights have no backward pass. Waits for the device.

    Args:
        w1_q: Codes of gate and up [E, 2I, H], or [E, I, H] without a gate, eight to an int32, in one of the orders below.
        w1_scales: bfloat16 or float16, or float32 with values of these; a scale for 128 of a row.
        w2_q: Codes [E, H, I].
        w2_scales: As w1_scales.
        w1_zeros, w2_zeros: Zero points; None: 8, which symmetric checkpoints have.
        order: How the tensors of a matrix [out, in] lie in the checkpoint. E comes first in all of them.
            "compressed_tensors": `weight_packed` [out, in / 8], first code lowest; `weight_scale` [out, in / 128];
                `weight_zero_point` [out / 8, in / 128], of eight rows, first one lowest.
            "awq" (the version "gemm"): `qweight` [in, out / 8], of eight rows, whose codes 0 to 7 are in nibbles 0, 4, 1,
                5, 2, 6, 3, 7; `scales` [in / 128, out]; `qzeros` [in / 128, out / 8], likewise.
            "gptq": `qweight` [in / 8, out], first code lowest; `scales` [in / 128, out]; `qzeros` [in / 128, out / 8],
                first row lowest, one less than the zero point. Without `desc_act`: `g_idx` has to ascend.
            "gptq_v2": The same, with zero points as they are.
        gate_up_layout: As in nvfp4_weights().

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong, or a scale is no finite number of bfloat16 or float16;
            the sentence says which.
    """
    if order not in _ORDERS:
        raise RuntimeError(f"moejit: unknown_value: int4_weights(): order: got {order!r}, wanted one of "
                           + ", ".join(f'"{each}"' for each in _ORDERS)
                           + "\nhint: other orders, and groups sorted by g_idx, are not read: unpack them, and pack them "
                           "as compressed_tensors")
    matrices = [_by_rows(name, *given, order) for name, given in (("w1", (w1_q, w1_scales, w1_zeros)),
                                                                  ("w2", (w2_q, w2_scales, w2_zeros)))]
    sections = _sections(gate_up_layout, "int4_weights", matrices[0][0], matrices[1][0], 2)
    made = []
    for name, (codes, scales, zeros), count in zip(("w1", "w2"), matrices, (sections, 1)):
        ones = torch.ones(codes.shape[0], count, dtype=torch.float32, device=codes.device)
        made += [_packed("int4", name, codes, scales, zeros, count, gate_up_layout), ones]
    return FP8Weights(*made, "int4", 2 * matrices[0][0].shape[2], 2 * matrices[1][0].shape[2])


def _refuse(name: str, got: str, wanted: str, hint: str = "") -> NoReturn:
    raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: {got}, wanted {wanted}" + (f"\nhint: {hint}" if hint else ""))


def _sections(gate_up_layout: str, function: str, w1: torch.Tensor, w2: torch.Tensor, per_byte: int) -> int:
    """Returns 2 if w1 has gate and up, else 1; codes are [E, rows, columns / per_byte]."""
    if gate_up_layout not in ("concat", "interleaved"):
        raise RuntimeError(f"moejit: unknown_value: {function}(): gate_up_layout: got {gate_up_layout!r}, wanted "
                           '"concat" or "interleaved"')
    for name, codes in (("w1_q", w1), ("w2_q", w2)):
        if codes.dim() != 3 or codes.numel() == 0:
            _refuse(name, f"its shape is {list(codes.shape)}", "experts, rows and columns, and one of each or more")
    inner, hidden = per_byte * w2.shape[2], per_byte * w1.shape[2]
    if w1.shape[0] != w2.shape[0] or w1.shape[1] not in (inner, 2 * inner) or w2.shape[1] != hidden:
        _refuse("w1_q", f"it has {w1.shape[0]} experts of {w1.shape[1]} rows and {hidden} columns",
                f"{w2.shape[0]} experts of {2 * inner} or {inner} rows and {w2.shape[1]} columns, since w2 is "
                f"[{w2.shape[0]}, {w2.shape[1]}, {inner}]")
    return w1.shape[1] // inner


def _check(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], shape: list[int] | None,
           device: torch.device) -> None:
    if tensor.dtype not in dtypes:
        _refuse(name, f"its dtype is {name_of(tensor.dtype)}", " or ".join(name_of(dtype) for dtype in dtypes))
    if shape is not None and list(tensor.shape) != shape:
        _refuse(name, f"its shape is {list(tensor.shape)}", str(shape))
    if tensor.device != device:
        _refuse(name, f"it is on {tensor.device}", f"{device}, where the codes are")


def _factors(name: str, factors: torch.Tensor, codes: torch.Tensor, sections: int) -> torch.Tensor:
    """Returns factors [E, sections]."""
    experts = codes.shape[0]
    _check(name, factors, (torch.float32,), None, codes.device)
    if list(factors.shape) in ([experts], [experts, 1]):
        return factors.reshape(experts, 1).expand(-1, sections).contiguous()
    if list(factors.shape) != [experts, sections]:
        _refuse(name, f"its shape is {list(factors.shape)}", f"{[experts, sections]} or {[experts]}",
                "ModelOpt has a weight_scale_2 for each expert's gate, up and down: stack them")
    return factors.contiguous()


def _packed(weight_format: str, name: str, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None,
            sections: int, gate_up_layout: str) -> torch.Tensor:
    """Returns packed tiles of codes [E, rows, columns / 2]."""
    experts, rows, size = codes.shape
    inputs = {"input": codes, "input_scale_inv": scales}
    if zeros is not None:
        inputs["input_zero"] = zeros
    made = run({"operation": "pack_weights", "weight_format": weight_format, "local_experts": experts, "rows": rows,
                "columns": 2 * size, "sections": sections,
                "gate_up_layout": gate_up_layout if sections == 2 else "concat"}, inputs)
    if made["status"].item() != 0:
        _tell_bad_scale(name, scales)
    return made["output"]


def _tell_bad_scale(name: str, scales: torch.Tensor) -> NoReturn:
    wide = scales.float()
    bad = ~wide.isfinite()
    if scales.dtype == torch.float32:
        bad |= (wide.view(torch.int32) & 255) != 0
    place = int(bad.flatten().to(torch.uint8).argmax())
    expert, rest = divmod(place, scales.shape[1] * scales.shape[2])
    row, group = divmod(rest, scales.shape[2])
    raise RuntimeError(f"moejit: invalid_value: {name} of expert {expert}: row {row}, group {group}: the scale is "
                       f"{wide[expert, row, group].item()}, wanted a finite number of its format\n"
                       "hint: is the checkpoint damaged? scales of INT4 are bfloat16 or float16 numbers")


def _by_rows(name: str, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None,
             order: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns codes uint8 [E, out, in / 2], scales float32 [E, out, in / 128], and zero points uint8 of their shape."""
    _check(f"{name}_q", codes, (torch.int32,), None, codes.device)
    if codes.dim() != 3 or codes.numel() == 0:
        _refuse(f"{name}_q", f"its shape is {list(codes.shape)}", "three dimensions, experts first, and one of each or more")
    experts, out, size = {"compressed_tensors": lambda e, a, b: (e, a, 8 * b), "awq": lambda e, a, b: (e, 8 * b, a)}.get(
        order, lambda e, a, b: (e, b, 8 * a))(*codes.shape)
    if size % _INT4_GROUP != 0:
        _refuse(f"{name}_q", f"its rows have {size} elements", f"a multiple of {_INT4_GROUP}",
                "groups of other sizes are not read")
    groups = size // _INT4_GROUP
    of_rows = order == "compressed_tensors"
    _check(f"{name}_scales", scales, (torch.bfloat16, torch.float16, torch.float32),
           [experts, out, groups] if of_rows else [experts, groups, out], codes.device)
    scales = (scales if of_rows else scales.transpose(1, 2)).float().contiguous()
    if zeros is None:
        zeros = torch.full_like(scales, _SYMMETRIC, dtype=torch.uint8)
    else:
        _check(f"{name}_zeros", zeros, (torch.int32,), [experts, out // 8, groups] if of_rows else [experts, groups, out // 8],
               codes.device)
        rows = _nibbles(zeros.transpose(1, 2) if of_rows else zeros, order == "awq")
        zeros = (rows.transpose(1, 2) + (order == "gptq")).contiguous()
    if of_rows:
        return codes.contiguous().view(torch.uint8), scales, zeros
    packed = torch.empty(experts, out, size // 2, dtype=torch.uint8, device=codes.device)
    for expert in range(experts):  # one by one, so that what lies in between stays small
        if order == "awq":
            each = _nibbles(codes[expert], True).T
        else:
            each = _nibbles(codes[expert].T, False)
        packed[expert] = each[:, ::2] | each[:, 1::2] << 4
    return packed, scales, zeros


def _nibbles(words: torch.Tensor, is_awq: bool) -> torch.Tensor:
    """Returns the eight numbers of each word of the last dimension, uint8, in their order."""
    shifts = torch.tensor([4 * (_AWQ[i] if is_awq else i) for i in range(8)], dtype=torch.int32, device=words.device)
    return (words.unsqueeze(-1) >> shifts & 15).to(torch.uint8).flatten(-2)
