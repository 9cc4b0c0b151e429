# SPDX-License-Identifier: Apache-2.0
"""One call of experts: the layer's text for the wanted gradients, quantized weights, and the operator."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from moejit.torch import ops
from moejit.torch.arguments import as_rows, biases_of, cast_to_bf16, check_biases, gradient_dtype, is_exporting, routing_of
from moejit.torch.devices import no_elements
from moejit.torch.fp8_call import call_with_codes
from moejit.torch.fp8_weights import FP8Weights, are_codes
from moejit.torch.function import STATE, ExpertsFunction, Options, forward
from moejit.torch.gathered import GatheredFunction, GatheredWeight, dense, operands
from moejit.torch.halves import call_with_delayed_gradients, call_with_split_backward, is_smaller_split
from moejit.torch.layers import GRADIENTS, WEIGHT_GRADIENTS, experts_of, inputs_of
from moejit.torch.linears import call_with_parted_backward, is_held_anyway, with_columns_cast, with_linears
from moejit.torch.main_grads import moves_main_grads, take_main_grads
from moejit.torch.repeat import Inference, Training
from moejit.torch.shared import check_shared_probs, join_probs
from moejit.torch.state import ExpertsCall


def call_experts(call: ExpertsCall, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                 gate_up_proj: torch.Tensor | FP8Weights, down_proj: torch.Tensor | None,
                 gate_up_proj_bias: torch.Tensor | None = None,
                 down_proj_bias: torch.Tensor | None = None, *, is_first_microbatch: bool | None = None,
                 skip_update: torch.Tensor | None = None, is_sharded: bool = False,
                 state: tuple[torch.Tensor, ...] = (), shared_probs: torch.Tensor | None = None) -> torch.Tensor:
    """Computes the experts of chosen tokens; moejit.torch.experts() describes the arguments.

    Grouped input has `tokens_per_expert` in place of `top_k_index` and `probs` in place of `top_k_weights`.

    `is_sharded` says that the weights' memory is freed after the call and refilled before backward, as FSDP does.
    `shared_probs` [T] are the probabilities of shared experts with a gate. `state` is the tensors of FORWARD_STATE and GRADIENT_STATE if the layer has a state.
    """
    has_codes = are_codes(gate_up_proj, down_proj)
    if has_codes and gate_up_proj.prefill is not None:
        rows = hidden_states.numel() // hidden_states.shape[-1] if call.is_grouped else top_k_index.numel()
        gate_up_proj = gate_up_proj.of_call(rows, experts_of(call.description))
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
    if call.is_grouped:
        topk_ids, topk_probs = routing_of(top_k_index, top_k_weights.float(), "tokens_per_expert", "probs")
    else:
        topk_ids, topk_probs = routing_of(top_k_index, top_k_weights)
    x = x if x.is_contiguous() else x.contiguous()
    check_shared_probs(call.description, shared_probs, x.shape[0])
    if shared_probs is not None:
        topk_probs = join_probs(topk_probs, shared_probs)
    given = (x, topk_ids, topk_probs)
    if call.group is not None:
        _check_group(parameters, is_sharded)
    trained = (None, None, *cast[2:]) if has_codes else cast
    gradients = _gradients(call, x, topk_probs, *trained) if torch.is_grad_enabled() else ()
    if has_codes:
        y, status = call_with_codes(call, given, gate_up_proj, cast[2:], gradients)
    elif not gradients and not is_sharded and not isinstance(gate_up_proj, GatheredWeight):
        y, status = _without_gradients(call, given, parameters, cast, is_first_microbatch, skip_update, state)
    else:
        y, status = _with_gradients(call, given, parameters, cast, gradients, is_first_microbatch, skip_update,
                                    is_sharded, state)
    if call.state is not None and status is not None and not is_exporting():
        call.state.keep_status(status)
    return y if hidden_states.dim() == 2 else y.view(hidden_states.shape)


def _without_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence,
                       is_first_microbatch: bool | None, skip_update: torch.Tensor | None,
                       state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor | None]:
    layer = call.layer(*given, (), "f32", False, call.checks_weights(False, is_first_microbatch, skip_update))
    check_biases(layer, *cast[2:])
    w1, w2 = dense(*cast[:2], call.is_transposed)
    blocks = call.quantized_weights(parameters, (w1, w2), layer, False, is_first_microbatch, skip_update, state[:4])
    made = forward(layer, (*given, w1, w2, *biases_of(given[0], cast), *blocks), dict(zip(STATE, state)), call.order)
    if call.may_be_repeated(given[0]):
        kept = call.state.weights.find(given[0].device, layer)
        if kept is not None and kept.made_of is not None:
            call.inference = Inference(given, no_elements(given[0].device), call.state, kept, layer)
    return made["y"], made.get("status")


def _with_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence, gradients: tuple[str, ...],
                    is_first_microbatch: bool | None, skip_update: torch.Tensor | None, is_sharded: bool,
                    state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor | None]:
    has_halves = call.delayed is not None and _has_halves(gradients, is_sharded)
    has_checks = not is_sharded and call.checks_weights(True, is_first_microbatch, skip_update)
    layer = call.layer(*given, gradients, call.wgrad_dtype(parameters), has_halves, has_checks)
    is_split, parted = False, None
    if call.may_split and not has_halves and _may_split(gradients, is_sharded):
        serves_later_calls = has_checks or is_first_microbatch is not None or skip_update is not None
        may_cast = not (serves_later_calls or call.is_transposed) and all(map(is_held_anyway, cast[:2]))
        if not state and not call.fuse_wgrad_accumulation:
            parted = with_linears(layer, may_cast)
        if parted is None:
            split = call.layer(*given, gradients, call.wgrad_dtype(parameters), True, has_checks)
            is_split = is_smaller_split(split, layer)
            layer = split if is_split else layer
        if call.fuse_wgrad_accumulation and call.is_grouped and may_cast:
            layer = with_columns_cast(layer)
    check_biases(layer, *cast[2:])
    dtypes = tuple(torch.float32 if weight is None else gradient_dtype(weight) for weight in cast)
    b1, b2 = biases_of(given[0], cast)
    keeps_none = is_sharded and is_first_microbatch is None and skip_update is None and not call.fuse_wgrad_accumulation
    if gradients and state and not torch.compiler.is_compiling():
        call.state.trained_layer = layer
    if isinstance(parameters[0], GatheredWeight) or keeps_none and not state:
        return _with_gathered(call, (*given, *cast[:2], b1, b2), bool(gradients), dtypes, skip_update, layer)
    w1, w2 = dense(*cast[:2], call.is_transposed)
    blocks = (None, None)
    if not keeps_none:
        blocks = call.quantized_weights(parameters, (w1, w2), layer, bool(gradients), is_first_microbatch, skip_update,
                                        state[:4])
    tensors = (*given, w1, w2, b1, b2, *blocks)
    if not gradients:
        made = forward(layer, tensors, dict(zip(STATE, state)))
        return made["y"], made["status"]
    options = Options(layer, dtypes, has_state=len(state) > 0, updates=call.updates_scales, keeps_weights=not keeps_none,
                      is_of_group=call.group is not None)
    with_main_grads = parameters if call.fuse_wgrad_accumulation else None
    if has_halves:
        return call_with_delayed_gradients(call.delayed, tensors, cast, with_main_grads, options, state)
    if is_split:
        if call.fuse_wgrad_accumulation and not moves_main_grads(parameters):
            take_main_grads(parameters, given[0])  # tells now what is missing; backward takes them again
        return call_with_split_backward(tensors, cast, with_main_grads, options, state)
    if parted is not None:
        return call_with_parted_backward(tensors, cast, options._replace(layer=parted))
    main = []
    if call.fuse_wgrad_accumulation and moves_main_grads(parameters):
        options = options._replace(dummies=(), owners=parameters)
    elif call.fuse_wgrad_accumulation:  # sets attributes, which torch.compile of torch 2.11 does not in backward
        main, dummies, overwrites = take_main_grads(parameters, given[0])
        options = options._replace(dummies=dummies, overwrites=overwrites)
    elif (not state and call.may_be_repeated(given[0]) and call.cache_weights is not True and not is_sharded
          and type(cast[0]) is torch.nn.Parameter and type(cast[1]) is torch.nn.Parameter):
        call.training = Training(given, tuple(cast), no_elements(given[0].device), call.state, options)
    order = () if call.order is None else (call.order,)
    made = ExpertsFunction.apply(options, *tensors, *state, *main, *order)
    return (made, None) if call.group is not None else made


def _with_gathered(call: ExpertsCall, tensors: tuple, has_gradients: bool, dtypes: tuple[torch.dtype, ...],
                   skip_update: torch.Tensor | None, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call without keeping quantized weights for later calls or for backward."""
    w1, w2 = tensors[3:5]
    if isinstance(w1, GatheredWeight) != isinstance(w2, GatheredWeight):
        raise RuntimeError("moejit: invalid_value: one of the two weights is gathered as FP8 codes and the other is not"
                           "\nhint: shard both with the same fully_shard()")
    if isinstance(w1, GatheredWeight) and (call.fuse_wgrad_accumulation or skip_update is not None):
        raise RuntimeError("moejit: unsupported: weights that are gathered as FP8 codes take neither "
                           "fuse_wgrad_accumulation nor skip_update\nhint: leave them out")
    if has_gradients:
        return GatheredFunction.apply(*tensors, dtypes, call.is_transposed, layer)
    made = ops.run(layer, "forward",
                   {**dict(zip(inputs_of(layer), tensors)), **operands(w1, w2, call.is_transposed, layer, "forward")})
    return made["y"], made["status"]


