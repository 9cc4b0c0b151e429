# SPDX-License-Identifier: Apache-2.0
"""The experts of a Mixture-of-Experts layer, as a module."""
from __future__ import annotations

import json
from typing import Any, Callable

import torch

from moejit.group_layer import GroupLayer
from moejit.layer import Layer
from moejit.torch import scales
from moejit.torch.backward_dw import BackwardDw
from moejit.torch.call import call_experts
from moejit.torch.checks import check_cache_weights, check_dtypes, name_of, raise_better, user_name
from moejit.torch.devices import target_of
from moejit.torch.function import STATE
from moejit.torch.gathered import is_sharded
from moejit.torch.groups import ProcessGroupLayers, fields_of_group, layers_of, plan_of_rank
from moejit.torch.halves import DelayedGradients
from moejit.torch.layers import GRADIENTS, refuse_separate
from moejit.torch.plans import plan
from moejit.torch.shared_weights import Whole, are_neighbors
from moejit.torch.state import ExpertsCall, State

_PARAMETERS = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")

# The module keeps the work that backward leaves; a graph could not.
_call_eagerly = torch.compiler.disable(call_experts, reason="moejit: experts with delay_wgrad_compute run outside of "
                                       "compiled graphs, since backward_dw() computes part of backward later; leave "
                                       "delay_wgrad_compute out for one graph")


def _call_of_delayed() -> Callable[..., torch.Tensor]:
    """Returns the function for a call of a module that may delay gradients of weights."""
    # Dynamo replaces is_exporting() by True in each of its graphs.
    is_exported = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    return _call_eagerly if torch.is_grad_enabled() and not is_exported else call_experts


def _place_state(module: Experts, _: Any) -> None:
    """Follows parameters when load_state_dict(assign=True) has put others, of another device, in their place."""
    module._join_memory()
    module._state.place(module.gate_up_proj.device)


