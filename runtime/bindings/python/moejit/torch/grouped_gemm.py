# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMMs over permuted rows, in bf16 or FP8, with gradients."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.operations import apply, bound, constant, run
from moejit.torch.permute import Routing


def grouped_gemm(a: torch.Tensor, b: torch.Tensor, routing: Routing, *, format: str = "bf16") -> torch.Tensor:
    """Returns the product of each expert's rows with its weight, a @ b[e].T. Both inputs have gradients.

    Args:
        a: Permuted rows, bf16 [P, k].
        b: Weights, bf16 [E, n, k].
        routing: The result of route(). For gradients of b in bf16, `splits_alignment` must be a multiple of 64.
        format: "bf16" or "fp8". In FP8, rows, weights and the gradient of the result are quantized to E4M3: rows with a
            scale for each 128 values, weights with a scale for each 128x128 tile. Backward transposes forward's codes
            and quantizes nothing twice.

    Returns:
        bf16 [P, n].
    """
    if format not in _FORMATS:
        raise RuntimeError(f'moejit: unknown_value: argument format: it is {format!r}, wanted "bf16" or "fp8"')
    if b.dim() != 3 or a.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensors a and b: they are {list(a.shape)} and {list(b.shape)}, "
                           "wanted [P, k] and [E, n, k]")
    return apply(_FORMATS[format], a, b, *routing[:2], routing.colwise_offs, routing.splits_alignment)


def _gemm(a: torch.Tensor, b: torch.Tensor, counts: torch.Tensor, offs: torch.Tensor, n: int, scales: str,
          **others: Any) -> torch.Tensor:
    tensors = {name: others.pop(name) for name in ("a_scale_inv", "b_scale_inv") if name in others}
    made = run({"operation": "grouped_gemm", **_groups(a, counts), "n": constant(n), "k": constant(a.shape[1]),
                "scales": scales, **others}, {"a": a, "b": b, **tensors, "counts": counts, "offs": offs})
    return made["d"]


def _groups(rows: torch.Tensor, counts: torch.Tensor) -> dict[str, int]:
    return {"local_experts": constant(counts.shape[0]), "max_permuted_rows": bound(rows.shape[0], None)}


class _GroupedGemm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, a, b, counts, offs, _, splits_alignment):
        if ctx.needs_input_grad[1] and splits_alignment % 64:
            raise RuntimeError(f"moejit: unsupported: the gradient of b with splits_alignment {splits_alignment}, "
                               "wanted a multiple of 64\nhint: give route() splits_alignment=64")
        ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None,
                              counts, offs)
        return _gemm(a, b, counts, offs, b.shape[1], "none")

    @staticmethod
    @first_order
    def backward(ctx, dd):
        a, b, counts, offs = ctx.saved_tensors
        da = db = None
        if b is not None:
            da = _gemm(dd, b, counts, offs, b.shape[2], "none", b_major="mn")
        if a is not None:
            db = run({"operation": "contraction_grouped_gemm", "local_experts": constant(counts.shape[0]),
                      "max_columns": bound(a.shape[0], None), "rows": constant(dd.shape[1]),
                      "n": constant(a.shape[1]), "scales": "none", "output": "bf16"},
                     {"a": dd, "b": a, "counts": counts, "offs": offs})["d"]
        return da, db, None, None, None, None


class _QuantizedGroupedGemm(torch.autograd.Function):
    """The grouped GEMM in FP8. Scales are powers of two, so transposes of codes are exact except for tiny values."""

    @staticmethod
    def forward(ctx, a, b, counts, offs, colwise_offs, _):
        rows = _quantize(a)
        weights = run({"operation": "quantize_weights", "local_experts": constant(b.shape[0]),
                       "rows": constant(b.shape[1]), "columns": constant(b.shape[2]),
                       "colwise": ctx.needs_input_grad[0]}, {"input": b})
        colwise = weights.get("output_colwise"), weights.get("output_colwise_scale_inv")
        ctx.save_for_backward(*(rows if ctx.needs_input_grad[1] else (None, None)), *colwise, counts, offs,
                              colwise_offs)
        return _gemm(rows[0], weights["output"], counts, offs, b.shape[1], "row_block", a_scale_inv=rows[1],
                     b_scale_inv=weights["output_scale_inv"])

    @staticmethod
    @first_order
    def backward(ctx, dd):
        rows, row_scales, colwise, colwise_scales, counts, offs, colwise_offs = ctx.saved_tensors
        codes, scales = _quantize(dd)
        da = db = None
        if colwise is not None:
            da = _gemm(codes, colwise, counts, offs, colwise.shape[1], "row_block", a_scale_inv=scales,
                       b_scale_inv=colwise_scales)
        if rows is not None:
            a = _transpose(codes, scales, counts, offs, colwise_offs)
            b = _transpose(rows, row_scales, counts, offs, colwise_offs)
            db = run({"operation": "contraction_grouped_gemm", "local_experts": constant(counts.shape[0]),
                      "max_columns": bound(128 * a[0].shape[0], None), "rows": constant(a[0].shape[1]),
                      "n": constant(b[0].shape[1]), "scales": "tile", "output": "bf16"},
                     {"a": a[0], "b": b[0], "a_scale_inv": a[1], "b_scale_inv": b[1], "counts": counts,
                      "offs": colwise_offs})["d"]
        return da, db, None, None, None, None


_FORMATS = {"bf16": _GroupedGemm, "fp8": _QuantizedGroupedGemm}


def _quantize(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    made = run({"operation": "quantize", "max_tokens": bound(rows.shape[0], None),
                "columns": constant(rows.shape[1])}, {"input": rows})
    return made["output"], made["output_scale_inv"]


def _transpose(codes: torch.Tensor, scales: torch.Tensor, counts: torch.Tensor, offs: torch.Tensor,
               colwise_offs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    made = run({"operation": "transpose", **_groups(codes, counts), "columns": constant(codes.shape[1])},
               {"input": codes, "input_scale_inv": scales, "counts": counts, "offs": offs,
                "output_offs": colwise_offs})
    return made["output"], made["output_scale_inv"]
