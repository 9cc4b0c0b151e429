# SPDX-License-Identifier: Apache-2.0
"""Routers of transformers' models: each class with the parts of it that a formula does not tell."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from moejit.describe import describe
from moejit.torch.checks import name_of
from moejit.torch.devices import target_of
from moejit.torch.plans import text_of
from moejit.torch.router import router

_ROUTER = "_moejit_router"


def _in_x_dtype(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x, gate.weight)


def _in_weight_dtype(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x.to(gate.weight.dtype), gate.weight)


def _in_float32(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x.float(), gate.weight.float())


def _without_autocast(gate: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return _in_float32(gate, x)


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


_BIAS = "e_score_correction_bias"
_ROUNDED = Gate(_in_x_dtype, rounds=True)
_DEEPSEEK_V2 = Gate(_in_float32)
_DEEPSEEK_V3 = Gate(_in_float32, _BIAS)
_ERNIE = Gate(_without_autocast, "moe_statics." + _BIAS, rounds=True)
_GEMMA = Gate(_of_gemma, told=lambda gate, logits: torch.softmax(logits, -1))
_GRANITE = Gate(_in_x_dtype, rounds=True, told=lambda gate, logits: logits.float())
_HY_V3 = Gate(_in_float32, "argument")

# By the names of classes. Their forward is that of transformers 5.23; tests compare each with it.
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
    "DeepseekV4TopKRouter": Gate(_in_x_dtype, _BIAS, rounds=True),
    "DeepseekV4HashRouter": Gate(_in_x_dtype, rounds=True, table="tid2eid"),
    "Inkling2TopKRouter": Gate(lambda gate, x: linear(x.float(), gate.weight), _BIAS),
    "MiniMaxM2TopKRouter": Gate(_in_weight_dtype, "argument"),
    **dict.fromkeys(("MiniMaxM3VLTopKRouter", "Step3p7TopKRouter"), Gate(_in_weight_dtype, _BIAS, scales=False)),
    "LagunaTopKRouter": Gate(_in_x_dtype, _BIAS, rounds=True, scales=False, told=_capped),
    "AfmoeTokenChoiceRouter": Gate(lambda gate, x: gate.gate(x).float(), "argument"),
    **dict.fromkeys(("HYV3TopKRouter", "Dots3NoteVisionTopKRouter"), _HY_V3),
    "Lfm2MoeTopKRouter": Gate(_in_x_dtype, "argument", rounds=True),
    "FlintTopKRouter": Gate(_without_autocast),
    "LongcatFlashTopkRouter": Gate(lambda gate, x: linear(x.float(), gate.classifier.weight.float()), _BIAS),
    **dict.fromkeys(("Ernie4_5_MoeTopKRouter", "Ernie4_5_VLMoeMoeTopKRouter"), _ERNIE),
    **dict.fromkeys(("Gemma4TextRouter", "DiffusionGemmaTextRouter"), _GEMMA),
}


def original_class(module: torch.nn.Module) -> type:
    """Returns the class that a module had before it was converted."""
    return type(module).original if isinstance(module, MoejitGate) else type(module)


def is_gate(module: torch.nn.Module) -> bool:
    """Returns whether a module is a router that convert_gate() takes, converted or not."""
    kind = original_class(module)
    return kind.__name__ in GATES and kind.__module__.startswith("transformers.")


class MoejitGate(torch.nn.Module):
    """A router of transformers whose choice is made by moejit.torch.router(); `original` is the class it had."""
    original: type

    def forward(self, hidden_states: torch.Tensor, argument: torch.Tensor | None = None):
        """Returns what the module told of its logits, probabilities [T, K] and int64 ids [T, K]."""
        gate, (top_k, formula) = GATES[self.original.__name__], self.__dict__[_ROUTER]
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = gate.logits(self, x)
        made = logits if logits.dtype in (torch.float32, torch.bfloat16) else logits.float()
        bias = argument if gate.bias == "argument" else _at(self, gate.bias) if gate.bias else None
        scale = getattr(self, "per_expert_scale", None)
        ids = _at(self, gate.table)[argument.reshape(-1)].long() if gate.table else None
        probs, ids, _ = router(made, top_k, bias=None if bias is None else bias.float().flatten(), topk_ids=ids,
                               expert_scale=None if scale is None else scale.float(), topk_ids_dtype=torch.int64,
                               **json.loads(formula))
        return gate.told(self, logits), probs.to(x.dtype) if gate.rounds else probs, ids

    def __reduce__(self) -> tuple:
        return _blank, (self.original,), self.__dict__


def _at(module: torch.nn.Module, path: str) -> torch.Tensor:
    return functools.reduce(getattr, path.split("."), module)


@functools.cache
def _converted(original: type) -> type:
    return type(original.__name__, (MoejitGate, original), {"original": original, "__module__": __name__})


def _blank(original: type) -> torch.nn.Module:
    """Returns a converted module without its state, for copies and unpickling."""
    kind = _converted(original)
    return kind.__new__(kind)


def formula_of(gate: torch.nn.Module, config: Any) -> tuple[int, str]:
    """Returns K and the formula of a router as JSON, by its configuration.

    Raises:
        RuntimeError: The configuration names another router, which no formula expresses.
    """
    row = GATES[original_class(gate).__name__]
    description = describe(config)
    if description.router is None:
        why = next(note for note in description.notes if note.startswith("router:"))
        raise RuntimeError(f"moejit: unsupported: {why}")
    # Tensors tell of these. Zero experts are experts like others here: the model itself returns the token.
    left_out = {"bias", "expert_scale", "logits_dtype", "zero_experts"} | ({"scale"} if not row.scales else set())
    return description["top_k"], json.dumps({key: value for key, value in description.router.items()
                                             if key not in left_out})


def convert_gate(name: str, gate: torch.nn.Module, config: Any) -> Callable[[], None]:
    """Returns what makes a router run on moejit; nothing is changed before it is called.

    Raises:
        RuntimeError: The router cannot run; the sentence has its name in the model and the reason.
    """
    row = GATES[original_class(gate).__name__]
    try:
        top_k, formula = formula_of(gate, config)
        weight = next(gate.parameters())
        if weight.dtype not in (torch.bfloat16, torch.float32, torch.float16):
            raise RuntimeError(f"moejit: unsupported: its weight is {name_of(weight.dtype)}")
        fields = {**json.loads(formula), **({"bias": True} if row.bias else {}), **({"ids": "given"} if row.table else {})}
        experts = next(size.shape[0] for size in gate.parameters() if size.dim() == 2)
        text_of(json.dumps({"operation": "router", "max_tokens": 256, "experts": experts, "top_k": top_k,
                            "router": fields}), target_of(weight.device))
    except RuntimeError as error:
        raise RuntimeError(f"moejit: module {name}: {str(error).removeprefix('moejit: ')}") from error

    def change() -> None:
        gate.__dict__[_ROUTER] = top_k, formula
        gate.__class__ = _converted(original_class(gate))
    return change


def revert_gate(gate: torch.nn.Module) -> None:
    """Gives a converted router its own class back."""
    if isinstance(gate, MoejitGate):
        gate.__class__ = gate.original
        del gate.__dict__[_ROUTER]


def explain_gate(gate: MoejitGate) -> str:
    """Returns K and the formula of a converted router."""
    top_k, formula = gate.__dict__[_ROUTER]
    return f"{top_k} experts a token by {formula}"


def changes_of(model: torch.nn.Module, gates: dict[str, torch.nn.Module], experts: dict[str, torch.nn.Module],
               filter_fn: Callable[[torch.nn.Module, str], bool] | None) -> list[Callable[[], None]]:
    """Returns what makes the routers of a model run on moejit, given those that it knows and all experts, by name.

    Raises:
        RuntimeError: One cannot run, or belongs to such experts and is not known.
    """
    for name in experts:
        block = name.rpartition(".")[0]
        for child, module in model.get_submodule(block).named_children():
            full = f"{block}.{child}".lstrip(".")
            if child in ("gate", "router") and not is_gate(module) and (filter_fn is None or filter_fn(module, full)):
                raise RuntimeError(f"moejit: unsupported: module {full}: no formula is known for the router "
                                   f"{type(module).__name__}\nhint: leave it out by filter_fn, or convert with gates=False")
    return [convert_gate(name, gate, config_of(model, name)) for name, gate in gates.items()]


def config_of(model: torch.nn.Module, name: str) -> Any:
    """Returns the configuration of a router of a model: its own, its neighbors', or the nearest module's around it."""
    path = name.split(".")
    for length in range(len(path), -1, -1):
        module = model.get_submodule(".".join(path[:length]))
        near = (module, *module.children()) if length == len(path) - 1 else (module,)
        for each in near:
            if hasattr(each, "config"):
                return each.config
    raise RuntimeError(f"moejit: unsupported: module {name}: no module around it has a configuration")
