# SPDX-License-Identifier: Apache-2.0
"""One call of experts: casts, the layer's text for what autograd wants, quantised weights, and the operator."""
from __future__ import annotations

import dataclasses
import warnings

import torch

from moejit.torch import ops
from moejit.torch.function import ExpertsFunction, MainGradFunction
from moejit.torch.gathered import GatheredFunction, GatheredWeight, dense, operands
from moejit.torch.halves import DelayedGradients, call_with_delayed_gradients
from moejit.torch.layers import GRADIENTS, WEIGHT_GRADIENTS, call_text, target_of
from moejit.torch.main_grads import take_main_grads
from moejit.torch.weights import QuantizedWeights, quantize


# What descriptions call the dtypes of a routing.
_LAYER_DTYPES = {torch.int32: "i32", torch.int64: "i64", torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclasses.dataclass(eq=False)
class ExpertsCall:
    """What calls of one module have in common. `description` is a layer description, JSON."""
    description: str
    state: State | None = None
    cache_weights: bool | None = None
    fuse_wgrad_accumulation: bool = False
    is_transposed: bool = False  # weights are [E, H, 2I] and [E, I, H]
    delayed: DelayedGradients | None = None  # where backward leaves the gradients of weights to


class State:
    """What a module keeps from call to call, beside its parameters: the quantised weights and the last status word."""

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
        """Quantises the weights for calls without gradients. float32 is cast first, as autocast does it."""
        layer = call_text(call.description, target_of(gate_up_proj.device), (), "f32")
        cast = (weight.detach().to(torch.bfloat16) for weight in (gate_up_proj, down_proj))
        self.weights.renew(dense(*cast, call.is_transposed), layer)
        self.weights.made_of = tuple((weight.data_ptr(), weight._version) for weight in (gate_up_proj, down_proj))


def call_experts(call: ExpertsCall, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                 gate_up_proj: torch.Tensor, down_proj: torch.Tensor, gate_up_proj_bias: torch.Tensor | None = None,
                 down_proj_bias: torch.Tensor | None = None, *, is_first_microbatch: bool | None = None,
                 skip_update: torch.Tensor | None = None, is_sharded: bool = False) -> torch.Tensor:
    """Computes the experts of chosen tokens; moejit.torch.experts() tells the arguments.

    `is_sharded` says that the weights' memory is freed behind the call and filled again before backward, as by FSDP.
    """
    x = hidden_states
    if x.dim() != 2:
        x = x.reshape(-1, x.shape[-1])
        top_k_index = top_k_index.reshape(-1, top_k_index.shape[-1])
        top_k_weights = top_k_weights.reshape(-1, top_k_weights.shape[-1])
    x, *parameters = _cast(x, gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias)
    topk_ids, topk_probs = _routing(top_k_index, top_k_weights)
    b1, b2 = (x.new_empty(0) if bias is None else bias for bias in parameters[2:])
    gradients = _gradients(x, topk_probs, *parameters[:2], b1, b2)
    has_halves = call.delayed is not None and _has_halves(gradients, is_sharded)
    layer = call_text(call.description, _target(x.device), gradients, _wgrad_dtype(call, gate_up_proj),
                      _LAYER_DTYPES[topk_ids.dtype], _LAYER_DTYPES[topk_probs.dtype], has_halves)
    dtypes = tuple(_gradient_dtype(weight) for weight in parameters if weight is not None)
    dtypes += (torch.float32,) * (4 - len(dtypes))
    x = x.contiguous()
    keeps_none = is_sharded and is_first_microbatch is None and skip_update is None and not call.fuse_wgrad_accumulation
    if isinstance(gate_up_proj, GatheredWeight) or keeps_none:
        y, status = _with_gathered(call, (x, topk_ids, topk_probs, *parameters[:2], b1, b2), bool(gradients), dtypes,
                                   skip_update, layer)
        return _finish(call, y, status, hidden_states)
    w1, w2 = dense(*parameters[:2], call.is_transposed)
    quantized = _quantized(call, (gate_up_proj, down_proj), (w1, w2), layer, bool(gradients), is_first_microbatch,
                           skip_update)
    if not gradients:
        y, _, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
    elif has_halves:
        with_main_grad = (gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias)
        y, status = call_with_delayed_gradients(call.delayed, (x, topk_ids, topk_probs, w1, w2, b1, b2, quantized),
                                                parameters, dtypes,
                                                with_main_grad if call.fuse_wgrad_accumulation else None, layer)
    elif call.fuse_wgrad_accumulation:
        y, status = _with_main_grads((gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias),
                                     (x, topk_ids, topk_probs, w1, w2, b1, b2, quantized), layer)
    else:
        y, status = ExpertsFunction.apply(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, dtypes, layer)
    return _finish(call, y, status, hidden_states)


def _finish(call: ExpertsCall, y: torch.Tensor, status: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
    if call.state is not None and not torch.compiler.is_exporting():
        call.state.status = status
    return y if hidden_states.dim() == 2 else y.view(hidden_states.shape)


def _with_gathered(call: ExpertsCall, tensors: tuple, has_gradients: bool, dtypes: tuple[torch.dtype, ...],
                   skip_update: torch.Tensor | None, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call without keeping quantised weights for later calls or for backward."""
    x, topk_ids, topk_probs, w1, w2, b1, b2 = tensors
    if isinstance(w1, GatheredWeight) != isinstance(w2, GatheredWeight):
        raise RuntimeError("moejit: invalid_value: one of the two weights is gathered as FP8 codes and the other is not"
                           "\nhint: shard both with the same fully_shard()")
    if isinstance(w1, GatheredWeight) and (call.fuse_wgrad_accumulation or skip_update is not None):
        raise RuntimeError("moejit: unsupported: weights that are gathered as FP8 codes take neither "
                           "fuse_wgrad_accumulation nor skip_update\nhint: leave them out")
    if has_gradients:
        return GatheredFunction.apply(*tensors, dtypes, call.is_transposed, layer)
    made = operands(w1, w2, call.is_transposed, layer, "forward")
    y, _, status = ops.forward(x, topk_ids, topk_probs, *made[:2], b1, b2, made[2], layer)
    return y, status


def _cast(x: torch.Tensor, *parameters: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Casts to bf16 under autocast. The probabilities are left alone."""
    tensors = [x, *parameters]
    if x.device.type == "meta" or not torch.is_autocast_enabled(x.device.type):
        return tensors
    return [tensor if tensor is None or isinstance(tensor, GatheredWeight) else tensor.to(torch.bfloat16)
            for tensor in tensors]


def _routing(ids: torch.Tensor, probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the routing in dtypes that layers take: their own, or int64 and float32."""
    if ids.dtype not in _LAYER_DTYPES:
        ids = ids.to(torch.int64)
    if probs.dtype not in _LAYER_DTYPES:
        probs = probs.to(torch.float32)
    return ids.contiguous(), probs.contiguous()


def _gradients(*tensors: torch.Tensor) -> tuple[str, ...]:
    """Returns the names of the gradients that autograd wants, given x, probs, w1, w2, b1 and b2."""
    if not torch.is_grad_enabled():
        return ()
    return tuple(name for name, tensor in zip(GRADIENTS, tensors) if tensor.requires_grad)


def _has_halves(gradients: tuple[str, ...], is_sharded: bool) -> bool:
    """Tells whether there are gradients of weights to be delayed."""
    if not set(gradients) & set(WEIGHT_GRADIENTS) or torch.compiler.is_exporting():
        return False
    if is_sharded:
        raise RuntimeError("moejit: unsupported: delay_wgrad_compute under fully_shard(), which sums the gradients of "
                           "weights behind backward, before backward_dw() has made them\nhint: leave "
                           "delay_wgrad_compute out")
    return True


def _gradient_dtype(weight: torch.Tensor) -> torch.dtype:
    """Returns the dtype of a weight's gradient: from torch 2.11 on a leaf may have another than its own.

    torch.compile does not know that; autograd casts the gradients of a compiled graph.
    """
    if torch.compiler.is_compiling() or not weight.is_leaf:
        return weight.dtype
    return getattr(weight, "grad_dtype", None) or weight.dtype


def _wgrad_dtype(call: ExpertsCall, weight: torch.Tensor) -> str:
    if call.fuse_wgrad_accumulation:
        return "f32"
    return "f32" if _gradient_dtype(weight) == torch.float32 else "bf16"


_has_told_of_simulator = False


def _target(device: torch.device) -> str:
    global _has_told_of_simulator
    if device.type == "cpu" and not _has_told_of_simulator and not torch.compiler.is_compiling():
        _has_told_of_simulator = True
        warnings.warn("moejit: CPU tensors run in the simulator, which is for tests and not for speed", stacklevel=5)
    return target_of(device)


def _quantized(call: ExpertsCall, weights: tuple, dense: tuple, layer: str, has_gradients: bool,
               is_first_microbatch: bool | None, skip_update: torch.Tensor | None) -> torch.Tensor:
    """Returns the block of quantised weights, a kept one where that is known to be right."""
    if call.state is None:
        return quantize(*dense, layer)
    kept = call.state.weights
    if skip_update is not None:
        kept.forget()
        return kept.renew(dense, layer, skip_update)
    if is_first_microbatch is not None:
        kept.forget()
        return kept.block if not is_first_microbatch and kept.fits(dense[0], layer) else kept.renew(dense, layer)
    if torch.compiler.is_compiling():
        # Versions of weights mean nothing to a graph.
        is_kept = not has_gradients and call.cache_weights is not False and kept.fits(dense[0], layer)
        return kept.block if is_kept else quantize(*dense, layer)
    keeps = call.cache_weights
    if keeps is None:
        keeps = not has_gradients and not _may_change_unseen()
    if keeps:
        return kept.current(weights, dense, layer)
    kept.forget()
    return quantize(*dense, layer)


def _may_change_unseen() -> bool:
    """Tells whether weights may change without a new version: FSDP gathers them into the same memory so."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _with_main_grads(parameters: tuple, tensors: tuple, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward adds to the parameters' main_grad.

    The attributes are those of Megatron and Transformer Engine. They are set here and not in backward, where
    torch.compile of torch 2.11 sets none.
    """
    main, dummies, overwrites = take_main_grads(parameters, tensors[0])
    return MainGradFunction.apply(*tensors, *main, dummies, overwrites, layer)
