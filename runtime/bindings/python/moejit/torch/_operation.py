# SPDX-License-Identifier: Apache-2.0
"""Texts of operations, and the parts of their plans that the operator needs."""
from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import torch

from moejit.info import TensorInfo
from moejit.operation import Operation
from moejit.torch import texts

# Symbols of dimensions that may be smaller in a call.
_OF_CALL = ("T", "P", "C", "C/128")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of an operation's plan on a target that the operator needs."""
    target: str
    digest: str
    description: dict[str, Any] = dataclasses.field(hash=False)  # has every field
    inputs: tuple[TensorInfo, ...]  # in the plan's order, without optional ones
    outputs: tuple[TensorInfo, ...]  # in the plan's order, without optional ones

    def sizes(self, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
        """Returns the sizes of a call by symbol. An output's size that no input has is the most that may be needed.

        The library has the same rules (compiler/call_dims.h); here a size may be a symbol of torch.compile.
        """
        told: dict[str, int] = {}
        for info, tensor in zip(self.inputs, inputs):
            for symbol, size in zip(info.symbols, tensor.shape):
                if symbol in _OF_CALL:
                    told.setdefault(symbol, size)
        if "T" in told:
            told.setdefault("P", self._permuted_rows(told["T"]))
        if "P" in told:
            told.setdefault("C/128", self._column_blocks(told["P"]))
        return told

    def _permuted_rows(self, tokens: int) -> int:
        fields = self.description
        if "max_permuted_rows" not in fields:
            return 0  # no tensor has P
        top_k, alignment, most = fields["top_k"], fields["splits_alignment"], fields["max_permuted_rows"]

        def needed(tokens: int) -> int:
            routed = torch.sym_max(tokens, 1) * top_k
            return (routed + torch.sym_min(fields["local_experts"], routed) * (alignment - 1)) // alignment * alignment

        if needed(fields["max_tokens"]) < most and tokens == fields["max_tokens"]:
            return most
        return torch.sym_min(needed(tokens), most)

    def _column_blocks(self, rows: int) -> int:
        some = torch.sym_max(rows, 1)
        return (some + torch.sym_min(self.description.get("local_experts", 1), some) * 127 + 127) // 128


@functools.lru_cache(maxsize=None)
def _plan(description: str, target: str) -> Plan:
    with Operation(description, target) as operation:
        needed = [info for info in operation.tensors.values() if not info.is_optional]
        return Plan(target=target, digest=operation.info.plan_digest, description=operation.description,
                    inputs=tuple(info for info in needed if info.role != "output"),
                    outputs=tuple(info for info in needed if info.role == "output"))


@functools.lru_cache(maxsize=None)
def plan_of(operation: str) -> Plan:
    """Returns the plan of an operation's text.

    Raises:
        RuntimeError: The text is malformed, or belongs to another version of the library.
    """
    text = texts.read(operation, "operation")
    planned = _plan(text.json, text.target)
    texts.check_is_current(text, planned.digest)
    return planned


@functools.lru_cache(maxsize=None)
def _text(description: str, target: str) -> str:
    planned = _plan(description, target)
    return texts.make(target, planned.digest, json.dumps(planned.description))


def operation_text(description: dict[str, Any] | str, target: str = "sim") -> str:
    """Returns the text that the overloads of torch.ops.moejit.operation take as their last argument.

    Args:
        description: The description of an operation as a dict or as JSON (docs/operations-api.md).
        target: "sim" for CPU tensors, "cuda:sm_90a" for CUDA tensors.

    Raises:
        RuntimeError: The description is wrong, or the target cannot run it.
    """
    return _text(description if isinstance(description, str) else json.dumps(description), target)


@functools.lru_cache(maxsize=None)
def _call_text(target: str, fields: tuple[tuple[str, Any], ...]) -> str:
    description = dict(fields)
    if "activation" in description:
        description["activation"] = json.loads(description["activation"])
    return operation_text(description, target)


@functools.lru_cache(maxsize=None)
def _names(operation: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    planned = plan_of(operation)
    return tuple(info.name for info in planned.inputs), tuple(info.name for info in planned.outputs)


@functools.lru_cache(maxsize=None)
def _has_gate(activation: str) -> bool:
    planned = _plan(f'{{"operation": "activation", "local_experts": 1, "max_permuted_rows": 128, "intermediate": 128, '
                    f'"activation": {activation}}}', "sim")
    return planned.inputs[0].shape[1] == 256


# torch.compile treats the results of these as constants, and does not trace the planning.
@torch.compiler.assume_constant_result
def call_text(target: str, fields: tuple[tuple[str, Any], ...]) -> str:
    """Returns the text of the operation whose description has these fields. An activation is given as JSON."""
    return _call_text(target, fields)


@torch.compiler.assume_constant_result
def constant_text(description: str, target: str) -> str:
    """Returns the text of a description in JSON."""
    return _text(description, target)


@torch.compiler.assume_constant_result
def names_of(operation: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the inputs and of the outputs, in the order of the operator's tensors."""
    return _names(operation)


@torch.compiler.assume_constant_result
def has_gate(activation: str) -> bool:
    """Returns whether an activation, given as JSON, uses gate and up."""
    return _has_gate(activation)
