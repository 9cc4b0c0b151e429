# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with an FP8 all-gather: each rank quantizes its experts and sends codes and scales instead of bf16 weights."""
from __future__ import annotations

import json
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map_only

from moejit.torch.convert import description_of
from moejit.torch.devices import target_of
from moejit.torch.experts import Experts
from moejit.torch.gathered import GatheredWeight, dense, parts_of_block
from moejit.torch.layers import call_text
from moejit.torch.plans import plan_of
from moejit.torch.weights import quantize, version_of

_STASH = "_moejit_quantized_shard"


def enable_fp8_all_gather(module: torch.nn.Module) -> list[str]:
    """Makes FSDP2 gather the weights of experts as FP8 codes and scales: half the bytes, and the same results.

    Each rank quantizes its own experts, once for each gathering. Results and gradients have the same bits as with bf16
    weights that are gathered first and quantized then. Optimizers, gradients and state dicts see unchanged parameters.
    Call it before fully_shard(). It applies to moejit.torch.Experts and to modules that moejit.torch.convert() changed,
    in `module` and below. fully_shard() must shard the experts along dimension 0, and their number must be a multiple
    of the number of ranks.

    Args:
        module: The model, or a part of it.

    Returns:
        The names of the modules whose weights will be gathered this way.

    Raises:
        RuntimeError: There is no such module, a module's recipe has no FP8 weights, or its parameters are sharded
            already. No module is changed then.

    Example:
        >>> moejit.torch.fsdp.enable_fp8_all_gather(model)
        >>> for layer in model.layers:
        ...     fully_shard(layer)
        >>> fully_shard(model)
    """
    found = {name: child for name, child in module.named_modules() if description_of(child) is not None}
    if not found:
        raise RuntimeError("moejit: unsupported: no module here has experts of moejit\nhint: it takes "
                           "moejit.torch.Experts, and modules that moejit.torch.convert() changed")
    for name, child in found.items():
        _check(name, child)
    for child in found.values():
        _enable(child)
    return list(found)


class ShardedWeight(torch.Tensor):
    """A parameter of experts that FSDP gathers as FP8 codes and scales.

    The class wraps the plain tensor and behaves like that tensor. FSDP's shards are of this class too; all other
    results are plain tensors.

    Args:
        plain: The parameter's data.
        weight: "w1" or "w2".
    """
    plain: torch.Tensor
    weight: str

    @staticmethod
    def __new__(cls, plain: torch.Tensor, weight: str):
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, plain.shape, strides=plain.stride(), storage_offset=plain.storage_offset(), dtype=plain.dtype,
            device=plain.device, pin_memory=plain.device.type == "cpu" and plain.is_pinned())
        wrapper.plain = plain
        wrapper.weight = weight
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain_args, plain_kwargs = tree_map_only(ShardedWeight, lambda each: each.plain, (args, kwargs or {}))
        result = func(*plain_args, **plain_kwargs)
        if func._schema.name.endswith("_") and isinstance(args[0], ShardedWeight):
            return args[0]
        if func not in _KEPT or not isinstance(args[0], ShardedWeight):
            return result
        return tree_map_only(torch.Tensor, lambda each: ShardedWeight(each, args[0].weight), result)

    def __tensor_flatten__(self):
        return ["plain"], self.weight

    @staticmethod
    def __tensor_unflatten__(inner, weight, outer_size, outer_stride):
        return ShardedWeight(inner["plain"], weight)

    def __reduce_ex__(self, protocol):
        return ShardedWeight, (self.plain, self.weight)

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"ShardedWeight({self.weight}, {self.plain})"

    def fsdp_pre_all_gather(self, mesh, outer_size, outer_stride, module, mp_policy):
        """Returns what FSDP sends for this rank: the codes and scales of its experts. FSDP calls it."""
        if self.shape[1:] != outer_size[1:] or self.shape[0] * mesh.size() != outer_size[0]:
            raise RuntimeError(f"moejit: unsupported: {_name_of(module, self.weight)} {list(outer_size)} is sharded to "
                               f"{list(self.shape)} on {mesh.size()} ranks, wanted equal numbers of whole experts\n"
                               "hint: leave shard_placement_fn out, use a number of ranks that divides the number of "
                               "experts, or gather in bf16, without enable_fp8_all_gather()")
        codes, scales = _quantized_shard(module, self)
        # Nothing is gathered if there is one rank: FSDP then takes only the first tensor.
        return ((codes, scales), None) if mesh.size() > 1 else ((codes,), scales)

    def fsdp_post_all_gather(self, all_gather_outputs, metadata, param_dtype, *, out=None):
        """Returns a parameter made of all ranks' data, and the memory that FSDP manages. FSDP calls it."""
        codes = all_gather_outputs[0]
        scales = all_gather_outputs[1] if metadata is None else metadata
        if out is None:
            shape = codes.shape[:1] + self.shape[1:]
            return GatheredWeight(codes, scales, shape, param_dtype), all_gather_outputs
        out.codes, out.scales = codes, scales
        return None


