# SPDX-License-Identifier: Apache-2.0
"""A model with MaxText's kernels learns with moejit's experts what it learns with jax.lax.ragged_dot."""
import unittest

from jax.sharding import AxisType

from moejit.jax import maxtext
from support import *

WORDS, BATCH, SEQUENCE, STEPS, RATE = 32, 2, 16, 20, 0.02
FEW, WIDTH, INNER = 4, 128, 64  # experts of the model, its width and theirs: the simulator takes its time


def by_ragged_dot(inputs, weights, indices, wi_0, wi_1, wo):
    """permute, gmm and unpermute of MaxText's RoutedMoE, on one device."""
    x, order = inputs.reshape(-1, WIDTH), jnp.argsort(indices.ravel())
    sizes = jnp.bincount(indices.ravel(), length=FEW).astype(jnp.int32)
    rows = x.astype(jnp.bfloat16)[order // TOP_K]
    gate, up = (jax.lax.ragged_dot(rows, kernel.astype(jnp.bfloat16), sizes) for kernel in (wi_0, wi_1))
    out = jax.lax.ragged_dot((jax.nn.silu(gate) * up), wo.astype(jnp.bfloat16), sizes)
    back = out[jnp.argsort(order)].reshape(-1, TOP_K, WIDTH)
    return jnp.einsum("tkh,tk->th", back.astype(jnp.float32), weights.reshape(-1, TOP_K)).reshape(inputs.shape)


def loss_of(params, words, sparse_matmul):
    """The mean cross entropy of the next word: embedding, a block of experts, and the embedding again."""
    x = params["embedding"][words[:, :-1]]
    normed = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    weights, indices = jax.lax.top_k(normed @ params["gate"], TOP_K)
    moe = params["moe"]
    x = x + sparse_matmul(normed, jax.nn.softmax(weights), indices, moe["wi_0"], moe["wi_1"], moe["wo"])
    logits = jax.nn.log_softmax(x @ params["embedding"].T)
    return -jnp.take_along_axis(logits, words[:, 1:, None], -1).mean()


def train(params, words, sparse_matmul):
    @jax.jit
    def step(params):
        loss, gradients = jax.value_and_grad(loss_of)(params, words, sparse_matmul)
        return jax.tree.map(lambda param, gradient: param - RATE * gradient, params, gradients), loss

    losses = []
    for _ in range(STEPS):
        params, loss = step(params)
        losses.append(float(loss))
    return losses


class MaxText(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        random = np.random.default_rng(0)

        def draw(deviation, *shape):
            return jnp.asarray(random.standard_normal(shape) * deviation, jnp.float32)

        cls.params = {"embedding": draw(WIDTH ** -0.5, WORDS, WIDTH), "gate": draw(WIDTH ** -0.5, WIDTH, FEW),
                      "moe": {"wi_0": draw(WIDTH ** -0.5, FEW, WIDTH, INNER),
                              "wi_1": draw(WIDTH ** -0.5, FEW, WIDTH, INNER),
                              "wo": draw(INNER ** -0.5, FEW, INNER, WIDTH)}}
        cls.words = jnp.asarray(random.integers(0, WORDS, (BATCH, SEQUENCE + 1)))

    @staticmethod
    def stand_in(layer, **devices):
        mesh = jax.make_mesh(tuple(devices.values()), tuple(devices), axis_types=(AxisType.Auto,) * len(devices))
        return functools.partial(maxtext.sparse_matmul, layer=layer, mesh=mesh, batch=tuple(devices), how="gather")

    @unittest.skipUnless(len(jax.devices()) >= 2, "needs two devices")
    def test_twenty_steps_on_two_devices(self):
        layer = plan("bf16", experts=FEW, local_experts=FEW // 2, hidden=WIDTH, intermediate=INNER)
        losses = train(self.params, self.words, self.stand_in(layer, data=1, expert=2))
        wanted = train(self.params, self.words, by_ragged_dot)
        self.assertLess(wanted[-1], 0.6 * wanted[0])
        self.assertLess(max(abs(one - other) / other for one, other in zip(losses, wanted, strict=True)), 0.01)

    def test_a_mesh_whose_devices_have_all_experts(self):
        layer = plan("fp8_flow", biases=True)
        stand_in = self.stand_in(layer, data=min(2, len(jax.devices())))
        params, x, ids, probs, _ = inputs(32, layer)
        kernels = mj.to_flax(params, layer)
        arrays = (array.reshape(BATCH, SEQUENCE, -1) for array in (x, probs, ids))
        y = jax.jit(stand_in)(*arrays, *(kernels[f"{name}{end}"] for end in ("", "_bias") for name in ("wi_0", "wi_1", "wo")))
        self.assertEqual(differences(y.reshape(x.shape), jax.jit(experts_of(layer))(params, x, ids, probs)), [])


if __name__ == "__main__":
    unittest.main()
