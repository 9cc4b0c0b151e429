# SPDX-License-Identifier: Apache-2.0
"""Eager calls like an earlier one: a record of what that call found out, and the checks that tell that it holds.

A call of a module asks torch some forty questions: dtypes, devices, autocast, which gradients are wanted, whether
weights have changed. Most answers are the same as in the call before. A record asks only what may have changed since,
in one function, and then runs the operator. Otherwise it declines, and moejit.torch.call does the whole call and makes
a new record. Records serve neither compiled nor exported calls, nor calls under a TorchDispatchMode.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from moejit.torch import ops
from moejit.torch.first_order import first_order
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.function import Options, gradients, kept_names, rows_of
from moejit.torch.layers import BLOCKS, WEIGHT_GRADIENTS, inputs_of, reads_of
from moejit.torch.own_gradient import memory_of_dx, with_ownership
from moejit.torch.plans import row_of
from moejit.torch.state import State
from moejit.torch.weights import KeptBlocks

_RENEWING = "update_weights+forward"  # quantizes the weights first, or only those that have changed
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_empty_like = torch.empty_like
_is_autocast_enabled = torch.is_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_are_transforms_active = torch._C._are_functorch_transforms_active
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead
_HAS_GRAD_DTYPE = hasattr(torch.Tensor, "grad_dtype")  # from torch 2.11 on
# Builds of torch without CUDA have neither of these.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


class _Inputs:
    """The tokens and the routing of the earlier call."""
    __slots__ = ("device", "device_type", "ids_dtype", "probs_dtype")

    def __init__(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor) -> None:
        self.device = x.device
        self.device_type = x.device.type
        self.ids_dtype = topk_ids.dtype
        self.probs_dtype = topk_probs.dtype

    def are_like(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor) -> bool:
        """Returns whether these tensors go to the same layer as they are. The operator checks shapes and x's dtype."""
        return (type(x) is _Tensor and type(topk_ids) is _Tensor and type(topk_probs) is _Tensor
                and x.dim() == 2 and x.device == self.device
                and topk_ids.dtype is self.ids_dtype and topk_probs.dtype is self.probs_dtype
                and x.is_contiguous() and topk_ids.is_contiguous() and topk_probs.is_contiguous()
                and not _is_autocast_enabled(self.device_type) and _dispatch_modes() == 0)


class Inference:
    """A record of a call without gradients whose quantized weights are kept.

    Args:
        given: x, topk_ids and topk_probs of the earlier call.
        none: A tensor without elements on their device.
        state: The module's state.
        kept: The quantized weights.
        layer: The text of the layer.
    """
    __slots__ = ("index", "inputs", "is_quantized", "kept", "layer", "none", "reads", "renews", "state", "status",
                 "written")

    def __init__(self, given: tuple, none: torch.Tensor, state: State, kept: KeptBlocks, layer: str) -> None:
        self.inputs = _Inputs(*given)
        self.none = none
        self.state = state
        self.kept = kept
        self.is_quantized = kept.blocks[0].numel() > 0
        self.index = self.inputs.device.index if self.inputs.device_type == "cuda" else None
        self.layer = layer
        self.reads = _places(reads_of(layer, "forward"), inputs_of(layer))
        self.renews = _places(reads_of(layer, _RENEWING), inputs_of(layer))
        self.written = tuple(argument.name for argument in row_of(layer, _RENEWING).writes)
        with torch.inference_mode(False):  # calls outside of that mode write it, too
            self.status = torch.empty(1, dtype=torch.int32, device=self.inputs.device)

    def run(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, w1: torch.Tensor,
            w2: torch.Tensor, b1: torch.Tensor | None, b2: torch.Tensor | None) -> torch.Tensor | None:
        """Returns y, or None if this call differs from the earlier one or PyTorch reports other weights.

        Changes that PyTorch does not report are looked for on the device, unless they are promised away. Needs
        no_grad().
        """
        kept = self.kept
        if (not self.inputs.are_like(x, topk_ids, topk_probs) or type(w1) is not _Parameter and type(w1) is not _Tensor
                or kept.blocks is None or not kept.is_made_of(w1, w2)
                or not w1.is_contiguous() or not w2.is_contiguous()):
            return None
        if self.index is not None:
            if _is_capturing():
                kept.is_pinned = True  # the memory has to stay for the graph
            elif _raw_stream(self.index) != kept.stream:
                return None  # this stream has to wait for the last one
        tensors = x, topk_ids, topk_probs, w1, w2, b1, b2, *kept.blocks, self.none
        if kept.is_promised or not self.is_quantized:
            y, *status = _call([tensors[place] for place in self.reads], "forward", self.layer)
            self.state.status = status[0] if status else None  # groups have a word of their own
            return y
        return self._renew(tensors)

    def _renew(self, tensors: tuple) -> torch.Tensor:
        """Quantizes changed weights again, and then returns y. All calls on the stream share the status word."""
        y = _empty_like(tensors[0])
        made = {"quantized": tensors[7], "y": y, "status": self.status}
        _call_([tensors[place] for place in self.renews], [made[name] for name in self.written], _RENEWING, self.layer)
        self.state.status = self.status if "status" in self.written else None
        return y


