# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's functions that move rows of tokens to experts and back, with its names and results."""
from __future__ import annotations

import warnings
from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.operations import apply, constant, run, run_into
from moejit.torch.te_routing import Rows, below, fields_of, read_rows, route_ids, route_map

_KERNEL_PROBS = (torch.float32, torch.bfloat16, torch.float16)  # which float32 holds exactly


def moe_permute(inp: torch.Tensor, routing_map: torch.Tensor, num_out_tokens: int | None, max_token_num: int = -1,
                map_type: str = "mask", *, top_k: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies rows of tokens to the order of experts, and of tokens within an expert. The input has a gradient.

    Args:
        inp: [T, H] bf16; without a gradient of any dtype with rows of a multiple of 32 bytes.
        routing_map: With "mask" [T, E], not 0 where a token goes to an expert. With "index" [T, K], ids of experts.
        num_out_tokens: The rows of the result. Rows beyond are dropped; if there are fewer, the last ones hold
            anything. None or below 0 with "mask": as many as there are, which waits for the device. 0 with "index":
            T * K.
        max_token_num: Means nothing.
        map_type: "mask" or "index".
        top_k: The most experts of a token of a map. Without it every function reads E places for each token.

    Returns:
        The rows, and a tensor for moe_unpermute().
    """
    if map_type == "index":
        rows_out = num_out_tokens if num_out_tokens and num_out_tokens > 0 else routing_map.numel()
        rows = route_ids(routing_map, rows_out)
        return _permute(inp, None, rows, rows_out)[0], rows.row_map
    _check_map_type(map_type)
    rows, rows_out = _route(inp, routing_map, num_out_tokens, top_k)
    return _permute(inp, None, rows, rows_out)[0], rows.packed()


def moe_permute_with_probs(inp: torch.Tensor, probs: torch.Tensor, routing_map: torch.Tensor,
                           num_out_tokens: int | None, *, top_k: int | None = None
                           ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Does what moe_permute() does with a map, and moves probabilities [T, E] with the rows, both with gradients.

    A token whose probability for an expert is 0 has a row of zeros there.

    Returns:
        The rows, their probabilities in the dtype of `probs`, and a tensor for moe_unpermute().
    """
    rows, rows_out = _route(inp, routing_map, num_out_tokens, top_k)
    output, permuted_probs = _permute(inp, probs, rows, rows_out)
    return output, permuted_probs, rows.packed()


def moe_permute_and_pad_with_probs(inp: torch.Tensor, probs: torch.Tensor, routing_map: torch.Tensor,
                                   tokens_per_expert: torch.Tensor, align_size: int, *, top_k: int | None = None,
                                   strict_shape: bool = True
                                   ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Does what moe_permute_with_probs() does, and fills up each expert's rows with zeros.

    Args:
        inp, probs, routing_map, top_k: As for moe_permute_with_probs().
        tokens_per_expert: Is not read: the map says it.
        align_size: Each expert gets a multiple of so many rows.
        strict_shape: True: the result has as many rows as the map says, for which the host waits, once. False: it has
            as many as any map needs, and the host does not wait; rows behind the last expert's hold anything. It takes
            `top_k`.

    Returns:
        The rows, their probabilities, and a tensor for moe_unpermute(); then, int64 [E], the pad rows before each
        expert, which moe_unpermute() takes too, and the rows of each expert with pad rows.
    """
    if tokens_per_expert is None:
        raise ValueError("moejit: moe_permute_and_pad_with_probs: tokens_per_expert is missing, wanted [E]")
    if align_size <= 0:
        raise ValueError(f"moejit: moe_permute_and_pad_with_probs: align_size: got {align_size}, wanted 1 or more")
    if not strict_shape and top_k is None:
        raise RuntimeError("moejit: invalid_value: moe_permute_and_pad_with_probs: strict_shape=False without top_k: "
                           "there would be a row for each token and expert\nhint: give the most experts of a token as "
                           "top_k")
    _check_tokens(inp, routing_map)
    rows = route_map(routing_map, top_k, align_size)
    tokens, choices = rows.row_map.shape
    experts = routing_map.shape[1]
    most = (tokens * choices + min(experts, tokens * choices) * (align_size - 1)) // align_size * align_size
    output, permuted_probs = _permute(inp, probs, rows, int(rows.offs[-1]) if strict_shape else most)
    targets = rows.offs.diff().long()
    pads = targets - rows.counts
    return output, permuted_probs, rows.packed(), pads.cumsum(0) - pads, targets


def moe_unpermute(inp: torch.Tensor, row_id_map: torch.Tensor, merging_probs: torch.Tensor | None = None,
                  restore_shape: torch.Size | None = None, map_type: str = "mask", probs: torch.Tensor | None = None,
                  pad_offsets: torch.Tensor | None = None) -> torch.Tensor:
    """Returns for each token the sum of its rows, in float32 and rounded once. Rows and probabilities have gradients.

    Args:
        inp: bf16 [P, H].
        row_id_map: What the function that permuted has returned.
        merging_probs: [T, E], with "index" [T, K]: factors of the rows. Products are rounded to bf16 before they are
            added.
        restore_shape: The shape of the result, [T, H]. It may be left out.
        map_type: "mask" or "index", as when tokens were permuted.
        probs: An older name of merging_probs.
        pad_offsets: What moe_permute_and_pad_with_probs() has returned.
    """
    if probs is not None:
        if merging_probs is not None:
            raise ValueError("moejit: moe_unpermute: got merging_probs and probs, wanted one: probs is its older name")
        warnings.warn("moejit: moe_unpermute: probs is an older name of merging_probs", stacklevel=2)
        merging_probs = probs
    if inp.dtype is not torch.bfloat16:
        raise _dtype_error("moe_unpermute", inp)
    if map_type == "index":
        rows = Rows(row_id_map, None)
    else:
        _check_map_type(map_type)
        rows = read_rows(row_id_map, None if restore_shape is None else restore_shape[0],
                         None if pad_offsets is None else pad_offsets.shape[0])
    rows = below(rows, inp.shape[0])
    if merging_probs is not None:
        inp = (inp * _probs_of_rows(merging_probs, rows, inp.shape[0])[:, None]).to(inp.dtype)
    return apply(_Unpermute, inp, rows.row_map, rows.counts, rows.offs)


def _check_map_type(map_type: str) -> None:
    if map_type != "mask":
        raise ValueError(f"moejit: map_type: got {map_type!r}, wanted 'mask' or 'index'")


def _check_tokens(inp: torch.Tensor, routing_map: torch.Tensor) -> None:
    if inp.shape[0] != routing_map.shape[0]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor routing_map: it has {routing_map.shape[0]} tokens, wanted "
                           f"{inp.shape[0]}, as inp has")


def _dtype_error(function: str, inp: torch.Tensor) -> RuntimeError:
    return RuntimeError(f"moejit: tensor_mismatch: {function}: inp is {inp.dtype}, wanted torch.bfloat16: sums of rows "
                        "are computed of bf16 alone\nhint: cast it with .to(torch.bfloat16)")


def _route(inp: torch.Tensor, routing_map: torch.Tensor, num_out_tokens: int | None,
           top_k: int | None) -> tuple[Rows, int]:
    """Returns where rows go, and the rows of the result."""
    _check_tokens(inp, routing_map)
    rows = route_map(routing_map, top_k, 1)
    if inp.shape[0] == 0:
        rows_out = 0
    elif num_out_tokens is None or num_out_tokens < 0:
        rows_out = int(rows.offs[-1])
    else:
        rows_out = int(num_out_tokens)
    return below(rows._replace(counts=None, offs=None), rows_out), rows_out


def _permute(inp: torch.Tensor, probs: torch.Tensor | None, rows: Rows,
             rows_out: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    if inp.requires_grad and torch.is_grad_enabled() and inp.dtype is not torch.bfloat16:
        raise _dtype_error("moe_permute", inp)
    if probs is not None and probs.dtype not in _KERNEL_PROBS:  # the kernel moves float32
        output, _ = apply(_Permute, inp, probs.detach().float(), rows_out, *rows)
        return output, _probs_of_rows(probs, rows, rows_out)
    return apply(_Permute, inp, probs, rows_out, *rows)


def _probs_of_rows(probs: torch.Tensor, rows: Rows, rows_out: int) -> torch.Tensor:
    """Returns the probability of each row, with a gradient; 0 where no token is."""
    chosen = probs if rows.topk_ids is None else probs.gather(1, rows.topk_ids.long())
    places = torch.where(rows.row_map < 0, rows_out, rows.row_map).long()
    return probs.new_zeros(rows_out + 1).scatter(0, places.flatten(), chosen.flatten())[:rows_out]


def move(inp: torch.Tensor, rows: Rows, output: torch.Tensor) -> None:
    """Copies the bits of each token's row to all of its rows, and zeros to pad rows."""
    source, target = _as_bf16(inp), _as_bf16(output)
    run_into(fields_of("permute_pad_grad", rows, constant(source.shape[1]), target.shape[0], format="bf16"),
             {"input": source, "row_map": rows.row_map, **_groups(rows)}, {"output": target})


def _as_bf16(rows: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of rows as bf16, which kernels move as they are."""
    return rows if rows.dtype is torch.bfloat16 else rows.contiguous().view(torch.bfloat16)


def _groups(rows: Rows) -> dict[str, torch.Tensor]:
    if rows.counts is not None:
        return {"counts": rows.counts, "offs": rows.offs}
    none = rows.row_map.new_zeros(6)  # no rows, so no pad rows; offs begin at a multiple of 16 bytes
    return {"counts": none[:1], "offs": none[4:]}


class _Permute(torch.autograd.Function):

    @staticmethod
    def forward(ctx, inp, probs, rows_out, *parts):
        rows = Rows(*parts)
        output = inp.new_empty(rows_out, inp.shape[1])
        ctx.save_for_backward(*parts)
        ctx.experts = None if probs is None else probs.shape[1]
        ctx.probs_dtype = None if probs is None else probs.dtype
        ctx.set_materialize_grads(False)
        if probs is None:
            move(inp, rows, output)
            return output, None
        permuted_probs = torch.empty(rows_out, dtype=torch.float32, device=inp.device)
        chosen = probs.float().gather(1, rows.topk_ids.long())
        source = _as_bf16(inp)
        run_into(fields_of("permute_pad", rows, constant(source.shape[1]), rows_out, format="bf16"),
                 {"input": source, "probs": chosen, "row_map": rows.row_map, **_groups(rows)},
                 {"output": _as_bf16(output), "output_probs": permuted_probs})
        if probs.dtype is not torch.float32:  # a result under two names would have no gradient in compiled graphs
            permuted_probs = permuted_probs.to(probs.dtype)
        frozen = zip((output, permuted_probs), ctx.needs_input_grad)
        ctx.mark_non_differentiable(*[tensor for tensor, needs_gradient in frozen if not needs_gradient])
        return output, permuted_probs

    @staticmethod
    @first_order
    def backward(ctx, drows, drow_probs):
        rows = Rows(*ctx.saved_tensors)
        dinp = dprobs = None
        if ctx.needs_input_grad[0] and drows is not None:
            dinp = _sum(drows, rows)
        if ctx.needs_input_grad[1] and drow_probs is not None:
            # Choices without a row take a zero behind the last row, and put it behind the last expert.
            has_row = rows.row_map >= 0
            row = torch.where(has_row, rows.row_map, drow_probs.shape[0]).long()
            expert = torch.where(has_row, rows.topk_ids, ctx.experts).long()
            of_choices = torch.nn.functional.pad(drow_probs, (0, 1))[row]
            dprobs = drow_probs.new_zeros(row.shape[0], ctx.experts + 1).scatter(1, expert, of_choices)
            dprobs = dprobs[:, :-1].to(ctx.probs_dtype)
        return dinp, dprobs, *[None] * 5


class _Unpermute(torch.autograd.Function):

    @staticmethod
    def forward(ctx, inp, row_map, counts, offs):
        rows = Rows(row_map, None, counts, offs)
        ctx.save_for_backward(row_map, counts, offs)
        ctx.rows_in = inp.shape[0]
        return _sum(inp, rows)

    @staticmethod
    @first_order
    def backward(ctx, dy):
        rows = Rows(ctx.saved_tensors[0], None, *ctx.saved_tensors[1:])
        drows = dy.new_empty(ctx.rows_in, dy.shape[1])
        move(dy, rows, drows)
        return drows, None, None, None


def _sum(inp: torch.Tensor, rows: Rows) -> torch.Tensor:
    return run(fields_of("unpermute", rows, constant(inp.shape[1]), inp.shape[0]),
               {"input": inp, "row_map": rows.row_map})["output"]
