# SPDX-License-Identifier: Apache-2.0
"""Routers of transformers' models on moejit.torch.router()."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from moejit.describe import describe
from moejit.torch.checks import name_of
from moejit.torch.devices import target_of
from moejit.torch.hf_classes import Converted, converted, original_class
from moejit.torch.hf_gate_kinds import GATES
from moejit.torch.plans import text_of
from moejit.torch.router import router

_ROUTER = "_moejit_router"
FEWEST_TOKENS = 256  # of the bounds that router() chooses


def is_gate(module: torch.nn.Module) -> bool:
    """Returns whether a module is a router that convert_gate() takes, converted or not."""
    kind = original_class(module)
    return kind.__name__ in GATES and kind.__module__.startswith("transformers.")


class MoejitGate(Converted):
    """A router of transformers whose choice is made by moejit.torch.router()."""

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
                               **formula)
        return gate.told(self, logits), probs.to(x.dtype) if gate.rounds else probs, ids


def _at(module: torch.nn.Module, path: str) -> torch.Tensor:
    return functools.reduce(getattr, path.split("."), module)


def formula_of(gate: torch.nn.Module, config: Any) -> tuple[int, dict[str, Any]]:
    """Returns K and the formula of a router by its configuration.

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
    return description["top_k"], {key: value for key, value in description.router.items() if key not in left_out}


def convert_gate(name: str, gate: torch.nn.Module, config: Any) -> Callable[[], None]:
    """Returns what makes a router run on moejit; nothing is changed before it is called.

    Raises:
        RuntimeError: The router cannot run; the sentence has its name in the model and the reason.
    """
    try:
        top_k, formula = formula_of(gate, config)
        weight = next(gate.parameters())
        if weight.dtype not in (torch.bfloat16, torch.float32, torch.float16):
            raise RuntimeError(f"moejit: unsupported: its weight is {name_of(weight.dtype)}")
        for operation in ("router", "router_backward"):
            description = _description(gate, top_k, formula, operation, FEWEST_TOKENS, "f32")
            text_of(json.dumps(description), target_of(weight.device))
    except RuntimeError as error:
        raise RuntimeError(f"moejit: module {name}: {str(error).removeprefix('moejit: ')}") from error

    def change() -> None:
        gate.__dict__[_ROUTER] = top_k, formula
        gate.__class__ = converted(MoejitGate, original_class(gate))
    return change


def _description(gate: torch.nn.Module, top_k: int, formula: dict[str, Any], operation: str, tokens: int,
                 logits_dtype: str) -> dict[str, Any]:
    """Returns the description of an operation of calls of a router."""
    row = GATES[original_class(gate).__name__]
    fields = {**formula, "logits_dtype": logits_dtype}
    for key, value, is_there in (("bias", True, row.bias), ("ids", "given", row.table),
                                 ("expert_scale", True, hasattr(gate, "per_expert_scale"))):
        if is_there:
            fields[key] = value
    experts = next(parameter.shape[0] for parameter in gate.parameters() if parameter.dim() == 2)
    return {"operation": operation, "max_tokens": tokens, "experts": experts, "top_k": top_k, "topk_ids_dtype": "i64",
            "router": fields}


def descriptions_of_calls(model: torch.nn.Module, tokens: int) -> list[str]:
    """Returns the operations, as JSON, that calls of converted routers with so many tokens and fewer may ask for."""
    found = []
    for gate in (module for module in model.modules() if isinstance(module, MoejitGate)):
        size = FEWEST_TOKENS
        while size == FEWEST_TOKENS or size < 2 * tokens:
            found += [json.dumps(_description(gate, *gate.__dict__[_ROUTER], operation, size, dtype))
                      for operation in ("router", "router_backward") for dtype in ("f32", "bf16")]
            size *= 2
    return list(dict.fromkeys(found))


def revert_gate(gate: torch.nn.Module) -> None:
    """Gives a converted router its own class back."""
    if isinstance(gate, MoejitGate):
        gate.__class__ = gate.original
        del gate.__dict__[_ROUTER]


def explain_gate(gate: MoejitGate) -> str:
    """Returns K and the formula of a converted router."""
    top_k, formula = gate.__dict__[_ROUTER]
    return f"{top_k} experts a token by {json.dumps(formula)}"


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
