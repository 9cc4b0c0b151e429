# SPDX-License-Identifier: Apache-2.0
"""One call of experts: casts, the layer's text for the wanted gradients, quantized weights, and the operator."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch import ops
from moejit.torch.devices import no_elements, target_of, tell_of_simulator
from moejit.torch.function import ExpertsFunction, MainGradFunction
from moejit.torch.gathered import GatheredFunction, GatheredWeight, dense, operands
from moejit.torch.halves import DelayedGradients, call_with_delayed_gradients
from moejit.torch.layers import GRADIENTS, WEIGHT_GRADIENTS, call_text
from moejit.torch.main_grads import take_main_grads
from moejit.torch.repeat import Inference, Training
from moejit.torch.weights import Blocks, QuantizedWeights, made_of, quantize

# Names in descriptions of a routing's dtypes.
_ID_DTYPES = {torch.int32: "i32", torch.int64: "i64"}
_PROB_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclasses.dataclass(eq=False)
class ExpertsCall:
    """The common part of one module's calls. `description` is a layer description, JSON."""
    description: str
    state: State | None = None
    cache_weights: bool | None = None
    fuse_wgrad_accumulation: bool = False
    is_transposed: bool = False  # whether weights are [E, H, 2I] and [E, I, H]
    delayed: DelayedGradients | None = None  # takes the gradients of weights that backward leaves for later
    # Layer texts by the properties of calls, so that later calls look them up and plan nothing.
    layers: dict[tuple, str] = dataclasses.field(default_factory=dict)
    # Records of the last calls that later ones may repeat, without gradients and with them.
    inference: Inference | None = None
    training: Training | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, or for pickle: it begins without what calls have found out."""
        return {**self.__dict__, "layers": {}, "inference": None, "training": None}

    def layer(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, gradients: tuple[str, ...],
              wgrad_dtype: str, has_halves: bool) -> str:
        """Returns the text of the layer that a call with these tensors runs."""
        if torch.compiler.is_compiling():
            return call_text(self.description, target_of(x.device), gradients, wgrad_dtype,
                             _ID_DTYPES[topk_ids.dtype], _PROB_DTYPES[topk_probs.dtype], has_halves)
        key = (x.device, topk_ids.dtype, topk_probs.dtype, gradients, wgrad_dtype, has_halves)
        layer = self.layers.get(key)
        if layer is None:
            tell_of_simulator(x.device, 5)
            layer = self.layers[key] = call_text(self.description, target_of(x.device), gradients, wgrad_dtype,
                                                 _ID_DTYPES[topk_ids.dtype], _PROB_DTYPES[topk_probs.dtype], has_halves)
        return layer


class State:
    """A module's state between calls besides its parameters: the quantized weights and the last status word."""

    def __init__(self) -> None:
        self.weights = QuantizedWeights()
        self.status: torch.Tensor | None = None
        self.calls: dict[tuple, ExpertsCall] = {}

    def __deepcopy__(self, memo: dict) -> State:
        return State()

    def __reduce__(self) -> tuple:
        return State, ()

    def status_word(self) -> int:
        """Returns the last call's status word; 0 before the first call."""
        return 0 if self.status is None else int(self.status.item())

    def keep_weights(self, call: ExpertsCall, gate_up_proj: torch.Tensor, down_proj: torch.Tensor) -> None:
        """Quantizes the weights for calls without gradients. Casts float32 first, as autocast does."""
        layer = call_text(call.description, target_of(gate_up_proj.device), (), "f32")
        cast = (weight.detach().to(torch.bfloat16) for weight in (gate_up_proj, down_proj))
        self.weights.renew(dense(*cast, call.is_transposed), layer)
        self.weights.made_of = made_of(gate_up_proj, down_proj)


