# SPDX-License-Identifier: Apache-2.0
"""Groups: GPUs that share the experts of layers, and reach each other's memory or let NCCL move the bytes."""
from __future__ import annotations

import dataclasses
import secrets
from ctypes import byref, c_uint8, c_uint32, c_void_p
from typing import Sequence

from moejit import records
from moejit.device import Device
from moejit.errors import Error
from moejit.handle import Handle, Owner
from moejit.layer import Layer
from moejit.library import load
from moejit.nccl import ID_BYTES, open_wheel
from moejit.streams import address_of


@dataclasses.dataclass(frozen=True)
class GroupMember:
    """The memory of one rank, as this process reaches it."""
    address: int  # a multiple of 256
    bytes: int  # at least memory_bytes of the layer's info
    identity: str | None = None  # GroupLayer.identity of the rank's layer; None for all: the caller compares them


class Group(Owner):
    """One rank's end of a group. All its calls, of whatever layer, are one order of work, the same on all ranks.

    Layers may share a group if their ranks, combine, max_tokens, top_k, hidden and dispatch are equal. The group must
    be made for a layer with all their passes and gradients. A group whose object is collected is closed: calls of its
    layers are then "invalid_state".

    Attributes:
        device: The device of this rank.
        rank, ranks: The number of this rank, and of all.
    """

    def __init__(self, layer: Layer, device: Device, members: Sequence[GroupMember]) -> None:
        """Adopts the memory of all ranks; fills this rank's with zeros and waits for that.

        No rank may make a call before all have adopted: wait for each other then. The memory stays the caller's, and
        lives until all ranks are done with it.

        Args:
            layer: Any layer of the group, of this rank.
            device: The device of this rank.
            members: The memory of each rank, by rank.

        Raises:
            Error: "invalid_value": another number of members than ranks, or memory that is null, unaligned, too small
                or given twice; "tensor_mismatch": identities differ, with the field and the ranks.
        """
        given = (records.GroupMember * len(members))(
            *(records.GroupMember(member.address, member.bytes,
                                  None if member.identity is None else member.identity.encode())
              for member in members))
        pointer = c_void_p()
        with layer._handle.use() as of, device._handle.use() as place:
            load().moejit_group_adopt(of, place, given, len(members), byref(pointer))
        self._take(layer, device, pointer)

    @classmethod
    def open_nccl(cls, layer: Layer, device: Device, id: bytes, *, deadline_ms: int = 60000) -> Group:
        """Opens a group whose bytes NCCL moves, between GPUs of any hosts, of a layer with "transport": "nccl".

        Waits until all ranks have come and have described their layers; from then on each may make calls.

        Args:
            layer: Any layer of the group, of this rank.
            device: The device of this rank: a GPU, or one of a SimulatorGroup, whose ranks meet by any 128 bytes that
                are those of one group alone, and wait for nothing.
            id: What nccl_make_id() gave one of the ranks.
            deadline_ms: How long it waits for ranks to come, and then for what they tell.

        Raises:
            Error: "interrupted": a rank did not come in time; "tensor_mismatch": layers differ, with the field and the
                ranks; "unsupported": a layer with another transport; "driver_missing", "driver", "out_of_memory";
                "invalid_value": another number of bytes.
        """
        if len(id) != ID_BYTES:
            raise Error("invalid_value", "load", f"id has {len(id)} bytes, wanted {ID_BYTES}",
                        "let one rank call moejit.nccl_make_id(), and bring its bytes to all others")
        if not device.is_simulator:
            open_wheel()
        pointer = c_void_p()
        with layer._handle.use() as of, device._handle.use() as place:
            load().moejit_group_open_nccl(of, place, (c_uint8 * ID_BYTES)(*id), deadline_ms, byref(pointer))
        return cls.__new__(cls)._take(layer, device, pointer)

    @classmethod
    def adopt_nccl(cls, layer: Layer, device: Device, communicator: int) -> Group:
        """Makes such a group of a communicator that the caller has. Waits until all ranks have told their layers.

        Make no other call with it while calls of the group may be under way, and destroy it behind the group. abort()
        does not end calls that wait for a lost rank: abort the communicator.

        Args:
            layer: Any layer of the group, of this rank.
            device: The GPU of the communicator.
            communicator: The address of an ncclComm_t of the libnccl.so.2 that this process has open, with the ranks of
                the layer.

        Raises:
            Error: As open_nccl(), but for "interrupted"; "invalid_value": it is 0, or has other ranks.
        """
        pointer = c_void_p()
        with layer._handle.use() as of, device._handle.use() as place:
            load().moejit_group_adopt_nccl(of, place, communicator, byref(pointer))
        return cls.__new__(cls)._take(layer, device, pointer)

    def _take(self, layer: Layer, device: Device, pointer: c_void_p) -> Group:
        self.device, self.rank, self.ranks = device, layer.info.rank, layer.info.ranks
        self._own(Handle(pointer.value, load().moejit_group_destroy, "the group"))
        return self

    def abort(self) -> None:
        """Ends calls of a group over NCCL that wait for a rank which does not come. Any thread may call it.

        What they computed means nothing, and further calls are "invalid_state": open another group on all ranks, and
        prepare layers for it. Does nothing to other groups.
        """
        with self._handle.use() as group:
            load().moejit_group_abort(group)

    def status(self) -> int:
        """Returns the status word: 0, or bits that calls since clear_status() have set, the same on all ranks.

        Waits for the default stream; wait for other streams before. moejit.check_status() has sentences for the bits of
        experts. After a rank that was not heard of in time (bit 256, and 65536 << r for rank r) calls are
        "invalid_state" until reset().
        """
        word = c_uint32()
        with self._handle.use() as group:
            load().moejit_group_status(group, byref(word))
        return word.value

    def clear_status(self, *, stream: object = None) -> None:
        """Clears the status word in the order of the stream. All ranks call it between the same two calls.

        Raises:
            Error: "invalid_state": the group takes no calls.
        """
        with self._handle.use() as group:
            load().moejit_group_clear_status(group, address_of(stream))

    def reset(self) -> None:
        """Makes the group work again after a silent rank, or after a call that failed in the middle.

        No rank may be in a call, and none may make one before all are reset: wait for each other before and behind.

        Raises:
            Error: "invalid_state": a group over NCCL that was aborted, or that has lost a rank: open another one.
        """
        with self._handle.use() as group:
            load().moejit_group_reset(group)

    def __repr__(self) -> str:
        return f"<moejit.Group, rank {self.rank} of {self.ranks} on {self.device.name}>"


