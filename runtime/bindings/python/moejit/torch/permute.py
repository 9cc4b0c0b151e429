# SPDX-License-Identifier: Apache-2.0
"""Routing tokens to experts, and moving their rows there and back, with gradients.

Permuted rows are P rows in the order of experts; each expert's group starts at a multiple of `splits_alignment`. Pad
rows between groups are zeros. Rows after the last group are neither written nor read and may hold anything.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from moejit.torch.first_order import first_order
from moejit.torch.operations import apply, bound, constant, run

ID_DTYPES = {torch.int32: "i32", torch.int64: "i64"}
PROB_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


class Routing(NamedTuple):
    """The destination rows of T tokens with K choices each, among E local experts."""
    counts: torch.Tensor  # int32 [E]: rows of each expert
    offs: torch.Tensor  # int32 [E + 1]: start of each expert's group, then the end of the last one
    row_map: torch.Tensor  # int32 [T, K]: the row of each choice, or -1
    status: torch.Tensor  # int32 [1]: bits for ids out of range and other errors (docs/embedding.md)
    colwise_offs: torch.Tensor  # int32 [E + 1]: `offs` for groups at multiples of 128
    splits_alignment: int
    max_tokens: int | None  # the arguments of route()
    max_permuted_rows: int | None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of descriptions of operations on these routed tokens."""
        return _fields(self.row_map, self.counts.shape[0], self.splits_alignment, self.max_tokens,
                       self.max_permuted_rows)


def _fields(choices: torch.Tensor, local_experts: int, splits_alignment: int, max_tokens: int | None,
            max_permuted_rows: int | None) -> dict[str, Any]:
    fields = {"max_tokens": bound(choices.shape[0], max_tokens), "top_k": constant(choices.shape[1]),
              "local_experts": constant(local_experts), "splits_alignment": splits_alignment}
    return fields if max_permuted_rows is None else {**fields, "max_permuted_rows": max_permuted_rows}


def route(topk_ids: torch.Tensor, local_experts: int, *, splits_alignment: int = 128, foreign_experts: str = "report",
          max_tokens: int | None = None, max_permuted_rows: int | None = None) -> Routing:
    """Decides the row of each token's choices: in the order of experts, and of tokens within an expert.

    Args:
        topk_ids: The chosen experts, int32 or int64 [T, K]; -1: none.
        local_experts: E, the experts of this rank.
        splits_alignment: Groups start at multiples of it. Gradients of weights in bf16 need a multiple of 64.
        foreign_experts: "report", or "ignore": ids from E on are experts of other ranks.
        max_tokens: The largest T of a call. None: the next power of two, at least 256.
        max_permuted_rows: The largest number of rows; choices beyond are dropped, and the status says so. None: enough
            for any choice of experts.

    Raises:
        RuntimeError: topk_ids has another dtype or shape; a number is out of its range.
    """
    if topk_ids.dtype not in ID_DTYPES or topk_ids.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_ids: it is {topk_ids.dtype} {list(topk_ids.shape)}, "
                           "wanted int32 or int64 [T, K]")
    fields = _fields(topk_ids, local_experts, splits_alignment, max_tokens, max_permuted_rows)
    made = run({"operation": "route", **fields, "topk_ids_dtype": ID_DTYPES[topk_ids.dtype],
                "foreign_experts": foreign_experts, "colwise_offs": True}, {"topk_ids": topk_ids})
    return Routing(made["counts"], made["offs"], made["row_map"], made["status"], made["colwise_offs"],
                   splits_alignment, max_tokens, max_permuted_rows)


def permute_pad(x: torch.Tensor, topk_probs: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies tokens to their rows. Both inputs have gradients.

    Args:
        x: bf16 [T, H].
        topk_probs: float32 or bf16 [T, K]. A choice whose probability is 0 gets a row of zeros.
        routing: The result of route().

    Returns:
        The rows, bf16 [P, H], and their probabilities, float32 [P]; pad rows have 0.
    """
    return apply(_PermutePad, x, topk_probs, *routing)


class _PermutePad(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, topk_probs, *parts):
        routing = Routing(*parts)
        if topk_probs.dtype not in PROB_DTYPES:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_probs: its dtype is {topk_probs.dtype}, wanted "
                               "float32 or bfloat16")
        made = run({"operation": "permute_pad", **routing.fields(), "columns": constant(x.shape[-1]),
                    "format": "bf16", "topk_probs_dtype": PROB_DTYPES[topk_probs.dtype]},
                   {"input": x, "probs": topk_probs, "row_map": routing.row_map, "counts": routing.counts,
                    "offs": routing.offs})
        _keep(ctx, routing, topk_probs)
        frozen = zip(("output", "output_probs"), ctx.needs_input_grad)
        ctx.mark_non_differentiable(*[made[name] for name, needs_gradient in frozen if not needs_gradient])
        return made["output"], made["output_probs"]

    @staticmethod
    @first_order
    def backward(ctx, drows, drow_probs):
        topk_probs, routing = _kept(ctx)
        dx = dprobs = None
        if ctx.needs_input_grad[0] and drows is not None:
            # A choice with probability 0 has a row of zeros, whatever the token is.
            row_map = torch.where(topk_probs == 0, -1, routing.row_map)
            dx = _sum_of_rows(drows, routing._replace(row_map=row_map))
        if ctx.needs_input_grad[1] and drow_probs is not None:
            of_choices = drow_probs[routing.row_map.clamp(min=0)]
            dprobs = torch.where(routing.row_map < 0, 0, of_choices).to(topk_probs.dtype)
        return dx, dprobs, *[None] * len(routing)


def unpermute(rows: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Returns for each token the sum of its rows, computed in fp32 and rounded once. The input has a gradient.

    Args:
        rows: bf16 [P, H], with as many rows as permute_pad() returned.
        routing: The result of route().

    Returns:
        bf16 [T, H].
    """
    return apply(_Unpermute, rows, *routing)


class _Unpermute(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, *parts):
        routing = Routing(*parts)
        _keep(ctx, routing)
        return _sum_of_rows(rows, routing)

    @staticmethod
    @first_order
    def backward(ctx, dy):
        (routing,) = _kept(ctx)
        drows = run({"operation": "permute_pad_grad", **routing.fields(), "columns": constant(dy.shape[-1]),
                     "format": "bf16"},
                    {"input": dy, "row_map": routing.row_map, "counts": routing.counts, "offs": routing.offs})
        return drows["output"], *[None] * len(routing)


def _sum_of_rows(rows: torch.Tensor, routing: Routing) -> torch.Tensor:
    made = run({"operation": "unpermute", **routing.fields(), "columns": constant(rows.shape[-1])},
               {"input": rows, "row_map": routing.row_map})
    return made["output"]


def _keep(ctx: Any, routing: Routing, *tensors: torch.Tensor) -> None:
    ctx.save_for_backward(*tensors, *routing[:5])
    ctx.of_routing = routing[5:]
    ctx.set_materialize_grads(False)


def _kept(ctx: Any) -> tuple:
    tensors = ctx.saved_tensors
    return *tensors[:-5], Routing(*tensors[-5:], *ctx.of_routing)
