# SPDX-License-Identifier: Apache-2.0
"""The groups of process groups: opened by the first call that needs one, and shared by the layers of a model."""
from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from moejit import Error, Group, GroupLayer, texts
from moejit.torch import meetings
from moejit.torch.layers import call_fields
from moejit.torch.open_groups import OpenGroup, Opener, plan_layer, plan_whole, transport_of
from moejit.torch.plan_facts import Plan, plan_facts
from moejit.torch.plans import add_group_plan
from moejit.torch.ranks import Ranks, sentence_of

# The fields of a description that decide what a group's memory holds for a layer with all passes and gradients.
_OF_EXCHANGE = ("expert_parallel", "max_tokens", "top_k", "hidden", "dispatch")
_numbers = itertools.count()
# Both end with the process group, on all ranks alike: no rank may keep what another one has forgotten.
_by_number: weakref.WeakValueDictionary[int, ProcessGroupLayers] = weakref.WeakValueDictionary()
_by_process_group: weakref.WeakKeyDictionary[dist.ProcessGroup, ProcessGroupLayers] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class _Prepared:
    """A layer that operators find by its text."""
    fields: dict[str, Any]
    timeout_ms: int
    group: OpenGroup


class ProcessGroupLayers:
    """What modules on one process group share: the groups with their memory, and the prepared layers.

    Attributes:
        number: Its number in this process.
        order: A tensor of one element on the ranks' device, which stands for the order of the group's calls; None
            before the first layer is opened.
    """

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self.ranks = Ranks(process_group)
        self.number = next(_numbers)
        self.order: torch.Tensor | None = None
        self._device: torch.device | None = None
        self._opener = Opener(self.ranks)
        self._groups: dict[tuple, OpenGroup] = {}
        self._texts: dict[tuple, str] = {}
        self._layers: dict[str, GroupLayer] = {}  # by text
        self._prepared: dict[str, _Prepared] = {}
        weakref.finalize(self, _forget, self._layers)
        _by_number[self.number] = self

    def __deepcopy__(self, memo: dict) -> ProcessGroupLayers:
        return self

    def __reduce__(self) -> tuple:
        raise RuntimeError("moejit: unsupported: a module with a process_group is pickled, and a process group belongs "
                           "to its process\nhint: save the state dict, and make the module with the process group of "
                           "the process that reads it")

    @property
    def groups(self) -> list[Group]:
        """The open groups."""
        return [opened.group for opened in self._groups.values()]

    def layer_text(self, fields: dict[str, Any], device: torch.device, timeout_ms: int) -> str:
        """Returns the text of a layer, which the first call opens: all ranks call it at the same time then.

        Args:
            fields: A layer description with "expert_parallel".
            device: The device of this rank's tensors.
            timeout_ms: How long a call waits for another rank.

        Raises:
            RuntimeError: The ranks differ, cannot be a group, or one of them cannot prepare the layer. The same
                sentence on all ranks.
        """
        if self._device not in (None, device):
            raise RuntimeError(f"moejit: unsupported: a call on {device}, and the process group has layers on "
                               f"{self._device}\nhint: keep the modules of a process group on one device of each rank")
        key = (json.dumps(fields), timeout_ms)
        if key not in self._texts:
            with _disable_current_modes(), torch.inference_mode(False):
                self._texts[key] = self._open(fields, device, timeout_ms)
        return self._texts[key]

    def _open(self, fields: dict[str, Any], device: torch.device, timeout_ms: int) -> str:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("moejit: stream_capture: the first call of a layer of a group comes in a capture\nhint: "
                               "call the module once before the capture: the first call opens memory and loads kernels")
        together = self.ranks.together
        layer, planned = together(lambda: plan_layer(fields, device, self.ranks.rank, timeout_ms), device)
        self.ranks.compare(layer.identity, device, transport_of(layer))
        key = tuple(json.dumps(layer.description[name]) for name in _OF_EXCHANGE)
        opened = self._groups.get(key)
        if opened is None:
            # Calls with and without gradients share the memory.
            whole = together(lambda: plan_whole(fields, device, self.ranks.rank, timeout_ms), device)
            opened = self._groups[key] = self._opener.open(self._name(device), whole, device, timeout_ms)
        opened.timeout_ms = max(opened.timeout_ms, timeout_ms)
        together(lambda: layer.prepare(opened.group), device)  # none may wait for one that still compiles
        if self.order is None:
            self.order, self._device = torch.zeros(1, dtype=torch.int32, device=device), device
        # The number tells apart layers that differ only in timeout_ms.
        text = texts.make(planned.target, planned.digest, planned.description, f"{opened.name}.{len(self._layers)}")
        self._prepared[text] = _Prepared(fields, timeout_ms, opened)
        self._add(text, layer)
        add_group_plan(text, planned)
        return text

    def _add(self, text: str, layer: GroupLayer) -> None:
        """Lets operators find a layer by its text, instead of the one that they found so far."""
        prepared = self._prepared[text]
        memory = prepared.group.memory
        meetings.add_group_layer(text, layer._handle._pointer, memory.device._handle._pointer, memory.meeting,
                                  prepared.timeout_ms)
        self._layers[text] = layer

    def _name(self, device: torch.device) -> str:
        name = f"{self.ranks.process_group.group_name.replace(' ', '_')}.{self.number}.{len(self._groups)}"
        return f"{name}.{self.ranks.rank}" if device.type == "cpu" else name

    def status(self) -> int:
        """Returns the status words of all groups, combined. Waits for the device.

        Raises:
            RuntimeError: Calls of a group over NCCL have waited for a rank for so long that they were aborted, now or
                before; or NCCL tells of an error.
        """
        self._wait()
        word = 0
        for group in self.groups:
            try:
                word |= group.status()
            except Error as error:
                raise RuntimeError(f"moejit: {error.code}: {error.message}\nhint: call reset_group() on all ranks, which "
                                   "opens the groups anew") from error
        return word

    def _wait(self) -> None:
        """Waits for a GPU, and aborts groups over NCCL if that takes longer than their calls may wait for a rank."""
        if self._device is None or self._device.type != "cuda":
            return
        of_nccl = [opened for opened in self._groups.values() if opened.is_nccl]
        watch = threading.Timer(max([opened.timeout_ms for opened in of_nccl], default=0) / 1000, self.abort)
        watch.daemon = True
        if of_nccl:
            watch.start()
        try:
            torch.cuda.synchronize(self._device)
        finally:
            watch.cancel()

    def abort(self) -> None:
        """Ends calls of groups over NCCL that wait for a rank. Any thread may call it."""
        for opened in list(self._groups.values()):
            opened.abort()

    def reset(self) -> None:
        """Makes the groups work again after a silent rank. All ranks call it at the same time, and are in no call.

        Groups over NCCL end here. New ones take their places, and layers are prepared again for these.
        """
        if self._device is None:
            return
        self.abort()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.ranks.together(lambda: None, self._device)
        of_nccl = [opened for opened in self._groups.values() if opened.is_nccl]
        of_peers = [opened for opened in self._groups.values() if not opened.is_nccl]
        self.ranks.together(lambda: [opened.group.reset() for opened in of_peers], self._device)
        for opened in of_nccl:
            opened.group.close()
        self._opener.open_anew(of_nccl, self._device)
        for text, prepared in self._prepared.items():
            if prepared.group.is_nccl:
                self._prepare_anew(text, prepared)

    def _prepare_anew(self, text: str, prepared: _Prepared) -> None:
        def prepare() -> GroupLayer:
            layer, _ = plan_layer(prepared.fields, self._device, self.ranks.rank, prepared.timeout_ms)
            return layer.prepare(prepared.group.group)
        old = self._layers[text]
        self._add(text, self.ranks.together(prepare, self._device))
        old.close()


