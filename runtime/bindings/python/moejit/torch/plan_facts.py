# SPDX-License-Identifier: Apache-2.0
"""The facts of plans that operators need: blocks of memory, and calls as rows of what they read and write."""
from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from moejit import records
from moejit.info import CallInfo, TensorInfo
from moejit.planned import Planned

DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I32": torch.int32, "I64": torch.int64, "U32": torch.int32, "U8": torch.uint8,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
          "F4_E2M1X2": torch.uint8}
# Symbols of dimensions that may be smaller in a call: T alone for layers.
_OF_CALL = ("T", "P", "C", "C/128")


class BlockSize(NamedTuple):
    """The bytes of a block of a call over T tokens: fixed + T * per_token, but at most `most`."""
    most: int
    fixed: int
    per_token: int


class Argument(NamedTuple):
    """A tensor that a call takes or makes: a tensor of the plan, or a block of memory, whose dtype is uint8.

    Attributes:
        shape: A size, the symbol of a size that follows from the call, or the size of a block, for each dimension.
        digest: Of a block of quantized weights that the call also reads: first byte and bytes of what has to begin as
            zeros.
        is_read: Whether the call reads what it writes, so that a new tensor begins as zeros.
    """
    name: str
    dtype: torch.dtype
    shape: tuple[int | str | BlockSize, ...]
    digest: tuple[int, int] | None
    is_read: bool
    is_optional: bool
    is_shape_only: bool


class Row(NamedTuple):
    """A call as the operators make it.

    Attributes:
        reads: Tensors that the call only reads, in the operators' order.
        writes: What the call writes, in the operators' order.
        made: Names of what the operator `call` returns.
        tokens: A tensor and a dimension of it that is T; None: the call has no T.
        is_of_all_ranks: Whether all ranks of a group make the call.
        named_reads: `reads` with the tensors of quantized weights in place of their blocks, which the operators take as
            well; empty if the call reads no block of them.
        code: Of these, the name of the first such tensor.
        has_gate: Whether it reads probabilities of shared experts.
    """
    reads: tuple[Argument, ...]
    writes: tuple[Argument, ...]
    made: tuple[str, ...]
    tokens: tuple[str, int] | None
    is_of_all_ranks: bool
    named_reads: tuple[Argument, ...]
    code: str | None
    has_gate: bool

    def reads_of(self, count: int) -> tuple[Argument, ...]:
        """Returns what so many tensors are that a call only reads."""
        return self.named_reads if self.named_reads and count == len(self.named_reads) else self.reads


@dataclasses.dataclass(frozen=True)
class Block:
    """One of the two blocks of quantized weights."""
    tensors: tuple[TensorInfo, ...]
    bytes: int
    recipe: str  # everything else that decides the bytes of codes and scales

    @functools.cached_property
    def key(self) -> str:
        """The value that decides the block's bytes: equal for layers that differ only in their tokens or gradients."""
        return json.dumps([self.recipe, [[tensor.name, tensor.shape] for tensor in self.tensors]])


