# SPDX-License-Identifier: Apache-2.0
"""Experts of torchtitan's MoE layers: rows in the order of experts, and gate and up as two weights."""
from __future__ import annotations

import dataclasses
import functools
import json

import torch
from torch.distributed.tensor import DTensor
from torchtitan.models.common.moe import GroupedExperts

from moejit.torch import ops
from moejit.torch.arguments import routing_of
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.first_order import first_order
from moejit.torch.function import as_gradient, forward, kept_names, rows_of
from moejit.torch.layers import BLOCKS, call_text, max_tokens_of
from moejit.torch.operations import constant

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
        layer = call_text(description, target_of(x.device), gradients, wgrad,
                          "i32" if sizes.dtype == torch.int32 else "i64")
        if gradients:
            y = _Function.apply(layer, x, sizes, probs, *weights)
        else:
            y = forward(layer, (x, sizes, probs, *_joined(*weights), *[None] * 4), {})["y"]
        return y.type_as(x_RD)


def _joined(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights as layers take them, bf16 w1 [E, 2I, H] and w2 [E, H, I]."""
    return torch.cat((gate.bfloat16(), up.bfloat16()), dim=1), down.bfloat16().contiguous()


class _Function(torch.autograd.Function):
    """One forward call and its backward call, between which no copy of the weights is kept.

    FSDP frees the memory of gathered parameters after forward and refills it before backward. So only the parameters
    are saved, and backward joins and quantizes them again.
    """

    @staticmethod
    def forward(ctx, layer, x, sizes, probs, gate, up, down):
        tensors = forward(layer, (x, sizes, probs, *_joined(gate, up, down), *[None] * 4), {})
        names = tuple(name for name in kept_names(layer) if name not in (*BLOCKS, "w1", "w2"))
        ctx.save_for_backward(gate, up, down, *(tensors[name] for name in names))
        ctx.layer, ctx.names = layer, names
        return tensors["y"]

    @staticmethod
    @first_order
    def backward(ctx, dy):
        gate, up, down, *kept = ctx.saved_tensors
        given = {**dict(zip(ctx.names, kept)), **dict(zip(("w1", "w2"), _joined(gate, up, down)))}
        given.update(ops.run(ctx.layer, "update_weights", given))
        made = ops.run(ctx.layer, "backward", {**given, "dy": rows_of(dy)})
        halves = made["dw1"].chunk(2, dim=1) if "dw1" in made else (None, None)
        of_weights = (as_gradient(gradient, is_wanted, weight.dtype) for gradient, is_wanted, weight in
                      zip((*halves, made.get("dw2")), ctx.needs_input_grad[4:], (gate, up, down)))
        return None, made.get("dx"), None, None, *of_weights


def check_plan(config: MoejitGroupedExperts.Config) -> None:
    """Raises an error if no layer of such experts can be planned."""
    description = _described(config.recipe, config.recompute, config.num_experts, config.hidden_dim, config.dim,
                             config.max_tokens or _FEWEST_MAX_TOKENS)
    call_text(description, "sim", ("dx", "dw1", "dw2"), "bf16")


@torch.compiler.assume_constant_result
def _described(*values: str | int) -> str:
    return _description(*values)


@functools.lru_cache(maxsize=None)
def _description(recipe: str, recompute: str, experts: int, intermediate: int, hidden: int, max_tokens: int) -> str:
    """Returns the description of a layer of experts, as JSON."""
    return json.dumps({"experts": experts, "hidden": hidden, "intermediate": intermediate, "recipe": recipe,
                       "recompute": recompute, "input": "grouped", "max_tokens": max_tokens})
