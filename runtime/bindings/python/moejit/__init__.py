# SPDX-License-Identifier: Apache-2.0
"""moejit: fused FP8 kernels of Mixture-of-Experts layers, on Hopper GPUs and in a simulator.

A layer is described, planned, prepared and called:

    layer = moejit.Layer("layer.json").prepare()
    layer.update_weights(tensors)
    saved = layer.forward(tensors)
    layer.backward(tensors, saved=saved)

moejit.Operation is a single step of a layer. moejit.GroupLayer is a layer whose experts a group of ranks shares.

This package is ctypes over libmoejit.so and depends on nothing else. docs/python.md explains it. moejit.torch offers
layers as operators and modules of PyTorch.
"""
from __future__ import annotations

from moejit.describe import Description, describe
from moejit.device import Device, Memory, target_of_capability
from moejit.engine import Engine
from moejit.errors import Error
from moejit.group import Group, GroupMember, SimulatorGroup
from moejit.group_layer import GroupLayer
from moejit.info import CallInfo, EngineInfo, PlanInfo, Sizes, TensorInfo, TensorPlace
from moejit.layer import Layer
from moejit.library import load as _load
from moejit.library import version as _version
from moejit.nccl import nccl_make_id
from moejit.operation import Operation
from moejit.records import ANY_AMOUNT
from moejit.tensors import Tensor
from moejit.tool import tool_path

__all__ = ["ANY_AMOUNT", "CallInfo", "Description", "Device", "Engine", "EngineInfo", "Error", "Group", "GroupLayer",
           "GroupMember", "Layer", "Memory", "Operation", "PlanInfo", "SimulatorGroup", "Sizes", "Tensor", "TensorInfo",
           "TensorPlace", "__version__", "check_status", "describe", "nccl_make_id", "target_of_capability", "tool_path"]


def check_status(status: int) -> None:
    """Raises an error if kernels reported trouble in a status word.

    Args:
        status: The value of the tensor "status".

    Raises:
        Error: "device_status", with a sentence about each bit of the word.
    """
    _load().moejit_status_check(int(status))


def __getattr__(name: str) -> str:
    if name == "__version__":  # the library's version; the library is loaded only when it is asked for
        return _version()
    raise AttributeError(f"module 'moejit' has no attribute {name!r}")
