# SPDX-License-Identifier: Apache-2.0
"""Experts' weights in MXFP4, as gpt-oss has them, for calls: re-encoded as FP8 of the same values, or packed, once."""
from __future__ import annotations

from typing import NoReturn

import torch

from moejit.torch.checks import name_of
from moejit.torch.fp8_weights import FP8Weights, fp8_weights
from moejit.torch.operations import run

_GROUP, _BLOCK = 32, 128  # elements with one scale: of MXFP4 in a row, of FP8 along both sides
_GROUPS = _BLOCK // _GROUP
# An E2M1 value times 2^k is an E4M3 number for k from -8 to 6. Beyond are 0.5 * 2^-9 and 6 * 2^7.
_LEAST, _MOST = -8, 6
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of E2M1, OCP Microscaling Formats v1.0, section 5.3.3
_NAN = 255  # the E8M0 code of NaN; others stand for 2^(code - 127)


def mxfp4_weights(w1_q: torch.Tensor, w1_scales: torch.Tensor, w2_q: torch.Tensor, w2_scales: torch.Tensor, *,
                  gate_up_layout: str = "concat", packed: bool = False, prefill: str = "packed") -> FP8Weights:
    """Returns weights for calls with the values of MXFP4 weights, every one of them exact: FP8, or packed in 4 bits.

    A 128x128 block gets the scale that its largest group needs. The other groups' scales go into the codes, which is
    exact for groups with scales down to 2^-14 of the largest. A block whose groups lie further apart is an error.

    Call it once after loading, and drop the arguments: the result has memory of its own. A weight takes a byte, or 4.25
    bits if packed. Waits for the device.

    Args:
        w1_q: [E, 2I, H / 2] uint8 or int8: two codes a byte, the first one in the low half; [E, I, H / 2] if the
            activation has no gate. Or [E, 2I, H / 32, 16], as gpt-oss' `gate_up_proj_blocks`.
        w1_scales: [E, 2I, H / 32] uint8 or float8_e8m0fnu: the scale of 32 neighbors in a row.
        w2_q: [E, H, I / 2], or [E, H, I / 32, 16].
        w2_scales: [E, H, I / 32].
        gate_up_layout: "concat": w1 has gate, then up. "interleaved": its rows alternate, gate first, as gpt-oss' do.
            The result is "concat", and so the layer has to be: sort the bias likewise, b1[:, ::2] before b1[:, 1::2].
            With packed weights the layer may be either, which then tells the order of the bias alone.
        packed: Whether the weights stay 4-bit in memory, in packed tiles, whose size is that of the widths rounded up to
            multiples of 128. Results have the same bits. Such weights have no backward pass. Few tokens read half of the
            bytes; from about 128 rows an expert on FP8 weights are faster.
        prefill: What packed weights are for calls with so many rows: "packed", or "fp8", which keeps FP8 weights as well,
            for 12.25 bits a weight in all. Calls with gradients take these, too. The layer has to be "concat" then.

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong, a scale is NaN, or a block's values are no E4M3 numbers;
            the sentence says which.
    """
    if gate_up_layout not in ("concat", "interleaved"):
        raise RuntimeError(f"moejit: unknown_value: mxfp4_weights(): gate_up_layout: got {gate_up_layout!r}, wanted "
                           '"concat" or "interleaved"')
    if prefill not in (("packed", "fp8") if packed else ("packed",)):
        raise RuntimeError(f"moejit: unknown_value: mxfp4_weights(): prefill: got {prefill!r}, wanted "
                           + ('"packed" or "fp8"' if packed else '"packed", since weights without packed=True are FP8 anyway'))
    w1_q, w1_scales = _checked("w1", w1_q, w1_scales)
    w2_q, w2_scales = _checked("w2", w2_q, w2_scales)
    sections = w1_q.shape[1] // max(2 * w2_q.shape[2], 1)
    if sections not in (1, 2):
        _refuse("w1_q", f"it has {w1_q.shape[1]} rows", f"{4 * w2_q.shape[2]} or {2 * w2_q.shape[2]}, since rows of w2 have "
                f"{2 * w2_q.shape[2]} elements")
    codes = None
    if not packed or prefill == "fp8":
        codes = fp8_weights(*encoded("w1", w1_q, w1_scales, sections, gate_up_layout), *encoded("w2", w2_q, w2_scales, 1))
    if not packed:
        return codes
    return FP8Weights(*packed_tiles("w1", w1_q, w1_scales, sections, gate_up_layout), *packed_tiles("w2", w2_q, w2_scales, 1),
                      "tile", 2 * w1_q.shape[2], 2 * w2_q.shape[2], codes)


def _refuse(name: str, got: str, wanted: str) -> NoReturn:
    raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: {got}, wanted {wanted}")


