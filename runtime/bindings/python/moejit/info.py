# SPDX-License-Identifier: Apache-2.0
"""What the library tells of its objects, as plain values."""
from __future__ import annotations

import dataclasses
from typing import Any

from moejit import records


def _values_class(name: str, record: type[records.Record], doc: str) -> type:
    """Makes a frozen dataclass with the record's fields that are numbers and texts."""
    made = dataclasses.make_dataclass(name, list(records.values_of(record())), frozen=True)
    made.__doc__, made.__module__ = doc, "moejit"
    return made


EngineInfo = _values_class("EngineInfo", records.EngineInfo, "The fields of moejit_engine_info: what an engine did.")
LayerInfo = _values_class("LayerInfo", records.LayerInfo, "The fields of moejit_layer_info: figures of a plan.")
OperationInfo = _values_class("OperationInfo", records.OperationInfo,
                              "The fields of moejit_operation_info: figures of a plan.")
Sizes = _values_class("Sizes", records.LayerSizes,
                      "The fields of moejit_layer_sizes: what the blocks of a call have at least.")


def info_of(kind: type, record: records.Record) -> Any:
    """Returns a class of this module made of its record; numbers that say yes or no become bool."""
    return kind(**{name: bool(value) if name.startswith(("is_", "has_")) else value
                   for name, value in records.values_of(record).items()})


@dataclasses.dataclass(frozen=True)
class TensorPlace:
    """Where a tensor is in a call over so many tokens."""
    offset: int  # in the saved or deferred block or the workspace; -1: it is the caller's
    bytes: int
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor of a plan."""
    name: str
    dtype: str  # "BF16", "F8_E4M3", ...
    shape: tuple[int, ...]  # with every dimension at its bound
    symbols: tuple[str, ...]  # names of the dimensions; "T" may be smaller in a call, of operations "P" and "C" too
    bytes: int  # with every dimension at its bound
    offset: int  # in the block that it is in; -1: it is the caller's
    role: str  # "input", "weight", "quantized", "output", "saved", "workspace", "deferred", "dispatched"
    used_by: frozenset[str]  # the names of methods of Layer: "update_weights", "forward", ...; or "run", of Operation
    is_optional: bool  # calls may leave it out
    is_updated: bool  # calls read what this output holds: bits are or-ed in, values added

    @property
    def is_callers(self) -> bool:
        """Whether the caller brings its memory, as a tensor of the call."""
        return self.role not in ("saved", "workspace", "deferred")

    def shape_of(self, tokens: int | None, rows: int | None = None, columns: int | None = None) -> tuple[int, ...]:
        """Returns the shape in a call over T tokens, P rows and C columns; None: at its bound."""
        given = {"T": tokens, "P": rows, "C": columns, "C/128": None if columns is None else columns // 128}
        return tuple(size if given.get(symbol) is None else given[symbol]
                     for symbol, size in zip(self.symbols, self.shape))


def tensor_info_of(record: records.TensorInfo) -> TensorInfo:
    """Returns a record's values."""
    return TensorInfo(
        name=record.name.decode(), dtype=record.dtype_name.decode(), shape=tuple(record.shape[:record.ndim]),
        symbols=tuple(symbol.decode() for symbol in record.symbols[:record.ndim]), bytes=record.bytes,
        offset=record.offset, role=records.ROLES[record.role],
        used_by=frozenset(name for name, bit in records.USED_BY.items() if record.used_by & bit),
        is_optional=bool(record.is_optional), is_updated=bool(record.is_updated))