class SimulatorGroup:
    """Simulated GPUs of one process that reach each other's memory, for tests of groups without GPUs.

    A rank's kernels run when somebody waits for it or reads its memory. So make the calls of all ranks before, and keep
    tensors and blocks until synchronize().

    Attributes:
        devices: A Device for each rank.
        addresses: Where the memory of each rank begins, which lives as long as one of the devices.
        memory_bytes: The bytes of each.
    """

    def __init__(self, ranks: int, memory_bytes: int, *, seed: int = 0) -> None:
        """Opens the devices.

        Args:
            ranks: 1 to 8.
            memory_bytes: Bytes of each rank's memory: memory_bytes of a layer's info.
            seed: Decides every order.

        Raises:
            Error: "invalid_value", "out_of_memory".
        """
        if not 1 <= ranks <= 8:
            raise Error("invalid_value", "load", f"ranks is {ranks}, wanted 1 to 8")
        devices, memory = (c_void_p * ranks)(), (c_void_p * ranks)()
        load().moejit_device_open_simulator_group(ranks, memory_bytes, seed, devices, memory)
        self.devices = tuple(Device(device) for device in devices)
        self.addresses, self.memory_bytes = tuple(memory), memory_bytes

    def adopt(self, layers: Sequence[Layer]) -> list[Group]:
        """Returns the group of each rank, given each rank's layer; processes with GPUs make one each.

        Raises:
            Error: As Group().
        """
        members = [GroupMember(address, self.memory_bytes, layer.identity)
                   for address, layer in zip(self.addresses, layers)]
        return [Group(layer, device, members) for layer, device in zip(layers, self.devices)]

    def open_nccl(self, layers: Sequence[Layer]) -> list[Group]:
        """Returns the group of each rank, of layers with "transport": "nccl", whose bytes the simulator moves.

        Raises:
            Error: As Group.open_nccl().
        """
        id = secrets.token_bytes(ID_BYTES)
        return [Group.open_nccl(layer, device, id) for layer, device in zip(layers, self.devices)]

    def synchronize(self) -> None:
        """Waits until the kernels of all ranks are done. A device waits only for its own rank's kernels.

        Raises:
            Error: "simulator_fault": a kernel broke a rule, or ranks wait for each other for ever.
        """
        for device in self.devices:
            device.synchronize()
