# SPDX-License-Identifier: Apache-2.0
"""The common base of layers, layers of a group and operations: a description, a plan, and its calls."""
from __future__ import annotations

import array
import functools
import json
import logging
import os
import threading
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Mapping, NamedTuple, TypeVar

from moejit import records
from moejit.calls import NO_BLOCK, Block, Blocks, CallRecord, read_block
from moejit.device import Device, Memory, shared_simulator
from moejit.engine import Engine, shared_engine
from moejit.errors import Error
from moejit.handle import Handle, Owner
from moejit.info import CallInfo, PlanInfo, Sizes, TensorInfo, TensorPlace, call_info_of, info_of, tensor_info_of
from moejit.library import get_info, load
from moejit.sources import Paths, join_paths, read_source
from moejit.streams import address_of
from moejit.tensors import Tensor

_log = logging.getLogger("moejit")
_Self = TypeVar("_Self", bound="Planned")


class CallBlocks(NamedTuple):
    """The blocks that a call has used, None where it has used none."""
    saved: object
    deferred: object


class Planned(Owner):
    """A description that is planned when its object is made; it is ready for calls after prepare().

    Attributes:
        description: The description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        info: PlanInfo, figures of the plan.
        tensors: TensorInfo of all tensors of the plan, by name.
        calls: CallInfo of all calls of the plan, by name.
    """

    _kind: str  # one of records.KINDS

    def _plan(self, description: Mapping[str, Any] | str | os.PathLike, target: str, name: str | None,
              tuning: Paths, **options: int) -> None:
        """Reads and plans a description."""
        text, source = read_source(description, "operation" if self._kind == "operation" else "layer")
        self._device: Device | None = None
        if target == "auto":
            self._device = _device_of_this_machine()
            target = self._device.target
        given = records.PlanOptions(source_name=os.fsencode(name or source), tuning=join_paths(tuning),
                                    kind=records.KINDS[self._kind], **options)
        pointer = c_void_p()
        load().moejit_plan_create(text, len(text), target.encode(), byref(given), byref(pointer))
        self._own(Handle(pointer.value, load().moejit_plan_destroy, f"the {self._kind.replace('group_', '')}"))
        self._exclusive = threading.Lock()  # held while the object is prepared or hands out a text
        self._engine: Engine | None = None
        self._is_prepared = False
        self._blocks: Blocks | None = None
        self.info: PlanInfo = info_of(PlanInfo, get_info(records.PlanInfo, "moejit_plan_get_info", pointer))
        self.target: str = self.info.target
        self.description: dict[str, Any] = json.loads(self._text("get_description"))
        tensors = [get_info(records.TensorInfo, "moejit_plan_get_tensor", pointer, index)
                   for index in range(self.info.tensor_count)]
        names = [tensor.name.decode() for tensor in tensors]
        calls = [call_info_of(get_info(records.CallInfo, "moejit_plan_get_call", pointer, index), names)
                 for index in range(self.info.call_count)]
        self.calls: dict[str, CallInfo] = {call.name: call for call in calls}
        self.tensors: dict[str, TensorInfo] = {name: tensor_info_of(tensor, calls)
                                               for name, tensor in zip(names, tensors)}

    def _text(self, function: str, *arguments: object) -> str:
        text = c_char_p()
        with self._handle.use() as pointer, self._exclusive:
            getattr(load(), f"moejit_plan_{function}")(pointer, *arguments, byref(text))
            return text.value.decode()

    def plan(self) -> dict[str, Any]:
        """Returns the plan, as `moejit plan --json` prints it: kernels, tensors, memory."""
        return json.loads(self._text("get_json"))

    def explain(self) -> str:
        """Returns the plan as text for people, with the reason for each choice."""
        return self._text("get_text", 1)

    def sizes(self, tokens: int | None = None) -> Sizes:
        """Returns the bytes of the blocks that a call needs.

        Args:
            tokens: T of the call; None: max_tokens, which serves every call.

        Raises:
            Error: "invalid_value": T is less than 0 or more than max_tokens.
        """
        with self._handle.use() as pointer:
            return info_of(Sizes, get_info(records.PlanSizes, "moejit_plan_get_sizes", pointer,
                                           self.info.max_tokens if tokens is None else tokens))

    def place(self, name: str, tokens: int | None = None) -> TensorPlace:
        """Returns the place of a tensor in a call; with `keep_intermediates` also of a tensor between kernels.

        Args:
            name: A name in `tensors`.
            tokens: T of the call; None: max_tokens.

        Raises:
            KeyError: There is no such tensor.
            Error: "invalid_value": T is less than 0 or more than max_tokens.
        """
        info = self.tensors[name]
        with self._handle.use() as pointer:
            place = get_info(records.TensorPlace, "moejit_plan_get_tensor_place", pointer,
                             list(self.tensors).index(name), self.info.max_tokens if tokens is None else tokens)
        return TensorPlace(place.offset, place.bytes, tuple(place.shape[:len(info.shape)]))

    def allocate(self, tokens: int) -> dict[str, Tensor]:
        """Returns memory for all of the caller's tensors, on the plan's device.

        It is filled with zeros, but tensors of role "state" with their first value.

        Args:
            tokens: T of the calls that will use the memory.

        Raises:
            Error: "out_of_memory", ...; "invalid_value": T is less than 0 or more than max_tokens.
        """
        self.sizes(tokens)
        device = self._default_device()
        tensors = {tensor.name: Tensor(device.allocate(tensor.bytes), tensor.dtype, tensor.shape_of(tokens))
                   for tensor in self.tensors.values() if tensor.is_callers}
        for info in self.tensors.values():
            if info.first_value != 0:
                tensors[info.name].memory.write(array.array("f", [info.first_value]) * (info.bytes // 4))
        return tensors

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
        return self._prepare_at(device, "moejit_plan_prepare", device, engine)

    def _prepare_at(self: _Self, where: Owner, function: str, device: Device, engine: Engine | None) -> _Self:
        engine = engine or shared_engine()
        with self._handle.use() as pointer, engine._handle.use() as kernels, where._handle.use() as place:
            with self._exclusive:
                getattr(load(), function)(pointer, kernels, place)
                self._device, self._engine = device, engine
                self._blocks = Blocks(device, self.info.workspace_bytes)
                self.info = info_of(PlanInfo, get_info(records.PlanInfo, "moejit_plan_get_info", pointer))
                self._is_prepared = True
        return self

    def _default_device(self) -> Device:
        if self._device is None:
            self._device = shared_simulator() if self.target == "sim" else Device.cuda()
        return self._device

    def call(self, name: str, tensors: Mapping[str, Any], *, workspace: object = None, saved: object = None,
             deferred: object = None, stream: object = None) -> CallBlocks:
        """Makes a call of the plan; the methods that are named after calls say what each does.

        On a GPU the call starts the kernels and returns: tensors and blocks must stay until the kernels are done.

        Args:
            name: A name in `calls`.
            tensors: The tensors that `calls[name]` reads and writes; optional ones may be left out. Tensors of other
                calls are ignored, and so is None.
            workspace: A block of sizes(T).workspace_bytes, a Memory or a tensor of bytes. None: one that is kept.
            saved, deferred: Blocks of sizes(T).saved_bytes and .deferred_bytes in the same forms. None: a new Memory,
                if the call writes such a block.
            stream: None for the default stream; the number of a CUstream; an object with `__cuda_stream__()`; a
                torch.cuda.Stream. The simulator has none.

        Returns:
            The saved and the deferred block.

        Raises:
            Error: "unsupported": there is no such call; the hint says what adds it. "missing_tensor",
                "tensor_mismatch", "workspace_too_small", "invalid_value": raised before anything is launched;
                "driver", "stream_capture", "simulator_fault": raised by launching; "invalid_state": the group takes no
                call.
        """
        if not self._is_prepared:
            raise Error("invalid_value", "launch",
                        f"{name}() of the {self._kind.replace('group_', '')} {self.info.name}: it is not prepared",
                        "call prepare() once before")
        address = address_of(stream)
        call = self.calls.get(name)
        if call is None:  # the library reports the error
            call = CallInfo(name, *[frozenset[str]()] * 5, dict.fromkeys(("workspace", "saved", "deferred"), 0), False,
                            False, 0)
        saved, saved_block = self._block("saved", saved, call, tensors, address)
        deferred, deferred_block = self._block("deferred", deferred, call, tensors, address)
        with self._blocks.workspace(workspace, address) as space:
            made = CallRecord(call, self.tensors, tensors, space, saved_block, deferred_block, address)
            pointer = self._handle.acquire()
            try:
                load().moejit_plan_call(pointer, name.encode(), byref(made.record))
            finally:
                self._handle.release()
        return CallBlocks(saved, deferred)

    def _block(self, name: str, given: object, call: CallInfo, tensors: Mapping[str, Any],
               stream: int) -> tuple[object, Block]:
        """Returns a block of a call as its caller sees it and as the library takes it; a new one if none is given."""
        if given is None and call.blocks[name] == records.WRITE and getattr(self.info, f"{name}_bytes"):
            size = getattr(self.sizes(self._tokens_of(call, tensors)), f"{name}_bytes")
            given = Memory(self._device, size, is_zeroed=False)
        return given, NO_BLOCK if given is None else read_block(name, given, self._device, stream)

    def _tokens_of(self, call: CallInfo, tensors: Mapping[str, Any]) -> int:
        """Returns T of a call from a tensor; max_tokens if the library will refuse that tensor."""
        for name, info in self.tensors.items():
            if name in call.tensors and info.symbols[:1] == ("T",) and tensors.get(name) is not None:
                value = tensors[name]
                try:
                    shape = value.shape if hasattr(value, "shape") else memoryview(value).shape
                except TypeError:
                    break
                if len(shape) == len(info.shape):
                    return min(int(shape[0]), self.info.max_tokens)
                break
        return self.info.max_tokens

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
