# SPDX-License-Identifier: Apache-2.0
"""Experts of rows that the host dispatches as FP8: half the bytes of bf16, forward and backward."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from moejit.torch import ops
from moejit.torch.arguments import ID_DTYPES
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.first_order import first_order
from moejit.torch.function import gradients, rows_of
from moejit.torch.layers import WEIGHT_GRADIENTS, call_text, json_with, reads_of
from moejit.torch.main_grads import add_to_main_grads, dummies_of, main_grad_dtype, take_main_grads

Dispatch = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
Combine = Callable[[torch.Tensor], torch.Tensor]
_WEIGHTS = ("w1", "w2", "b1", "b2")


class Dispatched(NamedTuple):
    """Rows of this rank's experts: codes [N, H], scales [N, ceil(H / 128)], and their experts.

    `indices` is tokens_per_expert [E], and `probs` [N]; or ids and probabilities of each row's choices, [N, K].
    """
    codes: torch.Tensor
    scales: torch.Tensor
    indices: torch.Tensor
    probs: torch.Tensor


class Exchange(Protocol):
    """One exchange of rows between ranks, which all of them make: forward, and once more in backward.

    Attributes:
        top_k: K; 0: rows are dispatched in the order of experts.
        index_dtype: The dtype of Dispatched.indices.
    """
    top_k: int
    index_dtype: torch.dtype

    def dispatch(self, codes: torch.Tensor, scales: torch.Tensor, probs: torch.Tensor) -> Dispatched:
        """Sends this rank's tokens to the ranks of their experts."""

    def dispatch_gradient(self, codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sends the gradients of combine()'s results the same way."""

    def combine(self, y: torch.Tensor) -> torch.Tensor:
        """Returns the sums of each token's rows. Gets a row for each one dispatched, as combine_gradients() does."""

    def combine_gradients(self, dx: torch.Tensor, dprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sums of each token's rows of dx, and the gradient of what dispatch() got as probs."""


class _FunctionsExchange:
    """An exchange by a caller's two functions, behind which probabilities have been dispatched already."""
    top_k = 0

    def __init__(self, dispatch: Dispatch, combine: Combine, tokens_per_expert: torch.Tensor) -> None:
        self.dispatch_gradient, self.combine = dispatch, combine
        self.tokens_per_expert, self.index_dtype = tokens_per_expert, tokens_per_expert.dtype

    def dispatch(self, codes: torch.Tensor, scales: torch.Tensor, probs: torch.Tensor) -> Dispatched:
        return Dispatched(*self.dispatch_gradient(codes, scales), self.tokens_per_expert, probs)

    def combine_gradients(self, dx: torch.Tensor, dprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.combine(dx), dprobs


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
            All ranks call it as often as `dispatch`.
        layer: A layer description without `top_k`, as for grouped_experts(); `max_tokens` is at least T and N. Its
            recipe has scales of 128 columns: fp8_flow, or fp8_blockwise without gradients.
        probs: [N] float32: the factors of the dispatched rows. Its gradient has the same.

    Returns:
        [T, H] bf16: what `combine` made.

    Raises:
        RuntimeError: As grouped_experts().
    """
    description = json_with(layer, input="grouped", dispatch="fp8", dispatch_calls=True)
    exchange = _FunctionsExchange(dispatch, combine, tokens_per_expert)
    return call_dispatched(exchange, lambda rows: description, x, probs, (gate_up_proj, down_proj, None, None))


def call_dispatched(exchange: Exchange, description_of: Callable[[int], str], x: torch.Tensor, probs: torch.Tensor,
                    parameters: Sequence[torch.Tensor | None],
                    keep_status: Callable[[torch.Tensor], None] = lambda status: None,
                    has_main_grads: bool = False) -> torch.Tensor:
    """Computes experts of tokens that an exchange moves.

    Args:
        exchange: Moves them.
        description_of: Returns the description of a layer for so many tokens or rows, with `dispatch_calls`.
        x: [T, H] bf16.
        probs: What the exchange gets as such, float32.
        parameters: w1, w2, b1 and b2 of this rank's experts, bf16; None: absent.
        keep_status: Gets the status word of forward.
        has_main_grads: Whether backward adds gradients of parameters to their main_grad.

    Returns:
        [T, H] bf16.
    """
    tell_of_simulator(x.device, 4)
    wanted = [tensor is not None and tensor.requires_grad and torch.is_grad_enabled()
              for tensor in (x, probs, *parameters)]
    # Whatever a rank wants, it makes the calls of the others.
    names = ("dx", "dprobs", *(name for name, each in zip(WEIGHT_GRADIENTS, wanted[2:]) if each)) if any(wanted) else ()
    ids = ID_DTYPES.get(exchange.index_dtype, "i32")

    wgrad = "f32" if has_main_grads and main_grad_dtype(parameters) == torch.float32 else "bf16"

    def text_of(rows: int) -> str:
        description = _that_may_add(description_of(rows)) if has_main_grads and names else description_of(rows)
        return call_text(description, target_of(x.device), names, wgrad, ids)
    host = _Host(exchange, text_of, bool(names), keep_status, tuple(parameters) if has_main_grads else None)
    rest = (None if tensor is None else tensor.contiguous() for tensor in (probs, *parameters))
    return _DispatchedFunction.apply(x.contiguous(), *rest, host)


@functools.lru_cache(maxsize=None)
def _that_may_add(description: str) -> str:
    """Returns the description of a layer whose backward may add to gradients of weights."""
    return json_with(description, fuse_wgrad_accumulation=True)


class _Host(NamedTuple):
    """The exchange, the texts of layers, whether there will be a backward call, and parameters with main gradients."""
    exchange: Exchange
    text_of: Callable[[int], str]
    has_backward: bool
    keep_status: Callable[[torch.Tensor], None]
    owners: Sequence[torch.Tensor | None] | None


class _DispatchedFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, probs, w1, w2, b1, b2, host):
        made = ops.run(host.text_of(x.shape[0]), "quantize", {"x": x})
        came = host.exchange.dispatch(made["x_q"], made["x_scale_inv"], probs)
        layer = host.text_of(came.codes.shape[0])
        names = ("topk_ids", "topk_probs") if host.exchange.top_k else ("tokens_per_expert", "probs")
        given = {name: tensor for name, tensor in zip(_WEIGHTS, (w1, w2, b1, b2)) if tensor is not None}
        given.update({"x_q": came.codes, "x_scale_inv": came.scales, **dict(zip(names, came[2:]))})
        given.update(ops.run(layer, "update_weights", given))
        given.update(ops.run(layer, "experts", given))
        host.keep_status(given["status"])
        ctx.host, ctx.layer = host, layer
        if host.has_backward:
            ctx.names = tuple(name for name in reads_of(layer, "experts_grad") if name in given)
            ctx.save_for_backward(*(given[name] for name in ctx.names))
        ctx.set_materialize_grads(False)
        return host.exchange.combine(given["y"])

    @staticmethod
    @first_order
    def backward(ctx, dy):
        host, dy = ctx.host, rows_of(dy)
        made = ops.run(host.text_of(dy.shape[0]), "quantize_grad", {"dy": dy})
        codes, scales = host.exchange.dispatch_gradient(made["dy_q"], made["dy_scale_inv"])
        given = {**dict(zip(ctx.names, ctx.saved_tensors)), "dy_q": codes, "dy_scale_inv": scales}
        dummies = None
        if host.owners is None:
            made = ops.run(ctx.layer, "experts_grad", given)
        else:
            main, dummies, overwrites = take_main_grads(host.owners, dy)
            made = add_to_main_grads(ctx.layer, "experts_grad", given, main, overwrites)
        made["dx"], made["dprobs"] = host.exchange.combine_gradients(made["dx"], made["dprobs"])
        of_x, of_probs, *wanted = ctx.needs_input_grad[:-1]
        dx, _, dprobs, *of_weights = gradients((of_x, False, of_probs, *wanted), made, (torch.bfloat16,) * 4)
        if dummies is not None:
            of_weights = dummies_of(host.owners, dummies)
        return dx, dprobs, *of_weights, None
