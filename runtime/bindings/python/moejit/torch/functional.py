# SPDX-License-Identifier: Apache-2.0
"""The experts of a Mixture-of-Experts layer, as a function of weights that the caller has."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch.call import call_experts
from moejit.torch.checks import check_dtypes, raise_better
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.layers import as_json, json_with
from moejit.torch.state import ExpertsCall

_PARAMETERS = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


def experts(hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
            gate_up_proj: torch.Tensor | FP8Weights, down_proj: torch.Tensor | None = None, *, layer: dict[str, Any] | str,
            gate_up_proj_bias: torch.Tensor | None = None, down_proj_bias: torch.Tensor | None = None,
            shared_probs: torch.Tensor | None = None) -> torch.Tensor:
    """Computes experts of chosen tokens, with gradients if autograd wants them.

    Args:
        hidden_states: [T, H] bf16, T at most `max_tokens` of the layer; more leading dimensions are allowed.
        top_k_index: [T, K] int32 or int64: the experts of each token; -1: none.
        top_k_weights: [T, K] float32 or bf16: the factors of the experts' results.
        gate_up_proj: [E, 2I, H] bf16; or the fp8_weights() or mxfp4_weights() of both, without
            `down_proj`.
        down_proj: [E, H, I] bf16.
        layer: A layer description as a dict or as JSON. The call itself chooses `passes`, `wgrad_dtype`,
            `backward_halves` and the dtypes of the routing.
        gate_up_proj_bias: [E, 2I] bf16, if the description says `biases`.
        down_proj_bias: [E, H] bf16, if the description says `biases`.
        shared_probs: [T] float32 or bf16: the factors of the shared experts' results, if the description gives these a
            gate. The shared experts are the last ones of weights and biases, E - n to E - 1.

    Returns:
        [T, H] bf16, on the same device.

    Raises:
        RuntimeError: A tensor's dtype, shape or device is wrong, or the target cannot run the layer. The sentence says
            which tensor, what was got and what was wanted.
    """
    call = ExpertsCall(description=layer if isinstance(layer, str) else as_json(layer))
    return _run(call, hidden_states, top_k_index, top_k_weights, gate_up_proj, down_proj, gate_up_proj_bias,
                down_proj_bias, shared_probs=shared_probs)


def grouped_experts(rows: torch.Tensor, tokens_per_expert: torch.Tensor, gate_up_proj: torch.Tensor | FP8Weights,
                    down_proj: torch.Tensor | None = None, *, layer: dict[str, Any] | str,
                    probs: torch.Tensor | None = None,
                    gate_up_proj_bias: torch.Tensor | None = None,
                    down_proj_bias: torch.Tensor | None = None) -> torch.Tensor:
    """Computes experts of rows that lie in their order already, as dispatchers of training frameworks leave them.

    Args:
        rows: [T, H] bf16, T at most `max_tokens` of the layer. The first tokens_per_expert[0] rows are those of expert
            0, and so on. Rows behind the last expert's may hold anything.
        tokens_per_expert: [E] int32 or int64, on the device of the rows: the call neither reads nor awaits it on the
            host.
        gate_up_proj: [E, 2I, H] bf16; or the fp8_weights() or mxfp4_weights() of both, without
            `down_proj`.
        down_proj: [E, H, I] bf16.
        layer: A layer description without `top_k`; `experts` is E. The call itself chooses `input`, and what experts()
            chooses.
        probs: [T] float32 or bf16: the factors of the experts' results; None: 1.
        gate_up_proj_bias: [E, 2I] bf16, if the description says `biases`.
        down_proj_bias: [E, H] bf16, if the description says `biases`.

    Returns:
        [T, H] bf16, in the order of the rows; 0 for rows behind the last expert's.

    Raises:
        RuntimeError: As experts().
    """
    if rows.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor x: it has {rows.dim()} dimensions, wanted 2: rows of all "
                           "experts, one behind the other")
    if probs is None:
        probs = torch.ones(rows.shape[0], dtype=torch.float32, device=rows.device)
    call = ExpertsCall(description=json_with(layer, input="grouped"), is_grouped=True)
    return _run(call, rows, tokens_per_expert, probs, gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias)


def _run(call: ExpertsCall, rows: torch.Tensor, indices: torch.Tensor, probs: torch.Tensor,
         *parameters: torch.Tensor | FP8Weights | None, shared_probs: torch.Tensor | None = None) -> torch.Tensor:
    if torch.compiler.is_compiling():
        check_dtypes("", rows, dict(zip(_PARAMETERS, parameters)))
        return call_experts(call, rows, indices, probs, *parameters, shared_probs=shared_probs)
    try:
        return call_experts(call, rows, indices, probs, *parameters, shared_probs=shared_probs)
    except RuntimeError as error:
        raise_better(error, "", rows, dict(zip(_PARAMETERS, parameters)))
