# SPDX-License-Identifier: Apache-2.0
"""Plans of layers, from libmoejit.so by ctypes."""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import tempfile

_Pointer = ctypes.c_void_p


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int)] + [(name, ctypes.c_char_p) for name in ("stage", "message", "hint", "detail")]


class _LayerInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("target", ctypes.c_char_p),
                ("tensor_count", ctypes.c_size_t), ("kernel_count", ctypes.c_size_t), ("max_tokens", ctypes.c_int64),
                ("workspace_bytes", ctypes.c_int64), ("saved_bytes", ctypes.c_int64),
                ("quantized_weight_bytes", ctypes.c_int64), ("has_backward", ctypes.c_int32),
                ("is_prepared", ctypes.c_int32), ("saved_fixed_bytes", ctypes.c_int64),
                ("saved_bytes_per_token", ctypes.c_int64)]


class _TensorInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype_name", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("symbols", ctypes.POINTER(ctypes.c_char_p)),
                ("bytes", ctypes.c_int64), ("offset", ctypes.c_int64), ("dtype", ctypes.c_uint8 * 4),
                ("ndim", ctypes.c_int32), ("role", ctypes.c_int), ("used_by", ctypes.c_uint32),
                ("is_optional", ctypes.c_uint32)]


_QUANTIZED = 2
_SLICE_ALIGNMENT = 256
USED_BY_FORWARD = 2
USED_BY_BACKWARD = 4


def library_path() -> pathlib.Path:
    """Returns the path of libmoejit.so: that of MOEJIT_LIBRARY, else the one in the package."""
    given = os.environ.get("MOEJIT_LIBRARY")
    return pathlib.Path(given) if given else pathlib.Path(__file__).resolve().parents[1] / "lib" / "libmoejit.so.0"


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    library.moejit_version.restype = ctypes.c_char_p
    library.moejit_last_error.restype = ctypes.POINTER(_Error)
    library.moejit_layer_destroy.argtypes = [_Pointer]
    library.moejit_layer_get_tensor.argtypes = [_Pointer, ctypes.c_size_t, ctypes.POINTER(_TensorInfo)]
    return library


def load() -> None:
    """Loads libmoejit.so, so that libraries which need it get this copy."""
    _library()


def _check(code: int) -> None:
    if code == 0:
        return
    error = _library().moejit_last_error().contents
    hint = error.hint.decode()
    raise RuntimeError("moejit: " + error.message.decode() + ("\nhint: " + hint if hint else ""))


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a plan."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    symbols: tuple[str, ...]
    bytes: int
    role: int
    used_by: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the operators need of a layer's plan on a target."""
    version: str
    target: str
    json: str  # with every field
    max_tokens: int
    saved_bytes: int
    saved_fixed_bytes: int
    saved_bytes_per_token: int
    tensors: dict[str, Tensor] = dataclasses.field(hash=False)

    @functools.cached_property
    def digest(self) -> str:
        """What tells plans apart whose blocks have other sizes."""
        return "-".join(map(str, (self.saved_bytes, self.saved_fixed_bytes, self.saved_bytes_per_token,
                                  self.quantized_bytes)))

    @functools.cached_property
    def quantized_bytes(self) -> int:
        """Bytes of the block of quantised weights, each of which begins at a multiple of 256."""
        return sum(-(-tensor.bytes // _SLICE_ALIGNMENT) * _SLICE_ALIGNMENT for tensor in self.quantized)

    @functools.cached_property
    def quantized_key(self) -> str:
        """What decides the bytes of that block: equal for layers that differ only in their tokens."""
        fields = json.loads(self.json)
        return json.dumps([self.target, fields["recipe"], fields["gate_up_layout"], fields.get("scale_sharing_k"),
                           [[tensor.name, tensor.shape] for tensor in self.quantized]])

    @functools.cached_property
    def quantized(self) -> tuple[Tensor, ...]:
        """The quantised weights in the order of their block."""
        return tuple(tensor for tensor in self.tensors.values() if tensor.role == _QUANTIZED)


def _read_tensor(layer: _Pointer, index: int) -> Tensor:
    info = _TensorInfo(struct_size=ctypes.sizeof(_TensorInfo))
    _check(_library().moejit_layer_get_tensor(layer, index, ctypes.byref(info)))
    return Tensor(name=info.name.decode(), dtype=info.dtype_name.decode(), shape=tuple(info.shape[:info.ndim]),
                  symbols=tuple(info.symbols[i].decode() for i in range(info.ndim)), bytes=info.bytes, role=info.role,
                  used_by=info.used_by)


def _create(json_text: str, target: str) -> _Pointer:
    layer = _Pointer()
    data = json_text.encode()
    _check(_library().moejit_layer_create(data, ctypes.c_size_t(len(data)), target.encode(), None,
                                          ctypes.byref(layer)))
    return layer


@functools.lru_cache(maxsize=None)
def plan(json_text: str, target: str) -> Plan:
    """Plans a layer description for a target.

    Args:
        json_text: The layer description, JSON.
        target: "sim" or "cuda:sm_90a".

    Raises:
        RuntimeError: The description is wrong, or the target cannot run it.
    """
    layer = _create(json_text, target)
    try:
        info = _LayerInfo(struct_size=ctypes.sizeof(_LayerInfo))
        _check(_library().moejit_layer_get_info(layer, ctypes.byref(info)))
        canonical = ctypes.c_char_p()
        _check(_library().moejit_layer_get_json(layer, ctypes.byref(canonical)))
        tensors = [_read_tensor(layer, index) for index in range(info.tensor_count)]
        return Plan(version=_library().moejit_version().decode(), target=target,
                    json=canonical.value.decode(), max_tokens=info.max_tokens, saved_bytes=info.saved_bytes,
                    saved_fixed_bytes=info.saved_fixed_bytes,
                    saved_bytes_per_token=info.saved_bytes_per_token,
                    tensors={tensor.name: tensor for tensor in tensors})
    finally:
        _library().moejit_layer_destroy(layer)


def explain(json_text: str, target: str) -> str:
    """Returns the plan as text for people, with the reasons of its choices."""
    layer = _create(json_text, target)
    try:
        text = ctypes.c_char_p()
        _check(_library().moejit_layer_get_plan_text(layer, 1, ctypes.byref(text)))
        return text.value.decode()
    finally:
        _library().moejit_layer_destroy(layer)


def describe(configuration: dict) -> dict:
    """Returns the layer description that a Hugging Face configuration implies, as the library reads it."""
    tool = os.environ.get("MOEJIT_TOOL", "moejit")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(configuration, file)
        file.flush()
        done = subprocess.run([tool, "layer", "--from-hf", file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("moejit: " + done.stderr.strip())
    return json.loads(done.stdout)
