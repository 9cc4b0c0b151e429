# SPDX-License-Identifier: Apache-2.0
"""Probabilities of both kinds of experts, where the shared ones have a gate.

A call brings them as one tensor: [T * K] of the router's, and behind them [T] of the gate's. So functions of autograd
have as many inputs as without a gate. Operators get its parts, which are views.
"""
from __future__ import annotations

from collections.abc import Mapping

import torch

from moejit.torch.layers import has_shared_gate


def check_shared_probs(description: str, shared_probs: torch.Tensor | None, tokens: int) -> None:
    """Raises RuntimeError unless calls of a layer bring a factor of each token's shared experts where these have a gate."""
    has_gate = has_shared_gate(description)
    if shared_probs is None:
        if has_gate:
            raise RuntimeError("moejit: missing_tensor: tensor shared_probs: got none, wanted the gate's value of each token")
    elif not has_gate:
        raise RuntimeError("moejit: tensor_mismatch: tensor shared_probs: got it for a layer without a gate of shared "
                           'experts, wanted none\nhint: say "shared": {"experts": n, "gate": true}')
    elif shared_probs.numel() != tokens:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor shared_probs: it has {shared_probs.numel()} elements, wanted "
                           f"{tokens}: one of each token")


def join_probs(topk_probs: torch.Tensor, shared_probs: torch.Tensor) -> torch.Tensor:
    """Returns the probabilities of both kinds, in the dtype of the router's."""
    return torch.cat((topk_probs.reshape(-1), shared_probs.reshape(-1).to(topk_probs.dtype)))


def with_parts(given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensors of a call with the probabilities of both kinds by their names."""
    joined, ids = given["topk_probs"], given["topk_ids"]
    return {**given, "topk_probs": joined[:ids.numel()].view(ids.shape), "shared_probs": joined[ids.numel():]}


def dprobs_of(made: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Returns the gradient of the probabilities that a call got, of one kind or of both; None: it made none."""
    if "dshared_probs" not in made:
        return made.get("dprobs")
    return torch.cat((made["dprobs"].reshape(-1), made["dshared_probs"]))
