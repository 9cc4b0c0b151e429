# SPDX-License-Identifier: Apache-2.0
"""Experts that devices share, where each token travels to the devices of its experts alone."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from moejit.jax import calls, exchange
from moejit.jax.calls import Arrays
from moejit.jax.experts import Static, gradients_of, plan_of_primals, quantize
from moejit.jax.plans import Plan

_SURPLUS = 2  # the status bit of rows for which there is no room (templates/moejit_device/params/status_bits.h)


class Options(NamedTuple):
    """What a call is besides its arrays."""
    layer: Plan
    axis: str
    updates_scales: bool
    reduced: tuple[str, ...]  # mesh axes over which the state does not vary, and tokens do

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the calls: the layer's own, or where rows travel quantized, both parts of each pass."""
        return ("quantize", "experts", "quantize_grad", "experts_grad") if self.layer.has_call("experts") else (
            "", "forward", "", "backward")


def planned(layer: Plan) -> Plan:
    """Returns the plan whose calls have rows between them that travel, if rows travel quantized."""
    return layer.with_fields(dispatch_calls=True) if layer.description["dispatch"] == "fp8" else layer


def _sent(layer: Plan, call: str, name: str, rows: jax.Array) -> dict[str, jax.Array]:
    """Returns rows as they travel: codes and scales where a call quantizes them."""
    return calls.run(layer, call, {name: rows}, rows.shape[0]) if call else {name: rows}


def _run(options: Options, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, state: Arrays,
         quantized: Arrays | None) -> tuple[tuple[jax.Array, jax.Array], dict[str, jax.Array], exchange.Routes]:
    layer, axis = options.layer, options.axis
    blocks, recorded = quantize(weights, layer=layer, state=state) if quantized is None else (quantized, state)
    room, local_experts = layer.max_tokens, layer.description["local_experts"]
    routes = exchange.routes_of(ids, local_experts, axis, room)
    quantizes, computes, _, backward = options.names
    rows = {**_sent(layer, quantizes, "x", x), "topk_ids": ids, "topk_probs": probs}
    received, is_received = exchange.send(rows, routes, axis, room)
    local = exchange.local_ids(received["topk_ids"], local_experts, axis)
    received["topk_ids"] = jnp.where(is_received[:, None], local, -1)
    given = {**weights, **blocks, **recorded, **received}
    made = calls.run(layer, computes, given, room)
    y = exchange.bring_back({"y": made["y"]}, routes, axis)["y"]
    status = made["status"] | jnp.where(routes.has_surplus, _SURPLUS, 0).astype(jnp.uint32)
    kept = {*layer.reads(backward), *layer.state} if layer.has_call(backward) else ()
    return (y, status), {name: array for name, array in {**given, **made}.items() if name in kept}, routes


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def ragged(options: Options, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, state: Arrays,
           quantized: Arrays | None) -> tuple[jax.Array, jax.Array]:
    """Returns y and the status word of this device's tokens, with whatever experts they have on the axis.

    The arrays vary over the axis, and all devices call it. A row for which its receiver has no room makes its token NaN.
    """
    return _run(options, weights, x, ids, probs, state, quantized)[0]


def _forward_rule(options: Options, *primals: Any) -> Any:
    values = jax.tree.map(lambda primal: primal.value, primals)
    layer = plan_of_primals(options.layer, primals)
    results, kept, routes = _run(options._replace(layer=layer), *values)
    return results, (Static(layer), kept, routes, values[4] if options.reduced else {})


def _backward_rule(options: Options, residuals: Any, cotangents: Any) -> Any:
    (static, kept, routes, before), dy = residuals, cotangents[0]
    layer, axis = static.layer, options.axis
    *_, quantizes, backward = options._replace(layer=layer).names
    received, _ = exchange.send(_sent(layer, quantizes, "dy", dy), routes, axis, layer.max_tokens)
    made = calls.run(layer, backward, {**kept, **received}, layer.max_tokens)
    of_tokens = {name: made[name] for name in ("dx", "dprobs") if name in made}
    made |= exchange.bring_back(of_tokens, routes, axis) if of_tokens else {}
    return *gradients_of(layer, made, kept, before, options), None


ragged.defvjp(_forward_rule, _backward_rule, symbolic_zeros=True)
