# SPDX-License-Identifier: Apache-2.0
"""Routers with the names, arguments and results of Transformer Engine's: probabilities and maps of all experts."""
from __future__ import annotations

import torch

from moejit.torch import serving
from moejit.torch.router import router

_TINY = 1e-20
_NAME = "fused_topk_with_score_function"


def fused_topk_with_score_function(
        logits: torch.Tensor, topk: int, use_pre_softmax: bool, num_groups: int | None, group_topk: int | None,
        scaling_factor: float | None, score_function: str, expert_bias: torch.Tensor | None,
        routing_map_format: str | int = 0, topk_indices: torch.Tensor | None = None,
        qb_histogram: torch.Tensor | None = None, qb_bin_bounds: torch.Tensor | None = None,
        qb_histogram_mode: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses experts by scores. The lower expert wins if scores are equal.

    Args:
        logits: float32 or bf16 [T, E], or with more leading dimensions.
        topk: K.
        use_pre_softmax: Whether the softmax is over all experts, before the choice, and not over the chosen.
        num_groups, group_topk: Groups of experts, and how many a token keeps; those with the largest sums of their
            floor(K / group_topk) best scores. None or 0: no groups.
        scaling_factor: What probabilities are multiplied by. None: 1.
        score_function: "softmax", "sigmoid" or "sqrtsoftplus".
        expert_bias: float32 [E], added to what orders the choice; with any score. None: none.
        routing_map_format: 0 or "bytemap".
        topk_indices: int32 or int64 [T, K], which gets the ids and takes the place of the map.
        qb_histogram, qb_bin_bounds, qb_histogram_mode: None.

    Returns:
        The probabilities as `logits` are, with zeros for experts that are not chosen, and the map, bool of that shape.

    Raises:
        RuntimeError: The library cannot do what an argument asks for; the sentence says which.
    """
    serving.refuse_unless(_NAME, {"qb_histogram": (qb_histogram, None), "qb_bin_bounds": (qb_bin_bounds, None),
                                  "qb_histogram_mode": (qb_histogram_mode, None)}, "balance by expert_bias or by a loss")
    if int(routing_map_format) if isinstance(routing_map_format, int) else routing_map_format != "bytemap":
        serving.refuse(_NAME, "routing_map_format", routing_map_format, '"bytemap"')
    flat = logits.reshape(-1, logits.shape[-1])
    is_softmax = score_function == "softmax"
    formula = {"score": score_function, "scale": scaling_factor or 1.0}
    if is_softmax and not use_pre_softmax:
        formula["when"] = "after"
    if not is_softmax and topk > 1:
        formula.update(normalize="sum", epsilon=_TINY)
    if group_topk:
        formula.update(groups=num_groups, groups_kept=group_topk, group_score="sum")
    ids_dtype = torch.int64 if topk_indices is None else topk_indices.dtype
    probs, ids, _ = router(flat, topk, bias=None if expert_bias is None else expert_bias.float(), topk_ids_dtype=ids_dtype,
                           **formula)
    places = ids.long()
    spread = torch.zeros_like(flat).scatter(1, places, probs.to(flat.dtype)).view(logits.shape)
    if topk_indices is not None:
        return spread, topk_indices.copy_(ids.view(topk_indices.shape))
    return spread, _map_of(places, flat).view(logits.shape)


def fused_compute_score_for_moe_aux_loss(logits: torch.Tensor, topk: int, score_function: str,
                                         routing_map_format: str | int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the map of each token's K best experts, without bias and groups, and the scores that aux losses average.

    The scores are float32 of the shape of `logits`: the softmax, or scores divided by their sum + 1e-20. router() with
    `aux` makes the loss itself, without memory for scores.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    probs, routing_map = fused_topk_with_score_function(flat.detach(), topk, True, None, None, None, score_function, None,
                                                        routing_map_format)
    scores = {"softmax": lambda z: torch.softmax(z, -1), "sigmoid": torch.sigmoid,
              "sqrtsoftplus": lambda z: torch.nn.functional.softplus(z).sqrt()}[score_function](flat.float())
    if score_function != "softmax":
        scores = scores / (scores.sum(-1, keepdim=True) + _TINY)
    return routing_map.view(logits.shape), scores.view(logits.shape)


def fused_moe_aux_loss(probs: torch.Tensor, tokens_per_expert: torch.Tensor, total_num_tokens: int | torch.Tensor,
                       num_experts: int, topk: int, coeff: float) -> torch.Tensor:
    """Returns coeff * num_experts / (topk * total_num_tokens^2) * sum(tokens_per_expert * sums of `probs` over tokens)."""
    summed = (probs.sum(0, dtype=torch.float64) * tokens_per_expert).sum()
    return (summed * (num_experts * coeff / (topk * total_num_tokens * total_num_tokens))).to(probs.dtype)


def _map_of(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.zeros(logits.shape, dtype=torch.bool, device=logits.device).scatter(1, ids, True)
