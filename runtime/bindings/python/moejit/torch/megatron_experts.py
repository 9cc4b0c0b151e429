# SPDX-License-Identifier: Apache-2.0
"""Experts of Megatron-Core's MoE layers, which take rows in the order of experts."""
from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable

import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe.moe_utils import get_default_pg_collection

from moejit.torch.call import call_experts
from moejit.torch.checks import check_cache_weights, name_of, raise_better, user_name
from moejit.torch.devices import on_device_of, target_of
from moejit.torch.dispatch import Exchange, call_dispatched
from moejit.torch.halves import DelayedGradients
from moejit.torch.layers import GRADIENTS, call_text, max_tokens_of
from moejit.torch.main_grads import MainGradError
from moejit.torch.megatron_checkpoints import KINDS, LINEARS, sharded_state_dict, stack_experts
from moejit.torch.megatron_dispatch import dispatcher_of, replace_dispatcher
from moejit.torch.megatron_layers import check_config, description_of, fields_of, hidden_of
from moejit.torch.state import ExpertsCall, State

# A rank gets another number of rows in each step. The fewer sizes of layers, the fewer kernels a step may wait for.
_FEWEST_MAX_TOKENS = 256


class StackedLinear(torch.nn.Module):
    """The parameters of one linear layer of all experts: `weight` [E, rows, columns] and maybe `bias` [E, rows]."""

    def __init__(self, experts: int, rows: int, columns: int, *, bias: bool, init_method: Callable,
                 is_expert_parallel: bool, **options: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(experts, rows, columns, **options))
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(experts, rows, **options)) if bias else None)
        self._init_method, self._is_expert_parallel = init_method, is_expert_parallel
        self.mark_parameters()

    def mark_parameters(self, is_delayed: bool = False) -> None:
        """Tells Megatron's DDP and optimizers of the parameters: no other rank of a layer has these experts."""
        for parameter in self.parameters():
            parameter.allreduce = not self._is_expert_parallel
            parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, 1, 1
            if is_delayed:
                parameter.skip_backward_post_hook = True

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initializes each expert as a linear layer of Megatron, with the random numbers of this rank's experts."""
        tracker = get_cuda_rng_tracker()
        is_tracked = self.weight.is_cuda and tracker.is_initialized()
        with tracker.fork(get_expert_parallel_rng_tracker_name()) if is_tracked else contextlib.nullcontext():
            for weight in self.weight:
                self._init_method(weight)
        if self.bias is not None:
            self.bias.zero_()


