# SPDX-License-Identifier: Apache-2.0
"""Recipes whose scales follow from the steps before: the update that moves their state on by a step.

A state is eight tensors, first FORWARD_STATE and then GRADIENT_STATE. Casts record the largest magnitudes of a step in
row 0 of the histories, by max; an update moves them on. So a forward call that a checkpoint repeats before the update
records what is there already, and casts with the same scales.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from moejit.torch import ops


def update(state: Mapping[str, torch.Tensor], layer: str) -> None:
    """Moves a state on by a step: what row 0 of its histories has recorded joins the steps before.

    Columns in which nothing was recorded since the last update stay as they are, so a second update changes nothing.

    Args:
        state: The state's tensors by name.
        layer: The text of the layer.
    """
    for call in ("update_backward_scales", "update_forward_scales"):
        ops.run(layer, call, state)


def reduce_amaxes(states: Sequence[Sequence[torch.Tensor]], group: torch.distributed.ProcessGroup) -> None:
    """Makes row 0 of all histories the largest of all ranks of a group, by one collective."""
    rows = [history[0] for state in states for history in (*state[:2], *state[4:6])]
    joined = torch.cat(rows)
    torch.distributed.all_reduce(joined, torch.distributed.ReduceOp.MAX, group)
    for row, part in zip(rows, joined.split([row.numel() for row in rows])):
        row.copy_(part)
