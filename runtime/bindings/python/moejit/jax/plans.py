# SPDX-License-Identifier: Apache-2.0
"""Plans of layers and operations as values that jit takes as static, and the arrays that their calls take and make."""
from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from moejit import records, texts
from moejit.errors import Error
from moejit.info import TensorInfo
from moejit.layer import Layer
from moejit.operation import Operation
from moejit.sources import read_source

DTYPES = {"BF16": jnp.bfloat16, "F32": jnp.float32, "I32": jnp.int32, "I64": jnp.int64, "U32": jnp.uint32,
          "U8": jnp.uint8, "F8_E4M3": jnp.float8_e4m3fn, "F8_E5M2": jnp.float8_e5m2}
# The blocks of quantized weights by their number: what forward reads, and what only backward reads.
_QUANTIZED = ("quantized", "quantized_colwise")
# What experts() gives to forward; whatever else a layer reads there it refuses.
_GIVEN = ("x", "topk_ids", "topk_probs")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A planned layer or operation. It is hashable, so that functions may close over it or take it as a static argument.

    Attributes:
        text: "moejit VERSION TARGET DIGEST JSON". Compiled programs hold it, and a library that has another version or
            plan refuses them.
    """
    text: str

    @property
    def description(self) -> dict[str, Any]:
        """The layer description with every field."""
        return json.loads(texts.read(self.text).json)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors of the plan, by name."""
        return self._layer.tensors

    @property
    def max_tokens(self) -> int:
        return self._layer.info.max_tokens

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights and biases, the keys of `params`."""
        return tuple(name for name, tensor in self.tensors.items()
                     if tensor.role == "weight" and not tensor.is_optional)

    @property
    def state(self) -> tuple[str, ...]:
        """Names of what the layer keeps from step to step, the keys of `state`; none but with the recipe fp8_delayed."""
        return tuple(name for name, tensor in self.tensors.items() if tensor.role == "state")

    def with_gradients(self, names: frozenset[str]) -> Plan:
        """Returns the plan that computes of its own gradients ("dx", "dprobs", "dw1", ...) only these, one or more."""
        own = self.description["gradients"]
        wanted = tuple(name for name in own if name in names)
        return self if wanted in ((), tuple(own)) else self.with_fields(gradients=wanted)

    def with_fields(self, **fields: Any) -> Plan:
        """Returns the plan of the description with other fields."""
        return _with_fields(self.text, tuple(fields.items()))

    def has_blocks_of(self, other: Plan) -> bool:
        """Returns whether quantized weights lie in blocks of another plan where this one looks for them."""
        return _places(self.text).items() <= _places(other.text).items()

    def has_call(self, call: str) -> bool:
        return call in self._layer.calls

    def reads(self, call: str) -> tuple[str, ...]:
        """Returns the names of tensors and blocks that a call only reads and needs."""
        return _arguments(self.text, call)[0]

    def writes(self, call: str) -> tuple[str, ...]:
        """Returns the names of tensors and blocks that a call writes, the workspace last."""
        return _arguments(self.text, call)[1]

    def struct(self, name: str, tokens: Any, call: str = "forward") -> jax.ShapeDtypeStruct:
        """Returns shape and dtype of a tensor or block in a call over so many tokens, a number or a dimension of export.

        Blocks for a number that is not known yet have room for max_tokens.
        """
        if name in self.tensors:
            tensor = self.tensors[name]
            if tensor.dtype == "I64" and tensor.is_updated:  # sums; without x64 JAX has no 64-bit integers
                return jax.ShapeDtypeStruct((*tensor.shape_of(tokens), 2), jnp.uint32)
            return jax.ShapeDtypeStruct(tensor.shape_of(tokens), DTYPES[tensor.dtype])
        return jax.ShapeDtypeStruct((self._block_bytes(name, tokens, call),), jnp.uint8)

    def _block_bytes(self, name: str, tokens: int, call: str) -> int:
        info, sizes = self._layer.info, self._layer.sizes(tokens if isinstance(tokens, int) else self.max_tokens)
        if name == "workspace":
            return min(sizes.workspace_bytes, self._layer.calls[call].workspace_bytes)
        return {"quantized": info.quantized_rowwise_bytes, "quantized_colwise": info.quantized_colwise_bytes,
                "saved": sizes.saved_bytes}[name]

    @property
    def _layer(self) -> Layer | Operation:
        return _layer_of(self.text)


@functools.lru_cache(maxsize=None)
def _layer_of(text: str) -> Layer | Operation:
    read = texts.read(text)
    description = json.loads(read.json)
    return (Operation if "operation" in description else Layer)(description, read.target)


@functools.lru_cache(maxsize=None)
def _with_fields(text: str, fields: tuple[tuple[str, Any], ...]) -> Plan:
    layer = _layer_of(text)
    return _plan_of(Layer({**layer.description, **dict(fields)}, layer.target))


@functools.lru_cache(maxsize=None)
def _places(text: str) -> dict[Any, int]:
    """Returns the offsets of quantized weights in their blocks, and the bytes of blocks that calls read."""
    layer = _layer_of(text)
    places: dict[Any, int] = {(tensor.name, tensor.quantized_block): tensor.quantized_offset
                              for tensor in layer.tensors.values() if tensor.quantized_block >= 0}
    sizes = layer.info.quantized_rowwise_bytes, layer.info.quantized_colwise_bytes
    return places | {name: size for name, size in zip(_QUANTIZED, sizes) if size}


@functools.lru_cache(maxsize=None)
def _arguments(text: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    layer = _layer_of(text)
    call = layer.calls[name]
    reads, writes = dict[str, None](), dict[str, None]()
    for tensor in layer.tensors.values():
        # An operation makes all of its results.
        if tensor.name in call.tensors and (tensor.name not in call.optional or (
                tensor.name in call.writes and isinstance(layer, Operation))):
            argument = tensor.name if tensor.quantized_block < 0 else _QUANTIZED[tensor.quantized_block]
            (writes if tensor.name in call.writes else reads)[argument] = None
    if call.blocks["saved"] and layer.info.saved_bytes:
        (writes if call.blocks["saved"] & records.WRITE else reads)["saved"] = None
    if call.workspace_bytes:
        writes["workspace"] = None
    return tuple(reads), tuple(writes)


def plan(description: Mapping[str, Any] | str | os.PathLike, target: str = "auto", *, backward: bool = True,
         wgrad_dtype: str = "bf16") -> Plan:
    """Plans a layer. Compiles nothing.

    Args:
        description: A layer description: a dict, JSON, or the path of a file (docs/layer-description.md).
        target: "cuda:sm_90a", "sim", or "auto": that of this machine's GPU if jax uses it, else "sim".
        backward: Whether experts() has gradients; in place of "passes" in the description.
        wgrad_dtype: What weights' gradients are made in, in place of the description's: "bf16", the dtype of the weights,
            or "f32", which accumulate() needs.

    Raises:
        moejit.Error: The description is wrong, or the target cannot run it; "unsupported": experts() does not have what
            the layer needs, such as a router.
    """
    target = _target(target)
    text, name = read_source(description, "layer")
    try:
        fields = json.loads(text)
    except ValueError:
        fields = Layer(description, target).description  # tells what is wrong
    fields = {**fields, "passes": ["forward", "backward"], "wgrad_dtype": wgrad_dtype} if backward else {
        **fields, "passes": ["forward"]}
    layer = Layer(fields, target, name=name)
    _refuse_others(layer)
    return _plan_of(layer)


@functools.lru_cache(maxsize=None)
def plan_operation(description: str, target: str) -> Plan:
    """Plans an operation of docs/operations-api.md, whose only call is "run"."""
    return _plan_of(Operation(description, _target(target)))


def _target(target: str) -> str:
    return "sim" if target == "auto" and jax.default_backend() != "gpu" else target


def _plan_of(layer: Layer | Operation) -> Plan:
    return Plan(texts.make(layer.target, layer.info.plan_digest, layer.description))


def _refuse_others(layer: Layer) -> None:
    call = layer.calls["forward"]
    for name, tensor in layer.tensors.items():
        if name not in call.tensors - call.optional:
            continue
        if tensor.role == "input" and name not in _GIVEN:
            raise Error("unsupported", "plan", f"forward of the layer reads {name}, wanted {', '.join(_GIVEN)}, weights "
                        "and biases alone", "take \"router\", \"shared\" with a gate, \"input\" and the dispatch out of "
                        "the description, or run the layer with moejit.Layer")


def init(key: jax.Array, layer: Plan) -> dict[str, jax.Array]:
    """Returns random weights of a layer by name, for tests and new models.

    Args:
        key: A key of jax.random.
        layer: The layer.

    Returns:
        Weights of normal distribution with the variance 1 / (inputs of the GEMM), and biases of zeros.
    """
    params = {}
    for number, name in enumerate(layer.weights):
        struct = layer.struct(name, 0)
        params[name] = jnp.zeros(struct.shape, struct.dtype)
        if len(struct.shape) == 3:
            drawn = jax.random.normal(jax.random.fold_in(key, number), struct.shape)
            params[name] = (drawn / struct.shape[-1] ** 0.5).astype(struct.dtype)
    return params


def init_state(layer: Plan) -> dict[str, jax.Array]:
    """Returns the first state of a layer: histories of zeros and scales of ones. Empty for layers that keep none."""
    structs = {name: layer.struct(name, 0) for name in layer.state}
    return {name: jnp.full(struct.shape, float(name.endswith("scale")), struct.dtype) for name, struct in structs.items()}
