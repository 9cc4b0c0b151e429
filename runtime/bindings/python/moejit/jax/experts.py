# SPDX-License-Identifier: Apache-2.0
"""The experts of a layer as a function with gradients."""
from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax

import moejit
from moejit.errors import Error
from moejit.jax import calls
from moejit.jax import state as states
from moejit.jax.calls import Arrays
from moejit.jax.plans import Plan

# The gradients of forward's inputs; of a weight it is "d" and its name.
_GRADIENTS = {"x": "dx", "topk_probs": "dprobs"}


def experts(params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, *, layer: Plan,
            quantized: Arrays | None = None, state: Arrays | None = None, update_scales: bool = True,
            with_status: bool = False) -> Any:
    """Computes the sum of each token's experts, weighted with its probabilities.

    Works under jit, grad, remat, scan and shard_map, with the bits of moejit.Layer. vmap, jvp and second derivatives are
    refused. Gradients go to params, x and topk_probs.

    Args:
        params: Weights and biases by name: "w1" bf16 [E, 2I, H], "w2" bf16 [E, H, I], and "b1", "b2" if the layer has
            biases. Other keys are ignored.
        x: Tokens, bf16 [..., H]. All leading dimensions together are the T tokens, at most max_tokens.
        topk_ids: The experts of each token, int32 [..., K]; -1: none.
        topk_probs: Their factors, float32 [..., K].
        layer: What plan() has returned.
        quantized: What quantize() has returned for the same params. None: the weights are quantized in the call.
        state: Of the recipe fp8_delayed, as init_state() begins it. Its gradient is no gradient: it is the state after
            the step, with what forward and backward have recorded. Without gradients nothing is recorded.
        update_scales: Whether that state has moved on by a step. False: update_scales() does it, after some calls.
        with_status: Whether to return the status word as well.

    Returns:
        y, bf16 [..., H]; with `with_status` a pair of y and the status word, uint32 [1], for check_status().

    Raises:
        moejit.Error: "tensor_mismatch", "missing_tensor", and "unsupported" for what is refused: while JAX traces.
        jax.errors.JaxRuntimeError: What the library says when the program runs.
    """
    tokens = math.prod(x.shape[:-1])
    if tokens > layer.max_tokens:
        raise Error("tensor_mismatch", "launch", f"tensor x: it has {tokens} tokens, wanted at most {layer.max_tokens}, "
                    "which is max_tokens of the description", "plan the layer with a larger max_tokens")
    given = _Given(params, x, topk_ids, topk_probs, layer, state)
    blocks, recorded = quantized_of(given.weights, given.state, layer, quantized)
    options = _Options(layer, update_scales, tuple(sorted(given.axes - calls.varying_axes(given.state))))
    y, status = _experts(options, given.weights, *given.tokens, *calls.vary((dict(blocks), recorded), given.axes), given.state)
    y = y.reshape(x.shape)
    return (y, status) if with_status else y


def quantize(params: Arrays, *, layer: Plan, state: Arrays | None = None) -> Any:
    """Quantizes weights as the layer's recipe says, for several calls with the same weights.

    Args:
        params: As for experts().
        layer: The layer.
        state: Of the recipe fp8_delayed, as for experts().

    Returns:
        Blocks of bytes, uint8: "quantized" has what forward reads, "quantized_colwise" what only backward reads. Empty
        for recipes that quantize no weights. Gradients do not flow through them: experts() gives them to its params.
        With `state` a pair of the blocks and of the state, which has recorded the weights.
    """
    weights = {name: params[name] for name in layer.weights if name in params}
    weights, before = jax.lax.stop_gradient((weights, states.checked(state, layer)))
    made = calls.run(layer, "update_weights", {**weights, **before}, 0) if layer.writes("update_weights") else {}
    blocks = {name: array for name, array in made.items() if name not in before}
    return blocks if state is None else (blocks, {**before, **{name: made[name] for name in before if name in made}})