def call_experts(call: ExpertsCall, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                 gate_up_proj: torch.Tensor, down_proj: torch.Tensor, gate_up_proj_bias: torch.Tensor | None = None,
                 down_proj_bias: torch.Tensor | None = None, *, is_first_microbatch: bool | None = None,
                 skip_update: torch.Tensor | None = None, is_sharded: bool = False) -> torch.Tensor:
    """Computes the experts of chosen tokens; moejit.torch.experts() describes the arguments.

    `is_sharded` says that the weights' memory is freed after the call and refilled before backward, as FSDP does.
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
        x = _as_rows("x", x)
        top_k_index, top_k_weights = _as_rows("topk_ids", top_k_index), _as_rows("topk_probs", top_k_weights)
    device = x.device
    if device != gate_up_proj.device:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor x: it is on {device}, wanted {gate_up_proj.device}, where "
                           "w1 is\nhint: move the tokens or the module; all tensors of a call are on one device")
    parameters = cast = (gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias)
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        x, *cast = _cast(x, *parameters)
    topk_ids, topk_probs = _routing(top_k_index, top_k_weights)
    x = x if x.is_contiguous() else x.contiguous()
    gradients = _gradients(x, topk_probs, *cast) if torch.is_grad_enabled() else ()
    if not gradients and not is_sharded and not isinstance(gate_up_proj, GatheredWeight):
        y, status = _without_gradients(call, (x, topk_ids, topk_probs), parameters, cast, is_first_microbatch,
                                       skip_update)
    else:
        y, status = _with_gradients(call, (x, topk_ids, topk_probs), parameters, cast, gradients, is_first_microbatch,
                                    skip_update, is_sharded)
    if call.state is not None and not _is_exporting():
        call.state.status = status
    return y if hidden_states.dim() == 2 else y.view(hidden_states.shape)


def _without_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence,
                       is_first_microbatch: bool | None,
                       skip_update: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    layer = call.layer(*given, (), "f32", False)
    w1, w2 = dense(*cast[:2], call.is_transposed)
    quantized, _ = _quantized(call, parameters, (w1, w2), layer, False, is_first_microbatch, skip_update)
    b1, b2 = _biases(given[0], cast)
    y, _, status = ops.forward(*given, w1, w2, b1, b2, quantized, layer)
    if _may_be_repeated(call, given) and call.state.weights.made_of is not None:
        call.inference = Inference(given, no_elements(given[0].device), call.state, call.cache_weights is True, layer)
    return y, status


def _may_be_repeated(call: ExpertsCall, given: tuple) -> bool:
    """Returns whether to record a call. The record checks the rest."""
    return (not torch.compiler.is_compiling() and call.state is not None and not call.is_transposed
            and type(given[0]) is torch.Tensor)


def _with_gradients(call: ExpertsCall, given: tuple, parameters: tuple, cast: Sequence, gradients: tuple[str, ...],
                    is_first_microbatch: bool | None, skip_update: torch.Tensor | None,
                    is_sharded: bool) -> tuple[torch.Tensor, torch.Tensor]:
    has_halves = call.delayed is not None and _has_halves(gradients, is_sharded)
    layer = call.layer(*given, gradients, _wgrad_dtype(call, parameters[0]), has_halves)
    dtypes = tuple(torch.float32 if weight is None else _gradient_dtype(weight) for weight in cast)
    b1, b2 = _biases(given[0], cast)
    keeps_none = is_sharded and is_first_microbatch is None and skip_update is None and not call.fuse_wgrad_accumulation
    if isinstance(parameters[0], GatheredWeight) or keeps_none:
        return _with_gathered(call, (*given, *cast[:2], b1, b2), bool(gradients), dtypes, skip_update, layer)
    w1, w2 = dense(*cast[:2], call.is_transposed)
    blocks = _quantized(call, parameters, (w1, w2), layer, bool(gradients), is_first_microbatch, skip_update)
    tensors = (*given, w1, w2, b1, b2, *blocks)
    if not gradients:
        y, _, status = ops.forward(*tensors[:8], layer)
        return y, status
    if has_halves:
        return call_with_delayed_gradients(call.delayed, tensors, cast, dtypes,
                                           parameters if call.fuse_wgrad_accumulation else None, layer)
    if call.fuse_wgrad_accumulation:
        return _with_main_grads(parameters, tensors, layer)
    if (_may_be_repeated(call, given) and call.cache_weights is not True and not is_sharded
            and type(cast[0]) is torch.nn.Parameter and type(cast[1]) is torch.nn.Parameter):
        call.training = Training(given, tuple(cast), no_elements(given[0].device), call.state, dtypes, layer)
    return ExpertsFunction.apply(*tensors, dtypes, layer)


def _biases(x: torch.Tensor, cast: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the biases as operators take them: absent ones are tensors without elements."""
    b1, b2 = cast[2:]
    if b1 is not None and b2 is not None:
        return b1, b2
    if type(x) is torch.Tensor and not torch.compiler.is_compiling():
        none = no_elements(x.device)
        return none if b1 is None else b1, none if b2 is None else b2
    # From torch 2.15 on Dynamo takes no tensor twice in one call of an autograd.Function.
    return x.new_empty(0) if b1 is None else b1, x.new_empty(0) if b2 is None else b2


