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

from moejit.torch.checks import check_cache_weights, name_of, user_name
from moejit.torch.hosted import HostedExperts
from moejit.torch.main_grads import MainGradError
from moejit.torch.megatron_checkpoints import KINDS, LINEARS, load_experts, sharded_state_dict
from moejit.torch.megatron_dispatch import dispatcher_of, join_experts_and_dispatchers
from moejit.torch.megatron_layers import check_config, fields_of, hidden_of

# A rank gets another number of rows in each step. The fewer sizes of layers, the fewer kernels a step may wait for.
_FEWEST_MAX_TOKENS = 256


class StackedLinear(torch.nn.Module):
    """The parameters of one linear layer of all experts: `weight` [E, rows, columns] and maybe `bias` [E, rows].

    With recipe "fp8_delayed" it also has the state that its scales follow from, float32 buffers.
    """

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

    def keep_state(self, first_state: dict[str, tuple[tuple[int, ...], float]]) -> None:
        """Makes buffers of a first state: shape and value of `amax_history`, `scale`, `grad_amax_history` and so on."""
        self.first_values = {name: value for name, (_, value) in first_state.items()}
        with torch.inference_mode(False):  # steps write these outside of inference mode, too
            for name, (shape, value) in first_state.items():
                self.register_buffer(name, torch.full(shape, value, dtype=torch.float32, device=self.weight.device))

    def _apply(self, fn: Callable, recurse: bool = True) -> StackedLinear:
        of_float32 = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, tensor in of_float32.items():
            if self._buffers[name].dtype != torch.float32:  # `to(bfloat16)` means weights: scales keep all bits
                setattr(self, name, tensor.to(self._buffers[name].device))
        return self

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
        for name, tensor in self._buffers.items():
            tensor.fill_(self.first_values[name])


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
        top_k = 0 if self.dispatcher is None else self.dispatcher.top_k
        layer = fields_of(config, num_local_experts, recipe, recompute, top_k, dispatch)
        try:
            self.hosted = HostedExperts(
                layer if max_tokens is None else {**layer, "max_tokens": max_tokens}, keeps_state=True,
                device=self.linear_fc1.weight.device, fewest_max_tokens=_FEWEST_MAX_TOKENS, cache_weights=cache_weights,
                fuse_wgrad_accumulation=bool(config.gradient_accumulation_fusion), splits_backward=True,
                delay_wgrad_compute=any(getattr(config, name, False) for name in delays))
        except RuntimeError as error:  # Megatron makes another of its class, which takes one argument
            raise RuntimeError(f"moejit: experts of Megatron: {str(error).removeprefix('moejit: ')}") from error
        for linear in LINEARS:
            short = linear.removeprefix("linear_") + "_"
            getattr(self, linear).keep_state({name.removeprefix(short): value
                                              for name, value in self.hosted.first_state.items()
                                              if name.startswith(short)})
        self._mark_parameters()
        self.register_load_state_dict_pre_hook(load_experts)
        if self.dispatcher is not None:
            join_experts_and_dispatchers()

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
        x, indices, probs = permuted_local_hidden_states, tokens_per_expert, permuted_probs
        parameters = self._parameters_of_calls()
        of_errors = {"owner": user_name(self), "names": tuple(parameters)}
        try:
            if self._is_fp8:
                return self.hosted.dispatched(indices, x, probs, *parameters.values(), **of_errors), None
            probs = probs.reshape(indices.shape if indices.dim() == 2 else -1)
            return self.hosted(x, indices, probs, *parameters.values(), state=self._scaling_state(), **of_errors), None
        except MainGradError as error:
            raise self._without_main_grad(error) from error

    def _scaling_state(self) -> tuple[torch.Tensor, ...]:
        """Returns the tensors of STATE; none if the recipe has no state."""
        return tuple([getattr(getattr(self, f"linear_{name[:3]}"), name[4:]) for name in self.hosted.first_state])

    def _without_main_grad(self, error: MainGradError) -> RuntimeError:
        """Returns the error in the words of Megatron."""
        name = f"{user_name(self)}.{tuple(self._parameters_of_calls())[error.index]}"
        if error.dtype is None:
            return RuntimeError(f"moejit: missing_tensor: {name} has no main_grad\nhint: Megatron's "
                                "DistributedDataParallel makes it; without it set gradient_accumulation_fusion=False")
        return RuntimeError(f"moejit: tensor_mismatch: {name}.main_grad is {name_of(error.dtype)}, other parameters "
                            "have another dtype\nhint: set grad_reduce_in_fp32 for all parameters alike, or "
                            "gradient_accumulation_fusion=False")

    def _parameters_of_calls(self) -> dict[str, torch.Tensor | None]:
        """Returns weights and biases by name, in the order of calls."""
        return {f"{linear}.{kind}": getattr(getattr(self, linear), kind)
                for kind, linear in itertools.product(KINDS, LINEARS)}

    def backward_dw(self) -> None:
        """Computes the gradients of weights and biases that the oldest backward pass has left, if there is one."""
        try:
            self.hosted.backward_dw()
        except MainGradError as error:
            raise self._without_main_grad(error) from error

    def register_wgrad_accumulation_and_reduce_hooks(self, hook: Callable[[], None]) -> None:
        """Makes backward_dw() call `hook` when the gradients of a pass are done, for Megatron's DDP.

        Raises:
            RuntimeError: The configuration has no delay_wgrad_compute.
        """
        self.hosted.call_after_backward_dw(hook)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple = (),
                           metadata: dict | None = None) -> dict[str, Any]:
        """Returns the sharded state dict, which is interchangeable with SequentialMLP's and TEGroupedMLP's."""
        return sharded_state_dict(self, prefix, sharded_offsets, metadata)

    def status(self) -> int:
        """Returns the status word of the last call, 0 if all was well. Waits for the device."""
        return self.hosted.status()

    def _apply(self, fn: Callable, recurse: bool = True) -> GroupedMLP:
        super()._apply(fn, recurse)
        self.hosted.place(self.linear_fc1.weight.device)
        self._mark_parameters()  # new parameters lose the marks
        return self

    def _mark_parameters(self) -> None:
        for linear in LINEARS:
            getattr(self, linear).mark_parameters(self.hosted.delayed is not None)

    def extra_repr(self) -> str:
        """Returns the text that print(module) shows."""
        return self.hosted.description


def _device_of(config: Any) -> torch.device | str | int:
    """Returns where Megatron makes the parameters of its linear layers."""
    if getattr(config, "init_model_with_meta_device", False):
        return "meta"
    return "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
