# SPDX-License-Identifier: Apache-2.0
"""Probabilities of both kinds of experts, where the shared ones have a gate.

A call brings them as one tensor: [T * K] of the router's, and behind them [T] of the gate's. So functions of autograd
have as many inputs as without a gate. Operators get its parts, which are views.
"""
from __future__ import annotations

from collections.abc import Mapping

import torch


def join_probs(topk_probs: torch.Tensor, shared_probs: torch.Tensor) -> torch.Tensor:
    """Returns the probabilities of both kinds, in the dtype of the router's."""
    tokens = topk_probs.numel() // topk_probs.shape[-1]
    if shared_probs.numel() != tokens:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor shared_probs: it has {shared_probs.numel()} elements, wanted "
                           f"{tokens}: one of each token")
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
