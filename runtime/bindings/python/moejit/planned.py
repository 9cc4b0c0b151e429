# SPDX-License-Identifier: Apache-2.0
"""The common base of layers and operations: a description, a plan, and a device that they are prepared for."""
from __future__ import annotations

import functools
import json
import logging
import os
import threading
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Mapping, TypeVar

from moejit import records
from moejit.calls import Blocks
from moejit.device import Device, shared_simulator
from moejit.engine import Engine, shared_engine
from moejit.errors import Error
from moejit.handle import Handle, Owner
from moejit.info import TensorInfo, info_of, tensor_info_of
from moejit.library import get_info, load
from moejit.sources import Paths, join_paths, read_source

_log = logging.getLogger("moejit")
_Self = TypeVar("_Self", bound="Planned")


class Planned(Owner):
    """A description that is planned when its object is made; it is ready for calls after prepare().

    Attributes:
        description: The description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        tensors: TensorInfo of all tensors of the plan, by name.
    """

    _kind: str  # part of the names of its functions: "layer", "operation"
    _options: type[records.Record]
    _info_record: type[records.Record]
    _info_class: type

    def _plan(self, description: Mapping[str, Any] | str | os.PathLike, target: str, name: str | None,
              tuning: Paths, **options: object) -> None:
        """Reads and plans a description."""
        text, source = read_source(description, self._kind)
        self._device: Device | None = None
        if target == "auto":
            self._device = _device_of_this_machine()
            target = self._device.target
        given = self._options(source_name=os.fsencode(name or source), tuning=join_paths(tuning), **options)
        pointer = c_void_p()
        self._function("create")(text, len(text), target.encode(), byref(given), byref(pointer))
        self._own(Handle(pointer.value, self._function("destroy"), f"the {self._kind}"))
        self._exclusive = threading.Lock()  # held while the object is prepared or hands out a text
        self._engine: Engine | None = None
        self._is_prepared = False
        self._blocks: Blocks | None = None
        self.info = self._get_info(pointer.value)
        self.target: str = self.info.target
        self.description: dict[str, Any] = json.loads(self._text("get_json"))
        infos = (get_info(records.TensorInfo, f"moejit_{self._kind}_get_tensor", pointer, index)
                 for index in range(self.info.tensor_count))
        self.tensors: dict[str, TensorInfo] = {info.name: info for info in map(tensor_info_of, infos)}

    def _function(self, name: str) -> Any:
        return getattr(load(), f"moejit_{self._kind}_{name}")

    def _get_info(self, pointer: int) -> Any:
        return info_of(self._info_class, get_info(self._info_record, f"moejit_{self._kind}_get_info", pointer))

    def _text(self, function: str, *arguments: object) -> str:
        text = c_char_p()
        with self._handle.use() as pointer, self._exclusive:
            self._function(function)(pointer, *arguments, byref(text))
            return text.value.decode()

    def plan(self) -> dict[str, Any]:
        """Returns the plan, as `moejit plan --json` prints it: kernels, tensors, memory."""
        return json.loads(self._text("get_plan_json"))

    def explain(self) -> str:
        """Returns the plan as text for people, with the reason for each choice."""
        return self._text("get_plan_text", 1)

    @property
    def is_prepared(self) -> bool:
        return self._is_prepared

    @property
    def device(self) -> Device | None:
        """The device that it is prepared for, or will be by default; None if that is not open yet."""
        return self._device

    def prepare(self: _Self, engine: Engine | None = None, device: Device | None = None) -> _Self:
        """Compiles the kernels, or fetches them from the cache, and loads them. May be called once.

        Args:
            engine: Makes and keeps the kernels; None: an engine that all layers and operations share.
            device: None: the current GPU, or one simulator that all of them share.

        Returns:
            The object itself.

        Raises:
            Error: "compiler_missing", "compile_failed", "cache_miss", "out_of_memory", "unsupported" (it is planned
                for another target), ...
        """
        device = device or self._default_device()
        engine = engine or shared_engine()
        with self._handle.use() as pointer, engine._handle.use() as kernels, device._handle.use() as place:
            with self._exclusive:
                self._function("prepare")(pointer, kernels, place)
                self._device, self._engine = device, engine
                self._blocks = Blocks(device, self.info.workspace_bytes)
                self.info = self._get_info(pointer)
                self._is_prepared = True
        return self

    def _default_device(self) -> Device:
        if self._device is None:
            self._device = shared_simulator() if self.target == "sim" else Device.cuda()
        return self._device

    def _check_prepared(self, function: str) -> None:
        if not self._is_prepared:
            raise Error("invalid_value", "launch",
                        f"{function}() of the {self._kind} {self.info.name}: it is not prepared",
                        "call prepare() once before")

    def __repr__(self) -> str:
        state = f"prepared for {self._device.name}" if self._is_prepared else "not prepared"
        return f"<moejit.{type(self).__name__} {self.info.name!r}, target {self.target}, {state}>"


@functools.lru_cache(maxsize=None)
def _device_of_this_machine() -> Device:
    """Returns the current GPU if there is one, else the simulator; warns once about the simulator."""
    try:
        return Device.cuda()
    except Error as error:
        _log.warning("target sim, the simulator, which is for tests and not for speed, since there is no GPU: %s",
                     error.message)
        return shared_simulator()
