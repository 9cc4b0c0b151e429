# SPDX-License-Identifier: Apache-2.0
"""The activation between the two grouped GEMMs of an expert, with gradients."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.layers import as_json
from moejit.torch.operations import apply, bound, constant, has_gate, run
from moejit.torch.permute import Routing


def activation(gate_up: torch.Tensor, row_probs: torch.Tensor, routing: Routing, *, activation: Any = "swiglu",
               gate_up_layout: str = "concat") -> torch.Tensor:
    """Returns the activation of gate and up, times the row's probability. Both inputs have gradients.

    Args:
        gate_up: bf16 [P, 2I]; [P, I] if the activation has no gate.
        row_probs: float32 [P], from permute_pad().
        routing: The result of route().
        activation: An activation as in layer descriptions (docs/layer-description.md).
        gate_up_layout: "concat", or "interleaved".

    Returns:
        bf16 [P, I].
    """
    return apply(_Activation, gate_up, row_probs, *routing[:2], as_json(activation), gate_up_layout)


class _Activation(torch.autograd.Function):

    @staticmethod
    def forward(ctx, gate_up, row_probs, counts, offs, activation, gate_up_layout):
        width = constant(gate_up.shape[1])
        ctx.fields = {"local_experts": constant(counts.shape[0]),
                      "max_permuted_rows": bound(gate_up.shape[0], None),
                      "intermediate": width // 2 if has_gate(activation) else width,
                      "activation": activation, "gate_up_layout": gate_up_layout}
        ctx.save_for_backward(gate_up, row_probs, counts, offs)
        return run({"operation": "activation", **ctx.fields}, _inputs(gate_up, row_probs, counts, offs))["output"]

    @staticmethod
    @first_order
    def backward(ctx, gradient):
        made = run({"operation": "activation_backward", **ctx.fields, "dprobs": ctx.needs_input_grad[1]},
                   {**_inputs(*ctx.saved_tensors), "gradient": gradient})
        dprobs = made["output_dprobs"].sum(1) if ctx.needs_input_grad[1] else None
        return made["output"], dprobs, None, None, None, None


def _inputs(gate_up: torch.Tensor, row_probs: torch.Tensor, counts: torch.Tensor,
            offs: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input": gate_up, "probs": row_probs, "counts": counts, "offs": offs}
