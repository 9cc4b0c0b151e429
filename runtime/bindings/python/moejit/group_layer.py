# SPDX-License-Identifier: Apache-2.0
"""Layers whose experts the ranks of a group share."""
from __future__ import annotations

import json
import os
import threading
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Mapping

from moejit import records
from moejit.calls import NO_BLOCK, Blocks, CallRecord, read_block
from moejit.device import Memory
from moejit.engine import Engine, shared_engine
from moejit.errors import Error
from moejit.group import Group
from moejit.handle import Handle, Owner
from moejit.info import GroupLayerInfo, TensorInfo, info_of, tensor_info_of
from moejit.layer import fill_first_scales, number_of_mode, number_of_pass
from moejit.library import get_info, load
from moejit.sources import Paths, join_paths, read_source
from moejit.streams import address_of
from moejit.tensors import Tensor

_NOT_OF_DESCRIPTION = ("moejit", "target", "plan_digest")


class GroupLayer(Owner):
    """One rank's part of a layer with "expert_parallel": planned when it is made, ready for calls after prepare().

    A call sends this rank's tokens to the ranks of their experts. It runs this rank's experts for the tokens of all
    ranks, and brings the results home. All is on one stream. All ranks make the same calls in the same order, each with
    a T of its own from 0 to max_tokens. Tensors are given as to Layer; docs/expert-parallelism.md says what they
    compute.

    Attributes:
        description: The layer description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        info: GroupLayerInfo, sizes of the plan.
        identity: Text with what all ranks of a group have to agree on, for GroupMember.
        plan_digest: The digest of the plan of this rank's experts.
        tensors: TensorInfo of the caller's tensors, by name: tokens of this rank, ids of all experts, weights and
            gradients of this rank's experts.
    """

    def __init__(self, description: Mapping[str, Any] | str | os.PathLike, target: str, *, rank: int,
                 timeout_ms: int = 10000, tuning: Paths = None) -> None:
        """Reads a layer description and plans a rank of it. Compiles nothing, and needs no device.

        Args:
            description: A dict, JSON, or the path of a file, with "expert_parallel".
            target: "cuda:sm_90a" or "sim".
            rank: The number of this rank, from 0.
            timeout_ms: How long a call waits for another rank.
            tuning: Tuning records to plan with, as for Layer; the same on all ranks.

        Raises:
            Error: As Layer(); "unsupported": also for a layer without "expert_parallel", or a rank that it lacks.
        """
        text, _ = read_source(description, "layer")
        options = records.GroupLayerOptions(timeout_ms=timeout_ms, tuning=join_paths(tuning))
        pointer = c_void_p()
        load().moejit_group_layer_create(text, len(text), target.encode(), rank, byref(options), byref(pointer))
        self._own(Handle(pointer.value, load().moejit_group_layer_destroy, "the layer"))
        self._exclusive = threading.Lock()  # held while the object hands out a text
        record = get_info(records.GroupLayerInfo, "moejit_group_layer_get_info", pointer)
        self.info: GroupLayerInfo = info_of(GroupLayerInfo, record)
        self.identity: str = self.info.identity
        fields = dict(line.split("=", 1) for line in self.identity.splitlines())
        self.target, self.plan_digest = fields["target"], fields["plan_digest"]
        self.description: dict[str, Any] = {name: json.loads(value) for name, value in fields.items()
                                            if name not in _NOT_OF_DESCRIPTION}
        infos = (get_info(records.TensorInfo, "moejit_group_layer_get_tensor", pointer, index)
                 for index in range(self.info.tensor_count))
        self.tensors: dict[str, TensorInfo] = {info.name: info for info in map(tensor_info_of, infos)}
        self._group: Group | None = None
        self._engine: Engine | None = None
        self._blocks: Blocks | None = None

    def plan(self) -> dict[str, Any]:
        """Returns the plan of this rank, in the form in which `moejit plan --json` prints the plan of rank 0."""
        return json.loads(self._text("get_plan_json"))

    def explain(self) -> str:
        """Returns the plan of this rank as text for people, with the reason for each choice."""
        return self._text("get_plan_text", 1)

    def _text(self, function: str, *arguments: int) -> str:
        text = c_char_p()
        with self._handle.use() as layer, self._exclusive:
            getattr(load(), f"moejit_group_layer_{function}")(layer, *arguments, byref(text))
            return text.value.decode()

    @property
    def group(self) -> Group | None:
        """The group that the layer is prepared for."""
        return self._group

    def prepare(self, group: Group, engine: Engine | None = None) -> GroupLayer:
        """Compiles the kernels, or fetches them from the cache, and loads them on the group's device. May be called
        once.

        Other ranks' calls wait for this one no longer than timeout_ms: wait for each other after it.

        Args:
            group: The group, of this rank and of an equal exchange.
            engine: Makes and keeps the kernels; None: an engine that all layers and operations share.

        Returns:
            The object itself.

        Raises:
            Error: As Layer.prepare(); "invalid_value": the group was adopted for another rank or exchange.
        """
        engine = engine or shared_engine()
        with self._handle.use() as layer, engine._handle.use() as kernels, group._handle.use() as of:
            load().moejit_group_layer_prepare(layer, kernels, of)
        self._group, self._engine = group, engine
        self._blocks = Blocks(group.device, self.info.workspace_bytes)
        return self

    def allocate(self, tokens: int) -> dict[str, Tensor]:
        """Returns memory for all of the caller's tensors on the group's device, filled with zeros.

        Scales of role "state" start as ones.

        Args:
            tokens: T of this rank in the calls that will use the memory.

        Raises:
            Error: "out_of_memory", ...; "invalid_value": T is less than 0 or more than max_tokens, or the layer is not
                prepared.
        """
        self._check_prepared("allocate")
        if not 0 <= tokens <= self.info.max_tokens:
            raise Error("invalid_value", "launch", f"tokens is {tokens}, wanted 0 to {self.info.max_tokens}")
        tensors = {info.name: Tensor(self._group.device.allocate(info.bytes), info.dtype, info.shape_of(tokens))
                   for info in self.tensors.values()}
        fill_first_scales(self.tensors, tensors)
        return tensors

    def update_weights(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes this rank's weights, as Layer.update_weights() does. Moves nothing between ranks."""
        self._run("update_weights", tensors, None, None, stream)

    def update_scales(self, tensors: Mapping[str, Any], pass_: str = "forward", *, stream: object = None) -> None:
        """Finds the scales of the next step, as Layer.update_scales() does. Moves nothing between ranks."""
        self._run("update_scales", tensors, None, None, stream, number_of_pass(pass_))

    def forward(self, tensors: Mapping[str, Any], *, workspace: object = None, saved: object = None,
                stream: object = None) -> Any:
        """Computes "y" of this rank's tokens.

        Args:
            tensors: "x" BF16 [T, H], "topk_ids" [T, K], ids of all experts or -1, "topk_probs" [T, K], the weights that
                `tensors` lists, and "y" BF16 [T, H]. Status bits go to the group's word.
            workspace: A block of info.workspace_bytes. None: one that the layer keeps.
            saved: A block of info.saved_bytes, for backward(). None: a new Memory, if the layer has a backward pass.
            stream: As for Layer.forward().

        Returns:
            The saved block; None if the layer has no backward pass.

        Raises:
            Error: As Layer.forward(); "invalid_state": the group takes no call.
        """
        self._check_prepared("forward")
        if saved is None and self.info.saved_bytes:
            saved = Memory(self._group.device, self.info.saved_bytes, is_zeroed=False)
        self._run("forward", tensors, workspace, saved, stream)
        return saved

    def backward(self, tensors: Mapping[str, Any], *, saved: object, mode: str = "overwrite", workspace: object = None,
                 stream: object = None) -> None:
        """Computes the gradients of this rank's tokens and experts, of the forward call that filled `saved`.

        Args:
            tensors: "dy" BF16 [T, H], "topk_ids" with T and contents of the forward call, the outputs "dx", "dprobs",
                "dw1", "dw2", ..., and the others that `tensors` lists.
            saved: The block that forward() returned.
            mode: "overwrite", or "add" to the old values of the weights' gradients.
            workspace, stream: As for forward().

        Raises:
            Error: As forward(); "unsupported": the layer has no backward pass, or its gradients are bf16 and cannot be
                added to; "invalid_state": there was no forward call.
        """
        self._run("backward", tensors, workspace, saved, stream, number_of_mode(mode))

    def _check_prepared(self, function: str) -> None:
        if self._group is None:
            raise Error("invalid_value", "launch",
                        f'{function}() of the layer "{self.description["name"]}": it is not prepared',
                        "call prepare() once before")

    def _run(self, function: str, tensors: Mapping[str, Any], workspace: object, saved: object, stream: object,
             *arguments: int) -> None:
        self._check_prepared(function)
        address = address_of(stream)
        block = NO_BLOCK if saved is None else read_block("saved", saved, self._group.device, address)
        with self._handle.use() as layer, self._blocks.workspace(workspace, address) as space:
            call = CallRecord(function, self.tensors, tensors, space, block, NO_BLOCK, address)
            getattr(load(), f"moejit_group_layer_{function}")(layer, *arguments, byref(call.record))

    def __repr__(self) -> str:
        state = "not prepared" if self._group is None else f"prepared for {self._group.device.name}"
        return (f"<moejit.GroupLayer {self.description['name']!r}, rank {self.info.rank} of {self.info.ranks}, target "
                f"{self.target}, {state}>")
