# SPDX-License-Identifier: Apache-2.0
"""One call of experts: the layer's text for the wanted gradients, quantized weights, and the operator."""
from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch import ops, scales
from moejit.torch.arguments import (ID_DTYPES, PROB_DTYPES, as_rows, biases_of, cast_to_bf16, checks_weights,
                                    gradient_dtype, is_exporting, may_be_repeated, quantized_weights, routing_of,
                                    wgrad_dtype)
from moejit.torch.devices import no_elements, target_of, tell_of_simulator
from moejit.torch.function import ExpertsFunction, MainGradFunction
from moejit.torch.gathered import GatheredFunction, GatheredWeight, dense, operands
from moejit.torch.group_call import call_on_group
from moejit.torch.groups import ProcessGroupLayers, group_call_text
from moejit.torch.halves import DelayedGradients, call_with_delayed_gradients
from moejit.torch.layers import GRADIENTS, WEIGHT_GRADIENTS, call_text
from moejit.torch.main_grads import take_main_grads
from moejit.torch.repeat import Inference, Training
from moejit.torch.weights import QuantizedWeights, quantize


@dataclasses.dataclass(eq=False)
class ExpertsCall:
    """The common part of one module's calls. `description` is a layer description, JSON."""
    description: str
    state: State | None = None
    cache_weights: bool | None = None
    fuse_wgrad_accumulation: bool = False
    is_transposed: bool = False  # whether weights are [E, H, 2I] and [E, I, H]
    delayed: DelayedGradients | None = None  # takes the gradients of weights that backward leaves for later
    group: ProcessGroupLayers | None = None  # of modules whose experts the ranks of a process group share
    timeout_ms: int = 0  # how long a call of a group waits for another rank
    keeps_state: bool = False  # whether calls bring the state of a recipe whose scales follow from the steps before
    updates_scales: bool = False  # whether backward moves that state on by a step
    # Layer texts by the properties of calls, so that later calls look them up and plan nothing.
    layers: dict[tuple, str] = dataclasses.field(default_factory=dict)
    # Records of the last calls that later ones may repeat, without gradients and with them.
    inference: Inference | None = None
    training: Training | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, or for pickle: a copy starts without what calls have found out."""
        return {**self.__dict__, "layers": {}, "inference": None, "training": None}

    def layer(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, gradients: tuple[str, ...],
              wgrad: str, has_halves: bool, has_checks: bool) -> str:
        """Returns the text of the layer that a call with these tensors runs."""
        if torch.compiler.is_compiling():
            return call_text(self.description, target_of(x.device), gradients, wgrad, ID_DTYPES[topk_ids.dtype],
                             PROB_DTYPES[topk_probs.dtype], has_halves, self.keeps_state, has_checks)
        key = (x.device, topk_ids.dtype, topk_probs.dtype, gradients, wgrad, has_halves, has_checks)
        layer = self.layers.get(key)
        if layer is None:
            tell_of_simulator(x.device, 5)
            layer = self.layers[key] = call_text(self.description, target_of(x.device), gradients, wgrad,
                                                 ID_DTYPES[topk_ids.dtype], PROB_DTYPES[topk_probs.dtype], has_halves,
                                                 self.keeps_state, has_checks)
        return layer


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
        layer = usual_layer(call, gate_up_proj.device, ())
        cast = (weight.detach().to(torch.bfloat16) for weight in (gate_up_proj, down_proj))
        self.weights.keep((gate_up_proj, down_proj), dense(*cast, call.is_transposed), layer, state[:4])


def _no_status(device: torch.device | str) -> torch.Tensor:
    """Returns a status word of 0, which calls in any mode may write."""
    with torch.inference_mode(False):
        return torch.zeros(1, dtype=torch.int32, device=device)


def usual_layer(call: ExpertsCall, device: torch.device, gradients: tuple[str, ...]) -> str:
    """Returns the text of a layer of the module for calls that take no tokens."""
    has_checks = checks_weights(call, bool(gradients), None, None)
    if call.group is None:
        return call_text(call.description, target_of(device), gradients, "f32", keeps_state=call.keeps_state,
                         has_checks=has_checks)
    return group_call_text(call.group.number, call.description, str(device), call.timeout_ms, gradients, "f32", "i64",
                           "f32", has_checks)


def call_experts(call: ExpertsCall, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                 gate_up_proj: torch.Tensor, down_proj: torch.Tensor, gate_up_proj_bias: torch.Tensor | None = None,
                 down_proj_bias: torch.Tensor | None = None, *, is_first_microbatch: bool | None = None,
                 skip_update: torch.Tensor | None = None, is_sharded: bool = False,
                 state: tuple[torch.Tensor, ...] = ()) -> torch.Tensor:
    """Computes the experts of chosen tokens; moejit.torch.experts() describes the arguments.

    `is_sharded` says that the weights' memory is freed after the call and refilled before backward, as FSDP does.
    `state` is the tensors of FORWARD_STATE and GRADIENT_STATE if the layer has a state.
    """
    if (not torch.compiler.is_compiling() and is_first_microbatch is None and skip_update is None and not is_sharded):
        record = call.training if torch.is_grad_enabled() else call.inference
        if record is not None:
            y = record.run(hidden_states, top_k_index, top_k_weights, gate_up_proj, down_proj, gate_up_proj_bias,
                           down_proj_bias)
            if y is not None:
                return y
    x = hidden_states
    if x.dim() != 2:
        x = as_rows("x", x)
        top_k_index, top_k_weights = as_rows("topk_ids", top_k_index), as_rows("topk_probs", top_k_weights)
    device = x.device
    if device != gate_up_proj.device:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor x: it is on {device}, wanted {gate_up_proj.device}, where "
                           "w1 is\nhint: move the tokens or the module; all tensors of a call are on one device")
    parameters = cast = (gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias)
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        x, *cast = cast_to_bf16(x, *parameters)
    topk_ids, topk_probs = routing_of(top_k_index, top_k_weights)
    x = x if x.is_contiguous() else x.contiguous()
    if call.group is not None:
        y = call_on_group(call, (x, topk_ids, topk_probs), parameters, cast, is_first_microbatch, skip_update,
                          is_sharded, state)
        return y if hidden_states.dim() == 2 else y.view(hidden_states.shape)
    gradients = _gradients(x, topk_probs, *cast) if torch.is_grad_enabled() else ()
    if not gradients and not is_sharded and not isinstance(gate_up_proj, GatheredWeight):
        y, status = _without_gradients(call, (x, topk_ids, topk_probs), parameters, cast, is_first_microbatch,
                                       skip_update, state)
    else:
        y, status = _with_gradients(call, (x, topk_ids, topk_probs), parameters, cast, gradients, is_first_microbatch,
                                    skip_update, is_sharded, state)
    if call.state is not None and not is_exporting():
        call.state.keep_status(status)
    return y if hidden_states.dim() == 2 else y.view(hidden_states.shape)


def _without_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence,
                       is_first_microbatch: bool | None,
                       skip_update: torch.Tensor | None,
                       state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    layer = call.layer(*given, (), "f32", False, checks_weights(call, False, is_first_microbatch, skip_update))
    w1, w2 = dense(*cast[:2], call.is_transposed)
    quantized, _ = quantized_weights(call, parameters, (w1, w2), layer, False, is_first_microbatch, skip_update,
                                     state[:4])
    b1, b2 = biases_of(given[0], cast)
    y, _, status = scales.forward((*given, w1, w2, b1, b2, quantized), state, layer)
    if may_be_repeated(call, given):
        kept = call.state.weights.find(given[0].device, layer)
        if kept is not None and kept.made_of is not None:
            call.inference = Inference(given, no_elements(given[0].device), call.state, kept, layer)
    return y, status


def _with_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence, gradients: tuple[str, ...],
                    is_first_microbatch: bool | None, skip_update: torch.Tensor | None,
                    is_sharded: bool, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    has_halves = call.delayed is not None and _has_halves(gradients, is_sharded)
    has_checks = not is_sharded and checks_weights(call, True, is_first_microbatch, skip_update)
    layer = call.layer(*given, gradients, wgrad_dtype(call, parameters[0]), has_halves, has_checks)
    dtypes = tuple(torch.float32 if weight is None else gradient_dtype(weight) for weight in cast)
    b1, b2 = biases_of(given[0], cast)
    keeps_none = is_sharded and is_first_microbatch is None and skip_update is None and not call.fuse_wgrad_accumulation
    if gradients and state and not torch.compiler.is_compiling():
        call.state.trained_layer = layer
    if isinstance(parameters[0], GatheredWeight) or keeps_none and not state:
        return _with_gathered(call, (*given, *cast[:2], b1, b2), bool(gradients), dtypes, skip_update, layer)
    w1, w2 = dense(*cast[:2], call.is_transposed)
    if keeps_none:  # a function with a state quantizes
        blocks = (w1.new_empty(0), w1.new_empty(0)) if gradients else quantize(w1, w2, layer, state[:4])
    else:
        blocks = quantized_weights(call, parameters, (w1, w2), layer, bool(gradients), is_first_microbatch, skip_update,
                                   state[:4])
    tensors = (*given, w1, w2, b1, b2, *blocks)
    if not gradients:
        y, _, status = scales.forward(tensors[:8], state, layer)
        return y, status
    if has_halves:
        return call_with_delayed_gradients(call.delayed, tensors, cast, dtypes,
                                           parameters if call.fuse_wgrad_accumulation else None, layer, state,
                                           call.updates_scales)
    if state:
        return scales.StateFunction.apply(
            *tensors, *_state_arguments(call, parameters, dtypes, given[0], keeps_none, layer, state))
    if call.fuse_wgrad_accumulation:
        return _with_main_grads(parameters, tensors, layer)
    if (may_be_repeated(call, given) and call.cache_weights is not True and not is_sharded
            and type(cast[0]) is torch.nn.Parameter and type(cast[1]) is torch.nn.Parameter):
        call.training = Training(given, tuple(cast), no_elements(given[0].device), call.state, dtypes, layer)
    return ExpertsFunction.apply(*tensors, dtypes, layer)


def _state_arguments(call: ExpertsCall, parameters: tuple, dtypes: tuple[torch.dtype, ...], like: torch.Tensor,
                     quantizes_again: bool, layer: str, state: tuple[torch.Tensor, ...]) -> tuple:
    """Returns the tensors that functions with a state take behind an operator's tensors."""
    main, dummies, overwrites = [], None, False
    if call.fuse_wgrad_accumulation:
        main, dummies, overwrites = take_main_grads(parameters, like)
    return scales.Options(dtypes, dummies, overwrites, call.updates_scales, quantizes_again), layer, *state, *main