class InferenceOfCodes:
    """A record of a call without gradients whose weights are FP8 codes of the caller.

    Args:
        given: x, topk_ids and topk_probs of the earlier call.
        weights: Its weights; later ones may be others of the same kind and widths.
        has_biases: Whether it had biases.
        none: A tensor without elements on their device.
        state: The module's state.
        layer: The text of the layer.
    """
    __slots__ = ("facts", "has_biases", "inputs", "layer", "none", "reads", "state")

    def __init__(self, given: tuple, weights: FP8Weights, has_biases: bool, none: torch.Tensor, state: State,
                 layer: str) -> None:
        self.inputs = _Inputs(*given)
        self.facts = weights.kind, weights.hidden, weights.intermediate
        self.has_biases = has_biases
        self.none = none
        self.state = state
        self.layer = layer
        row = row_of(layer, "forward")
        names = tuple(argument.name for argument in row.named_reads or row.reads)
        self.reads = _places(names, (*inputs_of(layer)[:3], "b1", "b2", *weights.tensors))

    def run(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, w1: FP8Weights, w2: None,
            b1: torch.Tensor | None, b2: torch.Tensor | None) -> torch.Tensor | None:
        """Returns y, or None if this call differs from the earlier one. Needs no_grad()."""
        if (type(w1) is not FP8Weights or (w1.kind, w1.hidden, w1.intermediate) != self.facts or w2 is not None or (b1 is not None) != self.has_biases
                or (b2 is not None) != self.has_biases or not self.inputs.are_like(x, topk_ids, topk_probs)):
            return None
        tensors = x, topk_ids, topk_probs, b1, b2, w1.w1_q, w1.w1_scale_inv, w1.w2_q, w1.w2_scale_inv, self.none
        y, self.state.status = _call([tensors[place] for place in self.reads], "forward", self.layer)
        return y


