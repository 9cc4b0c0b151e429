# SPDX-License-Identifier: Apache-2.0
"""Weights as flax's models keep them, kernels [E, inputs, outputs] with gate and up apart, and as layers take them."""
from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from moejit.errors import Error
from moejit.jax.plans import Plan

# Names of kernels: of MaxText, which also has biases, and of AXLearn. Experts without a gate have no "gate".
_NAMES = {
    "maxtext": {"gate": "wi_0", "up": "wi_1", "down": "wo",
                "gate_bias": "wi_0_bias", "up_bias": "wi_1_bias", "down_bias": "wo_bias"},
    "axlearn": {"gate": "wi_0_weight", "up": "wi_1_weight", "down": "wo_weight"},
}


def from_flax(kernels: Mapping[str, jax.Array], layer: Plan, names: str | Mapping[str, str] = "maxtext") -> dict[str, jax.Array]:
    """Returns the `params` of a layer from kernels of flax, which gradients flow through.

    Args:
        kernels: Gate and up [E, H, I], down [E, I, H], and if the layer has biases gate and up [E, I] and down [E, H].
        layer: The layer. The results have the dtypes that it takes.
        names: The names of the kernels: "maxtext" (wi_0, wi_1, wo, ..._bias), "axlearn" (wi_0_weight, wi_1_weight,
            wo_weight), or a mapping from "gate", "up", "down", "gate_bias", "up_bias" and "down_bias".

    Raises:
        moejit.Error: "missing_tensor", "tensor_mismatch": a kernel is missing, or has another shape.
            "unsupported": the layer has packed weights.
    """
    params = {}
    for name in layer.weights:
        array = _joined([_kernel(kernels, part, layer, names) for part in _parts(name, layer)], layer)
        wanted = layer.struct(name, 0)
        if array.shape != wanted.shape:
            raise Error("tensor_mismatch", "launch", f"the kernels of {name} make the shape {list(array.shape)}, wanted "
                        f"{list(wanted.shape)}", "give gate and up [E, H, I], and down [E, I, H]")
        params[name] = array.astype(wanted.dtype)
    return params


def to_flax(params: Mapping[str, jax.Array], layer: Plan, names: str | Mapping[str, str] = "maxtext") -> dict[str, jax.Array]:
    """Returns the kernels that from_flax() makes `params` from, in the dtypes of `params`. It also takes gradients."""
    kernels = {}
    for name in layer.weights:
        parts = _parts(name, layer)
        for part, array in zip(parts, _parted(params[name], len(parts), layer), strict=True):
            kernels[_name_of(part, names)] = array.swapaxes(1, 2) if array.ndim == 3 else array
    return kernels


def _parts(name: str, layer: Plan) -> tuple[str, ...]:
    """Returns the kernels that a weight of the layer is made of."""
    separate = "w1_gate" in layer.weights
    if not separate and "w1" not in layer.weights:
        raise Error("unsupported", "plan", f"the layer has packed weights, such as {name}, which no kernels make",
                    'leave "weight_format" out of the description')
    gated = separate or layer.struct("w1", 0).shape[1] != layer.description["intermediate"]
    parts = {"w1": ("gate", "up") if gated else ("up",), "b1": ("gate_bias", "up_bias") if gated else ("up_bias",),
             "w1_gate": ("gate",), "w1_up": ("up",), "w2": ("down",), "b2": ("down_bias",)}
    return parts[name]


def _name_of(part: str, names: str | Mapping[str, str]) -> str:
    table = _NAMES.get(names) if isinstance(names, str) else names
    if table is None or part not in table:
        raise Error("invalid_value", "launch", f"names: got {names!r}, which has no name of {part}",
                    'wanted "maxtext", "axlearn" or a mapping that has it')
    return table[part]


def _kernel(kernels: Mapping[str, jax.Array], part: str, layer: Plan, names: str | Mapping[str, str]) -> jax.Array:
    name = _name_of(part, names)
    if name not in kernels:
        raise Error("missing_tensor", "launch", f"kernels have no {name}, got {', '.join(sorted(kernels))}")
    array = jnp.asarray(kernels[name])
    return array.swapaxes(1, 2) if array.ndim == 3 else array


def _joined(parts: list[jax.Array], layer: Plan) -> jax.Array:
    if len(parts) == 1:
        return parts[0]
    if layer.description["gate_up_layout"] == "interleaved":
        return jnp.stack(parts, 2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])
    return jnp.concatenate(parts, 1)


def _parted(array: jax.Array, count: int, layer: Plan) -> list[jax.Array]:
    if count == 2 and layer.description["gate_up_layout"] == "interleaved":
        return [array[:, 0::2], array[:, 1::2]]
    return jnp.split(array, count, 1)
