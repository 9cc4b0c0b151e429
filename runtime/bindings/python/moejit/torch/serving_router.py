# SPDX-License-Identifier: Apache-2.0
"""Routers with the signatures of vLLM's and SGLang's, forward only. Importing this module imports neither."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from moejit.torch.router import router

Routing = tuple[torch.Tensor, torch.Tensor]


@torch.no_grad()
def grouped_topk(hidden_states: torch.Tensor, gating_output: torch.Tensor, topk: int, renormalize: bool,
                 num_expert_group: int = 0, topk_group: int = 0, scoring_func: str = "softmax",
                 routed_scaling_factor: float = 1.0, e_score_correction_bias: torch.Tensor | None = None) -> Routing:
    """Chooses experts as vLLM's function of this name, with the rule for ties of docs/router.md.

    Args:
        hidden_states: [T, H]; nothing but T is read of it.
        gating_output: float32 or bf16 [T, E].
        topk: K.
        renormalize: Whether weights are divided by their sum.
        num_expert_group, topk_group: Groups, and how many a token keeps, by their best score; with a bias by the sum of
            their two best. 0: no groups.
        scoring_func: "softmax", "sigmoid" or "sqrtsoftplus".
        routed_scaling_factor: What weights are multiplied by in the end.
        e_score_correction_bias: [E], added to what orders the choice. None: none.

    Returns:
        Weights, float32 [T, K], and ids, int32 [T, K], in descending order of what orders the choice.
    """
    groups = {"groups": num_expert_group, "groups_kept": topk_group,
              "group_score": "max" if e_score_correction_bias is None else "top2"} if num_expert_group > 1 else {}
    return _route(hidden_states, gating_output, topk, renormalize, e_score_correction_bias,
                  {"score": scoring_func, "scale": routed_scaling_factor, **groups})


def routing_function(bias: torch.Tensor | None = None, **formula: Any) -> Callable[..., Routing]:
    """Returns a `custom_routing_function` for vLLM's FusedMoE or SGLang's TopK.

    It takes (hidden_states, gating_output, topk, renormalize), and returns what grouped_topk() returns.

    Args:
        bias: [E], as of router().
        formula: Fields of docs/router.md, such as moejit.describe(config).router has them. With `normalize` among them
            `renormalize` has no say.
    """
    formula = {key: value for key, value in formula.items() if key not in ("bias", "logits_dtype")}

    def custom_routing_function(hidden_states: torch.Tensor, gating_output: torch.Tensor, topk: int,
                                renormalize: bool) -> Routing:
        with torch.no_grad():
            return _route(hidden_states, gating_output, topk, renormalize, bias, formula)
    return custom_routing_function


def _route(hidden_states: torch.Tensor, logits: torch.Tensor, top_k: int, renormalize: bool,
           bias: torch.Tensor | None, formula: dict[str, Any]) -> Routing:
    if hidden_states.shape[0] != logits.shape[0]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor gating_output: it has {logits.shape[0]} tokens, and "
                           f"hidden_states has {hidden_states.shape[0]}")
    if logits.dtype not in (torch.float32, torch.bfloat16):
        logits = logits.float()
    if renormalize and "normalize" not in formula:
        formula = {**formula, "normalize": "sum"}
    probs, ids, _ = router(logits, top_k, bias=None if bias is None else bias.float().flatten(), **formula)
    return probs, ids
