# SPDX-License-Identifier: Apache-2.0
"""Experts of rows that the host dispatches as FP8: half the bytes of bf16, forward and backward."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from moejit.torch import ops
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.first_order import first_order
from moejit.torch.function import gradients, rows_of
from moejit.torch.layers import GRADIENTS, call_text, json_with, reads_of

Dispatch = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
Combine = Callable[[torch.Tensor], torch.Tensor]


class _Host(NamedTuple):
    """What the host does with rows, the text of the layer, and whether there will be a backward call."""
    dispatch: Dispatch
    combine: Combine
    layer: str
    has_backward: bool


def fp8_dispatched_experts(x: torch.Tensor, tokens_per_expert: torch.Tensor, gate_up_proj: torch.Tensor,
                           down_proj: torch.Tensor, *, dispatch: Dispatch, combine: Combine,
                           layer: dict[str, Any] | str, probs: torch.Tensor) -> torch.Tensor:
    """Computes experts of tokens that the host sends to the ranks of their experts as FP8 codes.

    Forward quantizes x, dispatches, and combines what the experts made. Backward quantizes dy, dispatches, and combines
    dx. So nothing travels to the experts in bf16.

    Args:
        x: [T, H] bf16, the tokens of this rank.
        tokens_per_expert: [E] int32 or int64: how many of the N dispatched rows each expert of this rank has.
        gate_up_proj: [E, 2I, H] bf16, of the experts of this rank.
        down_proj: [E, H, I] bf16.
        dispatch: Returns the codes, float8_e4m3fn [N, H], and scales, float32 [N, ceil(H / 128)], of the rows of this
            rank's experts, in their order. Gets the codes and scales of this rank's tokens, [T, H] and
            [T, ceil(H / 128)]. All ranks call it, without gradients: once in forward, once in backward.
        combine: Returns the sum of each token's rows, bf16 [T, H]. Gets the rows of this rank's experts, bf16 [N, H].
        layer: A layer description without `top_k`, as for grouped_experts(); `max_tokens` is at least T and N. Its
            recipe has scales of 128 columns: fp8_flow, or fp8_blockwise without gradients.
        probs: [N] float32: the factors of the dispatched rows. Its gradient has the same.

    Returns:
        [T, H] bf16: what `combine` made.

    Raises:
        RuntimeError: As grouped_experts().
    """
    tensors = {"x": x, "probs": probs, "w1": gate_up_proj, "w2": down_proj}
    wanted = tuple(name for name, tensor in zip(GRADIENTS, tensors.values())
                   if torch.is_grad_enabled() and tensor.requires_grad)
    wgrad = "f32" if gate_up_proj.dtype == torch.float32 else "bf16"
    description = json_with(layer, input="grouped", dispatch="fp8", dispatch_calls=True)
    tell_of_simulator(x.device, 3)
    text = call_text(description, target_of(x.device), wanted, wgrad,
                     "i64" if tokens_per_expert.dtype == torch.int64 else "i32")
    host = _Host(dispatch, combine, text, len(wanted) > 0)
    return _DispatchedFunction.apply(x.contiguous(), tokens_per_expert, probs.contiguous(), gate_up_proj.contiguous(),
                                     down_proj.contiguous(), host)


class _DispatchedFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, tokens_per_expert, probs, w1, w2, host):
        given = {"tokens_per_expert": tokens_per_expert, "probs": probs, "w1": w1, "w2": w2}
        given.update(ops.run(host.layer, "update_weights", given))
        given.update(_dispatched(host, "quantize", "x", x))
        made = ops.run(host.layer, "experts", given)
        given.update(made)
        ctx.host = host
        if host.has_backward:
            ctx.names = tuple(name for name in reads_of(host.layer, "experts_grad") if name in given)
            ctx.save_for_backward(*(given[name] for name in ctx.names))
        ctx.set_materialize_grads(False)
        return host.combine(made["y"])

    @staticmethod
    @first_order
    def backward(ctx, dy):
        host = ctx.host
        given = dict(zip(ctx.names, ctx.saved_tensors))
        given.update(_dispatched(host, "quantize_grad", "dy", rows_of(dy)))
        made = ops.run(host.layer, "experts_grad", given)
        if "dx" in made:
            made["dx"] = host.combine(made["dx"])
        wanted = (*ctx.needs_input_grad[:-1], False, False)
        return *gradients(wanted, made, (torch.bfloat16,) * 4)[:5], None


def _dispatched(host: _Host, call: str, name: str, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Quantizes rows, and returns the codes and scales that the host hands out."""
    made = ops.run(host.layer, call, {name: rows})
    codes, scales = host.dispatch(made[f"{name}_q"], made[f"{name}_scale_inv"])
    return {f"{name}_q": codes, f"{name}_scale_inv": scales}