def _check_group(parameters: tuple, is_sharded: bool) -> None:
    """Refuses what a process group cannot do."""
    if is_sharded or isinstance(parameters[0], GatheredWeight):
        raise RuntimeError("moejit: unsupported: fully_shard() of experts with process_group, whose ranks have experts "
                           "of their own already\nhint: leave these modules out: fully_shard(..., ignored_params=...)")
    if is_exporting():
        raise RuntimeError("moejit: unsupported: torch.export of experts with process_group, whose group belongs to "
                           "this process\nhint: export the layer of one rank, or use torch.compile")


def _gradients(call: ExpertsCall, *tensors: torch.Tensor | None) -> tuple[str, ...]:
    """Returns the names of the gradients to compute, given x, probs, w1, w2, b1 and b2: those that autograd wants.

    A group computes the gradients of tokens and probabilities of all ranks if any gradient is wanted. So a rank whose
    tokens want none, such as a rank without tokens, makes the same calls as the others.
    """
    wanted = tuple([name for name, tensor in zip(GRADIENTS, tensors) if tensor is not None and tensor.requires_grad])
    if call.group is None or not wanted:
        return wanted
    return (*GRADIENTS[:2], *(name for name in wanted if name in WEIGHT_GRADIENTS))


def _may_split(gradients: tuple[str, ...], is_sharded: bool) -> bool:
    """Returns whether backward may be two steps: it has gradients for both, and no graph of torch.compile is made."""
    return (gradients[:1] == GRADIENTS[:1] and not set(gradients).isdisjoint(WEIGHT_GRADIENTS) and not is_sharded
            and not torch.compiler.is_compiling())


def _has_halves(gradients: tuple[str, ...], is_sharded: bool) -> bool:
    """Returns whether gradients of weights are to be delayed."""
    if not set(gradients) & set(WEIGHT_GRADIENTS) or torch.compiler.is_exporting():
        return False
    if is_sharded:
        raise RuntimeError("moejit: unsupported: delay_wgrad_compute under fully_shard(), which sums the gradients of "
                           "weights behind backward, before backward_dw() has made them\nhint: leave "
                           "delay_wgrad_compute out")
    return True
