# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMMs over rows in the order of experts, in bf16 or FP8, with gradients."""
from __future__ import annotations

import torch

from moejit.torch.checks import name_of
from moejit.torch.first_order import first_order
from moejit.torch.grouped_formats import FORMATS, Groups, multiply, multiply_columns, starts_of
from moejit.torch.operations import apply
from moejit.torch.permute import Routing


def grouped_gemm(a: torch.Tensor, b: torch.Tensor, routing: Routing, *, format: str = "bf16") -> torch.Tensor:
    """Returns the product of each expert's rows with its weight, a @ b[e].T. Both inputs have gradients.

    Args:
        a: Permuted rows, bf16 [P, k].
        b: Weights, bf16 [E, n, k].
        routing: The result of route().
        format: As for grouped_mm().

    Returns:
        bf16 [P, n].
    """
    if b.dim() != 3 or a.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensors a and b: they are {list(a.shape)} and {list(b.shape)}, "
                           "wanted [P, k] and [E, n, k]")
    _check_format(format, b.shape[1:])
    groups = Groups(routing.counts, routing.offs, routing.colwise_offs, routing.splits_alignment, zeros_rest=False)
    return apply(_Product, a, b, format, "k", *groups)


def grouped_mm(a: torch.Tensor, b_t: torch.Tensor, offs: torch.Tensor, *, format: str = "bf16") -> torch.Tensor:
    """Returns the product of each expert's rows with its matrix, a @ b_t[e], as torch.nn.functional.grouped_mm does.

    Both inputs have gradients. No row moves, groups may have any size, and the host does not wait.

    Args:
        a: Rows in the order of experts, bf16 [P, k]. Rows behind the last expert's may hold anything.
        b_t: Matrices, bf16 [E, k, n]: the transposed view of weights [E, n, k], or without gaps itself.
        offs: The row behind the last one of each expert, int32 [E], on the device of the rows. Ends do not fall, and
            none is above P: nobody looks at them.
        format: "bf16", or FP8, for which rows, matrices and the gradient of the result are quantized to E4M3.
            "fp8_rowwise": a row, or column, of each operand has one scale over all of the contraction, as in torchao's
            _to_fp8_rowwise_then_scaled_grouped_mm. "fp8": rows have a scale for each 128 values, matrices for each
            128x128; backward transposes forward's codes and quantizes nothing twice. "mxfp8": 32 values along the
            contraction have one E8M0 scale, as in torchao's _to_mxfp8_then_scaled_grouped_mm; k and n are multiples of
            32, and GEMMs multiply what codes times scales give.

    Returns:
        bf16 [P, n]; 0 for rows behind the last expert's, and so are their gradients.

    Raises:
        RuntimeError: A shape or dtype is wrong, or the format has another name.
    """
    if a.dim() != 2 or b_t.dim() != 3 or a.shape[1] != b_t.shape[1]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensors a and b_t: they are {list(a.shape)} and "
                           f"{list(b_t.shape)}, wanted [P, k] and [E, k, n]\nhint: weights [E, n, k] are given as "
                           "weights.transpose(-2, -1)")
    _check_format(format, b_t.shape[1:])
    for name, tensor in ("a", a), ("b_t", b_t):
        if tensor.dtype != torch.bfloat16:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: its dtype is {name_of(tensor.dtype)}, wanted "
                               "bfloat16\nhint: cast it, as autocast does; the format quantizes inside")
    if offs.dtype != torch.int32 or offs.shape != b_t.shape[:1]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor offs: it is {name_of(offs.dtype)} {list(offs.shape)}, "
                           f"wanted int32 [{b_t.shape[0]}]: where the rows of each expert end, without a leading 0\n"
                           "hint: torch.cumsum(tokens_per_expert, 0, dtype=torch.int32)")
    b, b_major = b_t.transpose(1, 2), "k"
    if not b.is_contiguous() and b_t.is_contiguous():
        b, b_major = b_t, "mn"
    starts = starts_of(offs)
    groups = Groups(starts.diff(), starts, None, splits_alignment=1, zeros_rest=True)
    return apply(_Product, a, b.contiguous(), format, b_major, *groups)


def _check_format(format: str, sizes: tuple[int, int]) -> None:
    if format not in FORMATS:
        raise RuntimeError(f"moejit: unknown_value: argument format: it is {format!r}, wanted one of "
                           f"{', '.join(FORMATS)}")
    if format == "mxfp8" and any(size % 32 for size in sizes):
        raise RuntimeError(f"moejit: unsupported: format 'mxfp8' of matrices {list(sizes)}, wanted multiples of 32, "
                           "the values that share a scale\nhint: fill them up with zeros, or use format='fp8_rowwise'")


class _Product(torch.autograd.Function):
    """The product of rows with matrices [E, n, k], or of `b_major` "mn" with [E, k, n]."""

    @staticmethod
    def forward(ctx, a, b, format, b_major, *groups):
        kind, rows = FORMATS[format], FORMATS[format].keep(a)
        needs_da, needs_db = ctx.needs_input_grad[:2]
        weights, kept = kind.weights(b, b_major, needs_da)
        nothing = None, None
        ctx.save_for_backward(*(rows if needs_db else nothing), *(kept if needs_da else nothing), *groups[:3])
        ctx.constants = kind, b_major, groups[3:], b.shape[1:] if b_major == "k" else b.shape[:0:-1]
        return multiply(kind, kind.rows(rows), weights, Groups(*groups), ctx.constants[3][0], b_major)

    @staticmethod
    @first_order
    def backward(ctx, dd):
        rows, weights, groups = ctx.saved_tensors[:2], ctx.saved_tensors[2:4], ctx.saved_tensors[4:]
        kind, b_major, constants, (_, k) = ctx.constants
        groups, gradient = Groups(*groups, *constants), kind.keep(dd.contiguous())
        da = db = None
        if weights[0] is not None:
            da = multiply(kind, kind.rows(gradient), kind.weights_of_dgrad(weights, b_major), groups, k,
                          "mn" if b_major == "k" else "k")
        if rows[0] is not None:
            operands = kind.columns(gradient, groups), kind.columns(rows, groups)
            db = multiply_columns(kind, *(operands if b_major == "k" else operands[::-1]), groups)
        return da, db, *[None] * 7