class GroupedMLP(MegatronModule):
    """Experts that take the place of SequentialMLP and TEGroupedMLP; convert_spec() puts it into specs.

    Parameters: `linear_fc1.weight` [E, 2I, H], `linear_fc2.weight` [E, H, I], and with add_bias_linear
    `linear_fc1.bias` [E, 2I] and `linear_fc2.bias` [E, H], bf16. E counts this rank's experts. Distributed checkpoints
    have the keys and shards of SequentialMLP and TEGroupedMLP, and load_state_dict() takes state dicts of both.

    Args:
        num_local_experts, config, submodules, pg_collection, name: As Megatron-Core gives them; `submodules` and `name`
            mean nothing.
        recipe, recompute, max_tokens, cache_weights, input, dispatch: As for convert_spec().

    Raises:
        RuntimeError: The configuration asks for what moejit cannot do; the sentence says what, and what to do.
    """

    def __init__(self, num_local_experts: int, config: Any, submodules: Any = None, pg_collection: Any = None,
                 name: str | None = None, *, recipe: str = "fp8_flow", recompute: str = "none",
                 max_tokens: int | None = None, cache_weights: bool | None = None, input: str = "grouped",
                 dispatch: str = "bf16") -> None:
        super().__init__(config=config)
        groups = get_default_pg_collection() if pg_collection is None else pg_collection
        check_config(config, groups.expt_tp.size())
        check_cache_weights("GroupedMLP()", cache_weights)
        self.dispatcher, self._is_fp8 = dispatcher_of(config, input, dispatch), dispatch == "fp8"
        self.num_local_experts = num_local_experts
        self.expert_rank, self.expert_ranks, self.data_rank = groups.ep.rank(), groups.ep.size(), groups.expt_dp.rank()
        self._fields = fields_of(config, num_local_experts, recipe, recompute)
        self._max_tokens, self._cache_weights = max_tokens, cache_weights
        hidden, intermediate = hidden_of(config), config.moe_ffn_hidden_size
        options = {"bias": config.add_bias_linear, "is_expert_parallel": config.expert_model_parallel_size > 1,
                   "dtype": config.params_dtype, "device": _device_of(config)}
        rows = intermediate * (2 if config.gated_linear_unit else 1)
        self.linear_fc1 = StackedLinear(num_local_experts, rows, hidden, init_method=config.init_method, **options)
        self.linear_fc2 = StackedLinear(num_local_experts, hidden, intermediate,
                                        init_method=config.output_layer_init_method, **options)
        if config.perform_initialization and not self.linear_fc1.weight.is_meta:
            self.linear_fc1.reset_parameters()
            self.linear_fc2.reset_parameters()
        delays = ("delay_wgrad_compute", "overlap_dispatch_backward_with_experts_wgrad")
        self._delayed = DelayedGradients() if any(getattr(config, name, False) for name in delays) else None
        self._state = State(self.linear_fc1.weight.device)
        self._mark_parameters()
        self.register_load_state_dict_pre_hook(stack_experts)
        self._check_plan()

    def forward(self, permuted_local_hidden_states: torch.Tensor, tokens_per_expert: torch.Tensor,
                permuted_probs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Computes the experts of rows that lie in their order, or of tokens with the ids of their experts.

        Args:
            permuted_local_hidden_states: [T, H] bf16. Rows behind the last expert's may hold anything.
            tokens_per_expert: [E] integers, on the device of the rows or on the host. Of tokens [T, K] integers on
                their device, the experts of each; -1 and numbers from E on are no experts of this rank. Or an Exchange.
            permuted_probs: [T] float32, bf16 or float64; of tokens [T, K].

        Returns:
            [T, H] bf16, of tokens the sums of their experts, 0 for rows that have none; and no bias.

        Raises:
            RuntimeError: A tensor's dtype, shape or device is wrong, or main_grad of a parameter is.
        """
        x, indices = permuted_local_hidden_states, tokens_per_expert
        try:
            if not isinstance(indices, torch.Tensor):
                return self._call_dispatched(x, indices, permuted_probs), None
            top_k = indices.shape[1] if indices.dim() == 2 else 0
            y = call_experts(self._call_of(x.shape[0], top_k), x, on_device_of(x, indices),
                             permuted_probs.reshape(indices.shape if top_k else -1),
                             *self._parameters_of_calls().values())
        except MainGradError as error:
            raise self._without_main_grad(error) from error
        except RuntimeError as error:
            raise_better(error, user_name(self), x, self._parameters_of_calls())
        return y, None

    def _call_dispatched(self, tokens: torch.Tensor, exchange: Exchange, probs: torch.Tensor) -> torch.Tensor:
        """Computes the experts of tokens that an exchange sends to them in FP8."""
        return call_dispatched(exchange, lambda rows: self._description_of_dispatched(rows, exchange.top_k), tokens,
                               probs.float(), tuple(self._parameters_of_calls().values()), self._state.keep_status,
                               has_main_grads=bool(self.config.gradient_accumulation_fusion))

    def _description_of_dispatched(self, rows: int, top_k: int) -> str:
        """Returns the description of a layer whose rows an exchange moves."""
        return description_of(self._fields, self._bound_of(rows), top_k, dispatch="fp8", dispatch_calls=True)

    def _without_main_grad(self, error: MainGradError) -> RuntimeError:
        """Returns the error in the words of Megatron."""
        name = f"{user_name(self)}.{tuple(self._parameters_of_calls())[error.index]}"
        if error.dtype is None:
            return RuntimeError(f"moejit: missing_tensor: {name} has no main_grad\nhint: Megatron's "
                                "DistributedDataParallel makes it; without it set gradient_accumulation_fusion=False")
        return RuntimeError(f"moejit: tensor_mismatch: {name}.main_grad is {name_of(error.dtype)}, other parameters "
                            "have another dtype\nhint: set grad_reduce_in_fp32 for all parameters alike, or "
                            "gradient_accumulation_fusion=False")

    def _call_of(self, rows: int, top_k: int = 0) -> ExpertsCall:
        """Returns the common part of calls with so many rows, or tokens with so many choices; 0: rows."""
        bound = self._bound_of(rows)
        call = self._state.calls.get((bound, top_k))
        if call is None:
            call = self._state.calls[bound, top_k] = ExpertsCall(
                description=description_of(self._fields, bound, top_k), state=self._state,
                cache_weights=self._cache_weights, delayed=self._delayed, is_grouped=not top_k,
                fuse_wgrad_accumulation=bool(self.config.gradient_accumulation_fusion))
        return call

    def _bound_of(self, rows: int) -> int:
        """Returns max_tokens of the layer for so many rows."""
        return max_tokens_of(max(rows, _FEWEST_MAX_TOKENS), self._max_tokens)

    def _parameters_of_calls(self) -> dict[str, torch.Tensor | None]:
        """Returns weights and biases by name, in the order of calls."""
        return {f"{linear}.{kind}": getattr(getattr(self, linear), kind)
                for kind, linear in itertools.product(KINDS, LINEARS)}

    def _check_plan(self) -> None:
        """Raises an error if no layer can be planned."""
        device, top_k = self.linear_fc1.weight.device, 0 if self.dispatcher is None else self.dispatcher.top_k
        device = torch.device("cpu") if device.type == "meta" else device
        try:
            gradients = GRADIENTS if self.linear_fc1.bias is not None else GRADIENTS[:4]
            if self._is_fp8:
                call_text(self._description_of_dispatched(0, top_k), target_of(device), gradients, "bf16")
            else:
                self._call_of(0, top_k).usual_layer(device, gradients)
        except RuntimeError as error:  # Megatron makes another of its class, which takes one argument
            raise RuntimeError(f"moejit: experts of Megatron: {str(error).removeprefix('moejit: ')}") from error

    def backward_dw(self) -> None:
        """Computes the gradients of weights and biases that the oldest backward pass has left, if there is one."""
        if self._delayed is not None and self._delayed.queue:
            try:
                self._delayed.run_oldest()
            except MainGradError as error:
                raise self._without_main_grad(error) from error

    def register_wgrad_accumulation_and_reduce_hooks(self, hook: Callable[[], None]) -> None:
        """Makes backward_dw() call `hook` when the gradients of a pass are done, for Megatron's DDP.

        Raises:
            RuntimeError: The configuration has no delay_wgrad_compute.
        """
        if self._delayed is None:
            raise RuntimeError("moejit: invalid_value: hooks of backward_dw() on experts without delay_wgrad_compute"
                               "\nhint: register the hook on the parameters")
        self._delayed.hooks.append(hook)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple = (),
                           metadata: dict | None = None) -> dict[str, Any]:
        """Returns the sharded state dict, which is interchangeable with SequentialMLP's and TEGroupedMLP's."""
        return sharded_state_dict(self, prefix, sharded_offsets, metadata)

    def status(self) -> int:
        """Returns the status word of the last call, 0 if all was well. Waits for the device."""
        return self._state.status_word()

    def _apply(self, fn: Callable, recurse: bool = True) -> GroupedMLP:
        super()._apply(fn, recurse)
        self._state.place(self.linear_fc1.weight.device)
        self._mark_parameters()  # new parameters lose the marks
        return self

    def _mark_parameters(self) -> None:
        for linear in LINEARS:
            getattr(self, linear).mark_parameters(self._delayed is not None)

    def extra_repr(self) -> str:
        """Returns the text that print(module) shows."""
        return self._fields


def _join(layer: torch.nn.Module, _: str, part: torch.nn.Module | None) -> None:
    """Gives an MoE layer the dispatcher that its experts need, when the layer takes them.

    A subclass of MoELayer would not do. TransformerLayer of Megatron-Core 0.16 gives a model's process groups to
    MoELayer alone; subclasses would take the default groups.
    """
    if isinstance(part, GroupedMLP) and part.dispatcher is not None and hasattr(layer, "token_dispatcher"):
        replace_dispatcher(layer, part.dispatcher)


torch.nn.modules.module.register_module_module_registration_hook(_join)


def _device_of(config: Any) -> torch.device | str | int:
    """Returns where Megatron makes the parameters of its linear layers."""
    if getattr(config, "init_model_with_meta_device", False):
        return "meta"
    return "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
