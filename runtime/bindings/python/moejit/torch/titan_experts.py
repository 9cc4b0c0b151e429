# SPDX-License-Identifier: Apache-2.0
"""Experts of torchtitan's MoE layers: rows in the order of experts, and gate and up as two weights."""
from __future__ import annotations

import dataclasses
import functools
import json

import torch
from torch.distributed.tensor import DTensor
from torchtitan.models.common.moe import GroupedExperts

from moejit.errors import Error
from moejit.torch import ops
from moejit.torch.arguments import routing_of
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.first_order import first_order
from moejit.torch.function import as_gradient, kept_names, rows_of
from moejit.torch.layers import call_fields, call_text, inputs_of, max_tokens_of
from moejit.torch.operations import constant
from moejit.torch.plans import layer_text

# A rank gets another number of rows in each step. The fewer sizes of layers, the fewer kernels a step may wait for.
_FEWEST_MAX_TOKENS = 256


class MoejitGroupedExperts(GroupedExperts):
    """Experts that take the place of GroupedExperts; ExpertsConverter puts them into configurations.

    Parameters and state dict are as in GroupedExperts. The dispatcher multiplies with the probabilities in combine().
    """

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(GroupedExperts.Config):
        """The configuration of GroupedExperts, and the options of ExpertsConverter.Config."""
        recipe: str = "fp8_flow"
        recompute: str = "none"
        max_tokens: int | None = None

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._options = config.recipe, config.recompute
        self._max_tokens = config.max_tokens

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
        """Computes the experts of rows that lie in their order.

        Args:
            x_RD: [R, D]. Rows behind the last expert's may hold anything.
            num_tokens_per_expert_E: [E] integers, on the device of the rows.

        Returns:
            [R, D] in the dtype of the rows, 0 for rows behind the last expert's.

        Raises:
            RuntimeError: A tensor's shape or device is wrong, or the target cannot run the layer.
        """
        weights = tuple(weight.to_local() if isinstance(weight, DTensor) else weight
                        for weight in (self.w1_EFD, self.w3_EFD, self.w2_EDF))
        x = x_RD.bfloat16().contiguous()
        probs = torch.ones(x.shape[0], dtype=torch.float32, device=x.device)
        sizes, probs = routing_of(num_tokens_per_expert_E, probs, "num_tokens_per_expert_E")
        max_tokens = max_tokens_of(max(x.shape[0], _FEWEST_MAX_TOKENS), self._max_tokens)
        description = _described(*self._options, *(constant(size) for size in weights[0].shape), max_tokens)
        gradients = ()
        if torch.is_grad_enabled():
            wanted = {"dx": x.requires_grad, "dw1": weights[0].requires_grad or weights[1].requires_grad,
                      "dw2": weights[2].requires_grad}
            gradients = tuple(name for name, is_wanted in wanted.items() if is_wanted)
        if not torch.compiler.is_compiling():
            tell_of_simulator(x.device, 3)
        wgrad = "f32" if weights[0].dtype == torch.float32 else "bf16"
        layer = _call_text(description, target_of(x.device), gradients, wgrad,
                           "i32" if sizes.dtype == torch.int32 else "i64")
        if gradients:
            y = _Function.apply(layer, x, sizes, probs, *weights)
        else:
            y = _forward(layer, x, sizes, probs, *weights)["y"]
        return y.type_as(x_RD)


def _weights(layer: str, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the weights as the layer takes them, in bf16."""
    gate, up, down = (weight.bfloat16().contiguous() for weight in (gate, up, down))
    if "w1" in inputs_of(layer):
        return {"w1": torch.cat((gate, up), dim=1), "w2": down}
    return {"w1_gate": gate, "w1_up": up, "w2": down}


def _forward(layer: str, x: torch.Tensor, sizes: torch.Tensor, probs: torch.Tensor,
             *weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Makes a forward call, and returns what it got but weights, and what it made."""
    given = {"x": x, "tokens_per_expert": sizes, "probs": probs}
    return {**given, **ops.run(layer, "update_weights+forward", {**given, **_weights(layer, *weights)})}


class _Function(torch.autograd.Function):
    """One forward call and its backward call, between which no copy of the weights is kept.

    FSDP frees the memory of gathered parameters after forward and refills it before backward. So only the parameters
    are saved, and backward quantizes them again.
    """

    @staticmethod
    def forward(ctx, layer, x, sizes, probs, gate, up, down):
        tensors = _forward(layer, x, sizes, probs, gate, up, down)
        names = tuple(name for name in kept_names(layer) if name in ("x", "tokens_per_expert", "probs", "saved"))
        ctx.save_for_backward(gate, up, down, *(tensors[name] for name in names))
        ctx.layer, ctx.names = layer, names
        return tensors["y"]

    @staticmethod
    @first_order
    def backward(ctx, dy):
        gate, up, down, *kept = ctx.saved_tensors
        given = {**dict(zip(ctx.names, kept)), **_weights(ctx.layer, gate, up, down)}
        given.update(ops.run(ctx.layer, "update_weights", given))
        made = ops.run(ctx.layer, "backward", {**given, "dy": rows_of(dy)})
        halves = made["dw1"].chunk(2, dim=1) if "dw1" in made else (made.get("dw1_gate"), made.get("dw1_up"))
        of_weights = (as_gradient(gradient, is_wanted, weight.dtype) for gradient, is_wanted, weight in
                      zip((*halves, made.get("dw2")), ctx.needs_input_grad[4:], (gate, up, down)))
        return None, made.get("dx"), None, None, *of_weights


def check_plan(config: MoejitGroupedExperts.Config) -> None:
    """Raises an error if no layer of such experts can be planned."""
    description = _described(config.recipe, config.recompute, config.num_experts, config.hidden_dim, config.dim,
                             config.max_tokens or _FEWEST_MAX_TOKENS)
    call_text(description, "sim", ("dx", "dw1", "dw2"), "bf16")


@torch.compiler.assume_constant_result
def _call_text(*call: str | tuple[str, ...]) -> str:
    return _cached_call_text(*call)


@functools.lru_cache(maxsize=None)
def _cached_call_text(description: str, target: str, gradients: tuple[str, ...], wgrad: str, sizes: str) -> str:
    """Returns the text of a layer that takes gate and up as they are, or of one that takes them joined.

    The arguments are as for call_text().
    """
    joined = call_text(description, target, gradients, wgrad, sizes)
    fields = call_fields(description, gradients, wgrad, sizes, "f32")
    try:
        return layer_text({**fields, "gate_up_layout": "separate"}, target)
    except Error as error:
        if error.code != "unsupported":
            raise
        return joined


@torch.compiler.assume_constant_result
def _described(*values: str | int) -> str:
    return _description(*values)


@functools.lru_cache(maxsize=None)
def _description(recipe: str, recompute: str, experts: int, intermediate: int, hidden: int, max_tokens: int) -> str:
    """Returns the description of a layer of experts, as JSON."""
    return json.dumps({"experts": experts, "hidden": hidden, "intermediate": intermediate, "recipe": recipe,
                       "recompute": recompute, "input": "grouped", "max_tokens": max_tokens})
