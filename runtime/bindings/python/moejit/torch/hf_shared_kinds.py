# SPDX-License-Identifier: Apache-2.0
"""The classes of blocks of transformers' models: what each does around its routed and its shared experts."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


def _with_norm(block: torch.nn.Module, y: torch.Tensor) -> torch.Tensor:
    return block.post_mlp_layernorm(y)


def _of_cohere(block: torch.nn.Module, y: torch.Tensor) -> torch.Tensor:
    return y / 2 if block.shared_expert_combination_strategy == "average" else y


class Block(NamedTuple):
    """What a class of blocks does beside adding both results up."""
    shared: str = "shared_experts"  # the path of the shared expert
    gate: str = ""  # the path of the Linear whose sigmoid is its factor
    argument: str = ""  # the path of what its router takes beside tokens
    is_batched: bool = False  # whether its router wants the shape of a batch
    factor: str = ""  # the path of a factor of the routed experts' results
    after: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor] = lambda block, y: y  # behind the sum


_GATED = Block("shared_expert", "shared_expert_gate")

# By the names of classes. Each has the forward of transformers 5.23; tests compare the two.
MOE_BLOCKS: dict[str, Block] = {
    **dict.fromkeys(("AXK2MoE", "BailingHybridMoE", "DeepseekOcr2TextMoe", "DeepseekV2Moe", "DeepseekV3MoE",
                     "DeepseekV32MoE", "DeepseekV4SparseMoeBlock", "Dots1MoE", "Dots3NoteTextMoE",
                     "ExaoneMoeSparseMoEBlock", "Glm4MoeMoE", "Glm4MoeLiteMoE", "Glm4vMoeTextMoE", "Glm5NextTextMoE",
                     "GlmMoeDsaMoE", "HYV4MoE", "KimiLinearMoE", "Kolibri1SparseMoeBlock", "Mistral4MoE",
                     "MistralLarge4TextMoE", "SolarOpenMoE", "UnlimitedOcrTextMoe",
                     "Ernie4_5_MoeSparseMoeBlock", "NemotronHMoE"), Block()),
    **dict.fromkeys(("Qwen2MoeSparseMoeBlock", "Qwen3NextSparseMoeBlock", "Qwen3_5MoeSparseMoeBlock",
                     "Qwen3OmniMoeTalkerTextSparseMoeBlock", "Qwen4ExpTextSparseMoeBlock"), _GATED),
    "AfmoeSparseMoeBlock": Block(argument="expert_bias", is_batched=True),
    "AXK1MoE": Block(after=_with_norm),
    "Cohere2MoeSparseMoeBlock": Block(after=_of_cohere),
    "FlintSparseMoeBlock": Block("shared_expert"),
    "HunYuanMoEV1Moe": Block("shared_mlp"),
    "HYV3MoE": Block(argument="e_score_correction_bias"),
    "LagunaSparseMoeBlock": Block(factor="routed_scaling_factor"),
}