_aten = torch.ops.aten
_KEPT = {_aten.detach.default, _aten.alias.default, _aten.clone.default, _aten.empty_like.default,
         _aten.new_zeros.default, _aten.slice.Tensor, _aten.split.Tensor, _aten.view.default, _aten.as_strided.default,
         _aten._to_copy.default, _aten._pin_memory.default}


def _parameters(module: torch.nn.Module) -> dict[str, str]:
    """Returns the names of the parameters w1 and w2."""
    return {"w1": "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj", "w2": "down_proj"}


def _name_of(module: torch.nn.Module, weight: str) -> str:
    return f"{type(module).__name__}.{_parameters(module)[weight]}"


def _check(name: str, module: torch.nn.Module) -> None:
    """Raises an error if the weights of a module cannot be gathered as codes."""
    for parameter in _parameters(module).values():
        if not isinstance(module._parameters.get(parameter), torch.nn.Parameter):
            raise RuntimeError(f"moejit: unsupported: {name}.{parameter} is no plain parameter\nhint: call "
                               "enable_fp8_all_gather() before parametrizations")
        if isinstance(module._parameters[parameter], DTensor):
            raise RuntimeError(f"moejit: unsupported: {name}.{parameter} is sharded already\nhint: call "
                               "enable_fp8_all_gather() before fully_shard()")
    description, _ = description_of(module)
    target = target_of(module.down_proj.device)
    planned = plan_of(call_text(description, target, (), "f32", keeps_state=True))
    if planned.has_state:
        raise RuntimeError(f"moejit: unsupported: {name} has the recipe {json.loads(description)['recipe']}, whose scales "
                           "belong to whole experts and follow from the steps before\nhint: leave "
                           "enable_fp8_all_gather() out: fully_shard() gathers bf16 then")
    if "w1_q" not in planned.tensors:
        raise RuntimeError(f"moejit: unsupported: {name} has the recipe {json.loads(description)['recipe']}, which "
                           "quantizes no weights\nhint: gather these in bf16; fp8_flow has FP8 weights")
    if isinstance(module, Experts) and module._call.fuse_wgrad_accumulation:
        raise RuntimeError(f"moejit: unsupported: {name} adds gradients to main_grad (fuse_wgrad_accumulation), which "
                           "parameters of FSDP2 do not have\nhint: leave fuse_wgrad_accumulation out")


def _enable(module: torch.nn.Module) -> None:
    for weight, name in _parameters(module).items():
        parameter = module._parameters[name]
        if isinstance(parameter, ShardedWeight):
            return
        made = torch.nn.Parameter(ShardedWeight(parameter.detach(), weight), parameter.requires_grad)
        made.__dict__.update({key: value for key, value in parameter.__dict__.items() if key not in made.__dict__})
        module._parameters[name] = made
    module.register_state_dict_post_hook(_unwrap_state)
    module.register_load_state_dict_post_hook(_wrap_again)
    module.register_forward_pre_hook(_check_wrapped)


