# SPDX-License-Identifier: Apache-2.0
"""The devices of a group and its memory: torch's symmetric memory on GPUs, simulated ranks for CPU tensors."""
from __future__ import annotations

import dataclasses
import itertools

import torch
import torch.distributed as dist

from moejit import Device, GroupMember, SimulatorGroup
from moejit.torch import meetings
from moejit.torch.ranks import Ranks

# Simulated ranks that threads of this process share, by a number that rank 0 gives the others.
_simulators: dict[int, tuple[SimulatorGroup, meetings.Meeting]] = {}
_numbers = itertools.count()
_HEAP_BYTES = 64 << 20  # of a simulated rank at least, for several groups; memory that is not used costs nothing


@dataclasses.dataclass(frozen=True)
class GroupMemory:
    """The memory of all ranks, and this rank's device."""
    device: Device
    members: tuple[GroupMember, ...]  # none of a group over NCCL
    keep: object  # owns this rank's memory
    meeting: meetings.Meeting | None = None  # of simulated ranks


class Memories:
    """Opens the memory of a process group's groups. All ranks call it at the same time, for the same sizes."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        # All groups of CPU tensors lie in the heaps of the same simulated ranks. A simulated rank takes much of the
        # address space, for the stacks of its threads.
        self._simulator: SimulatorGroup | None = None
        self._meeting: meetings.Meeting | None = None
        self._used = 0

    def open(self, size: int, device: torch.device) -> GroupMemory:
        """Returns `size` bytes on each rank.

        Raises:
            RuntimeError: There is no such memory; the same sentence on all ranks.
        """
        if device.type == "cpu":
            return self._simulated(size, device)
        tensor = self._ranks.together(lambda: _allocate(size, device), device)
        return self._ranks.together(lambda: _rendezvous(self._ranks.process_group, tensor), device)

    def open_device(self, device: torch.device) -> GroupMemory:
        """Returns this rank's device alone, for a group whose kernels reach no peer.

        Raises:
            RuntimeError: There are no simulated ranks; the same sentence on all ranks.
        """
        if device.type == "cuda":
            return GroupMemory(Device.cuda(device.index), (), None)
        if self._simulator is None:
            self._open_simulator(_HEAP_BYTES, device)
        return GroupMemory(self._simulator.devices[self._ranks.rank], (), self._simulator, self._meeting)

    def _simulated(self, size: int, device: torch.device) -> GroupMemory:
        if self._simulator is None or self._used + size > self._simulator.memory_bytes:
            self._open_simulator(max(4 * size, _HEAP_BYTES), device)
        members = tuple(GroupMember(address + self._used, size) for address in self._simulator.addresses)
        self._used += -(-size // 256) * 256
        return GroupMemory(self._simulator.devices[self._ranks.rank], members, self._simulator, self._meeting)

    def _open_simulator(self, size: int, device: torch.device) -> None:
        ranks, number = self._ranks, next(_numbers)

        def open_for_all() -> None:
            if ranks.rank == 0:
                _simulators[number] = SimulatorGroup(ranks.size, size), meetings.Meeting(ranks.size)
        ranks.together(open_for_all, device)
        first = ranks.gather(number, device)[0]
        self._simulator, self._meeting = _simulators[first]
        self._used = 0
        ranks.gather(None, device)  # all have it
        if ranks.rank == 0:
            del _simulators[number]


def _allocate(size: int, device: torch.device) -> torch.Tensor:
    try:
        from torch.distributed import _symmetric_memory as symmetric_memory
        empty = symmetric_memory.empty
    except (ImportError, AttributeError):
        raise RuntimeError(f"moejit: unsupported: torch {torch.__version__} has no symmetric memory for process_group"
                           "\nhint: use torch 2.10 or newer, built with CUDA and torch.distributed") from None
    try:
        return empty(size, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        raise RuntimeError(f"moejit: out_of_memory: torch's symmetric memory gives no {size} bytes on {device}: {error}"
                           "\nhint: give the module fewer max_tokens") from error


def _rendezvous(process_group: dist.ProcessGroup, tensor: torch.Tensor) -> GroupMemory:
    from torch.distributed import _symmetric_memory as symmetric_memory
    try:
        handle = symmetric_memory.rendezvous(tensor, process_group)
    except RuntimeError as error:
        raise RuntimeError(f"moejit: unsupported: torch shares no memory between the GPUs of the process group: {error}"
                           "\nhint: `moejit env` tells which GPUs reach each other") from error
    offset = tensor.data_ptr() - handle.buffer_ptrs[handle.rank]
    members = tuple(GroupMember(base + offset if base else 0, tensor.numel()) for base in handle.buffer_ptrs)
    return GroupMemory(Device.cuda(tensor.device.index), members, (tensor, handle))
