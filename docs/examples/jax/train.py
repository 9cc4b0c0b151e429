# SPDX-License-Identifier: Apache-2.0
"""Trains a block of a router and experts on random data, on a GPU or in the simulator: python3 train.py"""
import jax
import jax.numpy as jnp

import moejit.jax

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS, RATE = 256, 128, 8, 2, 64, 3.0

layer = moejit.jax.plan({"experts": EXPERTS, "top_k": TOP_K, "hidden": HIDDEN, "intermediate": INTERMEDIATE,
                         "recipe": "fp8_flow", "max_tokens": TOKENS})


def block(params, x):
    scores = jax.nn.softmax(x.astype(jnp.float32) @ params["router"])
    probs, ids = jax.lax.top_k(scores, TOP_K)
    experts = {name: params[name].astype(jnp.bfloat16) for name in layer.weights}
    return moejit.jax.experts(experts, x, ids, probs / probs.sum(-1, keepdims=True), layer=layer)


def loss_of(params, x, wanted):
    return jnp.square(block(params, x).astype(jnp.float32) - wanted).mean()


@jax.jit
def step(params, x, wanted):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, wanted)
    return jax.tree.map(lambda param, gradient: param - RATE * gradient, params, gradients), loss


keys = jax.random.split(jax.random.key(0), 4)
# Masters in float32: each step rounds them to bf16 for the experts.
params = {name: array.astype(jnp.float32) for name, array in moejit.jax.init(keys[0], layer).items()}
params["router"] = 0.1 * jax.random.normal(keys[1], (HIDDEN, EXPERTS))
x = jax.random.normal(keys[2], (4, TOKENS // 4, HIDDEN), jnp.bfloat16)
wanted = 0.5 * jax.random.normal(keys[3], x.shape)
for number in range(6):
    params, loss = step(params, x, wanted)
    print(f"step {number}: loss {loss:.4f}")
