# SPDX-License-Identifier: Apache-2.0
"""Logits of routers in float32, out of tokens and weights in bf16."""
from __future__ import annotations

import torch
from torch.nn.functional import linear

from moejit.torch.first_order import first_order

_ON_TENSOR_CORES = "dtype" in torch.ops.aten.mm.overloads()  # of bf16, to float32; torch has it for GPUs alone


def float32_logits(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns the product of tokens and a router's weight in float32, with gradients of both.

    If both are bf16, tensor cores multiply them. Each product of two bf16 numbers is exact in float32, and sums are
    float32. It is the GEMM of Megatron's router with "moe_router_dtype" float32 (router_gating_linear). Backward
    takes the gradient as a sum of two bf16 numbers, which leaves 2^-17 of each element.

    Args:
        x: [T, H] of any float dtype; T may be 0.
        weight: [A, H] of any float dtype.

    Returns:
        [T, A] float32. Autocast has no say.
    """
    if x.dtype == weight.dtype == torch.bfloat16 and _is_plain(x) and _is_plain(weight):
        return _Logits.apply(x, weight)
    with torch.autocast(x.device.type, enabled=False):
        return linear(x.float(), weight.float())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether operators see the tensor itself, which is not so for DTensors and other subclasses."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns a @ b of bf16 matrices in float32."""
    if a.device.type == "cuda" and _ON_TENSOR_CORES:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


class _Logits(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        with torch.autocast(x.device.type, enabled=False):
            return _product(x, weight.t())

    @staticmethod
    @first_order
    def backward(ctx, dlogits):
        x, weight = ctx.saved_tensors
        high = dlogits.bfloat16()
        parts = torch.cat((high, (dlogits - high.float()).bfloat16()), dim=1)  # [T, 2A]
        dx = dweight = None
        with torch.autocast(x.device.type, enabled=False):
            if ctx.needs_input_grad[0]:
                dx = parts @ torch.cat((weight, weight))
            if ctx.needs_input_grad[1]:
                dweight = _product(parts.t(), x).view(2, *weight.shape).sum(0).bfloat16()
        return dx, dweight
