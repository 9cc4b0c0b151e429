# SPDX-License-Identifier: Apache-2.0
"""Gradients of weights that are added to accumulators in place, micro-batch by micro-batch."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax

from moejit.errors import Error
from moejit.jax import calls
from moejit.jax import state as states
from moejit.jax.calls import Arrays
from moejit.jax.experts import run_forward
from moejit.jax.plans import Plan


def forward(params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, *, layer: Plan,
            quantized: Arrays | None = None, state: Arrays | None = None) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Computes experts() with the same arguments, and returns what accumulate() needs.

    Returns:
        y, bf16 [..., H], and arrays by name: with the recipe fp8_delayed also the state, with what forward has recorded.
    """
    flat = [array.reshape(math.prod(array.shape[:-1]), array.shape[-1]) for array in (x, topk_ids, topk_probs)]
    weights = {name: params[name] for name in layer.weights}
    # Devices that shared the tokens would each add to all of the accumulators.
    made, kept = run_forward(layer, weights, *flat, states.checked(state, layer), quantized, partitions=False)
    return made["y"].reshape(x.shape), kept


def accumulate(sums: Mapping[str, jax.Array], kept: Arrays, dy: jax.Array, *,
               layer: Plan) -> tuple[dict[str, jax.Array], dict[str, Any]]:
    """Adds the gradients of weights and biases to accumulators.

    The sums are made in float32 in the memory of the accumulators if the caller's jit donates them.

    Args:
        sums: Accumulators by the names of the weights, float32. The layer is planned with wgrad_dtype="f32".
        kept: What forward() returned.
        dy: The gradient of y, bf16 [..., H].
        layer: The layer.

    Returns:
        The accumulators with the gradients, and the gradients "dx" and "dprobs". With the recipe fp8_delayed these have
        also "state", for the next micro-batch or for update_scales().

    Raises:
        moejit.Error: "unsupported": gradients of the layer are bf16, which cannot be added to.
    """
    if not layer.has_call("backward+add"):
        raise Error("unsupported", "plan", "the layer cannot add to gradients of weights",
                    'plan it with wgrad_dtype="f32"')
    flat = dy.reshape(math.prod(dy.shape[:-1]), dy.shape[-1])
    given = {**kept, "dy": flat, **{f"d{name}": array for name, array in sums.items()}}
    made = calls.run(layer, "backward+add", given, flat.shape[0])
    shapes = {"dx": dy.shape, "dprobs": (*dy.shape[:-1], -1)}
    gradients = {name: made[name].reshape(shape) for name, shape in shapes.items() if name in made}
    if layer.state:
        gradients["state"] = {name: made.get(name, kept[name]) for name in layer.state}
    return {name: made[f"d{name}"] for name in sums}, gradients