class Training:
    """A record of a call with gradients that keeps no quantized weights and gives all gradients to autograd.

    Args:
        given: x, topk_ids and topk_probs of the earlier call.
        weights: w1, w2, b1 and b2 of the earlier call; None: absent.
        none: A tensor without elements on their device.
        state: The module's state.
        options: The call's, without a state and main gradients.
    """
    __slots__ = ("are_cast", "gradient_dtypes", "grad_dtypes", "inputs", "kept", "layer", "made", "none", "read_again",
                 "reads", "results_of", "state", "wanted")

    def __init__(self, given: tuple, weights: tuple, none: torch.Tensor, state: State, options: Options) -> None:
        x, _, topk_probs = given
        self.inputs = _Inputs(*given)
        self.none = none
        self.state = state
        self.gradient_dtypes = options.gradient_dtypes
        self.layer = layer = options.layer
        self.wanted = _wanted(x, topk_probs, *weights)
        self.grad_dtypes = _grad_dtypes(*weights)
        operands = inputs_of(layer)[:-len(BLOCKS)]
        self.reads = _places(reads_of(layer, _RENEWING), operands)
        self.made = row_of(layer, _RENEWING).made
        kept = kept_names(layer)
        self.kept = _places(kept, operands + self.made)
        self.read_again = _places(reads_of(layer, "backward"), (*kept, "dy"))
        self.results_of = row_of(layer, "backward").made
        dtypes = {argument.name: argument.dtype for argument in row_of(layer, "backward").writes}
        self.are_cast = any(dtypes.get(name, dtype) != dtype
                            for name, dtype in zip(WEIGHT_GRADIENTS, self.gradient_dtypes))

    def run(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_probs: torch.Tensor, w1: torch.Tensor,
            w2: torch.Tensor, b1: torch.Tensor | None, b2: torch.Tensor | None) -> torch.Tensor | None:
        """Returns y, or None if this call differs from the earlier one."""
        if (not self.inputs.are_like(x, topk_ids, topk_probs) or _are_transforms_active()
                or type(w1) is not _Parameter or type(w2) is not _Parameter
                or self.wanted != _wanted(x, topk_probs, w1, w2, b1, b2)
                or self.grad_dtypes != _grad_dtypes(w1, w2, b1, b2)
                or not w1.is_contiguous() or not w2.is_contiguous()):
            return None
        self.state.weights.forget()
        return self.apply(_unwrap_if_dead(x), _unwrap_if_dead(topk_ids), _unwrap_if_dead(topk_probs), w1, w2,
                          self.none if b1 is None else b1, self.none if b2 is None else b2, self)

    def results(self, wanted: tuple[bool, ...], made: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        """Returns the gradients for autograd from what backward has made."""
        made = dict(zip(self.results_of, made))
        if self.are_cast:
            return *gradients(wanted, made, self.gradient_dtypes), None
        of = made.get
        return (of("dx") if wanted[0] else None, None, of("dprobs") if wanted[2] else None,
                of("dw1") if wanted[3] else None, of("dw2") if wanted[4] else None, of("db1") if wanted[5] else None,
                of("db2") if wanted[6] else None, None)


def _places(names: Sequence[str], among: Sequence[str]) -> tuple[int, ...]:
    """Returns the places of names, for tensors in that order with one without elements behind them."""
    return tuple(among.index(name) if name in among else len(among) for name in names)


def _wanted(x, topk_probs, w1, w2, b1, b2) -> tuple[bool, ...]:
    """Returns which of the inputs of an operator want gradients, in its order; topk_ids have none."""
    return (x.requires_grad, False, topk_probs.requires_grad, w1.requires_grad, w2.requires_grad,
            b1 is not None and b1.requires_grad, b2 is not None and b2.requires_grad)


def _grad_dtypes(w1, w2, b1, b2) -> tuple[torch.dtype | None, ...]:
    """Returns what decides the dtypes of the gradients of weights and biases; see arguments.gradient_dtype()."""
    if not _HAS_GRAD_DTYPE:
        return w1.dtype, w2.dtype
    if b1 is None and b2 is None:
        return w1.grad_dtype, w2.grad_dtype
    return tuple(None if each is None or not each.is_leaf else each.grad_dtype for each in (w1, w2, b1, b2))


class _TrainingFunction(torch.autograd.Function):
    """Runs ExpertsFunction's calls with fewer values to keep; keeps the same tensors, as checkpoints demand."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, record):
        tensors = x, topk_ids, topk_probs, w1, w2, b1, b2, record.none
        made = _call([tensors[place] for place in record.reads], _RENEWING, record.layer)
        tensors = *tensors[:-1], *made
        ctx.save_for_backward(*[tensors[place] for place in record.kept])
        ctx.set_materialize_grads(False)
        ctx.record = record
        made = dict(zip(record.made, made))
        record.state.status = made.get("status")
        return made["y"]

    @staticmethod
    @first_order
    @with_ownership
    def backward(ctx, is_own, dy):
        record, rows = ctx.record, rows_of(dy)
        tensors = *ctx.saved_tensors, rows, record.none
        given = [tensors[place] for place in record.read_again]
        reused = memory_of_dx(record.layer, "backward", is_own, dy, rows)
        if reused:
            made = ops.run(record.layer, "backward", {**dict(zip(reads_of(record.layer, "backward"), given)), **reused})
            return record.results(ctx.needs_input_grad, [*map({**made, **reused}.get, record.results_of)])
        return record.results(ctx.needs_input_grad, _call(given, "backward", record.layer))


# Function.apply() looks for transforms of torch.func first, which takes as long as the rest. Training.run() has looked
# already.
Training.apply = staticmethod(super(torch.autograd.Function, _TrainingFunction).apply)
# What OpOverload.__call__ itself calls.
_call = ops.call._op
_call_ = ops.call_._op