def _with_gathered(call: ExpertsCall, tensors: tuple, has_gradients: bool, dtypes: tuple[torch.dtype, ...],
                   skip_update: torch.Tensor | None, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call without keeping quantized weights for later calls or for backward."""
    x, topk_ids, topk_probs, w1, w2, b1, b2 = tensors
    if isinstance(w1, GatheredWeight) != isinstance(w2, GatheredWeight):
        raise RuntimeError("moejit: invalid_value: one of the two weights is gathered as FP8 codes and the other is not"
                           "\nhint: shard both with the same fully_shard()")
    if isinstance(w1, GatheredWeight) and (call.fuse_wgrad_accumulation or skip_update is not None):
        raise RuntimeError("moejit: unsupported: weights that are gathered as FP8 codes take neither "
                           "fuse_wgrad_accumulation nor skip_update\nhint: leave them out")
    if has_gradients:
        return GatheredFunction.apply(*tensors, dtypes, call.is_transposed, layer)
    w1, w2, quantized, _ = operands(w1, w2, call.is_transposed, layer, "forward")
    y, _, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
    return y, status


def _gradients(*tensors: torch.Tensor | None) -> tuple[str, ...]:
    """Returns the names of the gradients that autograd wants, given x, probs, w1, w2, b1 and b2."""
    return tuple([name for name, tensor in zip(GRADIENTS, tensors) if tensor is not None and tensor.requires_grad])


def _has_halves(gradients: tuple[str, ...], is_sharded: bool) -> bool:
    """Returns whether gradients of weights are to be delayed."""
    if not set(gradients) & set(WEIGHT_GRADIENTS) or torch.compiler.is_exporting():
        return False
    if is_sharded:
        raise RuntimeError("moejit: unsupported: delay_wgrad_compute under fully_shard(), which sums the gradients of "
                           "weights behind backward, before backward_dw() has made them\nhint: leave "
                           "delay_wgrad_compute out")
    return True


def _with_main_grads(parameters: tuple, tensors: tuple, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward adds to the parameters' main_grad.

    The attributes are named as in Megatron and Transformer Engine. They are set here because torch.compile of torch
    2.11 sets none in backward.
    """
    main, dummies, overwrites = take_main_grads(parameters, tensors[0])
    return MainGradFunction.apply(*tensors, *main, dummies, overwrites, layer)
