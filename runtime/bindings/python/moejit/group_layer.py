# SPDX-License-Identifier: Apache-2.0
"""Layers whose experts the ranks of a group share."""
from __future__ import annotations

import os
from typing import Any, Mapping

from moejit.engine import Engine
from moejit.errors import Error
from moejit.group import Group
from moejit.layer import Layer
from moejit.sources import Paths
from moejit.tensors import Tensor


class GroupLayer(Layer):
    """One rank's part of a layer with "expert_parallel": planned when it is made, ready for calls after prepare().

    A call sends this rank's tokens to the ranks of their experts. It runs this rank's experts for the tokens of all
    ranks, and brings the results home. All is on one stream. All ranks make the same calls in the same order, each with
    a T of its own from 0 to max_tokens. Updates of weights and scales move nothing between ranks.

    Tensors are given as to Layer, but "topk_ids" are ids of all experts or -1. backward() takes the "topk_ids" of its
    forward call again. Status bits go to the group's word. docs/expert-parallelism.md says what calls compute.

    Attributes:
        description: The layer description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        info: PlanInfo, figures of the plan.
        identity: Text with what all ranks of a group have to agree on, for GroupMember.
        plan_digest: The digest of the plan of this rank's experts.
        tensors: TensorInfo of the caller's tensors, by name: tokens of this rank, ids of all experts, weights and
            gradients of this rank's experts.
    """

    _kind = "group_layer"

    def __init__(self, description: Mapping[str, Any] | str | os.PathLike, target: str, *, rank: int,
                 timeout_ms: int = 10000, keep_intermediates: bool = False, tuning: Paths = None) -> None:
        """Reads a layer description and plans a rank of it. Compiles nothing, and needs no device.

        Args:
            description: A dict, JSON, or the path of a file, with "expert_parallel".
            target: "cuda:sm_90a" or "sim".
            rank: The number of this rank, from 0.
            timeout_ms: How long a call waits for another rank.
            keep_intermediates: Whether tensors between kernels stay readable in the workspace after a call.
            tuning: Tuning records to plan with, as for Layer; the same on all ranks.

        Raises:
            Error: As Layer(); "unsupported": also for a layer without "expert_parallel", or a rank that it lacks.
        """
        self._group: Group | None = None
        self._plan(description, target, None, tuning, keep_intermediates=keep_intermediates, rank=rank,
                   timeout_ms=timeout_ms)
        self.identity: str = self.info.identity
        self.plan_digest: str = self.info.plan_digest

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
        self._prepare_at(group, "moejit_plan_prepare_in_group", group.device, engine)
        self._group = group
        return self

    def allocate(self, tokens: int) -> dict[str, Tensor]:
        """Returns memory for all of the caller's tensors on the group's device, as Layer.allocate() does.

        Raises:
            Error: As Layer.allocate(); "invalid_value": also if the layer is not prepared.
        """
        if self._group is None:
            raise Error("invalid_value", "launch", f"allocate() of the layer {self.info.name}: it is not prepared",
                        "call prepare() once before")
        return super().allocate(tokens)

    def __repr__(self) -> str:
        state = "not prepared" if self._group is None else f"prepared for {self._group.device.name}"
        return (f"<moejit.GroupLayer {self.info.name!r}, rank {self.info.rank} of {self.info.ranks}, target "
                f"{self.target}, {state}>")
