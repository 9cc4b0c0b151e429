# SPDX-License-Identifier: Apache-2.0
"""The experts of a Mixture-of-Experts layer, as a function of weights that the caller has."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch.call import call_experts
from moejit.torch.checks import check_dtypes, raise_better
from moejit.torch.layers import as_json
from moejit.torch.state import ExpertsCall

_PARAMETERS = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


def experts(hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
            gate_up_proj: torch.Tensor, down_proj: torch.Tensor, *, layer: dict[str, Any] | str,
            gate_up_proj_bias: torch.Tensor | None = None, down_proj_bias: torch.Tensor | None = None) -> torch.Tensor:
    """Computes experts of chosen tokens, with gradients if autograd wants them.

    Args:
        hidden_states: [T, H] bf16, T at most `max_tokens` of the layer; more leading dimensions are allowed.
        top_k_index: [T, K] int32 or int64: the experts of each token; -1: none.
        top_k_weights: [T, K] float32 or bf16: the factors of the experts' results.
        gate_up_proj: [E, 2I, H] bf16.
        down_proj: [E, H, I] bf16.
        layer: A layer description as a dict or as JSON. The call itself chooses `passes`, `wgrad_dtype`,
            `backward_halves` and the dtypes of the routing.
        gate_up_proj_bias: [E, 2I] bf16, if the description says `biases`.
        down_proj_bias: [E, H] bf16, if the description says `biases`.

    Returns:
        [T, H] bf16, on the same device.

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong, or the target cannot run the layer. The sentence says
            which tensor, what was got and what was wanted.
    """
    call = ExpertsCall(description=layer if isinstance(layer, str) else as_json(layer))
    tensors = gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias
    if torch.compiler.is_compiling():
        check_dtypes("", hidden_states, dict(zip(_PARAMETERS, tensors)))
        return call_experts(call, hidden_states, top_k_index, top_k_weights, *tensors)
    try:
        return call_experts(call, hidden_states, top_k_index, top_k_weights, *tensors)
    except RuntimeError as error:
        raise_better(error, "", hidden_states, dict(zip(_PARAMETERS, tensors)))
