# SPDX-License-Identifier: Apache-2.0
"""One call of experts that the ranks of a process group share."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from moejit.torch import group_ops
from moejit.torch.arguments import (ID_DTYPES, PROB_DTYPES, biases_of, checks_weights, gradient_dtype,
                                    may_be_repeated, quantized_weights, wgrad_dtype)
from moejit.torch.devices import no_elements, tell_of_simulator
from moejit.torch.gathered import GatheredWeight
from moejit.torch.group_function import GroupFunction, GroupMainGradFunction
from moejit.torch.group_repeat import GroupInference, GroupTraining
from moejit.torch.groups import group_call_text
from moejit.torch.layers import WEIGHT_GRADIENTS
from moejit.torch.main_grads import take_main_grads
from moejit.torch.scales import GroupStateFunction, Options

if TYPE_CHECKING:
    from moejit.torch.call import ExpertsCall


def call_on_group(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence, is_first_microbatch: bool | None,
                  skip_update: torch.Tensor | None, is_sharded: bool, state: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Computes the experts of this rank's tokens on all ranks. All of them make the same call.

    Args:
        call: The common part of the module's calls, with a group.
        given: x [T, H], topk_ids and topk_probs [T, K], as the operators take them.
        parameters: gate_up_proj, down_proj and their biases; None: absent.
        cast: The same in bf16.
        is_first_microbatch, skip_update, is_sharded, state: As for call_experts().
    """
    if is_sharded or isinstance(parameters[0], GatheredWeight):
        raise RuntimeError("moejit: unsupported: fully_shard() of experts with process_group, whose ranks have experts "
                           "of their own already\nhint: leave these modules out: fully_shard(..., ignored_params=...)")
    if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
        raise RuntimeError("moejit: unsupported: torch.export of experts with process_group, whose group belongs to "
                           "this process\nhint: export the layer of one rank, or use torch.compile")
    gradients = _gradients(given[0], given[2], cast) if torch.is_grad_enabled() else ()
    has_checks = checks_weights(call, bool(gradients), is_first_microbatch, skip_update)
    layer = text_of(call, given, gradients, wgrad_dtype(call, parameters[0]) if gradients else "f32", has_checks)
    order = call.group.order
    w1, w2 = cast[:2]
    quantized, colwise = quantized_weights(call, parameters, (w1, w2), layer, bool(gradients), is_first_microbatch,
                                           skip_update, state[:4])
    b1, b2 = biases_of(given[0], cast)
    if not gradients and state:
        return group_ops.group_forward_with_state(*given, w1, w2, b1, b2, quantized, order, *state[:4], layer)[0]
    if not gradients:
        kept = call.state.weights.find(given[0].device, layer) if may_be_repeated(call, given) else None
        if kept is not None and kept.made_of is not None:
            call.inference = GroupInference(given, no_elements(given[0].device), call.state, kept, order, layer)
        return group_ops.group_forward(*given, w1, w2, b1, b2, quantized, order, layer)[0]
    tensors = (*given, w1, w2, b1, b2, quantized, colwise)
    dtypes = tuple(torch.float32 if weight is None else gradient_dtype(weight) for weight in cast)
    main, dummies, overwrites = [], None, False
    if call.fuse_wgrad_accumulation:
        main, dummies, overwrites = take_main_grads(parameters, given[0])
    if state:
        if not torch.compiler.is_compiling():
            call.state.trained_layer = layer
        options = Options(dtypes, dummies, overwrites, call.updates_scales, False)
        return GroupStateFunction.apply(*tensors, options, layer, *state, order, *main)
    if call.fuse_wgrad_accumulation:
        return GroupMainGradFunction.apply(*tensors, order, *main, dummies, overwrites, layer)
    if (may_be_repeated(call, given) and call.cache_weights is not True
            and type(w1) is torch.nn.Parameter and type(w2) is torch.nn.Parameter):
        call.training = GroupTraining(given, tuple(cast), no_elements(given[0].device), call.state, dtypes, order, layer)
    return GroupFunction.apply(*tensors, order, dtypes, layer)


def _gradients(x: torch.Tensor, topk_probs: torch.Tensor, cast: Sequence) -> tuple[str, ...]:
    """Returns the gradients that backward computes: of tokens and probabilities of all ranks if any is wanted.

    So a rank whose tokens want none, such as a rank without tokens, makes the same calls as the others.
    """
    of_weights = tuple([name for name, weight in zip(WEIGHT_GRADIENTS, cast)
                        if weight is not None and weight.requires_grad])
    return ("dx", "dprobs", *of_weights) if of_weights or x.requires_grad or topk_probs.requires_grad else ()


def text_of(call: ExpertsCall, given: tuple, gradients: tuple[str, ...], wgrad: str,
            has_checks: bool = False) -> str:
    """Returns the text of the layer of a call. The first call of its kind opens it, together with the other ranks."""
    x, topk_ids, topk_probs = given
    key = (x.device, topk_ids.dtype, topk_probs.dtype, gradients, wgrad, has_checks)
    arguments = (call.group.number, call.description, str(x.device), call.timeout_ms, gradients, wgrad,
                 ID_DTYPES[topk_ids.dtype], PROB_DTYPES[topk_probs.dtype], has_checks)
    if torch.compiler.is_compiling():
        return group_call_text(*arguments)
    layer = call.layers.get(key)
    if layer is None:
        tell_of_simulator(x.device, 6)
        layer = call.layers[key] = group_call_text(*arguments)
    return layer