def quantized_of(weights: Arrays, state: Arrays, layer: Plan, blocks: Arrays | None) -> tuple[Arrays, Arrays]:
    """Returns the blocks of a call and the state that has recorded them. Quantizes the weights if there are no blocks."""
    return quantize(weights, layer=layer, state=state) if blocks is None else (blocks, jax.lax.stop_gradient(state))


def check_status(status: jax.Array) -> None:
    """Raises moejit.Error "device_status" with a sentence about each bit if kernels reported trouble.

    Waits for the array. Not for use under jit.
    """
    moejit.check_status(int(status[0]))


class _Given:
    """The arrays of a call of experts(), with tokens in one dimension, all but the state varying over the same mesh axes."""

    def __init__(self, params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, layer: Plan,
                 state: Arrays | None) -> None:
        missing = [name for name in layer.weights if name not in params]
        if missing:
            raise Error("missing_tensor", "launch", f"params have no {missing[0]}, wanted {', '.join(layer.weights)}")
        for name, array in (("topk_ids", topk_ids), ("topk_probs", topk_probs)):
            if array.shape[:-1] != x.shape[:-1]:
                raise Error("tensor_mismatch", "launch", f"tensor {name}: its shape is {list(array.shape)}, wanted "
                            f"{[*x.shape[:-1], 'K']} beside x {list(x.shape)}")
        weights = {name: params[name] for name in layer.weights}
        tokens = [array.reshape(math.prod(array.shape[:-1]), array.shape[-1]) for array in (x, topk_ids, topk_probs)]
        self.state = states.checked(state, layer)
        self.axes = calls.varying_axes((weights, tokens, self.state))
        self.weights, self.tokens = calls.vary((weights, tokens), self.axes)


class _Options(NamedTuple):
    """What a call of experts() is besides its arrays."""
    layer: Plan
    updates_scales: bool
    reduced: tuple[str, ...]  # mesh axes over which the state does not vary, and tokens do


def run_forward(layer: Plan, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, blocks: Arrays,
                state: Arrays) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Makes a forward call.

    Returns:
        What it made, and of its arrays those that backward reads, with the state.
    """
    given = {**weights, **blocks, **state, "x": x, "topk_ids": ids, "topk_probs": probs}
    made = calls.run(layer, "forward", given, x.shape[0])
    if not layer.has_call("backward"):
        return made, {}
    kept = {*layer.reads("backward"), *layer.state}
    return made, {name: array for name, array in {**given, **made}.items() if name in kept}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _experts(options: _Options, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, blocks: Arrays,
             recorded: Arrays, state: Arrays) -> tuple[jax.Array, jax.Array]:
    made, _ = run_forward(options.layer, weights, x, ids, probs, blocks, recorded)
    return made["y"], made["status"]


def _forward_rule(options: _Options, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, blocks: Arrays,
                  recorded: Arrays, state: Arrays) -> Any:
    if not options.layer.has_call("backward"):
        raise Error("unsupported", "plan", "gradients of a layer that is planned with backward=False",
                    "plan it with backward=True")
    made, kept = run_forward(options.layer, weights, x, ids, probs, blocks, recorded)
    return (made["y"], made["status"]), (kept, state if options.reduced else {})


def _backward_rule(options: _Options, residuals: Any, cotangents: Any) -> Any:
    (kept, before), dy, layer = residuals, cotangents[0], options.layer
    made = calls.run(layer, "backward", {**kept, "dy": dy}, dy.shape[0])

    def gradient(name: str) -> jax.Array | None:
        of_name = made.get(_GRADIENTS.get(name, f"d{name}"))  # None: the description asks for none, which JAX takes as 0
        return None if of_name is None else of_name.astype(layer.struct(name, 0).dtype)

    weights = {name: gradient(name) for name in layer.weights}
    state = states.largest({name: made.get(name, kept[name]) for name in layer.state}, before, options.reduced)
    if options.updates_scales:
        state = states.update_scales(state, layer=layer)
    return weights, gradient("x"), None, gradient("topk_probs"), None, None, state


_experts.defvjp(_forward_rule, _backward_rule)
