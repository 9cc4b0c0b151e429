# SPDX-License-Identifier: Apache-2.0
"""What the tests of moejit.jax share: small layers, their inputs, and moejit.Layer called with the same arrays."""
import functools
import json
import os
import pathlib

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np

import moejit
import moejit.jax as mj

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, MAX_TOKENS = 8, 256, 128, 2, 64
RECIPES = ("bf16", "fp8_flow", "fp8_blockwise", "fp8_rowwise", "mxfp8", "fp8_current", "fp8_delayed", "nvfp4")
TARGET = "sim" if jax.default_backend() == "cpu" else "auto"


def description(recipe="bf16", **fields):
    return {"name": "tiny", "experts": EXPERTS, "top_k": TOP_K, "hidden": HIDDEN, "intermediate": INTERMEDIATE,
            "recipe": recipe, "max_tokens": MAX_TOKENS, **fields}


@functools.lru_cache(maxsize=None)
def _plan_of(text, **options):
    return mj.plan(text, TARGET, **options)


def plan(recipe="bf16", wgrad_dtype="bf16", backward=True, **fields):
    return _plan_of(json.dumps(description(recipe, **fields)), wgrad_dtype=wgrad_dtype, backward=backward)


def inputs(tokens, layer, seed=0):
    """params, x, ids, probs and dy of a layer: each token has distinct experts. NumPy draws: JAX would compile it all."""
    random = np.random.default_rng(seed)

    def draw(shape, deviation=1.0):
        return jnp.asarray((random.standard_normal(shape) * deviation).astype(jnp.bfloat16))

    structs = {name: layer.struct(name, 0) for name in layer.weights}
    params = {name: draw(struct.shape, struct.shape[-1] ** -0.5 if len(struct.shape) == 3 else 1)
              for name, struct in structs.items()}
    ids = random.random((tokens, EXPERTS)).argsort(axis=1)[:, :TOP_K].astype(np.int32)
    probs = random.random((tokens, TOP_K), np.float32) + np.float32(0.1)
    return params, draw((tokens, HIDDEN)), jnp.asarray(ids), jnp.asarray(probs), draw((tokens, HIDDEN))


def value_and_grads(function, params, x, ids, probs, dy):
    """y, and the gradients of params, x and probs for the gradient dy of y."""
    y, pull = jax.vjp(lambda params, x, probs: function(params, x, ids, probs), params, x, probs)
    return y, *pull(dy)


def named(y, dparams, dx, dprobs):
    return {"y": y, "dx": dx, "dprobs": dprobs, **{f"d{name}": array for name, array in dparams.items()}}


def step_of(layer, **options):
    """A function of params, x, ids, probs, dy and state: results and gradients by name, and the state after it."""
    def step(params, x, ids, probs, dy, state):
        y, pull = jax.vjp(lambda params, x, probs, state: mj.experts(params, x, ids, probs, layer=layer, state=state,
                                                                     **options), params, x, probs, state)
        *gradients, state = pull(dy)
        return named(y, *gradients), state

    return step


def experts_of(layer, **options):
    return functools.partial(mj.experts, layer=layer, **options)


def bits(array):
    array = np.asarray(array)
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def differences(got, wanted):
    """The names of arrays of two mappings or trees that differ in a bit."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(wanted)]
    return [name for name, one, other in zip(names, jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
            if not np.array_equal(bits(one), bits(other))]


def of_layer(layer, params, x, ids, probs, dy, state=None):
    """What moejit.Layer computes from memory with the same bits; with a state also the state after the step."""
    direct = moejit.Layer(layer.description, TARGET).prepare()
    tensors = direct.allocate(tokens=x.shape[0])
    for name, array in {"x": x, "topk_ids": ids, "topk_probs": probs, "dy": dy, **params, **(state or {})}.items():
        if name in tensors:
            tensors[name].memory.write(np.asarray(array).tobytes())
    gradients = ["dx", "dprobs", *(f"d{name}" for name in params)]
    results = ["y", *(gradients if "backward" in direct.calls else ())]
    direct.update_weights(tensors)
    saved = direct.forward(tensors)
    if saved is not None:
        direct.backward(tensors, saved=saved)
    for pass_ in ("forward", "backward") if state else ():
        direct.update_scales(tensors, pass_)

    def read(name):
        struct = layer.struct(name, x.shape[0])
        array = np.frombuffer(tensors[name].memory.read(), struct.dtype, struct.size).reshape(struct.shape)
        # Gradients of biases are made in float32; JAX wants the dtype of the biases.
        return array.astype(jnp.bfloat16) if name in ("db1", "db2") else array

    return {name: read(name) for name in (*results, *(state or {}))}
