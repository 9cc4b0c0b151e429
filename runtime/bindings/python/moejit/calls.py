# SPDX-License-Identifier: Apache-2.0
"""Calls of layers and operations: their records, and the workspaces that they keep."""
from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any, Iterator, Mapping, NamedTuple

from moejit import records
from moejit.device import DL_CPU, DL_CUDA, Device, Memory
from moejit.errors import Error
from moejit.handle import Handle
from moejit.info import CallInfo, TensorInfo
from moejit.tensors import Given, Lease, Tensor, read_tensor

_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: a different stream in each thread
_BFLOAT, _UINT = 4, 1
_ALIGNMENT = 16  # bytes that kernels move at a time
_REACHABLE = {DL_CPU: (DL_CPU, 3), DL_CUDA: (DL_CUDA, 13)}  # 3: pinned memory, 13: managed memory


class Block(NamedTuple):
    """A workspace, saved or deferred block of a call."""
    address: int
    size: int
    keep: object
    is_read_only: bool = False


NO_BLOCK = Block(0, 0, None)


def read_block(name: str, value: object, device: Device, stream: int) -> Block:
    """Returns the caller's block: a Memory, or a tensor without gaps.

    Raises:
        Error: "tensor_mismatch": it is on another device, or has gaps.
        TypeError: It is no tensor.
    """
    if isinstance(value, Memory):
        lease = Lease(value)
        place, block = value.device._place, Block(lease.address, value.size, lease)
    else:
        given = read_tensor(name, value, stream)
        place = (given.tensor.device.device_type, given.tensor.device.device_id)
        block = Block(given.address, given.size, given, given.is_read_only)
        if not _is_contiguous(given.tensor):
            raise Error("tensor_mismatch", "launch", f"block {name}: its strides leave gaps")
    wanted = device._place
    if place[0] not in _REACHABLE[wanted[0]] or (place[0] == DL_CUDA and place[1] != wanted[1]):
        raise Error("tensor_mismatch", "launch",
                    f"block {name}: it is on DLPack's device {place[0]}, id {place[1]}, wanted {wanted[0]}, id "
                    f"{wanted[1]}, which is {device.name}")
    return block


def _is_contiguous(tensor: records.DLTensor) -> bool:
    wanted = 1
    for size, stride in zip(reversed(tensor.shape[:tensor.ndim]),
                            reversed(tensor.strides[:tensor.ndim] if tensor.strides else ())):
        if size != 1 and stride != wanted:
            return False
        wanted *= size
    return True


def _aligned(given: Given) -> Given:
    """Returns a tensor that a call only reads, as x[1:]. It is an aligned copy if the tensor lies in host memory."""
    tensor = given.tensor
    if tensor.device.device_type not in _REACHABLE[DL_CPU] or not _is_contiguous(tensor):
        return given
    memory = (ctypes.c_char * (given.size + _ALIGNMENT))()
    address = ctypes.addressof(memory)
    address += -address % _ALIGNMENT
    ctypes.memmove(address, given.address, given.size)
    copy = records.DLTensor.from_buffer_copy(tensor)
    copy.data, copy.byte_offset = address, 0
    return Given(copy, (given, memory), False)


class Blocks:
    """The workspaces that a prepared layer or operation keeps for calls that bring none, each for max_tokens.

    A workspace is free again when the kernels of its call are done. In the simulator this is when the call returns, on
    a GPU for the next call on the same stream.
    """

    def __init__(self, device: Device, workspace_bytes: int) -> None:
        self.device, self._size = device, workspace_bytes
        self._idle: list[Memory] = []  # for the simulator
        self._of_streams: dict[tuple[int, int], Memory] = {}  # for a GPU

    @contextlib.contextmanager
    def workspace(self, given: object, stream: int) -> Iterator[Block]:
        """Yields the workspace of a call to a `with` block."""
        if given is not None:
            yield read_block("workspace", given, self.device, stream)
        elif not self.device.is_simulator:
            thread = threading.get_ident() if stream == _PER_THREAD_STREAM else 0
            memory = self._of_streams.get((stream, thread))
            if memory is None:
                memory = self._of_streams.setdefault((stream, thread), self._allocate())
            yield Block(memory.address, memory.size, memory)
        else:
            try:
                memory = self._idle.pop()
            except IndexError:
                memory = self._allocate()
            yield Block(memory.address, memory.size, memory)
            self._idle.append(memory)

    def _allocate(self) -> Memory:
        return Memory(self.device, self._size, is_zeroed=False)


class CallRecord:
    """The record of one call of a plan, and everything that it points to."""

    def __init__(self, call: CallInfo, infos: Mapping[str, TensorInfo], tensors: Mapping[str, Any], workspace: Block,
                 saved: Block, deferred: Block, stream: int) -> None:
        self._held: list[Handle] = []
        given = [(name, _read(call, name, infos, value, stream)) for name, value in tensors.items()
                 if value is not None and (name in call.tensors or name not in infos)]
        named = (records.NamedTensor * len(given))()
        for index, (name, tensor) in enumerate(given):
            named[index].name, named[index].tensor = name.encode(), ctypes.pointer(tensor.tensor)
        for name, block in (("workspace", workspace), ("saved", saved), ("deferred", deferred)):
            if block.is_read_only and call.blocks[name] == records.WRITE:
                raise _read_only(f"block {name}", call)
        self._keep = (given, named, workspace, saved, deferred)
        held = [tensor.handle for _, tensor in given if tensor.handle is not None]
        Handle.acquire_all(held)
        self._held = held
        self.record = records.Call(tensors=named, tensor_count=len(given), workspace=workspace.address,
                                   workspace_bytes=workspace.size, saved=saved.address, saved_bytes=saved.size,
                                   stream=stream, deferred=deferred.address, deferred_bytes=deferred.size)

    def __del__(self) -> None:
        Handle.release_all(self._held)


def _read(call: CallInfo, name: str, infos: Mapping[str, TensorInfo], value: object, stream: int) -> Given:
    given = value.given() if type(value) is Tensor else read_tensor(name, value, stream)
    info = infos.get(name)
    if info is None:
        return given  # the library reports the error
    is_written = name in call.writes
    if is_written and given.is_read_only:
        raise _read_only(f"tensor {name}", call)
    tensor = given.tensor
    if info.dtype == "BF16" and tensor.dtype.code == _UINT and tensor.dtype.bits == 16:
        tensor = records.DLTensor.from_buffer_copy(tensor)
        tensor.dtype.code = _BFLOAT  # numpy lacks bf16; these are its bits
        given = Given(tensor, given, given.is_read_only, given.handle)
    # Small tensors, beside weights.
    may_copy = not is_written and (info.role in ("input", "dispatched") or name in ("b1", "b2"))
    return _aligned(given) if may_copy and given.address % _ALIGNMENT else given


def _read_only(what: str, call: CallInfo) -> Error:
    return Error("tensor_mismatch", "launch", f"{what}: it is read-only, and {call.name}() writes it")
