# SPDX-License-Identifier: Apache-2.0
"""The parts of layers' plans that the operators need."""
from __future__ import annotations

import dataclasses
import functools
import itertools
import json

from moejit.group_layer import GroupLayer
from moejit.info import TensorInfo
from moejit.layer import Layer

_SLICE_ALIGNMENT = 256


@dataclasses.dataclass(frozen=True)
class Block:
    """One of the two blocks of quantized weights."""
    tensors: tuple[TensorInfo, ...]  # consecutive, each at a multiple of 256 bytes
    recipe: str  # everything else that decides the bytes of codes and scales

    @functools.cached_property
    def offsets(self) -> tuple[int, ...]:
        """Returns the place of each tensor, followed by the bytes of the block."""
        sizes = (-(-tensor.bytes // _SLICE_ALIGNMENT) * _SLICE_ALIGNMENT for tensor in self.tensors)
        return tuple(itertools.accumulate(sizes, initial=0))

    @property
    def bytes(self) -> int:
        """The bytes of the block."""
        return self.offsets[-1]

    @functools.cached_property
    def key(self) -> str:
        """The value that decides the block's bytes: equal for layers that differ only in their tokens or gradients."""
        return json.dumps([self.recipe, [[tensor.name, tensor.shape] for tensor in self.tensors]])


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a layer's plan on a target that the operators need."""
    target: str
    digest: str
    json: str  # has every field
    max_tokens: int
    saved_bytes: int
    saved_fixed_bytes: int
    saved_bytes_per_token: int
    deferred_bytes: int
    deferred_fixed_bytes: int
    deferred_bytes_per_token: int
    tensors: dict[str, TensorInfo] = dataclasses.field(hash=False)

    @functools.cached_property
    def quantized(self) -> Block:
        """The row-wise quantized weights, which forward reads, with the digest, which only update_weights() reads."""
        return self._block(is_rowwise=True)

    @functools.cached_property
    def quantized_colwise(self) -> Block:
        """The column-wise quantized weights, which only backward reads."""
        return self._block(is_rowwise=False)

    @functools.cached_property
    def backward_reads_quantized(self) -> bool:
        """Whether backward reads row-wise weights too, which it does if it recomputes activations."""
        return any(tensor.used_by - {"update_weights", "forward"} for tensor in self.quantized.tensors)

    @functools.cached_property
    def backward_reads_x(self) -> bool:
        """Whether backward reads x again, which it does if it quantizes values of x for the gradients of weights."""
        return "x" in self.tensors and bool(self.tensors["x"].used_by - {"forward"})

    @property
    def has_state(self) -> bool:
        """Whether scales follow from the steps before, so that calls read and write a state."""
        return any(tensor.role == "state" for tensor in self.tensors.values())

    def _block(self, is_rowwise: bool) -> Block:
        fields = json.loads(self.json)
        recipe = json.dumps([self.target, fields["recipe"], fields["gate_up_layout"], fields.get("scale_sharing_k"),
                             fields.get("power_of_2_scales"), fields.get("gradient_format")])
        return Block(tuple(tensor for tensor in self.tensors.values()
                           if tensor.role == "quantized" and _is_rowwise(tensor) == is_rowwise), recipe)


def _is_rowwise(tensor: TensorInfo) -> bool:
    """Returns whether quantized weights, or their digest, belong to the row-wise block."""
    return "forward" in tensor.used_by or tensor.used_by == {"update_weights"}


@functools.lru_cache(maxsize=None)
def plan(json_text: str, target: str) -> Plan:
    """Plans a layer description for a target.

    Args:
        json_text: The layer description, JSON.
        target: "sim" or "cuda:sm_90a".

    Raises:
        moejit.Error: The description is wrong, or the target cannot run it.
    """
    with Layer(json_text, target) as layer:
        info = layer.info
        return Plan(target=target, digest=info.plan_digest, json=json.dumps(layer.description),
                    max_tokens=info.max_tokens, saved_bytes=info.saved_bytes, saved_fixed_bytes=info.saved_fixed_bytes,
                    saved_bytes_per_token=info.saved_bytes_per_token, deferred_bytes=info.deferred_bytes,
                    deferred_fixed_bytes=info.deferred_fixed_bytes,
                    deferred_bytes_per_token=info.deferred_bytes_per_token, tensors=layer.tensors)


def group_plan(layer: GroupLayer) -> Plan:
    """Returns the plan of a rank's layer of a group, whose saved block has one size for all tokens."""
    info = layer.info
    return Plan(target=layer.target, digest=layer.plan_digest, json=json.dumps(layer.description),
                max_tokens=info.max_tokens, saved_bytes=info.saved_bytes, saved_fixed_bytes=info.saved_bytes,
                saved_bytes_per_token=0, deferred_bytes=0, deferred_fixed_bytes=0, deferred_bytes_per_token=0,
                tensors=layer.tensors)
