# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libmoejit.so, and the NVRTC of installed wheels.

The library lies in the package as `lib/libmoejit.so.1`. For development, MOEJIT_LIBRARY names another file.
"""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TypeVar

from moejit import nvrtc, records
from moejit.errors import error_of

NAME = f"libmoejit.so.{records.ABI_VERSION}"


class _Code(c_int32):
    """The result of functions that can fail. It is a subclass, so that ctypes does not turn it into an int."""


_Record = POINTER
_Handle, _Result = c_void_p, POINTER(c_void_p)

# Maps every function of the C interface to its result and its arguments.
FUNCTIONS = {
    "moejit_version": (c_char_p, ()),
    "moejit_version_number": (c_int32, ()),
    "moejit_abi_version": (c_int32, ()),
    "moejit_error_code_name": (c_char_p, (ctypes.c_int,)),
    "moejit_last_error": (_Record(records.Error), ()),
    "moejit_device_open_cuda": (_Code, (c_int32, _Result)),
    "moejit_target_of_capability": (_Code, (c_int32, c_int32, _Result)),
    "moejit_device_shared": (_Code, (records.DLDevice, _Result)),
    "moejit_device_open_simulator": (_Code, (_Record(records.SimulatorOptions), _Result)),
    "moejit_device_destroy": (None, (_Handle,)),
    "moejit_device_get_info": (_Code, (_Handle, _Record(records.DeviceInfo))),
    "moejit_device_allocate": (_Code, (_Handle, c_int64, _Result)),
    "moejit_device_release": (_Code, (_Handle, c_void_p)),
    "moejit_device_copy_to_device": (_Code, (_Handle, c_void_p, c_void_p, c_int64)),
    "moejit_device_copy_to_host": (_Code, (_Handle, c_void_p, c_void_p, c_int64)),
    "moejit_device_fill": (_Code, (_Handle, c_void_p, c_uint8, c_int64, c_void_p)),
    "moejit_device_synchronize": (_Code, (_Handle, c_void_p)),
    "moejit_engine_create": (_Code, (_Record(records.EngineOptions), _Result)),
    "moejit_engine_shared": (_Code, (_Record(records.EngineOptions), _Result)),
    "moejit_engine_destroy": (None, (_Handle,)),
    "moejit_engine_get_info": (_Code, (_Handle, _Record(records.EngineInfo))),
    "moejit_plan_create": (_Code, (c_char_p, c_size_t, c_char_p, _Record(records.PlanOptions), _Result)),
    "moejit_plan_destroy": (None, (_Handle,)),
    "moejit_plan_get_info": (_Code, (_Handle, _Record(records.PlanInfo))),
    "moejit_plan_get_sizes": (_Code, (_Handle, c_int64, _Record(records.PlanSizes))),
    "moejit_plan_get_description": (_Code, (_Handle, POINTER(c_char_p))),
    "moejit_plan_get_json": (_Code, (_Handle, POINTER(c_char_p))),
    "moejit_plan_get_text": (_Code, (_Handle, c_int32, POINTER(c_char_p))),
    "moejit_plan_get_tensor": (_Code, (_Handle, c_size_t, _Record(records.TensorInfo))),
    "moejit_plan_find_tensor": (_Code, (_Handle, c_char_p, _Record(records.TensorInfo))),
    "moejit_plan_get_tensor_place": (_Code, (_Handle, c_size_t, c_int64, _Record(records.TensorPlace))),
    "moejit_plan_get_call": (_Code, (_Handle, c_size_t, _Record(records.CallInfo))),
    "moejit_plan_prepare": (_Code, (_Handle, _Handle, _Handle)),
    "moejit_plan_prepare_in_group": (_Code, (_Handle, _Handle, _Handle)),
    "moejit_plan_call": (_Code, (_Handle, c_char_p, _Record(records.Call))),
    "moejit_group_adopt": (_Code, (_Handle, _Handle, _Record(records.GroupMember), c_size_t, _Result)),
    "moejit_group_open": (_Code, (_Handle, _Handle, _Record(records.RendezvousPlace), _Result)),
    "moejit_group_reopen": (_Code, (_Handle, _Record(records.RendezvousPlace))),
    "moejit_nccl_make_id": (_Code, (POINTER(c_uint8),)),
    "moejit_group_open_nccl": (_Code, (_Handle, _Handle, POINTER(c_uint8), c_int64, _Result)),
    "moejit_group_adopt_nccl": (_Code, (_Handle, _Handle, c_void_p, _Result)),
    "moejit_group_abort": (_Code, (_Handle,)),
    "moejit_group_get_info": (_Code, (_Handle, _Record(records.GroupInfo))),
    "moejit_group_destroy": (None, (_Handle,)),
    "moejit_group_status": (_Code, (_Handle, POINTER(c_uint32))),
    "moejit_group_clear_status": (_Code, (_Handle, c_void_p)),
    "moejit_group_reset": (_Code, (_Handle,)),
    "moejit_device_open_simulator_group": (_Code, (c_size_t, c_int64, c_uint64, _Result, _Result)),
    "moejit_status_text": (c_char_p, (c_uint32,)),
    "moejit_status_check": (_Code, (c_uint32,)),
    "moejit_describe_hugging_face": (_Code, (c_char_p, c_size_t, _Record(records.HuggingFaceOptions), _Result)),
    "moejit_description_destroy": (None, (_Handle,)),
    "moejit_description_get_info": (_Code, (_Handle, _Record(records.DescriptionInfo))),
}


def path() -> pathlib.Path:
    """Returns the path where libmoejit.so should be: the one in MOEJIT_LIBRARY, else the one in the package."""
    given = os.environ.get("MOEJIT_LIBRARY")
    return pathlib.Path(given) if given else pathlib.Path(__file__).resolve().parent / "lib" / NAME


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """Returns libmoejit.so, loaded by the first call, with the functions of the C interface declared.

    Raises:
        ImportError: The library is missing, cannot be loaded, or has another ABI version.
    """
    file = path()
    if not file.is_file():
        raise ImportError(
            f"moejit: the library {NAME} is missing: there is no file {file}\n"
            "hint: install the package (pip install . in a checkout), or set MOEJIT_LIBRARY to the path of a library "
            "that was built (build/release/runtime/bindings/c/libmoejit.so)")
    try:
        library = ctypes.CDLL(str(file))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            if result is _Code:
                function.errcheck = _check
        version = library.moejit_abi_version()
    except (OSError, AttributeError) as error:
        raise ImportError(f"moejit: {file} cannot be used: {error}\n"
                          "hint: the package and its library have to be of one version: reinstall the package"
                          ) from error
    if version != records.ABI_VERSION:
        raise ImportError(f"moejit: {file} has the ABI version {version}, wanted {records.ABI_VERSION}\n"
                          "hint: reinstall the package, or take MOEJIT_LIBRARY out of the environment")
    nvrtc.choose()
    return library


def _check(code: _Code, _function: object, _arguments: object) -> None:
    if code.value != 0:
        library = load()
        name = library.moejit_error_code_name(code.value).decode()
        raise error_of(library.moejit_last_error().contents, name)


def version() -> str:
    """Returns the library's version, such as "0.1.0"."""
    return load().moejit_version().decode()


_Info = TypeVar("_Info", bound=records.Record)


def get_info(kind: type[_Info], function: str, *arguments: object) -> _Info:
    """Returns the record that a `..._get_info` function fills; the library owns the memory of its pointers."""
    info = kind()
    getattr(load(), function)(*arguments, byref(info))
    return info
