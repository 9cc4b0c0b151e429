# SPDX-License-Identifier: Apache-2.0
"""The experts of a layer as a function with gradients."""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

import moejit
from moejit.errors import Error
from moejit.jax import calls, partition
from moejit.jax import state as states
from moejit.jax.calls import Arrays
from moejit.jax.plans import Plan


def experts(params: Arrays, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, *, layer: Plan,
            quantized: Arrays | None = None, state: Arrays | None = None, update_scales: bool = True,
            with_status: bool = False) -> Any:
    """Computes the sum of each token's experts, weighted with its probabilities.

    Works under jit, grad, remat, scan and shard_map, with the bits of moejit.Layer. vmap, jvp and second derivatives are
    refused. Gradients go to params, x and topk_probs. Gradients that nobody asks for are not computed.

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
    if _is_more(tokens, layer.max_tokens):
        raise Error("tensor_mismatch", "launch", f"tensor x: it has {tokens} tokens, wanted at most {layer.max_tokens}, "
                    "which is max_tokens of the description", "plan the layer with a larger max_tokens")
    given = Given(params, x, topk_ids, topk_probs, layer, state)
    options = _Options(layer, update_scales, given.reduced)
    y, status = _experts(options, given.weights, *given.tokens, given.state, calls.vary(quantized, given.axes))
    y = y.reshape(x.shape)
    return (y, status) if with_status else y


def _is_more(tokens: Any, bound: int) -> bool:
    """Returns whether a number of tokens, which may be a dimension of export, is larger than a bound."""
    try:
        return tokens > bound
    except jax.errors.InconclusiveDimensionOperation:
        raise Error("unsupported", "plan", f"{tokens} tokens may be more than {bound}, max_tokens of the description",
                    f'bound the dimension: jax.export.symbolic_shape("t", constraints=["t <= {bound}"])') from None


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


def check_status(status: jax.Array) -> None:
    """Raises moejit.Error "device_status" with a sentence about each bit if kernels reported trouble.

    Waits for the array. Not for use under jit.
    """
    moejit.check_status(int(status[0]))


class Given:
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
        # Mesh axes over which the state does not vary, and tokens do.
        self.reduced = tuple(sorted(self.axes - calls.varying_axes(self.state)))


class _Options(NamedTuple):
    """What a call of experts() is besides its arrays."""
    layer: Plan
    updates_scales: bool
    reduced: tuple[str, ...]  # mesh axes over which the state does not vary, and tokens do


def gradient_of(name: str) -> str:
    """Returns the name of a gradient in calls; of a weight it is "d" and its name."""
    return "dprobs" if name == "topk_probs" else f"d{name}"


def wanted_plan(layer: Plan, is_wanted: Mapping[str, bool], has_blocks: bool) -> Plan:
    """Returns the plan that computes only the gradients that are wanted, unless it cannot read quantized weights of `layer`.

    Args:
        is_wanted: Of "x", "topk_probs" and the weights, whether their gradients are wanted.
        has_blocks: Whether the weights are quantized already.

    Raises:
        moejit.Error: "unsupported": the layer has no backward pass.
    """
    if "backward" not in layer.description["passes"]:
        raise Error("unsupported", "plan", "gradients of a layer that is planned with backward=False",
                    "plan it with backward=True")
    # Gate and up are one in "gradients" of a description.
    names = {gradient_of(name).removesuffix("_gate").removesuffix("_up") for name, wanted in is_wanted.items() if wanted}
    planned = layer.with_gradients(frozenset(names))
    return planned if not has_blocks or planned.has_blocks_of(layer) else layer


def plan_of_primals(layer: Plan, primals: tuple) -> Plan:
    """Returns wanted_plan() for primals of a forward rule: weights, x, ids, probs, state and quantized weights.

    Raises:
        moejit.Error: "unsupported": as wanted_plan(); the gradient of the state is not wanted.
    """
    weights, x, _, probs, state, quantized = jax.tree.map(lambda primal: primal.perturbed, primals)
    if not all(state.values()):
        raise Error("unsupported", "plan", "gradients without the gradient of the state, which is the state after the step",
                    "differentiate with respect to the state as well, as jax.grad(loss, argnums=(0, 1)) does")
    return wanted_plan(layer, {**weights, "x": x, "topk_probs": probs}, quantized is not None)


def run_forward(layer: Plan, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, state: Arrays,
                quantized: Arrays | None, keeps: bool = True,
                partitions: bool = True) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Makes a forward call; quantizes the weights before it if `quantized` is None.

    Args:
        partitions: Whether devices may share the tokens under jit, as the backward call then has to let them.

    Returns:
        What it made, and if it `keeps` something, the arrays that backward reads, with the state.
    """
    blocks, recorded = quantize(weights, layer=layer, state=state) if quantized is None else (quantized, state)
    given = {**weights, **blocks, **recorded, "x": x, "topk_ids": ids, "topk_probs": probs}
    keeps = keeps and layer.has_call("backward")
    if partitions:
        made = partition.run(layer, "forward", given, x.shape[0], keeps_saved=keeps)
    else:
        made = calls.run(layer, "forward", given, x.shape[0])
    if not keeps:
        return made, {}
    kept = {*layer.reads("backward"), *layer.state}
    return made, {name: array for name, array in {**given, **made}.items() if name in kept}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _experts(options: _Options, weights: Arrays, x: jax.Array, ids: jax.Array, probs: jax.Array, state: Arrays,
             quantized: Arrays | None) -> tuple[jax.Array, jax.Array]:
    made, _ = run_forward(options.layer, weights, x, ids, probs, state, quantized, keeps=False)
    return made["y"], made["status"]


def _forward_rule(options: _Options, *primals: Any) -> Any:
    values = weights, x, ids, probs, state, quantized = jax.tree.map(lambda primal: primal.value, primals)
    layer = plan_of_primals(options.layer, primals)
    made, kept = run_forward(layer, weights, x, ids, probs, state, quantized)
    return (made["y"], made["status"]), (Static(layer), kept, state if options.reduced else {})


def _backward_rule(options: _Options, residuals: Any, cotangents: Any) -> Any:
    (static, kept, before), dy = residuals, cotangents[0]
    layer = static.layer
    made = partition.run(layer, "backward", {**kept, "dy": dy}, dy.shape[0])
    return *gradients_of(layer, made, kept, before, options), None


def gradients_of(layer: Plan, made: Arrays, kept: Arrays, before: Arrays, options: Any) -> tuple:
    """Returns the gradients of weights, x, ids and probabilities for JAX, and in place of the state's the state after it.

    Args:
        made, kept: What backward has made and read.
        before: The state before the step, if other mesh axes have recorded more of it; else {}.
        options: Its `updates_scales` and `reduced`, as _Options has them.
    """
    def gradient(name: str) -> jax.Array | None:
        of_name = made.get(gradient_of(name))  # None: nobody wants it, or the description has none; JAX takes it as 0
        return None if of_name is None else of_name.astype(layer.struct(name, 0).dtype)

    weights = {name: gradient(name) for name in layer.weights}
    state = states.largest({name: made.get(name, kept[name]) for name in layer.state}, before, options.reduced)
    if options.updates_scales:
        state = states.update_scales(state, layer=layer)
    return weights, gradient("x"), None, gradient("topk_probs"), state


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A plan among residuals."""
    layer: Plan


_experts.defvjp(_forward_rule, _backward_rule, symbolic_zeros=True)
