# SPDX-License-Identifier: Apache-2.0
"""What the calls of a module have in common, and what the module keeps between them."""
from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch.arguments import ID_DTYPES, PROB_DTYPES, gradient_dtype, is_exporting
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.gathered import dense
from moejit.torch.groups import ProcessGroupLayers, group_call_text
from moejit.torch.halves import DelayedGradients
from moejit.torch.layers import call_text, has_shared_gate, json_with, refuse_router, with_format_of
from moejit.torch.main_grads import main_grad_dtype
from moejit.torch.weights import Blocks, QuantizedWeights


@dataclasses.dataclass(eq=False)
class ExpertsCall:
    """The common part of one module's calls. `description` is a layer description, JSON."""
    description: str
    state: State | None = None
    cache_weights: bool | None = None
    fuse_wgrad_accumulation: bool = False
    is_transposed: bool = False  # whether weights are [E, H, 2I] and [E, I, H]
    delayed: DelayedGradients | None = None  # takes the gradients of weights that backward leaves for later
    may_split: bool = False  # whether backward may be two steps of autograd, where this takes less memory
    group: ProcessGroupLayers | None = None  # of modules whose experts the ranks of a process group share
    is_grouped: bool = False  # whether rows come in the order of experts
    timeout_ms: int = 0  # how long a call of a group waits for another rank
    keeps_state: bool = False  # whether calls bring the state of a recipe whose scales follow from the steps before
    updates_scales: bool = False  # whether backward moves that state on by a step
    # Layer texts by the properties of calls, so that later calls look them up and plan nothing.
    layers: dict[tuple, str] = dataclasses.field(default_factory=dict)
    # Records of the last calls that later ones may repeat, without gradients and with them (moejit.torch.repeat).
    inference: Any = None
    training: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, or for pickle: a copy starts without what calls have found out."""
        return {**self.__dict__, "layers": {}, "inference": None, "training": None}

    @property
    def order(self) -> torch.Tensor | None:
        """The tensor of a group's order of calls."""
        return None if self.group is None else self.group.order

    def layer(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, gradients: tuple[str, ...],
              wgrad: str, has_halves: bool, has_checks: bool, weight_format: str | None = None) -> str:
        """Returns the text of the layer that a call with these tensors runs.

        The first call of a group's layer opens it, together with the other ranks.
        """
        of_call = (x.device, gradients, wgrad, ID_DTYPES[topk_ids.dtype], PROB_DTYPES[topk_probs.dtype], has_halves,
                   has_checks, weight_format)
        if torch.compiler.is_compiling():
            refuse_router(self.description)
            return self.text_of(*of_call)
        layer = self.layers.get(of_call)
        if layer is None:
            refuse_router(self.description)
            tell_of_simulator(x.device, 5)
            layer = self.layers[of_call] = self.text_of(*of_call)
        return layer

    def text_of(self, device: torch.device, gradients: tuple[str, ...], wgrad: str = "f32", ids: str = "i64",
                probs: str = "f32", has_halves: bool = False, has_checks: bool = False,
                weight_format: str | None = None, description: str | None = None) -> str:
        """Returns the text of a layer for tensors on a device; the other arguments are as for call_text().

        `weight_format` is of packed weights, whatever the description's is. `description` takes the place of the call's
        own.
        """
        description = with_format_of(description or self.description, weight_format)
        if gradients:
            description = json_with(description, fuse_wgrad_accumulation=self.fuse_wgrad_accumulation)
        if self.group is None:
            return call_text(description, target_of(device), gradients, wgrad, ids, probs, has_halves,
                             self.keeps_state, has_checks)
        return group_call_text(self.group.number, description, str(device), self.timeout_ms, gradients, wgrad, ids,
                               probs, has_checks)

    def usual_layer(self, device: torch.device, gradients: tuple[str, ...]) -> str:
        """Returns the text of a layer for calls that take no tokens."""
        return self.text_of(device, gradients, has_checks=self.checks_weights(bool(gradients), None, None))

    def wgrad_dtype(self, parameters: Sequence[torch.Tensor | None]) -> str:
        """Returns the dtype in which the layer makes the gradients of weights."""
        fused = self.fuse_wgrad_accumulation
        dtype = main_grad_dtype(parameters) if fused else gradient_dtype(parameters[0])
        return "f32" if dtype == torch.float32 else "bf16"

    def checks_weights(self, has_gradients: bool, is_first_microbatch: bool | None,
                       skip_update: torch.Tensor | None) -> bool:
        """Returns whether a call keeps quantized weights that it compares with the weights."""
        if self.state is None or is_first_microbatch is not None or skip_update is not None or is_exporting():
            return False
        if has_gradients and torch.compiler.is_compiling():
            return False
        return not has_gradients if self.cache_weights is None else self.cache_weights

    def quantized_weights(self, weights: tuple, dense: Blocks, layer: str, has_gradients: bool,
                          is_first_microbatch: bool | None, skip_update: torch.Tensor | None,
                          state: tuple[torch.Tensor, ...] = ()) -> tuple[torch.Tensor | None, ...]:
        """Returns kept blocks of quantized weights, if they are right or can be made so; None: the call quantizes."""
        if self.state is None or is_exporting():
            return None, None
        kept = self.state.weights
        if is_first_microbatch is not None or skip_update is not None:
            return kept.of_step(dense, layer, is_first_microbatch, skip_update, state)
        is_compiled = torch.compiler.is_compiling()
        if self.checks_weights(has_gradients, None, None):
            return kept.in_graph(dense, layer, state) if is_compiled else kept.current(weights[:2], dense, layer, state)
        if has_gradients and not is_compiled:
            kept.forget()
        return None, None

    def may_be_repeated(self, x: torch.Tensor) -> bool:
        """Returns whether to record a call. The record checks the rest."""
        return (not torch.compiler.is_compiling() and self.state is not None and not self.is_transposed
                and not self.keeps_state and type(x) is torch.Tensor and not has_shared_gate(self.description))


