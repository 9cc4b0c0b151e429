# SPDX-License-Identifier: Apache-2.0
"""The records and numbers of the C interface, in ctypes.

When a field is added at the end of a C record, add a line here; a test compares all records with the headers.
"""
from __future__ import annotations

import ctypes
from ctypes import (POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p)

ABI_VERSION = 1
ANY_AMOUNT = 2**63 - 1  # for cache_max_bytes and cache_max_files
CURRENT_GPU = -1
CACHE_NETWORKS = {None: 0, "read": 1, "write": 2}
ROLES = ("input", "weight", "quantized", "output", "saved", "workspace", "deferred", "dispatched",
         "state", "group")  # by number
KINDS = {"layer": 1, "operation": 2, "group_layer": 3}
READ, WRITE = 1, 2  # bits of accesses
ERROR_CODES = {
    "ok": 0, "invalid_json": 1, "unknown_key": 2, "missing_key": 3, "wrong_type": 4, "invalid_value": 5,
    "unsupported": 6, "usage": 7, "file_not_found": 8, "file_read": 9, "file_write": 10, "invalid_file": 11,
    "missing_tensor": 12, "tensor_mismatch": 13, "compiler_missing": 14, "compile_failed": 15, "cache_unusable": 16,
    "cache_corrupt": 17, "cache_miss": 18, "driver_missing": 19, "no_device": 20, "driver": 21, "out_of_memory": 22,
    "workspace_too_small": 23, "simulator_fault": 24, "device_status": 25, "check_failed": 26, "internal": 27,
    "compiler_fault": 28, "interrupted": 29, "stream_capture": 30,
    "tuning_outdated": 31,
    "invalid_state": 32,
}

WarnFunction = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class Record(ctypes.Structure):
    """A record whose first field is its size."""

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int),
        ("stage", c_char_p),
        ("message", c_char_p),
        ("hint", c_char_p),
        ("detail", c_char_p),
    ]


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class SimulatorOptions(Record):
    _fields_ = [("struct_size", c_size_t), ("seed", c_uint64), ("workers", c_int64)]


class DeviceInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("target", c_char_p),
        ("dl_device", DLDevice),
        ("sm_count", c_int32),
    ]


class EngineOptions(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("cache_dir", c_char_p),
        ("warn", WarnFunction),
        ("warn_context", c_void_p),
        ("memory_only", c_int32),
        ("frozen", c_int32),
        ("packs", c_char_p),
        ("pack_keys", c_char_p),
        ("cache_max_bytes", c_int64),
        ("cache_max_files", c_int64),
        ("run_dir", c_char_p),
        ("compile_worker", c_char_p),
        ("reproducer_dir", c_char_p),
        ("lock_patience_ms", c_int64),
        ("cache_network", c_int32),
        ("compile_jobs", c_int32),
    ]


class EngineInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("cache", c_char_p),
        ("compiled", c_int64),
        ("from_cache", c_int64),
        ("from_memory", c_int64),
        ("corrupt", c_int64),
        ("unpublished", c_int64),
        ("from_packs", c_int64),
        ("nondeterministic", c_int64),
    ]


class PlanOptions(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("source_name", c_char_p),
        ("keep_intermediates", c_int32),
        ("measure_gemms", c_int32),
        ("tuning", c_char_p),
        ("kind", c_int64),
        ("rank", c_int64),
        ("timeout_ms", c_int64),
    ]


class PlanInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("target", c_char_p),
        ("tensor_count", c_size_t),
        ("kernel_count", c_size_t),
        ("max_tokens", c_int64),
        ("workspace_bytes", c_int64),
        ("saved_bytes", c_int64),
        ("quantized_weight_bytes", c_int64),
        ("has_backward", c_int32),
        ("is_prepared", c_int32),
        ("saved_fixed_bytes", c_int64),
        ("saved_bytes_per_token", c_int64),
        ("plan_digest", c_char_p),
        ("deferred_bytes", c_int64),
        ("deferred_fixed_bytes", c_int64),
        ("deferred_bytes_per_token", c_int64),
        ("kind", c_int64),
        ("call_count", c_size_t),
        ("identity", c_char_p),
        ("ranks", c_int64),
        ("rank", c_int64),
        ("memory_bytes", c_int64),
        ("quantized_rowwise_bytes", c_int64),
        ("quantized_colwise_bytes", c_int64),
    ]


class PlanSizes(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("workspace_bytes", c_int64),
        ("saved_bytes", c_int64),
        ("deferred_bytes", c_int64),
    ]