@dataclasses.dataclass(frozen=True)
class Plan:
    """The facts of a plan on a target that operators need."""
    target: str
    digest: str
    description: dict[str, Any] = dataclasses.field(hash=False)  # with every field
    max_tokens: int
    saved: BlockSize
    deferred: BlockSize
    workspace_bytes: int  # of the call that needs the most
    block_bytes: tuple[int, int]  # of quantized weights, row-wise and column-wise
    tensors: dict[str, TensorInfo] = dataclasses.field(hash=False)
    calls: dict[str, CallInfo] = dataclasses.field(hash=False)

    @functools.cached_property
    def quantized(self) -> Block:
        """The row-wise quantized weights, which forward reads, with the digest, which only update_weights() reads."""
        return self._block(0)

    @functools.cached_property
    def quantized_colwise(self) -> Block:
        """The column-wise quantized weights, which only backward reads."""
        return self._block(1)

    @property
    def has_state(self) -> bool:
        """Whether scales follow from the steps before, so that calls read and write a state."""
        return any(tensor.role == "state" for tensor in self.tensors.values())

    @functools.cached_property
    def rows(self) -> dict[str, Row]:
        """The calls as the operators make them, by name."""
        return {name: self._row(call) for name, call in self.calls.items()}

    def sizes(self, given: Iterable[tuple[Argument, torch.Tensor]]) -> dict[str, int]:
        """Returns the sizes of a call by symbol. A size that no tensor has is the most that may be needed.

        The library has the same rules (compiler/call_dims.h); here a size may be a symbol of torch.compile.
        """
        told: dict[str, int] = {}
        for argument, tensor in given:
            for symbol, size in zip(argument.shape, tensor.shape):
                if isinstance(symbol, str):
                    told.setdefault(symbol, size)
        if "T" in told:
            told.setdefault("P", self._permuted_rows(told["T"]))
        if "P" in told:
            told.setdefault("C/128", self._column_blocks(told["P"]))
        return told

    def _permuted_rows(self, tokens: int) -> int:
        fields = self.description
        if not {"top_k", "max_permuted_rows"} <= fields.keys():
            return 0  # no tensor has P
        alignment, most = fields["splits_alignment"], fields["max_permuted_rows"]

        def needed(tokens: int) -> int:
            routed = torch.sym_max(tokens, 1) * (fields["top_k"] + self._shared_experts)
            return (routed + torch.sym_min(self._held_experts, routed) * (alignment - 1)) // alignment * alignment

        if needed(fields["max_tokens"]) < most and tokens == fields["max_tokens"]:
            return most
        return torch.sym_min(needed(tokens), most)

    def _column_blocks(self, rows: int) -> int:
        some = torch.sym_max(rows, 1)
        return (some + torch.sym_min(self._held_experts, some) * 127 + 127) // 128

    @property
    def _shared_experts(self) -> int:
        return self.description.get("shared", {}).get("experts", 0)

    @property
    def _held_experts(self) -> int:
        return self.description.get("local_experts", 1) + self._shared_experts

    def _block(self, number: int) -> Block:
        fields = self.description
        recipe = json.dumps([self.target, fields.get("recipe"), fields.get("gate_up_layout"),
                             fields.get("scale_sharing_k"), fields.get("power_of_2_scales"),
                             fields.get("gradient_format")])
        return Block(tuple(tensor for tensor in self.tensors.values()
                           if tensor.quantized_block == number), self.block_bytes[number], recipe)

    def _row(self, call: CallInfo) -> Row:
        arguments: dict[str, Argument] = {}
        written = set()
        for tensor in self.tensors.values():
            if tensor.name not in call.tensors:
                continue
            argument = self._argument(tensor, call)
            if argument.digest is not None or argument.name not in arguments:
                arguments[argument.name] = argument
            if tensor.name in call.writes:
                written.add(argument.name)
        for name, size in (("saved", self.saved), ("deferred", self.deferred)):
            if call.blocks[name] and size.most:
                arguments[name] = Argument(name, torch.uint8, (size,), None, False, False, False)
                if call.blocks[name] & records.WRITE:
                    written.add(name)
        reads = tuple(argument for name, argument in arguments.items() if name not in written)
        writes = tuple(argument for name, argument in arguments.items() if name in written)
        with_tokens = ((argument.name, argument.shape.index("T")) for argument in reads
                       if "T" in argument.shape and not argument.is_optional)
        named, code = self._named(reads, call)
        return Row(reads, writes, tuple(argument.name for argument in writes if not argument.is_optional),
                   next(with_tokens, None), call.is_of_all_ranks, named, code, "shared_probs" in arguments)

    def _named(self, reads: tuple[Argument, ...], call: CallInfo) -> tuple[tuple[Argument, ...], str | None]:
        """Returns Row.named_reads and Row.code."""
        blocks = {"quantized": self.quantized, "quantized_colwise": self.quantized_colwise}
        named, code = [], None
        for argument in reads:
            if argument.name not in blocks:
                named.append(argument)
                continue
            for tensor in blocks[argument.name].tensors:
                if tensor.name in call.tensors:
                    code = code or tensor.name
                    named.append(Argument(tensor.name, DTYPES[tensor.dtype], tensor.shape, None, True, False, False))
        return (tuple(named), code) if code else ((), None)

    def _argument(self, tensor: TensorInfo, call: CallInfo) -> Argument:
        is_read = tensor.name in call.reads
        if tensor.role == "quantized":
            digest = None
            if is_read and tensor.name in call.writes:
                digest = tensor.quantized_offset, tensor.bytes
            return Argument(("quantized", "quantized_colwise")[tensor.quantized_block], torch.uint8,
                            (self.block_bytes[tensor.quantized_block],), digest, False, False, False)
        return Argument(tensor.name, DTYPES[tensor.dtype],
                        tuple(symbol if symbol in self._symbols else size
                              for symbol, size in zip(tensor.symbols, tensor.shape)),
                        None, is_read, tensor.name in call.optional, tensor.name in call.shape_only)

    @property
    def _symbols(self) -> tuple[str, ...]:
        return _OF_CALL if "operation" in self.description else _OF_CALL[:1]


def plan_facts(planned: Planned) -> Plan:
    """Returns the facts of a layer's, a group layer's or an operation's plan."""
    info = planned.info
    saved = BlockSize(info.saved_bytes, info.saved_fixed_bytes, info.saved_bytes_per_token)
    deferred = BlockSize(info.deferred_bytes, info.deferred_fixed_bytes, info.deferred_bytes_per_token)
    return Plan(planned.target, info.plan_digest, planned.description, info.max_tokens, saved, deferred,
                info.workspace_bytes, (info.quantized_rowwise_bytes, info.quantized_colwise_bytes), planned.tensors,
                planned.calls)
