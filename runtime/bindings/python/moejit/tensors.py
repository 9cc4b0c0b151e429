# SPDX-License-Identifier: Apache-2.0
"""Tensors of calls, taken from frameworks, numpy or plain memory, in the form that the library reads."""
from __future__ import annotations

import ctypes
import math
from ctypes import c_char_p, c_int64, c_void_p, py_object
from typing import Any, Sequence

from moejit.buffers import Pinned
from moejit.device import DL_CPU, DL_CUDA, Memory
from moejit.errors import Error
from moejit.handle import Handle
from moejit.records import DLDataType, DLDevice, DLTensor
from moejit.streams import dlpack_number_of

_DL_CUDA_MANAGED = 13
_INT, _UINT, _FLOAT, _BFLOAT, _FLOAT8_E4M3FN, _FLOAT8_E5M2, _FLOAT8_E8M0FNU = 0, 1, 2, 4, 10, 12, 14  # DLPack's type codes
_DTYPES = {
    "BF16": (_BFLOAT, 16), "F16": (_FLOAT, 16), "F32": (_FLOAT, 32), "F64": (_FLOAT, 64),
    "F8_E4M3": (_FLOAT8_E4M3FN, 8), "F8_E5M2": (_FLOAT8_E5M2, 8), "F8_E8M0": (_FLOAT8_E8M0FNU, 8), "I8": (_INT, 8), "I16": (_INT, 16), "I32": (_INT, 32), "I64": (_INT, 64),
    "F4_E2M1X2": (_UINT, 8),  # bytes of two numbers
    "U8": (_UINT, 8), "U16": (_UINT, 16), "U32": (_UINT, 32), "U64": (_UINT, 64),
}
_NUMPY_NAMES = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}  # names in ml_dtypes
_KINDS = {"f": _FLOAT, "e": _FLOAT, "d": _FLOAT, "?": _UINT, "c": _UINT}
_TYPESTR = {"BF16": "<u2", "F8_E4M3": "|u1", "F8_E5M2": "|u1", "F8_E8M0": "|u1"}  # dtypes that numpy lacks are shown as their bits

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = c_char_p, (py_object,)
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, (py_object, c_char_p)