def _is_exporting() -> bool:
    """Returns whether torch.export traces the call. In torch.compile, Dynamo replaces is_exporting() by True."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


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


def _cast(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Casts to bf16, as autocast does."""
    return [tensor if tensor is None or isinstance(tensor, GatheredWeight) else tensor.to(torch.bfloat16)
            for tensor in tensors]


def _as_rows(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in which all dimensions but the last are merged into one."""
    if tensor.dim() == 0:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: it has 0 dimensions, wanted 2, or more in front "
                           "of the last one")
    return tensor.reshape(-1, tensor.shape[-1])


def _routing(ids: torch.Tensor, probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the routing in dtypes that layers accept: its own, or int64 and float32."""
    if ids.dtype not in _ID_DTYPES:
        if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_ids: its dtype is {_name(ids)}, wanted int32 or "
                               "int64\nhint: torch.topk() returns the probabilities first, experts take the ids first")
        ids = ids.to(torch.int64)
    if probs.dtype not in _PROB_DTYPES:
        if not probs.dtype.is_floating_point:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_probs: its dtype is {_name(probs)}, wanted "
                               "float32 or bfloat16\nhint: the ids come before the probabilities")
        probs = probs.to(torch.float32)
    return ids if ids.is_contiguous() else ids.contiguous(), probs if probs.is_contiguous() else probs.contiguous()


def _name(tensor: torch.Tensor) -> str:
    """Returns the name of a tensor's dtype, such as "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


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


def _gradient_dtype(weight: torch.Tensor) -> torch.dtype:
    """Returns the dtype of a weight's gradient. From torch 2.11 on, that of a leaf may differ from the leaf's own.

    torch.compile ignores this; autograd casts the gradients of a compiled graph.
    """
    if torch.compiler.is_compiling() or not weight.is_leaf:
        return weight.dtype
    return getattr(weight, "grad_dtype", None) or weight.dtype


def _wgrad_dtype(call: ExpertsCall, weight: torch.Tensor) -> str:
    if call.fuse_wgrad_accumulation:
        return "f32"
    return "f32" if _gradient_dtype(weight) == torch.float32 else "bf16"


def _quantized(call: ExpertsCall, weights: tuple, dense: tuple, layer: str, has_gradients: bool,
               is_first_microbatch: bool | None, skip_update: torch.Tensor | None) -> Blocks:
    """Returns the blocks of quantized weights; kept ones if they are known to be right."""
    if call.state is None:
        return quantize(*dense, layer)
    kept = call.state.weights
    if skip_update is not None:
        kept.forget()
        return kept.renew(dense, layer, skip_update)
    if is_first_microbatch is not None:
        kept.forget()
        return kept.blocks if not is_first_microbatch and kept.fits(dense[0], layer) else kept.renew(dense, layer)
    if torch.compiler.is_compiling():
        # A graph cannot see the versions of weights.
        is_kept = not has_gradients and call.cache_weights is not False and kept.fits(dense[0], layer)
        return kept.blocks if is_kept else quantize(*dense, layer)
    keeps = call.cache_weights
    if keeps is None:
        keeps = not has_gradients and not _may_change_unseen()
    if keeps:
        return kept.current(weights[:2], dense, layer)
    kept.forget()
    return quantize(*dense, layer)


def _may_change_unseen() -> bool:
    """Returns whether weights may change without a new version, as when FSDP gathers them into the same memory."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _with_main_grads(parameters: tuple, tensors: tuple, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward adds to the parameters' main_grad.

    The attributes are those of Megatron and Transformer Engine. They are set here because torch.compile of torch 2.11
    sets none in backward.
    """
    main, dummies, overwrites = take_main_grads(parameters, tensors[0])
    return MainGradFunction.apply(*tensors, *main, dummies, overwrites, layer)
