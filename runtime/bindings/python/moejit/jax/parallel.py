# SPDX-License-Identifier: Apache-2.0
"""Experts that the devices of a mesh axis share."""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from moejit.errors import Error
from moejit.jax import calls
from moejit.jax.calls import Arrays
from moejit.jax.exchange import local_ids
from moejit.jax.experts import Given, experts
from moejit.jax.plans import Plan
from moejit.jax.ragged import Options, planned, ragged


def expert_parallel(params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, *, layer: Plan,
                    axis: str, how: str = "gather", quantized: Arrays | None = None, state: Arrays | None = None,
                    update_scales: bool = True, with_status: bool = False) -> Any:
    """Computes experts() where each device of a mesh axis has an equal share of the experts. Call it in shard_map.

    All devices have equally many tokens. With "gather" every device gets the tokens of all by all-gather, computes what
    its experts add, and the sums go back by reduce-scatter in float32. With "ragged" a token goes to the devices of its
    experts alone, by jax.lax.ragged_all_to_all, which XLA has on GPUs and not on CPUs. With the dispatch "fp8" it goes as FP8
    codes with their scales, of H + 4 ceil(H / 128) + 8 K bytes. Results come back in bf16.

    Args:
        params: The weights of this device's experts: those of rank r are the experts from r * local_experts on.
        x, topk_ids, topk_probs: As for experts(), of this device's tokens. Ids count all experts.
        layer: A layer with "local_experts" of one device. Its max_tokens is enough for the tokens of all devices; with
            "ragged", for those that a device receives. Tokens for which there is no room become NaN, with their
            gradients, and the status says it.
        axis: The mesh axis.
        how: "gather" or "ragged".
        quantized, state, update_scales, with_status: As for experts(). The state is that of this device's experts.

    Returns:
        y of this device's tokens; with `with_status` a pair of it and this device's status word.

    Raises:
        moejit.Error: "invalid_value": the devices of the axis do not share the experts evenly, or `how` is neither; as
            experts().
    """
    ranks, fields = jax.lax.axis_size(axis), layer.description
    if fields["local_experts"] * ranks != fields["experts"]:
        raise Error("invalid_value", "plan", f"local_experts is {fields['local_experts']} on each of {ranks} devices of the "
                    f"axis {axis}, wanted {fields['experts']} experts in all",
                    "plan the layer with local_experts = experts / devices")
    if how == "ragged":
        given = Given(params, x, topk_ids, topk_probs, planned(layer), state)
        options = Options(planned(layer), axis, update_scales, given.reduced)
        y, status = ragged(options, given.weights, *given.tokens, given.state, calls.vary(quantized, given.axes))
        y = y.reshape(x.shape)
    elif how == "gather":
        x_all, ids, probs = (jax.lax.all_gather(array, axis, tiled=True) for array in (x, topk_ids, topk_probs))
        y, status = experts(params, x_all, local_ids(ids, fields["local_experts"], axis), probs, layer=layer,
                            quantized=quantized, state=state, update_scales=update_scales, with_status=True)
        y = jax.lax.psum_scatter(y.astype(jnp.float32), axis, tiled=True).astype(x.dtype)
    else:
        raise Error("invalid_value", "launch", f'how: got {how!r}, wanted "gather" or "ragged"')
    return (y, status) if with_status else y
