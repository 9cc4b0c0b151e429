# SPDX-License-Identifier: Apache-2.0
"""Devices: GPUs and the simulator, and their memory."""
from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_void_p

from moejit import records
from moejit.buffers import Pinned
from moejit.errors import Error
from moejit.handle import Handle, Owner
from moejit.library import get_info, load
from moejit.streams import address_of

DL_CPU, DL_CUDA = 1, 2


def target_of_capability(major: int, minor: int) -> str:
    """Returns the target that is made for GPUs of a compute capability: "cuda:sm_90a" for 9 and 0. Asks no driver.

    Raises:
        Error: "unsupported": no target is for it.
    """
    target = c_void_p()
    load().moejit_target_of_capability(major, minor, byref(target))
    return ctypes.string_at(target.value).decode()


class Device(Owner):
    """A GPU, or the simulator, which runs kernels on the CPU. Device.cuda() and Device.simulator() make one.

    Attributes:
        name: "NVIDIA H200", or "simulator".
        target: Target of plans for this device: "cuda:sm_90a" of an H100, or "sim".
        sm_count: Number of streaming multiprocessors of a GPU.
    """

    def __init__(self, pointer: int) -> None:
        self._own(Handle(pointer, load().moejit_device_destroy, "the device"))
        info = get_info(records.DeviceInfo, "moejit_device_get_info", pointer)
        self.name, self.target, self.sm_count = info.name.decode(), info.target.decode(), info.sm_count
        self._place = (info.dl_device.device_type, info.dl_device.device_id)

    @classmethod
    def cuda(cls, ordinal: int | None = None) -> Device:
        """Opens a GPU: in the calling thread's current context if that belongs to it, else in its primary context.

        Args:
            ordinal: The GPU's number in CUDA's order for this process. None: the GPU of the current context, or the
                first one.

        Raises:
            Error: "driver_missing", "no_device", "unsupported" (no target is for its compute capability), "driver".
        """
        pointer = c_void_p()
        load().moejit_device_open_cuda(records.CURRENT_GPU if ordinal is None else ordinal, byref(pointer))
        return cls(pointer.value)

    @classmethod
    def simulator(cls, *, seed: int = 0, workers: int = 0) -> Device:
        """Opens the simulator, which is for tests, not for speed. Preparing layers for it needs a C++ compiler.

        Args:
            seed: Decides the order in which a kernel's threads run.
            workers: Number of host threads that run them; 0: one per core.

        Raises:
            Error: "invalid_value".
        """
        pointer = c_void_p()
        load().moejit_device_open_simulator(byref(records.SimulatorOptions(seed=seed, workers=workers)), byref(pointer))
        return cls(pointer.value)

    @property
    def is_simulator(self) -> bool:
        return self._place[0] == DL_CPU

    def allocate(self, size: int) -> Memory:
        """Returns `size` bytes of the device, filled with zeros and aligned to 256 bytes.

        Raises:
            Error: "out_of_memory", "invalid_value", "stream_capture", "driver".
        """
        return Memory(self, size)

    def synchronize(self, stream: object = None) -> None:
        """Waits until the kernels on a stream are done.

        Raises:
            Error: "driver", with the failure of an earlier kernel.
        """
        with self._handle.use() as device:
            load().moejit_device_synchronize(device, address_of(stream))

    def __repr__(self) -> str:
        return f"<moejit.Device {self.name}, target {self.target}>"


@functools.lru_cache(maxsize=None)
def shared_simulator() -> Device:
    """Returns the simulator that layers share if they are given no device."""
    return Device.simulator()


class Memory(Owner):
    """Bytes of a device, for example for `workspace` and `saved` of calls. Device.allocate() makes one.

    The bytes are freed with this object; on a GPU that waits for running kernels.

    Attributes:
        address: Where the bytes begin, in the device's address space.
        size: Number of bytes.
        device: The device of the bytes.
    """

    def __init__(self, device: Device, size: int, *, is_zeroed: bool = True) -> None:
        self.device, self.size = device, size
        pointer = c_void_p()
        owner = device._handle.acquire()  # until _free(), since a device outlives its memory
        try:
            load().moejit_device_allocate(owner, size, byref(pointer))
        except Error:
            device._handle.release()
            raise
        self.address = pointer.value or 0
        self._own(Handle(self.address, functools.partial(_free, device._handle), "the memory"))
        if size > 0 and is_zeroed:
            load().moejit_device_fill(owner, self.address, 0, size, None)
            load().moejit_device_synchronize(owner, None)  # kernels on other streams would not wait

    def write(self, source: object, offset: int = 0) -> None:
        """Copies all bytes of an object with a buffer (bytes, array, memoryview, numpy array) to `offset`.

        Raises:
            Error: "invalid_value": they do not fit.
        """
        with Pinned(source) as data, self._handle.use() as address, self.device._handle.use() as device:
            self._check(offset, data.size, "write")
            load().moejit_device_copy_to_device(device, address + offset, data.address, data.size)

    def read(self, size: int | None = None, offset: int = 0) -> bytes:
        """Returns `size` bytes from `offset` on, by default all. On a GPU, waits for the default stream.

        Raises:
            Error: "invalid_value": there are fewer bytes.
        """
        size = self.size - offset if size is None else size
        data = ctypes.create_string_buffer(size)
        with self._handle.use() as address, self.device._handle.use() as device:
            self._check(offset, size, "read")
            load().moejit_device_copy_to_host(device, data, address + offset, size)
        return data.raw

    def _check(self, offset: int, size: int, what: str) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Error("invalid_value", "load", f"{what} of {size} bytes at byte {offset}: the memory has {self.size}")

    def __repr__(self) -> str:
        return f"<moejit.Memory {self.size} bytes of {self.device.name}>"


def _free(device: Handle, address: int) -> None:
    try:
        load().moejit_device_release(device._pointer, address)
    finally:
        device.release()
