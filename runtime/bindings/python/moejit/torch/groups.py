# SPDX-License-Identifier: Apache-2.0
"""The groups of process groups: opened by the first call that needs one, and shared by the layers of a model."""
from __future__ import annotations

import dataclasses
import itertools
import json
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from moejit import Error, Group, GroupLayer
from moejit.torch import _plan, group_ops, texts
from moejit.torch.devices import target_of
from moejit.torch.group_memory import GroupMemory, Memories
from moejit.torch.layers import add_group_plan, call_fields
from moejit.torch.ranks import Ranks, sentence_of

# The fields of a description that decide what a group's memory holds for a layer with all passes and gradients.
_OF_EXCHANGE = ("expert_parallel", "max_tokens", "top_k", "hidden", "dispatch")
_numbers = itertools.count()
# Both end with the process group, on all ranks alike: what one rank has forgotten no other may have kept.
_by_number: weakref.WeakValueDictionary[int, ProcessGroupLayers] = weakref.WeakValueDictionary()
_by_process_group: weakref.WeakKeyDictionary[dist.ProcessGroup, ProcessGroupLayers] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class _OpenGroup:
    """A group that layers of equal exchanges share."""
    name: str
    group: Group
    memory: GroupMemory


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
        self._memories = Memories(self.ranks)
        self._groups: dict[tuple, _OpenGroup] = {}
        self._texts: dict[tuple, str] = {}
        self._layers: dict[str, GroupLayer] = {}  # by text
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
        layer, planned = together(lambda: _plan_layer(fields, device, self.ranks.rank, timeout_ms), device)
        self.ranks.compare(layer.identity, device)
        key = tuple(json.dumps(layer.description[name]) for name in _OF_EXCHANGE)
        opened = self._groups.get(key)
        if opened is None:
            # Calls with and without gradients share the memory.
            whole, _ = together(lambda: _plan_whole(fields, device, self.ranks.rank, timeout_ms), device)
            memory = self._memories.open(whole.info.memory_bytes, device)
            group = together(lambda: Group(whole, memory.device, memory.members), device)
            opened = self._groups[key] = _OpenGroup(self._name(device), group, memory)
        together(lambda: layer.prepare(opened.group), device)  # none may wait for one that still compiles
        if self.order is None:
            self.order, self._device = torch.zeros(1, dtype=torch.int32, device=device), device
        # The number tells apart layers that differ in timeout_ms alone.
        text = texts.make(planned.target, planned.digest, planned.json, f"{opened.name}.{len(self._layers)}")
        group_ops.add_group_layer(text, layer._handle._pointer, opened.memory.device._handle._pointer,
                                  opened.memory.meeting, timeout_ms)
        add_group_plan(text, planned)
        self._layers[text] = layer
        return text

    def _name(self, device: torch.device) -> str:
        name = f"{self.ranks.process_group.group_name.replace(' ', '_')}.{self.number}.{len(self._groups)}"
        return f"{name}.{self.ranks.rank}" if device.type == "cpu" else name

    def status(self) -> int:
        """Returns the status words of all groups, joined. Waits for the device."""
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        word = 0
        for group in self.groups:
            word |= group.status()
        return word

    def reset(self) -> None:
        """Makes the groups work again after a silent rank. All ranks call it at the same time, and are in no call."""
        if self._device is None:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.ranks.together(lambda: None, self._device)
        self.ranks.together(lambda: [group.reset() for group in self.groups], self._device)


def _plan_layer(fields: dict[str, Any], device: torch.device, rank: int,
                timeout_ms: int) -> tuple[GroupLayer, _plan.Plan]:
    layer = GroupLayer(fields, target_of(device), rank=rank, timeout_ms=timeout_ms)
    return layer, _plan.group_plan(layer)


def _plan_whole(fields: dict[str, Any], device: torch.device, rank: int,
                timeout_ms: int) -> tuple[GroupLayer, _plan.Plan]:
    """Plans a layer with all passes and gradients, or as it is if it cannot be trained."""
    training = {name: value for name, value in fields.items() if name != "gradients"}
    try:
        return _plan_layer({**training, "passes": ["forward", "backward"]}, device, rank, timeout_ms)
    except Error:
        return _plan_layer(fields, device, rank, timeout_ms)


def _forget(layers: dict[str, GroupLayer]) -> None:
    """Takes layers from the operators and destroys them."""
    for text in layers:
        group_ops.remove_group_layer(text)
    layers.clear()


def plan_of_rank(description: str, ranks: Ranks) -> _plan.Plan:
    """Returns a rank's plan in the simulator, whose shapes are those of any target.

    Raises:
        RuntimeError: The description is wrong, or no group can run it.
    """
    try:
        with GroupLayer(description, "sim", rank=ranks.rank) as layer:
            return _plan.group_plan(layer)
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
                    wgrad_dtype: str, topk_ids_dtype: str, topk_probs_dtype: str) -> str:
    """Returns the text of a group's layer for one call, as layers.call_text() does for one rank.

    Args:
        number: That of the ProcessGroupLayers.
        description: A layer description with "expert_parallel", as JSON.
        device: The name of the tensors' device.
        timeout_ms: How long a call waits for another rank.
        gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype: As for call_text().
    """
    fields = call_fields(description, gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype)
    return _by_number[number].layer_text(fields, torch.device(device), timeout_ms)
