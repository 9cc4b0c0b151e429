# SPDX-License-Identifier: Apache-2.0
"""The library's facts about its objects, as plain values."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable, Sequence

from moejit import records


def _values_class(name: str, record: type[records.Record], doc: str) -> type:
    """Makes a frozen dataclass of the record's fields that are numbers or texts."""
    made = dataclasses.make_dataclass(name, list(records.values_of(record())), frozen=True)
    made.__doc__, made.__module__ = doc, "moejit"
    return made


EngineInfo = _values_class("EngineInfo", records.EngineInfo, "The fields of moejit_engine_info: what an engine did.")
PlanInfo = _values_class("PlanInfo", records.PlanInfo, "The fields of moejit_plan_info: figures of a plan.")
Sizes = _values_class("Sizes", records.PlanSizes,
                      "The fields of moejit_plan_sizes: what the blocks of a call have at least.")


def info_of(kind: type, record: records.Record) -> Any:
    """Returns an object of a class of this module, made from its record; fields is_... and has_... become bool."""
    return kind(**{name: bool(value) if name.startswith(("is_", "has_")) else value
                   for name, value in records.values_of(record).items()})


@dataclasses.dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor in a call with a given number of tokens."""
    offset: int  # in the saved, deferred or workspace block; -1: the caller brings the tensor
    bytes: int
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor of a plan."""
    name: str
    dtype: str  # "BF16", "F8_E4M3", ...
    shape: tuple[int, ...]  # with every dimension at its bound
    symbols: tuple[str, ...]  # names of the dimensions; "T" may be smaller in a call, for operations also "P" and "C"
    bytes: int  # with every dimension at its bound
    offset: int  # in its block; -1: the caller brings the tensor
    role: str  # one of records.ROLES: "input", "weight", "quantized", "output", ...
    used_by: frozenset[str]  # names of calls: "update_weights", "forward", ...; "run" for an Operation
    is_optional: bool  # whether calls may leave it out
    is_updated: bool  # whether calls read the old content of this output: they set more bits, or add to values
    first_value: float  # of role "state": of all elements, before the first step
    first_use: int  # the first and the last kernel that touch it, over all calls; -1: none does
    last_use: int
    quantized_block: int = -1  # of role "quantized": 0, or 1 for what only backward reads; others: -1
    quantized_offset: int = -1  # of its first byte in that block of bytes

    @property
    def is_callers(self) -> bool:
        """Whether the caller brings the memory, as a tensor of the call."""
        return self.role not in ("saved", "workspace", "deferred", "group")

    def shape_of(self, tokens: int | None, rows: int | None = None, columns: int | None = None) -> tuple[int, ...]:
        """Returns the shape in a call with T tokens, P rows and C columns. None: the dimension is at its bound."""
        given = {"T": tokens, "P": rows, "C": columns, "C/128": None if columns is None else columns // 128}
        return tuple(size if given.get(symbol) is None else given[symbol]
                     for symbol, size in zip(self.symbols, self.shape))


@dataclasses.dataclass(frozen=True)
class CallInfo:
    """A call of a plan."""
    name: str  # "forward", "backward+add", "run", ...
    tensors: frozenset[str]  # names of the tensors that it takes
    reads: frozenset[str]
    writes: frozenset[str]
    optional: frozenset[str]  # tensors that the call may leave out
    shape_only: frozenset[str]  # tensors that only tell T
    blocks: dict[str, int]  # records.READ or WRITE for "workspace", "saved" and "deferred"; 0: not used
    adds: bool  # whether it adds to the gradients of weights and biases
    is_of_all_ranks: bool  # whether all ranks of a group make it together
    workspace_bytes: int  # of the workspace that it needs over max_tokens; over fewer tokens it needs no more


def call_info_of(record: records.CallInfo, names: Sequence[str]) -> CallInfo:
    """Returns the values of a record; `names` are the names of the plan's tensors."""
    given = [(names[tensor.index], tensor) for tensor in record.tensors[:record.tensor_count]]

    def select(is_meant: Callable[[records.CallTensor], int]) -> frozenset[str]:
        return frozenset(name for name, tensor in given if is_meant(tensor))

    return CallInfo(
        name=record.name.decode(), tensors=frozenset(name for name, _ in given),
        reads=select(lambda tensor: tensor.access & records.READ),
        writes=select(lambda tensor: tensor.access & records.WRITE), optional=select(lambda tensor: tensor.is_optional),
        shape_only=select(lambda tensor: tensor.is_shape_only),
        blocks={name: getattr(record, name) for name in ("workspace", "saved", "deferred")},
        adds=bool(record.adds), is_of_all_ranks=bool(record.is_of_all_ranks), workspace_bytes=record.workspace_bytes)


def tensor_info_of(record: records.TensorInfo, calls: Iterable[CallInfo]) -> TensorInfo:
    """Returns the values of a record of a plan with these calls."""
    name = record.name.decode()
    return TensorInfo(
        name=name, dtype=record.dtype_name.decode(), shape=tuple(record.shape[:record.ndim]),
        symbols=tuple(symbol.decode() for symbol in record.symbols[:record.ndim]), bytes=record.bytes,
        offset=record.offset, role=records.ROLES[record.role],
        used_by=frozenset(call.name for call in calls if name in call.tensors),
        is_optional=bool(record.is_optional), is_updated=bool(record.is_updated), first_value=record.first_value,
        first_use=record.first_use, last_use=record.last_use,
        quantized_block=record.quantized_block, quantized_offset=record.quantized_offset)