class CallTensor(ctypes.Structure):
    _fields_ = [
        ("index", c_size_t),
        ("access", c_uint32),
        ("is_optional", c_int32),
        ("is_shape_only", c_int32),
        ("padding", c_int32),
    ]


class CallInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("tensors", POINTER(CallTensor)),
        ("tensor_count", c_size_t),
        ("kernel_count", c_size_t),
        ("workspace", c_uint32),
        ("saved", c_uint32),
        ("deferred", c_uint32),
        ("adds", c_int32),
        ("is_of_all_ranks", c_int32),
        ("padding", c_int32),
        ("workspace_bytes", c_int64),
    ]


class CastTransposeTensor(ctypes.Structure):
    _fields_ = [
        ("input", c_void_p),
        ("output", c_void_p),
        ("output_colwise", c_void_p),
        ("scale", c_void_p),
        ("amax", c_void_p),
        ("scale_inv", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
    ]


class TensorInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("dtype_name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("symbols", POINTER(c_char_p)),
        ("bytes", c_int64),
        ("offset", c_int64),
        ("dtype", DLDataType),
        ("ndim", c_int32),
        ("role", ctypes.c_int),
        ("is_optional", c_uint32),
        ("is_optional_in_backward", c_uint32),
        ("is_updated", c_uint32),
        ("first_value", c_float),
        ("first_use", c_int32),
        ("last_use", c_int32),
        ("quantized_block", c_int64),
        ("quantized_offset", c_int64),
    ]


class TensorPlace(Record):
    _fields_ = [("struct_size", c_size_t), ("offset", c_int64), ("bytes", c_int64), ("shape", c_int64 * 4)]


class NamedTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("tensor", POINTER(DLTensor))]


class Call(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tensors", POINTER(NamedTensor)),
        ("tensor_count", c_size_t),
        ("workspace", c_void_p),
        ("workspace_bytes", c_int64),
        ("saved", c_void_p),
        ("saved_bytes", c_int64),
        ("stream", c_void_p),
        ("deferred", c_void_p),
        ("deferred_bytes", c_int64),
    ]


class GroupMember(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("bytes", c_int64), ("identity", c_char_p)]


class RendezvousPlace(Record):
    _fields_ = [("struct_size", c_size_t), ("path", c_char_p), ("deadline_ms", c_int64)]


class GroupInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ranks", c_int64),
        ("rank", c_int64),
        ("memory_bytes", c_int64),
        ("allocated_bytes", c_int64),
    ]


class HuggingFaceOptions(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("source_name", c_char_p),
        ("recipe", c_char_p),
        ("max_tokens", c_int64),
        ("expert_parallel", c_int64),
    ]


class DescriptionInfo(Record):
    _fields_ = [
        ("struct_size", c_size_t),
        ("json", c_char_p),
        ("model_type", c_char_p),
        ("used_keys", POINTER(c_char_p)),
        ("notes", POINTER(c_char_p)),
        ("used_key_count", c_size_t),
        ("note_count", c_size_t),
        ("router", c_char_p),
        ("shared", c_char_p),
    ]


# Maps the names of the records in C to the records.
RECORDS = {
    "moejit_error": Error,
    "DLDevice": DLDevice,
    "DLDataType": DLDataType,
    "DLTensor": DLTensor,
    "moejit_simulator_options": SimulatorOptions,
    "moejit_device_info": DeviceInfo,
    "moejit_engine_options": EngineOptions,
    "moejit_engine_info": EngineInfo,
    "moejit_plan_options": PlanOptions,
    "moejit_plan_info": PlanInfo,
    "moejit_plan_sizes": PlanSizes,
    "moejit_call_tensor": CallTensor,
    "moejit_call_info": CallInfo,
    "moejit_cast_transpose_tensor": CastTransposeTensor,
    "moejit_tensor_info": TensorInfo,
    "moejit_tensor_place": TensorPlace,
    "moejit_tensor": NamedTensor,
    "moejit_call": Call,
    "moejit_group_member": GroupMember,
    "moejit_rendezvous_place": RendezvousPlace,
    "moejit_group_info": GroupInfo,
    "moejit_hugging_face_options": HuggingFaceOptions,
    "moejit_description_info": DescriptionInfo,
}


def values_of(record: Record) -> dict[str, object]:
    """Returns a record's fields that are numbers or texts; the texts are copied."""
    values = {name: getattr(record, name) for name, kind in record._fields_
              if name != "struct_size" and issubclass(kind, ctypes._SimpleCData) and kind is not c_void_p}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