class State:
    """What a module keeps between calls besides parameters and buffers: quantized weights, and facts of the last call."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.weights = QuantizedWeights()
        self.status: torch.Tensor | None = None
        # The status words that compiled calls write: below a checkpoint they may not set an attribute.
        self.compiled_status = _no_status(device or "cpu")
        self.trained_layer: str | None = None  # the text of the last layer with gradients and a scaling state
        self.calls: dict[tuple, ExpertsCall] = {}

    def __deepcopy__(self, memo: dict) -> State:
        return State()

    def __reduce__(self) -> tuple:
        return State, ()

    def place(self, device: torch.device) -> None:
        """Makes compiled calls on the device able to report their status."""
        if self.compiled_status.device != device:
            self.compiled_status = _no_status(device)

    def keep_status(self, status: torch.Tensor) -> None:
        """Keeps a call's status word."""
        if torch.compiler.is_compiling() and self.compiled_status.device == status.device:
            self.compiled_status.copy_(status)
        else:
            self.status = status

    def status_word(self) -> int:
        """Returns the status words of the last compiled call and of the last other call, combined."""
        words = [word for word in (self.status, self.compiled_status) if word is not None and not word.is_meta]
        return functools.reduce(operator.or_, (int(word.item()) for word in words), 0)

    def keep_weights(self, call: ExpertsCall, gate_up_proj: torch.Tensor, down_proj: torch.Tensor,
                     state: tuple[torch.Tensor, ...] = ()) -> None:
        """Quantizes the weights for calls without gradients. Casts float32 first, as autocast does."""
        layer = call.usual_layer(gate_up_proj.device, ())
        cast = (weight.detach().to(torch.bfloat16) for weight in (gate_up_proj, down_proj))
        self.weights.keep((gate_up_proj, down_proj), dense(*cast, call.is_transposed), layer, state[:4])


def _no_status(device: torch.device | str) -> torch.Tensor:
    """Returns a status word of 0, which calls in any mode may write."""
    with torch.inference_mode(False):
        return torch.zeros(1, dtype=torch.int32, device=device)
