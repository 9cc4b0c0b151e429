# SPDX-License-Identifier: Apache-2.0
"""Plain memory of Python objects: bytearray, array, memoryview, and anything else with a buffer."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer, which is part of its stable interface."""
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_FULL_RO = 0x011C  # PyBUF_FULL_RO: format, shape and strides, also of read-only memory
_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype, _get.argtypes = c_int, (py_object, POINTER(_Buffer), c_int)
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype, _release.argtypes = None, (POINTER(_Buffer),)


class Pinned:
    """The memory of an object with a buffer. It neither moves nor changes size while this object holds it.

    Attributes:
        address: Address of the first element.
        size: Bytes.
        format: One element in the notation of the module struct, such as "f"; native byte order.
        shape, strides: One number per dimension; strides in bytes.
        is_read_only: Whether the memory must not be written.
    """

    def __init__(self, source: object) -> None:
        self._view = _Buffer()
        _get(source, byref(self._view), _FULL_RO)  # raises TypeError or BufferError
        view = self._view
        self.address, self.size = view.buf or 0, view.len
        self.format = (view.format or b"B").decode()
        self.shape = tuple(view.shape[:view.ndim]) if view.ndim else ()
        self.strides = tuple(view.strides[:view.ndim]) if view.ndim and view.strides else ()
        self.is_read_only = bool(view.readonly)

    def release(self) -> None:
        if self._view is not None:
            view, self._view = self._view, None
            _release(byref(view))

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_view", None) is not None:
            self.release()