class Experts(BackwardDw):
    """Experts with the parameters of transformers' modules: `gate_up_proj`, `down_proj`, and biases.

    The state dict has these parameters and, with recipe "fp8_delayed", the state that its scales follow from:
    `fc1_amax_history`, `fc1_scale`, `fc1_grad_amax_history`, ..., float32 buffers.

    Args:
        num_experts: All experts. Without `process_group` they are all on this rank: E.
        hidden_size: H.
        intermediate_size: I.
        top_k: K.
        max_tokens: The largest T of a call.
        recipe: "fp8_flow", "bf16", ...
        activation: A preset's name, or an object with a preset's parameters or a formula.
        bias: Whether there are `gate_up_proj_bias` [E, 2I] and `down_proj_bias` [E, H].
        gate_up_layout: "concat" or "interleaved".
        recompute: "none" or "moe_expert".
        fuse_wgrad_accumulation: Whether backward adds the weights' gradients to their attribute `main_grad`, float32 or
            bfloat16 of their shape, as Megatron and Transformer Engine do.
        delay_wgrad_compute: Whether backward leaves the gradients of weights and biases to backward_dw(), as Megatron
            and Transformer Engine do for pipeline schedules.
        cache_weights: Whether quantized weights are kept between calls, which look whether they are still right. None:
            calls without gradients keep them. docs/weights.md says what is seen.
        process_group: Ranks that share the experts, a GPU each: each has E = num_experts / R of them, in the order of
            ranks, and its own tokens. All ranks make the same calls, each with a T of its own, and the same backward
            passes. docs/expert-parallelism.md says more.
        transport: What moves the bytes between the ranks. "peer": kernels that reach the memory of the other GPUs of
            one host. "nccl": NCCL, between GPUs of any hosts.
        combine: "partial": results of a rank's experts are added there and rounded, and home adds the sums. "rows":
            home adds the results of all experts, with the bits of one rank that has all tokens.
        sms: SMs that kernels of the exchange take, with transport "peer"; None: all. The others are left to kernels of
            other streams.
        timeout_ms: How long a call with `process_group` waits for another rank; over NCCL how long status() does, and
            opening a group.
        margin: Powers of two that scales leave as headroom; this and the next four only with recipe "fp8_delayed".
        amax_history_len: Steps whose largest magnitudes count for scales; 1024 by default.
        amax_compute_algo: "max", the largest of these steps, or "most_recent".
        gradient_format: "e5m2" or "e4m3"; also with recipe "fp8_current".
        update_scales_in_backward: Whether the scales move on by a step behind each backward pass of the module, as
            Transformer Engine's do. False: only update_scales() moves them.
        splits_alignment: Each expert's rows start at a multiple of it. None: by the call's recipe, passes and rows,
            as a layer description without the field.
        num_shared_experts: n experts that every token has beside its K, each I wide, with parameters of their own:
            `shared_gate_up_proj` [n, 2I, H], `shared_down_proj` [n, H, I], and biases. With `process_group` all ranks
            have them, and their gradients are sums over a rank's own tokens: reduce them as those of other weights.
        shared_gate: Whether forward() takes the factor of each token's shared experts.
        device: Device of the parameters.
        dtype: Dtype of the parameters; the library takes bf16.

    Raises:
        RuntimeError: No layer can be planned with these arguments; the sentence says why.
    """

    def __init__(self, num_experts: int, hidden_size: int, intermediate_size: int, top_k: int, *, max_tokens: int,
                 recipe: str = "fp8_flow", activation: str | dict[str, Any] = "swiglu", bias: bool = False,
                 gate_up_layout: str = "concat", recompute: str = "none", fuse_wgrad_accumulation: bool = False,
                 delay_wgrad_compute: bool = False, cache_weights: bool | None = None,
                 process_group: torch.distributed.ProcessGroup | None = None, transport: str = "peer",
                 combine: str = "partial", sms: int | None = None, timeout_ms: int = 600_000,
                 margin: int | None = None, amax_history_len: int | None = None, amax_compute_algo: str | None = None,
                 gradient_format: str | None = None, update_scales_in_backward: bool = True,
                 splits_alignment: int | None = None, num_shared_experts: int = 0, shared_gate: bool = False,
                 device: torch.device | str | None = None, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        check_cache_weights("Experts()", cache_weights)
        if dtype not in (torch.bfloat16, torch.float32):
            raise RuntimeError(f"moejit: invalid_value: Experts(): dtype: got {name_of(dtype)}, wanted bfloat16, or float32 "
                               "for calls under autocast")
        if num_shared_experts and fuse_wgrad_accumulation:
            raise RuntimeError("moejit: unsupported: fuse_wgrad_accumulation with num_shared_experts, whose gradients "
                               "backward makes in one tensor with the others\nhint: leave fuse_wgrad_accumulation out")
        group = None if process_group is None else layers_of(process_group)
        fields = {
            "experts": num_experts, "top_k": top_k, "hidden": hidden_size, "intermediate": intermediate_size,
            "recipe": recipe, "activation": activation, "biases": bias, "gate_up_layout": gate_up_layout,
            "recompute": recompute, "max_tokens": max_tokens, "passes": ["forward", "backward"]}
        optional = {"margin": margin, "amax_history_len": amax_history_len, "amax_compute_algo": amax_compute_algo,
                    "gradient_format": gradient_format, "splits_alignment": splits_alignment}
        fields.update((name, value) for name, value in optional.items() if value is not None)
        if num_shared_experts or shared_gate:
            fields.update(shared={"experts": num_shared_experts, "gate": shared_gate})
        if group is not None:
            if delay_wgrad_compute:
                raise RuntimeError("moejit: unsupported: delay_wgrad_compute with process_group\nhint: leave one of them "
                                   "out: backward of a group is whole")
            fields.update(fields_of_group(group.ranks, recipe, combine, transport, sms))
        elif (transport, combine, sms) != ("peer", "partial", None):
            raise RuntimeError("moejit: invalid_value: transport, combine or sms of experts without process_group\nhint: "
                               "give the ranks that share the experts as process_group, or leave them out")
        refuse_separate(fields)
        self.description = json.dumps(fields)
        planned = plan(self.description, "sim") if group is None else plan_of_rank(self.description, group.ranks)
        held_experts, rows, _ = planned.tensors["w1"].shape
        options = {"device": device, "dtype": dtype}
        shapes = (rows, hidden_size), (hidden_size, intermediate_size), (rows,), (hidden_size,)
        self._shared, self._whole = num_shared_experts, Whole()
        for name, shape in zip(_PARAMETERS, shapes):
            has_it = bias or not name.endswith("_bias")
            whole = torch.empty(held_experts, *shape, **options) if has_it else None
            for own, part in zip(*self._parts(name, whole)):
                self.register_parameter(own, None if part is None else torch.nn.Parameter(part))
        self._state_names = STATE if planned.has_state else ()
        self._first_values = [planned.tensors[name].first_value for name in self._state_names]
        with torch.inference_mode(False):  # steps write these outside of inference mode, too
            for name in self._state_names:
                self.register_buffer(name, torch.empty(planned.tensors[name].shape, dtype=torch.float32, device=device))
        self._state = State(self.gate_up_proj.device)
        self._call = ExpertsCall(description=self.description, state=self._state, cache_weights=cache_weights,
                                 fuse_wgrad_accumulation=fuse_wgrad_accumulation,
                                 delayed=DelayedGradients() if delay_wgrad_compute else None, group=group,
                                 timeout_ms=timeout_ms, keeps_state=planned.has_state,
                                 updates_scales=planned.has_state and update_scales_in_backward)
        self.register_load_state_dict_post_hook(_place_state)
        self._mark_parameters()
        self.reset_parameters()

    def _parts(self, name: str, whole: torch.Tensor | None) -> tuple[tuple[str, ...], tuple[torch.Tensor | None, ...]]:
        """Returns the names of the parameters that hold the experts, and their parts of one tensor of all experts."""
        if not self._shared:
            return (name,), (whole,)
        names = name, f"shared_{name}"
        return names, (None, None) if whole is None else (whole[:-self._shared], whole[-self._shared:])

    def _join_memory(self) -> None:
        """Makes parameters lie behind each other again, so that no call copies them."""
        self._whole = Whole()
        for name in _PARAMETERS if self._shared else ():
            routed, shared = getattr(self, name), getattr(self, f"shared_{name}")
            if routed is not None and not are_neighbors(routed, shared):
                whole = torch.cat((routed.detach(), shared.detach()))
                routed.data, shared.data = self._parts(name, whole)[1]

    def reset_parameters(self) -> None:
        """Draws weights from a normal distribution that gives results the inputs' scale, and sets biases to 0.

        Scales of recipe "fp8_delayed" become 1, and their histories 0.

        With `process_group` each rank draws all experts and keeps its own, so that experts differ if all ranks have one
        seed.
        """
        group = self._call.group
        ranks, rank = (1, 0) if group is None else (group.ranks.size, group.ranks.rank)
        for weight in (self.gate_up_proj, self.down_proj):
            std = weight.shape[-1] ** -0.5
            for other in range(ranks):
                torch.nn.init.normal_(weight if other == rank else torch.empty_like(weight), std=std)
        if self._shared:  # behind the others, so that these are as without
            for weight in (self.shared_gate_up_proj, self.shared_down_proj):
                torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
        for name, bias in self.named_parameters():
            if name.endswith("_bias"):
                torch.nn.init.zeros_(bias)
        for tensor, value in zip(self._scaling_state(), self._first_values):
            torch.nn.init.constant_(tensor, value)

    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                shared_probs: torch.Tensor | None = None, *, is_first_microbatch: bool | None = None,
                skip_update: torch.Tensor | None = None) -> torch.Tensor:
        """Computes the experts of chosen tokens.

        Args:
            hidden_states: [T, H] bf16; under autocast any float dtype.
            top_k_index: [T, K] int32 or int64; -1: none.
            top_k_weights: [T, K] float32 or bf16.
            shared_probs: [T] float32 or bf16, with `shared_gate`: the factors of the shared experts' results.
            is_first_microbatch: True: quantizes the weights and keeps them. False: uses the kept ones, so the weights
                must not have changed. None: the module decides.
            skip_update: [1] int32: if it is not 0 when the kernels run, the kept weights are not quantized again. For
                CUDA graphs, which cannot branch on the host.

        Returns:
            [T, H] bf16.

        Raises:
            RuntimeError: A tensor's dtype, shape or device is wrong.
        """
        if torch.compiler.is_compiling():
            check_dtypes(user_name(self), hidden_states, self._parameters)
            return self._run(hidden_states, top_k_index, top_k_weights, shared_probs, is_first_microbatch, skip_update)
        try:
            if is_first_microbatch is None and skip_update is None:
                record = self._call.training if torch.is_grad_enabled() else self._call.inference
                own = self._parameters  # from where modules keep them: each attribute access would take 0.5 us
                if record is not None and len(own) == 4 and not is_sharded(self):
                    y = record.run(hidden_states, top_k_index, top_k_weights, own["gate_up_proj"], own["down_proj"],
                                   own["gate_up_proj_bias"], own["down_proj_bias"])
                    if y is not None:
                        return y
            return self._run(hidden_states, top_k_index, top_k_weights, shared_probs, is_first_microbatch, skip_update)
        except RuntimeError as error:
            raise_better(error, user_name(self), hidden_states, self._parameters)

    def _run(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
             shared_probs: torch.Tensor | None, is_first_microbatch: bool | None,
             skip_update: torch.Tensor | None) -> torch.Tensor:
        run = call_experts if self._call.delayed is None else _call_of_delayed()
        return run(self._call, hidden_states, top_k_index, top_k_weights, *self._weights(),
                   is_first_microbatch=is_first_microbatch, skip_update=skip_update, is_sharded=is_sharded(self),
                   state=self._scaling_state(), shared_probs=shared_probs)

    def _weights(self) -> tuple[torch.Tensor | None, ...]:
        """Returns weights and biases of all experts, which may be parametrized."""
        routed = self.gate_up_proj, self.down_proj, self.gate_up_proj_bias, self.down_proj_bias
        if not self._shared:
            return routed
        return tuple(None if own is None else self._whole.join(name, own, getattr(self, f"shared_{name}"))
                     for name, own in zip(_PARAMETERS, routed))

    def _scaling_state(self) -> tuple[torch.Tensor, ...]:
        """Returns the tensors of STATE; none if the recipe has no state."""
        return tuple([getattr(self, name) for name in self._state_names])

    def update_scales(self, amax_reduction_group: torch.distributed.ProcessGroup | None = None) -> None:
        """Moves the scales of recipe "fp8_delayed" on by a step, for forward and for gradients.

        Call it once a step, when the backward passes of all microbatches are done, if the module has
        `update_scales_in_backward=False`. Scales follow from what calls have recorded since the last update. An expert
        without a record keeps its scales. It runs on the current stream, and may be captured.

        Args:
            amax_reduction_group: Ranks with copies of these experts, whose scales then stay equal: they reduce what
                they have recorded, with max. All of them call this. docs/pytorch.md says when.

        Raises:
            RuntimeError: The recipe has no such scales.
        """
        if not self._state_names:
            raise RuntimeError(f'moejit: unsupported: update_scales() of recipe "{json.loads(self.description)["recipe"]}", '
                               'whose scales do not follow from the steps before\nhint: only "fp8_delayed" has such '
                               "scales: leave update_scales() out")
        state = self._scaling_state()
        if amax_reduction_group is not None:
            scales.reduce_amaxes([state], amax_reduction_group)
        layer = self._state.trained_layer
        if layer is None:
            layer = self._call.usual_layer(self.gate_up_proj.device, GRADIENTS[:4])
        scales.update(dict(zip(STATE, state)), layer)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._join_memory()
        self._state.place(self.gate_up_proj.device)
        self._mark_parameters()

    def _apply(self, fn: Callable, recurse: bool = True) -> Experts:
        of_float32 = [getattr(self, name) for name in self._state_names]
        super()._apply(fn, recurse)
        self._join_memory()
        for name, tensor in zip(self._state_names, of_float32):
            if getattr(self, name).dtype != torch.float32:  # `to(bfloat16)` means weights: scales keep all bits
                setattr(self, name, tensor.to(getattr(self, name).device))
        self._state.place(self.gate_up_proj.device)
        if self._state_names:
            self._state.trained_layer = None  # the module may be on another device
        self._mark_parameters()
        return self

    def _mark_parameters(self) -> None:
        """Says to Megatron's DDP who makes and who sums gradients. New parameters lose these marks.

        backward_dw() makes delayed gradients, and ranks of a group have no experts in common.
        """
        if self._call.group is not None:
            for name, parameter in self.named_parameters():
                parameter.allreduce = name.startswith("shared_")
        if self.need_backward_dw():
            for parameter in self.parameters():
                parameter.skip_backward_post_hook = True

    def update_weights(self) -> None:
        """Quantizes the weights now, and promises that they change only before the next call of update_weights().

        Calls without gradients then do not look for changes. Call it after each change of the weights; an eager call
        with gradients takes the promise back.
        """
        with torch.no_grad():
            gate_up_proj, down_proj, *_ = self._weights()
        self._state.keep_weights(self._call, gate_up_proj, down_proj, self._scaling_state())

    def status(self) -> int:
        """Returns the status word of the last call, 0 if all was well. Waits for the device.

        Compiled calls have a word of their own: the result combines the last compiled call's word with the last eager
        call's.

        With `process_group` the word covers all calls on the process group since reset_group(), and is the same on all
        ranks. After a rank that was silent for timeout_ms (bit 256) results mean nothing.

        Raises:
            RuntimeError: Calls of a group over NCCL were aborted, by abort_group() or because they have kept this
                function waiting for timeout_ms; or NCCL has lost a rank. Call reset_group() on all ranks.
        """
        if self._call.group is not None:
            return self._call.group.status()
        return self._state.status_word()

    def abort_group(self) -> None:
        """Ends calls of groups over NCCL that wait for a rank which does not come. Any thread may call it.

        It counts for all modules on the process group. Results of these calls mean nothing, and further calls are
        errors until reset_group(). With transport "peer" it does nothing: there calls end after timeout_ms.

        Raises:
            RuntimeError: The module was made without process_group.
        """
        self._group("abort_group").abort()

    def reset_group(self) -> None:
        """Makes the process group's layers work again after a silent rank, and clears the status word.

        All ranks have to call it, once for all modules on the process group, and none may be in a call of these
        modules. Groups over NCCL are opened anew: this ends calls under way, on other ranks too. Graphs captured before
        cannot be replayed any more.

        Raises:
            RuntimeError: The module was made without process_group.
        """
        self._group("reset_group").reset()

    def _group(self, function: str) -> ProcessGroupLayers:
        if self._call.group is None:
            raise RuntimeError(f"moejit: invalid_value: {function}() of a module without process_group\nhint: only groups "
                               "of ranks keep a state")
        return self._call.group

    def plan(self, *, has_gradients: bool = True) -> Layer:
        """Returns the module's layer, planned on the parameters' device: its tensors, `sizes(T)` and `place(name, T)`.

        With `process_group` it is this rank's part, a GroupLayer; no other rank has to call this. Close it, or use it
        in a `with` block.

        Args:
            has_gradients: False: the layer of calls without gradients, which saves nothing and pads as little as the
                recipe allows.
        """
        fields = json.loads(self.description)
        if not has_gradients:
            fields["passes"] = ["forward"]
        target = target_of(self.gate_up_proj.device)
        if self._call.group is None:
            return Layer(fields, target)
        return GroupLayer(fields, target, rank=self._call.group.ranks.rank)

    def explain(self, *, has_gradients: bool = True) -> str:
        """Returns plan() as text, with a reason for each choice."""
        with self.plan(has_gradients=has_gradients) as layer:
            return layer.explain()

    def extra_repr(self) -> str:
        """Returns the text that print(module) shows."""
        fields = json.loads(self.description)
        return ", ".join(f"{name}={fields[name]}" for name in ("experts", "top_k", "hidden", "intermediate", "recipe",
                                                               "max_tokens"))
