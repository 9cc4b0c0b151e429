# SPDX-License-Identifier: Apache-2.0
"""The classes of routers of transformers' models: what each does around the formula of its configuration."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import linear

from moejit.torch.gate_logits import float32_logits


def _in_x_dtype(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x, gate.weight)


def _in_weight_dtype(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x.to(gate.weight.dtype), gate.weight)


def _in_float32(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return float32_logits(x, gate.weight)


def _of_gemma(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return gate.proj(gate.norm(x) * gate.scale * gate.scalar_root_size)


def _of_hunyuan(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return gate.wg(x.float() if gate.wg.weight.dtype == torch.float32 else x)


def _capped(gate: torch.nn.Module, logits: torch.Tensor) -> torch.Tensor:
    cap = gate.router_logit_softcapping
    return torch.tanh(logits.float() / cap) * cap if cap > 0.0 else logits.float()


class Gate(NamedTuple):
    """What a class of routers does around the formula."""
    logits: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]  # of x [T, H]
    bias: str = ""  # the path of the bias, or "argument" if callers bring it
    rounds: bool = False  # whether it rounds probabilities to the dtype of x
    scales: bool = True  # whether it multiplies them by the scale, which its block does otherwise
    told: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor] = lambda gate, logits: logits  # its first result
    table: str = ""  # the path of a table of ids by token, if callers bring tokens as the argument


BIAS = "e_score_correction_bias"
_ROUNDED = Gate(_in_x_dtype, rounds=True)
_DEEPSEEK_V2 = Gate(_in_float32)
_DEEPSEEK_V3 = Gate(_in_float32, BIAS)
_ERNIE = Gate(_in_float32, "moe_statics." + BIAS, rounds=True)
_GEMMA = Gate(_of_gemma, told=lambda gate, logits: torch.softmax(logits, -1))
_GRANITE = Gate(_in_x_dtype, rounds=True, told=lambda gate, logits: logits.float())
_HY_V3 = Gate(_in_float32, "argument")

# By the names of classes. Each has the forward of transformers 5.23; tests compare the two.
GATES: dict[str, Gate] = {
    **dict.fromkeys(("FlexOlmoTopKRouter", "MellumTopKRouter", "OlmoeTopKRouter", "Qwen2MoeTopKRouter",
                     "Qwen3MoeTopKRouter", "Qwen3NextTopKRouter", "Qwen3OmniMoeThinkerTextTopKRouter",
                     "Qwen3OmniMoeTalkerTextTopKRouter", "Qwen4ExpTextTopKRouter", "Qwen3_5MoeTopKRouter",
                     "Qwen3VLMoeTextTopKRouter", "JambaTopKRouter", "AriaTextTopKRouter", "Cohere2MoeTopKRouter",
                     "Mistral4TopkRouter"), _ROUNDED),
    **dict.fromkeys(("MixtralTopKRouter", "MiniMaxTopKRouter"), Gate(_in_x_dtype)),
    "HunYuanMoEV1Gate": Gate(_of_hunyuan, rounds=True),
    "GptOssTopKRouter": Gate(lambda gate, x: linear(x, gate.weight, gate.bias), rounds=True),
    "OpenAIPrivacyFilterTopKRouter": Gate(lambda gate, x: linear(x.float(), gate.weight.float(), gate.bias.float())),
    **dict.fromkeys(("GraniteMoeTopKRouter", "GraniteMoeSWATopKRouter", "GraniteMoeHybridTopKRouter",
                     "GraniteMoeSharedTopKRouter"), _GRANITE),
    **dict.fromkeys(("DeepseekV2TopkRouter", "DeepseekOcr2TextTopkRouter", "UnlimitedOcrTextTopkRouter",
                     "MistralLarge4TextTopkRouter"), _DEEPSEEK_V2),
    **dict.fromkeys(("AXK1TopkRouter", "AXK2TopkRouter", "BailingHybridTopkRouter",
                     "DeepseekV3TopkRouter", "DeepseekV32TopkRouter", "Dots1TopkRouter", "Dots3NoteTextTopkRouter",
                     "ExaoneMoeTopkRouter", "Glm4MoeTopkRouter", "Glm4MoeLiteTopkRouter", "Glm4vMoeTextTopkRouter",
                     "Glm5NextTextTopkRouter", "GlmMoeDsaTopkRouter", "HYV4TopkRouter", "KimiLinearTopkRouter",
                     "MiMoV2FlashTopkRouter", "NemotronHTopkRouter", "SolarOpenTopkRouter",
                     "Kolibri1TopKRouter"), _DEEPSEEK_V3),
    "BeamTopKRouter": _DEEPSEEK_V3._replace(scales=False),
    "DeepseekV4TopKRouter": Gate(_in_x_dtype, BIAS, rounds=True),
    "DeepseekV4HashRouter": Gate(_in_x_dtype, rounds=True, table="tid2eid"),
    "Inkling2TopKRouter": Gate(lambda gate, x: linear(x.float(), gate.weight), BIAS),
    "MiniMaxM2TopKRouter": Gate(_in_weight_dtype, "argument"),
    **dict.fromkeys(("MiniMaxM3VLTopKRouter", "Step3p7TopKRouter"), Gate(_in_weight_dtype, BIAS, scales=False)),
    "LagunaTopKRouter": Gate(_in_x_dtype, BIAS, rounds=True, scales=False, told=_capped),
    "AfmoeTokenChoiceRouter": Gate(lambda gate, x: gate.gate(x).float(), "argument"),
    **dict.fromkeys(("HYV3TopKRouter", "Dots3NoteVisionTopKRouter"), _HY_V3),
    "Lfm2MoeTopKRouter": Gate(_in_x_dtype, "argument", rounds=True),
    "FlintTopKRouter": Gate(_in_float32),
    "LongcatFlashTopkRouter": Gate(lambda gate, x: float32_logits(x, gate.classifier.weight), BIAS),
    **dict.fromkeys(("Ernie4_5_MoeTopKRouter", "Ernie4_5_VLMoeMoeTopKRouter"), _ERNIE),
    **dict.fromkeys(("Gemma4TextRouter", "DiffusionGemmaTextRouter"), _GEMMA),
}
