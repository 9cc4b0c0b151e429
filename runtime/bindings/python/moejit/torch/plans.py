# SPDX-License-Identifier: Apache-2.0
"""Plans as operators name them, by a text: the last argument of each call."""
from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import torch

from moejit import texts
from moejit.layer import Layer
from moejit.operation import Operation
from moejit.torch.plan_facts import Plan, Row, plan_facts


@functools.lru_cache(maxsize=None)
def plan(description: str, target: str) -> Plan:
    """Plans the description of a layer or an operation, JSON, for a target.

    Raises:
        moejit.Error: The description is wrong, or the target cannot run it.
    """
    with (Operation if _is_operation(description) else Layer)(description, target) as planned:
        return plan_facts(planned)


def _is_operation(description: str) -> bool:
    try:
        fields = json.loads(description)
    except ValueError:
        return False  # planning tells what is wrong
    return isinstance(fields, dict) and "operation" in fields


@functools.lru_cache(maxsize=None)
def text_of(description: str, target: str) -> str:
    """Returns the text of the plan of a description, JSON."""
    planned = plan(description, target)
    return texts.make(planned.target, planned.digest, planned.description)


# The plans of layers of groups that this process has opened, by text.
_group_plans: dict[str, Plan] = {}


def add_group_plan(text: str, planned: Plan) -> None:
    """Makes plan_of() find the plan of a group's layer."""
    _group_plans[text] = planned


@functools.lru_cache(maxsize=None)
def plan_of(text: str) -> Plan:
    """Returns the plan of a text.

    Raises:
        RuntimeError: The text is malformed, belongs to another version of the library, or to a group that this process
            has not opened.
    """
    read = texts.read(text)
    if read.group:
        planned = _group_plans.get(text)
        if planned is None:
            raise RuntimeError(f"moejit: invalid_state: argument plan: it is of the group {read.group}, which this "
                               "process has not opened\nhint: graphs of groups belong to the process that made them: "
                               "compile the model again")
        return planned
    planned = plan(read.json, read.target)
    texts.check_is_current(read, planned.digest)
    return planned


@functools.lru_cache(maxsize=None)
def row_of(text: str, call: str) -> Row:
    """Returns a call of a plan as the operators make it.

    Raises:
        RuntimeError: The plan has no such call.
    """
    rows = plan_of(text).rows
    if call not in rows:
        raise RuntimeError(f"moejit: unsupported: the plan has no call {call}, it has {', '.join(rows)}\nhint: moejit plan "
                           "tells why a call is absent")
    return rows[call]


@torch.compiler.assume_constant_result
def constant_row(text: str, call: str) -> Row:
    """Returns row_of(), which torch.compile takes as a constant."""
    return row_of(text, call)


def layer_text(description: Mapping[str, Any] | str, target: str = "sim") -> str:
    """Returns the text of a layer that operators take as their last argument.

    It holds the description with every field, the library's version and the plan's digest. With these a library that
    has other sizes or kernels refuses a compiled graph from disk.

    Args:
        description: A layer description as a dict or as JSON.
        target: "sim" for CPU tensors, "cuda:sm_90a" for CUDA tensors.

    Raises:
        RuntimeError: The description is wrong, or the target cannot run it.
    """
    return text_of(description if isinstance(description, str) else json.dumps(description), target)


def operation_text(description: Mapping[str, Any] | str, target: str = "sim") -> str:
    """Returns layer_text() of an operation, whose description docs/operations-api.md describes."""
    return text_of(description if isinstance(description, str) else json.dumps(description), target)
