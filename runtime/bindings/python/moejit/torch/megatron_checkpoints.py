# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Megatron-Core's experts: each expert is an entry of its own there, and part of a tensor here."""
from __future__ import annotations

import functools
import re
from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.transformer.utils import make_sharded_object_for_checkpoint

LINEARS = ("linear_fc1", "linear_fc2")
KINDS = ("weight", "bias")
_STATE = ("amax_history", "scale", "grad_amax_history", "grad_scale")  # of each, where the recipe has a state
_EXTRA = "._extra_state"
_OF_STATE = re.compile(r"(?P<linear>linear_fc[12])\._extra_state(?P<expert>\d+)")
# Keys of one expert's parameters below a module of experts: SequentialMLP's, and TEGroupedMLP's.
_OF_ONE = re.compile(r"local_experts\.(?P<first>\d+)\.(?P<linear>linear_fc[12])\.(?P<kind>weight|bias)|"
                     r"(?P<linear_>linear_fc[12])\.(?P<kind_>weight|bias)(?P<first_>\d+)")


def sharded_state_dict(module: torch.nn.Module, prefix: str, sharded_offsets: tuple,
                       metadata: dict | None) -> dict[str, Any]:
    """Returns the sharded state dict of experts, with the keys and shards of SequentialMLP and TEGroupedMLP.

    Args:
        module: GroupedMLP, whose parameters have the dimension of experts in front.
        prefix, sharded_offsets, metadata: As for sharded_state_dict() of Megatron's modules.
    """
    is_singleton = bool((metadata or {}).get("singleton_local_shards", False))
    count = module.num_local_experts
    first, total = module.expert_rank * count, module.expert_ranks * count
    replica = (0, 0, module.data_rank)
    result = {}
    for linear in LINEARS:
        halves = 2 if linear == "linear_fc1" and module.config.gated_linear_unit else 1
        build = functools.partial(_shards, tuple(sharded_offsets), first, total, halves, is_singleton)
        for kind in KINDS:
            parameter = getattr(getattr(module, linear), kind)
            if parameter is not None:
                result[f"{prefix}{linear}.{kind}"] = ShardedTensorFactory(
                    f"{prefix}experts.{linear}.{kind}", parameter, build, functools.partial(_stacked, count), replica)
        for expert in range(first, first + count):  # the others write these and ask for them, whatever is in them
            key = f"{prefix}experts.{expert}.{linear}" if is_singleton else f"{prefix}experts.{linear}"
            offsets = () if is_singleton else ((len(sharded_offsets), expert, total),)
            result[f"{prefix}{linear}{_EXTRA}{expert - first}"] = make_sharded_object_for_checkpoint(
                _state_of(getattr(module, linear), count, expert - first), f"{key}{_EXTRA}",
                (*sharded_offsets, *offsets), replica_id=replica)
    return result


@torch.no_grad()
def _shards(offsets: tuple, first: int, total: int, halves: int, is_singleton: bool, key: str, tensor: torch.Tensor,
            replica_id: Any, flattened_range: slice | None = None) -> list[ShardedTensor]:
    """Returns the shards of a stacked tensor: for each expert one, or one of gate and one of up."""
    axis, shards = len(offsets), []
    head, tail = key.rsplit("experts.", 1)
    for expert, whole in enumerate(tensor, first):
        for half, part in enumerate(whole.chunk(halves)):
            if is_singleton:
                name = f"{head}experts.{expert}.{tail}" + (("_w", "_v")[half] if halves == 2 else "")
                places = offsets
            else:
                name = key
                places = (*offsets, (axis, expert, total), *([(axis + 1, half, halves)] if halves == 2 else []))
            shards.append(ShardedTensor.from_rank_offsets(name, part, *places, replica_id=replica_id,
                                                          prepend_axis_num=axis if is_singleton else axis + 1))
    return shards


@torch.no_grad()
def _stacked(count: int, parts: list[torch.Tensor]) -> torch.Tensor:
    """Returns the stacked tensor of what _shards() gave."""
    return torch.cat(parts).view(count, -1, *parts[0].shape[1:])


def _state_of(linear: torch.nn.Module, count: int, expert: int) -> dict[str, torch.Tensor] | None:
    """Returns what the scales of one of `count` experts follow from, if the recipe has a state."""
    return {name: _of_expert(tensor, count, expert).cpu() for name, tensor in linear.named_buffers()} or None


def _of_expert(tensor: torch.Tensor, count: int, expert: int) -> torch.Tensor:
    """Returns the columns of one of `count` experts in a tensor of a state."""
    return tensor.chunk(count, dim=-1)[expert]


@torch.no_grad()
def _take_states(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
    """Takes extra states out of a state dict, and puts the state of recipes that have one in their place.

    An expert without one of ours, as in checkpoints of other experts or recipes, begins with a first state.
    """
    found = {}
    for key in [key for key in state_dict if key.startswith(prefix) and _EXTRA in key[len(prefix):]]:
        value, match = state_dict.pop(key), _OF_STATE.fullmatch(key, len(prefix))
        if match is not None and isinstance(value, dict):
            found[match["linear"], int(match["expert"])] = value
    for linear in LINEARS:
        buffers = dict(getattr(module, linear).named_buffers())
        for name in _STATE:
            key = f"{prefix}{linear}.{name}"
            if name not in buffers:
                state_dict.pop(key, None)
            elif key not in state_dict:
                state_dict[key] = tensor = torch.full_like(buffers[name], getattr(module, linear).first_values[name])
                for expert in range(module.num_local_experts):
                    saved = found.get((linear, expert), {}).get(name)
                    part = _of_expert(tensor, module.num_local_experts, expert)
                    if saved is not None and saved.shape == part.shape:
                        part.copy_(saved)


def load_experts(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Stacks parameters and states of single experts in a state dict; a hook before loading.

    A parameter of which an expert is missing stays as it is, so that load_state_dict() tells of the keys.
    """
    found: dict[str, dict[int, str]] = {}
    _take_states(module, state_dict, prefix)
    for key in [key for key in state_dict if key.startswith(prefix)]:
        if (match := _OF_ONE.fullmatch(key, len(prefix))) is not None:
            of = {name.rstrip("_"): value for name, value in match.groupdict().items() if value is not None}
            found.setdefault(f"{prefix}{of['linear']}.{of['kind']}", {})[int(of["first"])] = key
    for stacked, keys in found.items():
        if sorted(keys) == list(range(module.num_local_experts)) and stacked not in state_dict:
            state_dict[stacked] = torch.stack([state_dict.pop(keys[expert]) for expert in sorted(keys)])
