# SPDX-License-Identifier: Apache-2.0
"""Experts inside a module of another framework: everything that a call needs but the parameters."""
from __future__ import annotations

import json
from typing import Any, Callable

import torch

from moejit.torch.call import call_experts
from moejit.torch.checks import check_cache_weights, check_dtypes, raise_better
from moejit.torch.devices import on_device_of
from moejit.torch.dispatch import Exchange, call_dispatched
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.function import STATE
from moejit.torch.halves import DelayedGradients
from moejit.torch.layers import FEWEST_MAX_TOKENS, GRADIENTS, json_with, max_tokens_of
from moejit.torch.plans import plan_of
from moejit.torch.state import ExpertsCall, State

NAMES = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


class HostedExperts:
    """Computes the experts of a module that keeps their parameters itself, as modules of other frameworks do.

    Make one for each module and keep it in an attribute. It is no module and has no state of the model: a deep copy and
    a pickle start anew. Calls may come from one thread at a time.

    Args:
        layer: A layer description, as for moejit.torch.experts(), or with `"input": "grouped"` as for
            grouped_experts(). `max_tokens` may be left out: then each call takes the layer of the smallest power of two
            that its T does not exceed, `fewest_max_tokens` at least.
        device: Where calls will run; the layer is planned for it. None: the CPU.
        fewest_max_tokens: The smallest of these sizes. Each size has kernels of its own, so callers whose T changes in
            each step choose a large one.
        cache_weights: As for moejit.torch.Experts.
        fuse_wgrad_accumulation: Whether backward adds gradients of weights to `main_grad`, as for moejit.torch.Experts.
        delay_wgrad_compute: Whether backward leaves gradients of weights to backward_dw().
        splits_backward: Whether backward may be two steps of autograd where it takes less memory so. It has the same
            bits, and takes the host more time. Of grouped rows it may also cast the columns of FP8 weights itself,
            where the weights are parameters in bf16. Columns are then not held from forward on, and the weights are
            read once more.
        keeps_state: Whether calls bring the state of a recipe whose scales follow from the steps before. Each backward
            pass moves it on by a step.

    Attributes:
        first_state: Shape and first value of the state's tensors, float32, by name; empty if the recipe has none.

    Raises:
        RuntimeError: No layer can be planned; the sentence says why.

    Example:
        >>> self.hosted = HostedExperts({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128}, device="cuda")
        >>> y = self.hosted(x, topk_ids, topk_probs, self.w1, self.w2)
    """

    def __init__(self, layer: dict[str, Any] | str, *, device: torch.device | str | None = None,
                 fewest_max_tokens: int = FEWEST_MAX_TOKENS, cache_weights: bool | None = None,
                 fuse_wgrad_accumulation: bool = False, delay_wgrad_compute: bool = False,
                 splits_backward: bool = False, keeps_state: bool = False) -> None:
        check_cache_weights("HostedExperts()", cache_weights)
        self._fields = json.loads(layer) if isinstance(layer, str) else dict(layer)
        self._fewest, self._cache_weights, self._fuses = fewest_max_tokens, cache_weights, fuse_wgrad_accumulation
        self.delayed = DelayedGradients() if delay_wgrad_compute else None
        self._may_split, self._keeps_state = splits_backward, keeps_state
        place = torch.device("cpu" if device is None else device)
        self._state = State(place)
        gradients = GRADIENTS if self._fields.get("biases") else GRADIENTS[:4]
        call = self._make_call(max_tokens_of(fewest_max_tokens, self._fields.get("max_tokens")))
        planned = plan_of(call.usual_layer(torch.device("cpu") if place.type == "meta" else place, gradients))
        self._keeps_state = planned.has_state  # without one, calls take fewer steps
        self.first_state = {name: (planned.tensors[name].shape, planned.tensors[name].first_value)
                            for name in STATE if planned.has_state}

    def __call__(self, x: torch.Tensor, routing: torch.Tensor, probs: torch.Tensor, w1: torch.Tensor | FP8Weights,
                 w2: torch.Tensor | None = None, b1: torch.Tensor | None = None, b2: torch.Tensor | None = None, *,
                 state: tuple[torch.Tensor, ...] = (), is_sharded: bool = False, owner: str = "",
                 names: tuple[str, ...] = NAMES) -> torch.Tensor:
        """Computes the experts of chosen tokens, or of grouped rows. All but `routing` have gradients.

        The host does not wait for the device.

        Args:
            x: [T, H] bf16; under autocast any float dtype.
            routing: [T, K] int32 or int64: the experts of each token, -1: none. Of grouped rows [E]: their numbers,
                which may be on the host: they go to the device through pinned memory.
            probs: [T, K] float32 or bf16. Of grouped rows [T], of any float dtype.
            w1: [E, 2I, H] bf16, gate and then up unless the description says otherwise. Or fp8_weights()
                or mxfp4_weights(), without `w2`.
            w2: [E, H, I] bf16.
            b1: [E, 2I] bf16, if the description says `biases`.
            b2: [E, H] bf16, if the description says `biases`.
            state: The tensors of `first_state`, in its order.
            is_sharded: Whether the weights' memory is freed after the call and refilled before backward, as FSDP does.
            owner: The module's name, for errors.
            names: The parameters' names in the module, for errors.

        Returns:
            [T, H] bf16.

        Raises:
            RuntimeError: A tensor's dtype, shape or device is wrong, or main_grad of a parameter is.
        """
        call, parameters = self._call_of(x.numel() // x.shape[-1]), (w1, w2, b1, b2)
        if call.is_grouped:
            routing = on_device_of(x, routing)
        if torch.compiler.is_compiling():
            check_dtypes(owner, x, dict(zip(names, parameters)))
            return call_experts(call, x, routing, probs, *parameters, is_sharded=is_sharded, state=state)
        try:
            return call_experts(call, x, routing, probs, *parameters, is_sharded=is_sharded, state=state)
        except RuntimeError as error:
            raise_better(error, owner, x, dict(zip(names, parameters)))

    def dispatched(self, exchange: Exchange, x: torch.Tensor, probs: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor,
                   b1: torch.Tensor | None = None, b2: torch.Tensor | None = None, *, owner: str = "",
                   names: tuple[str, ...] = NAMES) -> torch.Tensor:
        """Computes the experts of tokens that an exchange sends to them in FP8, forward and backward.

        Args:
            exchange: Moves the rows. The layer's description has `"dispatch": "fp8"` and `"dispatch_calls": true`.
            x: [T, H] bf16, the tokens of this rank.
            probs: What the exchange gets as such, of any float dtype.
            w1, w2, b1, b2, owner, names: As of other calls.

        Returns:
            [T, H] bf16: what the exchange has combined.
        """
        parameters = w1, w2, b1, b2
        try:
            return call_dispatched(exchange, lambda rows: self._call_of(rows).description, x, probs.float(), parameters,
                                   self._state.keep_status, has_main_grads=self._fuses)
        except RuntimeError as error:
            raise_better(error, owner, x, dict(zip(names, parameters)))

    def _call_of(self, tokens: int) -> ExpertsCall:
        """Returns the common part of calls with so many tokens."""
        bound = max_tokens_of(max(tokens, self._fewest), self._fields.get("max_tokens"))
        if torch.compiler.is_compiling():
            return self._make_call(bound)
        call = self._state.calls.get(bound)
        if call is None:
            call = self._state.calls[bound] = self._make_call(bound)
        return call

    def _make_call(self, max_tokens: int) -> ExpertsCall:
        return ExpertsCall(description=json_with(self._fields, max_tokens=max_tokens), state=self._state,
                           cache_weights=self._cache_weights, fuse_wgrad_accumulation=self._fuses, delayed=self.delayed,
                           may_split=self._may_split, is_grouped=self._fields.get("input") == "grouped",
                           keeps_state=self._keeps_state, updates_scales=self._keeps_state)

    def backward_dw(self) -> None:
        """Computes the gradients of weights and biases that the oldest backward pass has left, if there is one."""
        if self.delayed is not None and self.delayed.queue:
            self.delayed.run_oldest()

    def call_after_backward_dw(self, hook: Callable[[], None]) -> None:
        """Makes backward_dw() call `hook` when the gradients of a pass are done.

        Raises:
            RuntimeError: There is no delay_wgrad_compute.
        """
        if self.delayed is None:
            raise RuntimeError("moejit: invalid_value: hooks of backward_dw() on experts without delay_wgrad_compute"
                               "\nhint: register the hook on the parameters")
        self.delayed.hooks.append(hook)

    @property
    def description(self) -> str:
        """The layer description as it was given, as JSON."""
        return json.dumps(self._fields)

    def place(self, device: torch.device) -> None:
        """Makes compiled calls on another device able to report their status. Call it when the parameters have moved."""
        self._state.place(device)

    def status(self) -> int:
        """Returns the status word of the last call, 0 if all was well (docs/embedding.md). Waits for the device."""
        return self._state.status_word()
