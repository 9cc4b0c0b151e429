# SPDX-License-Identifier: Apache-2.0
"""What training does around a router: losses that attach themselves, losses of sequences, and balancing by a bias."""
from __future__ import annotations

import functools
from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.router import router


def update_router_bias(bias: torch.Tensor, counts: torch.Tensor, rate: float | torch.Tensor = 1e-3, *,
                       process_group: torch.distributed.ProcessGroup | None = None) -> None:
    """Moves the bias of experts that got less than the mean up, and of others down: balancing without a loss.

    Adds rate * sign(mean(counts) - counts), of arXiv 2408.15664, in place. Call it once a step, behind the optimizer. It
    waits for nothing, and may be captured and compiled. Nothing is computed in floating point but the addition.

    Args:
        bias: float32 [A], which router() got as `bias`. A bf16 bias would lose such small steps.
        counts: int32 or int64 [A], the choices of each expert in the step, as router() adds them to its `counts`.
        rate: The size of a step; a number, or a tensor on the device.
        process_group: Ranks with other tokens, whose counts are added up first; `counts` itself does not change.

    Raises:
        RuntimeError: The bias is not float32, or the shapes differ.
    """
    if bias.dtype != torch.float32 or counts.shape != bias.shape or counts.is_floating_point():
        raise RuntimeError(f"moejit: tensor_mismatch: update_router_bias(): bias is {bias.dtype} {list(bias.shape)}, and "
                           f"counts are {counts.dtype} {list(counts.shape)}; wanted float32 [A] and int32 or int64 [A]")
    total = counts.long()
    if process_group is not None:
        total = total.clone()
        torch.distributed.all_reduce(total, group=process_group)
    with torch.no_grad():
        bias.add_(rate * (total.sum() - total * total.numel()).sign().to(torch.float32))


class _Attached(torch.autograd.Function):

    @staticmethod
    def forward(ctx, tensor, loss, scale):
        ctx.scale, ctx.shape, ctx.dtype = scale, loss.shape, loss.dtype
        ctx.device = loss.device
        return tensor.view_as(tensor)

    @staticmethod
    @first_order
    def backward(ctx, gradient):
        scale = torch.as_tensor(ctx.scale, dtype=ctx.dtype, device=ctx.device)
        return gradient, scale.expand(ctx.shape), None


def attach_loss(tensor: torch.Tensor, loss: torch.Tensor, scale: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Returns `tensor`, through whose backward pass `loss` gets the gradient `scale`, as Megatron's MoEAuxLossAutoScaler.

    So a layer needs not hand its loss to the training loop: attach it to the probabilities, or to the layer's result.

    Args:
        tensor: What the step's loss depends on, of any shape.
        loss: A scalar with its coefficient, such as 0.01 * aux_loss.
        scale: The gradient of the loss, such as a loss scale; a tensor on the device is read when backward runs.
    """
    return _Attached.apply(tensor, loss, scale)


def router_of_sequences(logits: torch.Tensor, top_k: int, **options: Any) \
        -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Does what router() does, with the mean of losses that see one sequence each: Megatron's `seq_aux_loss`.

    Args:
        logits: float32 or bf16 [sequences, tokens, A]. It is a call of router() for each sequence.
        options: Arguments of router() but for topk_ids.

    Returns:
        As router(), of all tokens: probabilities and ids [sequences * tokens, K]. In the dict tensors of tokens are put
        together, losses are means, and the others sums.
    """
    made = [router(each, top_k, **options) for each in logits]
    dicts = [extras for _, _, extras in made]
    together = {name: torch.stack([extras[name] for extras in dicts]) for name in dicts[0]}
    extras = {name: tensor.flatten(0, 1) if name in ("chosen_ids", "zero_probs") else
              tensor.mean(0) if name.endswith("_loss") else
              functools.reduce(torch.bitwise_or, tensor) if name == "status" else tensor.sum(0, dtype=tensor.dtype)
              for name, tensor in together.items()}
    return torch.cat([probs for probs, _, _ in made]), torch.cat([ids for _, ids, _ in made]), extras