class _Versioned(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""
    _fields_ = [("version", ctypes.c_uint32 * 2), ("manager_ctx", c_void_p), ("deleter", c_void_p),
                ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


class Tensor:
    """A tensor over plain memory, row-major without gaps.

    For CPU memory, numpy.asarray() returns an array over the same memory. Dtypes that numpy lacks are shown as their
    bits: BF16 as uint16, F8_E4M3 as uint8.

    Attributes:
        memory: A moejit.Memory, or an object with a buffer: bytearray, array, memoryview, ...
        dtype: "BF16", "F32", "I32", "U32", "F8_E4M3", ..., as in plans.
        shape: Sizes of the dimensions.
    """

    def __init__(self, memory: Memory | Any, dtype: str, shape: Sequence[int]) -> None:
        """Makes a tensor from the first elements of a memory.

        Raises:
            Error: "invalid_value": the dtype does not exist, or the memory is too small.
        """
        if dtype not in _DTYPES:
            raise Error("invalid_value", "launch", f'dtype is "{dtype}", wanted one of {", ".join(_DTYPES)}')
        self.memory, self.dtype, self.shape = memory, dtype, tuple(map(int, shape))
        self._kept: tuple[Memory | None, str, tuple[int, ...], Given | None] = (None, "", (), None)  # what given() made
        size = memory.size if isinstance(memory, Memory) else memoryview(memory).nbytes
        if self.size > size or min(self.shape, default=0) < 0:
            raise Error("invalid_value", "launch",
                        f"a tensor {dtype} {list(self.shape)} has {self.size} bytes, its memory {size}")

    def given(self) -> Given:
        """Returns the tensor as calls read it; over a Memory an object that is kept, whose handle the call acquires."""
        memory, dtype, shape, given = self._kept
        if memory is self.memory and dtype == self.dtype and shape == self.shape:
            return given
        dtype = _DTYPES[self.dtype]
        if isinstance(self.memory, Memory):
            memory = self.memory
            given = _make(memory.address, dtype, self.shape, None, memory, False, memory.device._place, memory._handle)
            self._kept = (memory, self.dtype, self.shape, given)
            return given
        pinned = Pinned(self.memory)
        return _make(pinned.address, dtype, self.shape, None, pinned, pinned.is_read_only)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * _DTYPES[self.dtype][1] // 8

    def write(self, source: object) -> None:
        """Copies the bytes of an object with a buffer into the tensor; it must have as many bytes as the tensor.

        Raises:
            Error: "invalid_value": the object has more or fewer bytes.
        """
        with Pinned(source) as data:
            if data.size != self.size:
                raise Error("invalid_value", "load", f"write of {data.size} bytes into a tensor of {self.size}")
            if isinstance(self.memory, Memory):
                return self.memory.write(source)
        memoryview(self.memory).cast("B")[:self.size] = memoryview(source).cast("B")

    def read(self) -> bytes:
        """Returns the tensor's bytes. On a GPU, waits for the default stream."""
        if isinstance(self.memory, Memory):
            return self.memory.read(self.size)
        return bytes(memoryview(self.memory).cast("B")[:self.size])

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if isinstance(self.memory, Memory):
            if not self.memory.device.is_simulator:
                raise AttributeError("the tensor is on a GPU: numpy cannot see it, read() copies it")
            address, is_read_only = self.memory.address, False
        else:
            with Pinned(self.memory) as pinned:
                address, is_read_only = pinned.address, pinned.is_read_only
        code, bits = _DTYPES[self.dtype]
        typestr = _TYPESTR.get(self.dtype, f"{'|' if bits == 8 else '<'}{'iuf'[code % 3]}{bits // 8}")
        return {"version": 3, "shape": self.shape, "typestr": typestr, "data": (address, is_read_only)}

    def __repr__(self) -> str:
        return f"<moejit.Tensor {self.dtype} {list(self.shape)}>"


class Given:
    """A tensor that was given to a call: the record that the library reads, and what keeps it in memory.

    A call holds `handle`, if there is one, until its record is collected.
    """

    def __init__(self, tensor: DLTensor, keep: object, is_read_only: bool, handle: Handle | None = None) -> None:
        self.tensor, self.keep, self.is_read_only, self.handle = tensor, keep, is_read_only, handle

    @property
    def address(self) -> int:
        return (self.tensor.data or 0) + self.tensor.byte_offset

    @property
    def size(self) -> int:
        """Returns the number of bytes of a tensor without gaps."""
        return math.prod(self.tensor.shape[:self.tensor.ndim]) * self.tensor.dtype.bits * self.tensor.dtype.lanes // 8


def read_tensor(name: str, value: object, stream: int) -> Given:
    """Returns a tensor of a call.

    Args:
        name: The tensor's name in errors.
        value: A moejit.Tensor, an object with `__array_interface__`, `__dlpack__` or a buffer.
        stream: The CUstream on which the call will use the tensor; its framework makes it ready for that stream.

    Raises:
        TypeError: The value is none of these.
        Error: "tensor_mismatch": the framework does not hand out the tensor.
    """
    try:
        if isinstance(value, Tensor):
            return value.given()
        if hasattr(value, "__array_interface__"):
            return _of_array(value)
        if hasattr(value, "__dlpack__"):
            return _of_dlpack(value, stream)
        return _of_buffer(value)
    except Error:
        raise
    except TypeError:
        raise TypeError(f"tensor {name}: it is a {type(value).__name__}, wanted a tensor with __dlpack__ (torch, jax, "
                        "cupy), a numpy array, a moejit.Tensor, or an object with a buffer") from None
    except (BufferError, ValueError, RuntimeError) as error:
        raise Error("tensor_mismatch", "launch", f"tensor {name}: it cannot be read: {error}") from error


def _make(address: int, dtype: tuple[int, int], shape: Sequence[int], strides: Sequence[int] | None, keep: object,
          is_read_only: bool, place: tuple[int, int] = (DL_CPU, 0), handle: Handle | None = None) -> Given:
    """Returns a tensor over memory. Strides are in bytes."""
    code, bits = dtype
    if 0 in shape:
        address = 0  # a tensor without elements need not be aligned
    sizes = (c_int64 * len(shape))(*shape)
    steps = (c_int64 * len(shape))(*(stride * 8 // bits for stride in strides)) if strides else None
    tensor = DLTensor(data=address, device=DLDevice(*place), ndim=len(shape), dtype=DLDataType(code, bits, 1),
                      shape=sizes, strides=steps)
    return Given(tensor, (keep, sizes, steps), is_read_only, handle)


class Lease:
    """Memory in use: it is not freed while this object lives."""

    def __init__(self, memory: Memory) -> None:
        self._handle = None
        self.address = memory._handle.acquire()
        self._handle = memory._handle

    def __del__(self) -> None:
        if self._handle is not None:
            self._handle.release()


def _of_array(value: Any) -> Given:
    interface = value.__array_interface__
    order, kind, size = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
    name = _NUMPY_NAMES.get(getattr(getattr(value, "dtype", None), "name", ""))
    if name is None and (kind not in "iufb" or order == ">"):
        raise BufferError(f"its dtype is {getattr(value, 'dtype', interface['typestr'])}")
    dtype = _DTYPES[name] if name else ({"i": _INT, "f": _FLOAT}.get(kind, _UINT), 8 * size)
    address, is_read_only = interface["data"]
    return _make(address, dtype, interface["shape"], interface.get("strides"), value, is_read_only)


def _of_buffer(value: object) -> Given:
    pinned = Pinned(value)
    kind = pinned.format.lstrip("@=<")
    if len(kind) != 1:
        raise BufferError(f'its format is "{pinned.format}"')
    code = _KINDS.get(kind, _INT if kind.islower() else _UINT)
    bits = 8 * pinned.size // (math.prod(pinned.shape) or 1) if pinned.size else 8 * memoryview(value).itemsize
    return _make(pinned.address, (code, bits), pinned.shape, pinned.strides, pinned, pinned.is_read_only)


def _of_dlpack(value: Any, stream: int) -> Given:
    if getattr(value, "requires_grad", False):
        value = value.detach()
    kind = int(value.__dlpack_device__()[0])
    on_gpu = kind in (DL_CUDA, _DL_CUDA_MANAGED)
    capsule = value.__dlpack__(stream=dlpack_number_of(stream)) if on_gpu else value.__dlpack__()
    # The capsule remains the owner: nothing consumes it, and it releases the tensor when it is collected.
    name = _capsule_name(capsule)
    pointer = _capsule_pointer(capsule, name)
    if name == b"dltensor_versioned":
        managed = _Versioned.from_address(pointer)
        return Given(_copy(managed.dl_tensor), capsule, bool(managed.flags & 1))
    return Given(_copy(DLTensor.from_address(pointer)), capsule, False)


def _copy(tensor: DLTensor) -> DLTensor:
    """Returns a copy of the structure alone, since a call may change its dtype."""
    return DLTensor.from_buffer_copy(tensor)
