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
        for expert in range(first, first + count):  # the others write these and ask for them; nothing is in them
            key = f"{prefix}experts.{expert}.{linear}" if is_singleton else f"{prefix}experts.{linear}"
            offsets = () if is_singleton else ((len(sharded_offsets), expert, total),)
            result[f"{prefix}{linear}._extra_state{expert - first}"] = make_sharded_object_for_checkpoint(
                None, f"{key}._extra_state", (*sharded_offsets, *offsets), replica_id=replica)
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


def stack_experts(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Stacks parameters of single experts in a state dict, and leaves extra states out; a hook before loading.

    A parameter of which an expert is missing stays as it is, so that load_state_dict() tells of the keys.
    """
    found: dict[str, dict[int, str]] = {}
    for key in [key for key in state_dict if key.startswith(prefix)]:
        if "._extra_state" in key[len(prefix):]:
            del state_dict[key]
        elif (match := _OF_ONE.fullmatch(key, len(prefix))) is not None:
            of = {name.rstrip("_"): value for name, value in match.groupdict().items() if value is not None}
            found.setdefault(f"{prefix}{of['linear']}.{of['kind']}", {})[int(of["first"])] = key
    for stacked, keys in found.items():
        if sorted(keys) == list(range(module.num_local_experts)) and stacked not in state_dict:
            state_dict[stacked] = torch.stack([state_dict.pop(keys[expert]) for expert in sorted(keys)])
