# SPDX-License-Identifier: Apache-2.0
"""What the operators need of layers' plans."""
from __future__ import annotations

import dataclasses
import functools
import json

from moejit import library
from moejit.info import TensorInfo
from moejit.layer import Layer

_SLICE_ALIGNMENT = 256


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the operators need of a layer's plan on a target."""
    version: str
    target: str
    digest: str
    json: str  # with every field
    max_tokens: int
    saved_bytes: int
    saved_fixed_bytes: int
    saved_bytes_per_token: int
    deferred_bytes: int
    deferred_fixed_bytes: int
    deferred_bytes_per_token: int
    tensors: dict[str, TensorInfo] = dataclasses.field(hash=False)

    @functools.cached_property
    def quantized_bytes(self) -> int:
        """Bytes of the block of quantised weights, each of which begins at a multiple of 256."""
        return sum(-(-tensor.bytes // _SLICE_ALIGNMENT) * _SLICE_ALIGNMENT for tensor in self.quantized)

    @functools.cached_property
    def quantized_key(self) -> str:
        """What decides the bytes of that block: equal for layers that differ only in their tokens."""
        fields = json.loads(self.json)
        return json.dumps([self.target, fields["recipe"], fields["gate_up_layout"], fields.get("scale_sharing_k"),
                           [[tensor.name, tensor.shape] for tensor in self.quantized]])

    @functools.cached_property
    def quantized(self) -> tuple[TensorInfo, ...]:
        """The quantised weights in the order of their block."""
        return tuple(tensor for tensor in self.tensors.values() if tensor.role == "quantized")


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
        return Plan(version=library.version(), target=target, digest=info.plan_digest, json=json.dumps(layer.description),
                    max_tokens=info.max_tokens, saved_bytes=info.saved_bytes, saved_fixed_bytes=info.saved_fixed_bytes,
                    saved_bytes_per_token=info.saved_bytes_per_token, deferred_bytes=info.deferred_bytes,
                    deferred_fixed_bytes=info.deferred_fixed_bytes,
                    deferred_bytes_per_token=info.deferred_bytes_per_token, tensors=layer.tensors)