def _forget(layers: dict[str, GroupLayer]) -> None:
    """Takes layers from the operators and destroys them."""
    for text in layers:
        meetings.remove_group_layer(text)
    layers.clear()


def fields_of_group(ranks: Ranks, recipe: str, combine: str, transport: str, sms: int | None) -> dict[str, Any]:
    """Returns what a layer description says of the ranks that share the experts."""
    parallel = {"ranks": ranks.size, "combine": combine, "transport": transport, "sms": sms}
    # Rows travel in the format that the recipe gives tokens anyway.
    return {"expert_parallel": {name: value for name, value in parallel.items() if value is not None},
            "dispatch": "fp8" if recipe == "fp8_flow" else "none"}


def plan_of_rank(description: str, ranks: Ranks) -> Plan:
    """Returns a rank's plan in the simulator, which has the shapes of any target.

    Raises:
        RuntimeError: The description is wrong, or no group can run it.
    """
    try:
        with GroupLayer(description, "sim", rank=ranks.rank) as layer:
            return plan_facts(layer)
    except Error as error:
        raise RuntimeError(sentence_of(error)) from error


def layers_of(process_group: dist.ProcessGroup) -> ProcessGroupLayers:
    """Returns what modules on a process group share.

    Raises:
        RuntimeError: It is no process group, or this process is not in it.
    """
    if not dist.is_available() or not isinstance(process_group, dist.ProcessGroup):
        raise RuntimeError(f"moejit: wrong_type: argument process_group: it is a {type(process_group).__name__}, wanted "
                           "a torch.distributed.ProcessGroup\nhint: dist.group.WORLD, dist.new_group(), or get_group() "
                           "of a mesh of one dimension")
    found = _by_process_group.get(process_group)
    if found is None:
        found = _by_process_group[process_group] = ProcessGroupLayers(process_group)
    return found


@torch.compiler.assume_constant_result
def group_call_text(number: int, description: str, device: str, timeout_ms: int, gradients: tuple[str, ...],
                    wgrad_dtype: str, topk_ids_dtype: str, topk_probs_dtype: str, has_checks: bool = False) -> str:
    """Returns the text of a group's layer for one call, as layers.call_text() does for one rank.

    Args:
        number: The number of the ProcessGroupLayers.
        description: A layer description with "expert_parallel", as JSON.
        device: The name of the tensors' device.
        timeout_ms: How long a call waits for another rank.
        gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype, has_checks: As for call_text().
    """
    fields = call_fields(description, gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype, has_checks=has_checks)
    return _by_number[number].layer_text(fields, torch.device(device), timeout_ms)
