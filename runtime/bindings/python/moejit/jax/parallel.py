# SPDX-License-Identifier: Apache-2.0
"""Experts that the devices of a mesh axis share."""
from __future__ import annotations

import jax
import jax.numpy as jnp

from moejit.errors import Error
from moejit.jax.calls import Arrays
from moejit.jax.experts import experts
from moejit.jax.plans import Plan


def expert_parallel(params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, *, layer: Plan,
                    axis: str) -> jax.Array:
    """Computes experts() where each device of a mesh axis has an equal share of the experts. Call it in shard_map.

    Every device gets the tokens of all by all-gather, computes what its experts add, and the sums go back by
    reduce-scatter in float32. All devices have equally many tokens.

    Args:
        params: The weights of this device's experts: those of rank r are the experts from r * local_experts on.
        x, topk_ids, topk_probs: As for experts(), of this device's tokens. Ids count all experts.
        layer: A layer with "local_experts" of one device, whose max_tokens is enough for the tokens of all.
        axis: The mesh axis.

    Returns:
        y of this device's tokens.

    Raises:
        moejit.Error: "invalid_value": the devices of the axis do not share the experts evenly; as experts().
    """
    ranks, fields = jax.lax.axis_size(axis), layer.description
    if fields["local_experts"] * ranks != fields["experts"]:
        raise Error("invalid_value", "plan", f"local_experts is {fields['local_experts']} on each of {ranks} devices of the "
                    f"axis {axis}, wanted {fields['experts']} experts in all",
                    "plan the layer with local_experts = experts / devices")
    x_all, ids, probs = (jax.lax.all_gather(array, axis, tiled=True) for array in (x, topk_ids, topk_probs))
    local = ids - jax.lax.axis_index(axis).astype(ids.dtype) * fields["local_experts"]
    local = jnp.where((local >= 0) & (local < fields["local_experts"]), local, -1)
    y = experts(params, x_all, local, probs, layer=layer)
    return jax.lax.psum_scatter(y.astype(jnp.float32), axis, tiled=True).astype(x.dtype)
