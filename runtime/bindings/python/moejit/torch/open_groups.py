# SPDX-License-Identifier: Apache-2.0
"""The groups of one process group: opened by the memory that peers reach or over NCCL, and opened anew."""
from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import torch

from moejit import Error, Group, GroupLayer, nccl_make_id
from moejit.torch.devices import target_of
from moejit.torch.group_memory import GroupMemory, Memories
from moejit.torch.plan_facts import Plan, plan_facts
from moejit.torch.ranks import Ranks

_LONGEST_MS = 24 * 60 * 60 * 1000  # that opening may wait


@dataclasses.dataclass
class OpenGroup:
    """A group that layers of equal exchanges share.

    Attributes:
        name: The group's in texts of layers.
        whole: The layer with all passes and gradients that it was opened for.
        timeout_ms: The longest of its layers.
    """
    name: str
    whole: GroupLayer
    group: Group
    memory: GroupMemory
    timeout_ms: int

    @property
    def is_nccl(self) -> bool:
        return transport_of(self.whole) == "nccl"

    def abort(self) -> None:
        """Ends calls that wait for a rank in NCCL."""
        self.group.abort()
        if self.is_nccl and self.memory.meeting is not None:
            self.memory.meeting.abort()


class Opener:
    """Opens groups of a process group. All ranks call its functions at the same time."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._memories = Memories(ranks)
        self._nccl_devices = Memories(ranks)  # a fault of simulated ranks ends everything on them

    def open(self, name: str, whole: GroupLayer, device: torch.device, timeout_ms: int) -> OpenGroup:
        """Returns a new group for layers with the same exchanges as `whole`.

        Raises:
            RuntimeError: It cannot be opened; the same sentence on all ranks.
        """
        together = self._ranks.together
        if transport_of(whole) == "peer":
            memory = self._memories.open(whole.info.memory_bytes, device)
            group = together(lambda: Group(whole, memory.device, memory.members), device)
            return OpenGroup(name, whole, group, memory, timeout_ms)
        memory, id = self._nccl_devices.open_device(device), self._id(device)
        group = together(lambda: Group.open_nccl(whole, memory.device, id, deadline_ms=min(timeout_ms, _LONGEST_MS)), device)
        return OpenGroup(name, whole, group, memory, timeout_ms)

    def open_anew(self, opened: list[OpenGroup], device: torch.device) -> None:
        """Replaces groups over NCCL, which are closed already, by new ones."""
        if device.type == "cpu":
            self._nccl_devices = Memories(self._ranks)
        for each in opened:
            new = self.open(each.name, each.whole, device, each.timeout_ms)
            each.group, each.memory = new.group, new.memory

    def _id(self, device: torch.device) -> bytes:
        """Returns the bytes that rank 0 made."""
        def make() -> bytes:
            if self._ranks.rank != 0:
                return b""
            return nccl_make_id() if device.type == "cuda" else secrets.token_bytes(128)
        return self._ranks.gather(self._ranks.together(make, device), device)[0]


def transport_of(layer: GroupLayer) -> str:
    """Returns what moves the bytes between a layer's ranks: "peer" or "nccl"."""
    return layer.description["expert_parallel"].get("transport", "peer")


def plan_layer(fields: dict[str, Any], device: torch.device, rank: int,
               timeout_ms: int) -> tuple[GroupLayer, Plan]:
    """Plans a rank's part of a layer for the target of a device."""
    layer = GroupLayer(fields, target_of(device), rank=rank, timeout_ms=timeout_ms)
    return layer, plan_facts(layer)


def plan_whole(fields: dict[str, Any], device: torch.device, rank: int, timeout_ms: int) -> GroupLayer:
    """Plans a layer with all passes and gradients, or as it is if it cannot be trained."""
    training = {name: value for name, value in fields.items() if name != "gradients"}
    try:
        return plan_layer({**training, "passes": ["forward", "backward"]}, device, rank, timeout_ms)[0]
    except Error:
        return plan_layer(fields, device, rank, timeout_ms)[0]