def _check_wrapped(module: torch.nn.Module, args: tuple) -> None:
    """Raises an error if a parameter was replaced: it would silently be gathered in bf16."""
    for name in _parameters(module).values():
        parameter = module._parameters.get(name)
        local = parameter._local_tensor if isinstance(parameter, DTensor) else parameter
        if local is not None and not isinstance(local, (GatheredWeight, ShardedWeight)):
            raise RuntimeError(f"moejit: unsupported: {type(module).__name__}.{name} was replaced behind "
                               "enable_fp8_all_gather() and would be gathered in bf16\nhint: call it when the parameters "
                               "are there, right before fully_shard()")


def _unwrap_state(module: torch.nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Puts the plain tensors into a state dict. They share the parameters' memory, so loading into it works."""
    for name in _parameters(module).values():
        value = state.get(prefix + name)
        if isinstance(value, DTensor) and isinstance(value._local_tensor, ShardedWeight):
            state[prefix + name] = DTensor.from_local(value._local_tensor.plain.detach(), value.device_mesh,
                                                      value.placements, run_check=False, shape=value.shape,
                                                      stride=value.stride())
        elif isinstance(value, ShardedWeight):
            state[prefix + name] = value.plain.detach()


def _wrap_again(module: torch.nn.Module, incompatible: Any) -> None:
    """Wraps parameters that load_state_dict(assign=True) replaced. Runs before FSDP looks at them."""
    for weight, name in _parameters(module).items():
        parameter = module._parameters[name]
        if isinstance(parameter, DTensor):
            if not isinstance(parameter._local_tensor, ShardedWeight):
                parameter._local_tensor = ShardedWeight(parameter._local_tensor, weight)
        elif not isinstance(parameter, ShardedWeight):
            module._parameters[name] = torch.nn.Parameter(ShardedWeight(parameter.detach(), weight),
                                                          parameter.requires_grad)


def _quantized_shard(module: torch.nn.Module, asking: ShardedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns codes and scales of one weight of this rank's experts.

    The library quantizes both weights of a layer in one call, but FSDP asks for them one after the other. So the result
    for the other weight is kept until FSDP asks for it.
    """
    _check_wrapped(module, ())
    parameters = {weight: module._parameters[name] for weight, name in _parameters(module).items()}
    shards = {weight: parameter._local_tensor.plain for weight, parameter in parameters.items()}
    # Only the outermost tensor, which is the parameter, counts versions.
    made_of = ([shard.data_ptr() for shard in shards.values()],
               [version_of(parameter) for parameter in parameters.values()],
               asking.device)
    kept = module.__dict__.pop(_STASH, None)
    if kept is not None and kept[0] == made_of and kept[1] == asking.weight:
        return kept[2]
    # `asking` is a copy on the device if FSDP offloads parameters.
    shards = {weight: shard.to(asking.device, torch.bfloat16, non_blocking=True) for weight, shard in shards.items()}
    parts = _quantize(module, shards["w1"], shards["w2"])
    other = "w2" if asking.weight == "w1" else "w1"
    module.__dict__[_STASH] = (made_of, other, parts[other])
    return parts[asking.weight]


def _quantize(module: torch.nn.Module, w1: torch.Tensor, w2: torch.Tensor) -> dict[str, tuple[torch.Tensor, ...]]:
    """Quantizes the experts of this rank row-wise; returns codes and scales of both weights."""
    description, is_transposed = description_of(module)
    fields = json.loads(description) | {"experts": w1.shape[0], "local_experts": w1.shape[0], "top_k": 1}
    layer = call_text(json.dumps(fields), target_of(w1.device), (), "f32")
    block, _ = quantize(*dense(w1, w2, is_transposed), layer)
    parts = parts_of_block(block, layer)
    return {weight: (parts[weight + "_q"], parts[weight + "_scale_inv"]) for weight in ("w1", "w2")}