def _checked(name: str, codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns codes [E, rows, bytes] and scales [E, rows, groups] as uint8."""
    if codes.dtype not in (torch.uint8, torch.int8):
        _refuse(f"{name}_q", f"its dtype is {name_of(codes.dtype)}", "uint8 or int8, two codes a byte")
    if scales.dtype not in (torch.uint8, torch.float8_e8m0fnu):
        _refuse(f"{name}_scales", f"its dtype is {name_of(scales.dtype)}", "uint8 or float8_e8m0fnu")
    if codes.dim() == 4 and codes.shape[3] == _GROUP // 2:
        codes = codes.flatten(2)
    if codes.dim() != 3 or codes.numel() == 0 or codes.shape[2] % (_GROUP // 2) != 0:
        _refuse(f"{name}_q", f"its shape is {list(codes.shape)}",
                "[experts, rows, columns / 2] or [experts, rows, columns / 32, 16], and one of each or more")
    wanted = [*codes.shape[:2], 2 * codes.shape[2] // _GROUP]
    if list(scales.shape) != wanted:
        _refuse(f"{name}_scales", f"its shape is {list(scales.shape)}", f"{wanted}, since the codes are {list(codes.shape)}")
    if scales.device != codes.device:
        _refuse(f"{name}_scales", f"it is on {scales.device}", f"{codes.device}, where {name}_q is")
    return codes.view(torch.uint8), scales.view(torch.uint8)


def encoded(name: str, codes: torch.Tensor, scales: torch.Tensor, sections: int,
            gate_up_layout: str = "concat", first_expert: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns E4M3 codes [E, rows, columns] and scales of blocks [E, blocks of all sections' rows, blocks of columns].

    The arguments are one matrix' as mxfp4_weights() takes them; errors call it `name`, and count experts from
    `first_expert` on.
    """
    codes, scales = _checked(name, codes, scales)
    if gate_up_layout == "interleaved":
        codes, scales = (torch.cat((each[:, ::2], each[:, 1::2]), 1) for each in (codes, scales))
    experts, rows, size = codes.shape
    encoded = torch.empty(experts, rows, 2 * size, dtype=torch.float8_e4m3fn, device=codes.device)
    block_scales = []
    for expert in range(experts):  # one by one, so that what lies in between stays small
        for first in range(0, rows, rows // sections):
            part = slice(first, first + rows // sections)
            values, exponents = _encode(f"{name} of expert {first_expert + expert}", first, codes[expert, part], scales[expert, part])
            encoded[expert, part] = values
            block_scales.append(exponents)
    return encoded, torch.cat(block_scales).view(experts, -1, block_scales[0].shape[1])


def packed_tiles(name: str, codes: torch.Tensor, scales: torch.Tensor, sections: int,
                 gate_up_layout: str = "concat") -> tuple[torch.Tensor, torch.Tensor]:
    """Returns packed tiles [E, tiles of all sections' rows, tiles of columns, 8704] and their scales.

    The arguments are as for encoded(), and so are errors.
    """
    codes, scales = _checked(name, codes, scales)
    experts, rows, size = codes.shape
    made = run({"operation": "pack_weights", "local_experts": experts, "rows": rows, "columns": 2 * size,
                "sections": sections, "gate_up_layout": gate_up_layout},
               {"input": codes, "input_scale_inv": scales.view(torch.float8_e8m0fnu)})
    if made["status"].item() != 0:
        expert = int(made["output_scale_inv"].isnan().flatten(1).any(1).to(torch.uint8).argmax())
        encoded(name, codes[expert:expert + 1], scales[expert:expert + 1], sections, gate_up_layout, expert)
    return made["output"], made["output_scale_inv"]


def _encode(what: str, first_row: int, codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns E4M3 codes [rows, columns] and scales of blocks. `first_row` counts in the tensor."""
    halves = torch.stack((codes & 15, codes >> 4), -1).flatten(1)  # [rows, columns]
    rows, columns = halves.shape
    scales = scales.int()
    _check("a scale that is NaN", what, first_row, scales == _NAN, 1)
    counts = (halves & 7).ne(0).view(rows, -1, _GROUP).any(-1)  # groups of zeros have any scale
    of_block = _blocks_of(torch.where(counts, scales, -1)).amax((1, 3))
    # At least 2^-126, since smaller ones are no normal numbers. Blocks of zeros have 1.
    base = torch.where(of_block >= 0, (of_block - _MOST).clamp(min=1), 127)
    shift = scales - base.repeat_interleave(_BLOCK, 0)[:rows].repeat_interleave(_GROUPS, 1)[:, :scales.shape[1]]
    _check(f"a group with a scale below 2^{_LEAST - _MOST} of its 128x128 block's largest", what, first_row,
           counts & (shift < _LEAST), _GROUP)
    table = torch.tensor([*_MAGNITUDES, *(-value for value in _MAGNITUDES)], device=codes.device)
    factors = _power_of_2(torch.where(counts, shift, 0))
    values = table[halves.int()] * factors.repeat_interleave(_GROUP, 1)
    return values.to(torch.float8_e4m3fn), _power_of_2(base - 127)


def _power_of_2(exponents: torch.Tensor) -> torch.Tensor:
    """Returns 2^n as float32, exactly, for n from -126 to 127."""
    return ((exponents + 127) << 23).to(torch.int32).view(torch.float32)


def _blocks_of(scales: torch.Tensor) -> torch.Tensor:
    """Returns scales of groups as [blocks of rows, 128, blocks of columns, groups], filled up with -1."""
    rows, groups = scales.shape
    padded = torch.nn.functional.pad(scales, (0, -groups % _GROUPS, 0, -rows % _BLOCK), value=-1)
    return padded.view(-1, _BLOCK, padded.shape[1] // _GROUPS, _GROUPS)


def _check(fault: str, what: str, first_row: int, bad: torch.Tensor, columns: int) -> None:
    """Raises an error if a group is bad; `columns` is the width of a group."""
    if not bad.any():
        return
    place = int(bad.flatten().to(torch.uint8).argmax())
    row, group = first_row + place // bad.shape[1], place % bad.shape[1]
    at = f"group {group}" if columns == 1 else f"columns {group * columns} to {(group + 1) * columns - 1}"
    raise RuntimeError(f"moejit: invalid_value: {what}: row {row}, {at}: {fault}, wanted one that FP8 codes can express\n"
                       "hint: expand the weights to bf16, and let the recipe quantize them")
