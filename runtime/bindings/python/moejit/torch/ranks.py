# SPDX-License-Identifier: Apache-2.0
"""The ranks of a process group: who they are, and what they tell each other before calls are made."""
from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from moejit.errors import Error

_Result = TypeVar("_Result")


class Place(NamedTuple):
    """Where a rank is."""
    host: str
    process: int
    gpu: str  # the identity of its GPU; empty for CPU tensors


class Ranks:
    """The ranks of a process group, as one of them sees them. All of them call its functions at the same time."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self._process_group = weakref.ref(process_group)  # ends with torch's, and what belongs to it then too
        self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)
        if self.rank < 0:
            raise RuntimeError("moejit: invalid_value: argument process_group: this process is not in it\nhint: make "
                               "the module on the ranks of the process group alone")

    @property
    def process_group(self) -> dist.ProcessGroup:
        process_group = self._process_group()
        if process_group is None:
            raise RuntimeError("moejit: invalid_state: the process group of the module was destroyed\nhint: make the "
                               "module with a process group that lives as long as its calls")
        return process_group

    def gather(self, value: Any, device: torch.device) -> list[Any]:
        """Returns what each rank gives, by rank. Waits for all of them."""
        gathered = [None] * self.size
        # A compiler may be at work, whose modes would see the tensors of the collective.
        with _disable_current_modes(), torch.no_grad(), _current(device):
            dist.all_gather_object(gathered, value, group=self.process_group)
        return gathered

    def together(self, function: Callable[[], _Result], device: torch.device) -> _Result:
        """Calls a function on each rank and returns its result here when it has succeeded on all.

        Raises:
            RuntimeError: It failed on a rank. The same sentence on all ranks: that of the first which failed.
        """
        result, failure = None, None
        try:
            result = function()
        except Exception as error:  # whatever it is, the other ranks must not wait for this one
            failure = error
        told = self.gather(None if failure is None else sentence_of(failure), device)
        for rank, sentence in enumerate(told):
            if sentence is not None:
                raise RuntimeError(sentence if len(set(told)) == 1 else f"{sentence}\n(told by rank {rank})") from failure
        return result

    def compare(self, identity: str, device: torch.device, transport: str) -> None:
        """Checks that all ranks have planned the same, and that they can be a group.

        Args:
            identity: GroupLayer.identity.
            device: The device of this rank's tensors.
            transport: "peer" or "nccl".

        Raises:
            RuntimeError: The same sentence on all ranks.
        """
        told = self.gather((identity, place_of(device), transport), device)
        check_places([place for _, place, _ in told], told[0][2])
        first = _fields(told[0][0])
        for rank, (other, *_) in enumerate(told):
            for name, value in _fields(other).items():
                if first.get(name) != value:
                    raise RuntimeError(f"moejit: tensor_mismatch: ranks 0 and {rank} of the process group differ in "
                                       f"{name}: {first.get(name)} and {value}, wanted the same\nhint: make the same "
                                       "module on all ranks, with parameters and tokens that want the same gradients, "
                                       "and the same calls")


def sentence_of(error: Exception) -> str:
    """Returns an error of the library or of torch as operators tell it: "moejit: CODE: MESSAGE", and the hint."""
    if isinstance(error, Error):
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return f"moejit: {error.code}: {error.message}{hint}"
    text = str(error)
    return text if text.startswith("moejit") else f"moejit: internal: {text}"


def place_of(device: torch.device) -> Place:
    """Returns where this process or thread is."""
    gpu = "" if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)
    return Place(socket.gethostname(), os.getpid(), gpu)


def check_places(places: list[Place], transport: str) -> None:
    """Checks that ranks at these places can be a group: a GPU each, or threads of one process on the CPU.

    With the transport "peer" their GPUs are of one host and reach each other.

    Raises:
        RuntimeError: They cannot.
    """
    for rank, place in enumerate(places):
        if bool(place.gpu) != bool(places[0].gpu):
            raise RuntimeError(f"moejit: unsupported: tensors of ranks 0 and {rank} are on a GPU and on the CPU\nhint: "
                               "move the module on all ranks to GPUs")
        if place.host != places[0].host and place.gpu and transport == "peer":
            raise RuntimeError(f"moejit: unsupported: ranks 0 and {rank} of the process group are on the hosts "
                               f"{places[0].host} and {place.host}, wanted GPUs of one host, whose kernels reach each "
                               'other\nhint: make the module with transport="nccl", or with a process group of the '
                               "ranks of each host")
        if not place.gpu and place[:2] != places[0][:2]:
            raise RuntimeError("moejit: unsupported: the ranks of the process group are processes with CPU tensors, "
                               "which run in the simulator, whose ranks are threads of one process\nhint: move the "
                               "module to GPUs, one for each rank")
        if place.gpu and place.gpu in [other.gpu for other in places[:rank]]:
            raise RuntimeError(f"moejit: unsupported: rank {rank} of the process group has the GPU of another rank, "
                               "wanted one for each\nhint: call torch.cuda.set_device() with the local rank, and move "
                               "the module there")
    for other in range(torch.cuda.device_count() if places[0].gpu and transport == "peer" else 0):
        for own in range(torch.cuda.device_count()):
            pair = [str(torch.cuda.get_device_properties(each).uuid) for each in (own, other)]
            if own != other and set(pair) <= {place.gpu for place in places} and not torch.cuda.can_device_access_peer(
                    own, other):
                raise RuntimeError(f"moejit: unsupported: GPU {own} cannot access the memory of GPU {other}, wanted "
                                   'ranks on GPUs that reach each other\nhint: make the module with transport="nccl"; '
                                   "`moejit env` tells which GPUs reach each other")


@contextlib.contextmanager
def _current(device: torch.device) -> Iterator[None]:
    """Makes a GPU torch's current one, on which collectives of objects put their tensors."""
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        yield


def _fields(identity: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in identity.splitlines())
