# SPDX-License-Identifier: Apache-2.0
"""Modules of flax compute what the functions do, and kernels of flax's models become parameters of layers."""
import unittest

from flax import linen, nnx

import moejit.jax.flax
from support import *


def kernels_of():
    """Kernels and biases by MaxText's names, of NumPy: JAX would compile each operation."""
    random = np.random.default_rng(0)
    shapes = {"wi_0": (EXPERTS, HIDDEN, INTERMEDIATE), "wi_1": (EXPERTS, HIDDEN, INTERMEDIATE),
              "wo": (EXPERTS, INTERMEDIATE, HIDDEN), "wi_0_bias": (EXPERTS, INTERMEDIATE),
              "wi_1_bias": (EXPERTS, INTERMEDIATE), "wo_bias": (EXPERTS, HIDDEN)}
    return {name: (random.standard_normal(shape) / HIDDEN ** 0.5).astype(jnp.bfloat16) for name, shape in shapes.items()}


class Modules(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.layer = plan("fp8_flow")
        _, cls.x, cls.ids, cls.probs, cls.dy = inputs(32, cls.layer)

        def function(params, x, ids, probs):
            params = {name: array.astype(jnp.bfloat16) for name, array in params.items()}
            return mj.experts(params, x, ids, probs, layer=cls.layer)

        cls.run_function = staticmethod(jax.jit(lambda *given: value_and_grads(function, *given)[:2]))

    def wanted(self, params):
        """y and gradients of float32 parameters by the functions."""
        return self.run_function(params, self.x, self.ids, self.probs, self.dy)

    def test_linen(self):
        module = moejit.jax.flax.linen.Experts(self.layer)
        variables = jax.jit(module.init)(jax.random.key(0), self.x, self.ids, self.probs)
        self.assertEqual({name: (array.shape, array.dtype) for name, array in variables["params"].items()},
                         {name: (self.layer.struct(name, 0).shape, jnp.float32) for name in ("w1", "w2")})
        for name, array in variables["params"].items():
            # The deviation of n draws is wrong by 1 / sqrt(2 n), 0.002 for both; 0.02 is ten times as much.
            self.assertAlmostEqual(np.asarray(array).std() * array.shape[-1] ** 0.5, 1, delta=0.02)
        y, pull = jax.vjp(jax.jit(module.apply), variables, self.x, self.ids, self.probs)
        self.assertEqual(differences((y, pull(self.dy)[0]["params"]), self.wanted(variables["params"])), [])

    def test_nnx(self):
        module = moejit.jax.flax.nnx.Experts(self.layer, rngs=nnx.Rngs(0))
        params = {name: getattr(module, name)[...] for name in ("w1", "w2")}

        def loss(module):
            y = module(self.x, self.ids, self.probs)
            return (y.astype(jnp.float32) * self.dy).sum(), y

        gradients, y = nnx.jit(nnx.grad(loss, has_aux=True))(module)
        self.assertEqual(differences((y, {name: gradients[name][...] for name in params}), self.wanted(params)), [])

    def test_packed_weights_are_refused(self):
        layer = plan("bf16", weight_format="int4", backward=False)
        with self.assertRaisesRegex(moejit.Error, "modules of flax have no packed weights, and the layer has w1"):
            moejit.jax.flax.nnx.Experts(layer, rngs=nnx.Rngs(0))
        with self.assertRaisesRegex(moejit.Error, "the layer has packed weights, such as w1"):
            mj.from_flax(kernels_of(), layer)


class Kernels(unittest.TestCase):

    def test_every_layout(self):
        kernels = kernels_of()
        gate, up = kernels["wi_0"][3, :, 5], kernels["wi_1"][3, :, 5]
        for layout, places in (("concat", (("w1", 5), ("w1", INTERMEDIATE + 5))),
                               ("interleaved", (("w1", 10), ("w1", 11))), ("separate", (("w1_gate", 5), ("w1_up", 5)))):
            with self.subTest(layout):
                layer = plan("bf16", gate_up_layout=layout, biases=True)
                params = jax.jit(lambda kernels: mj.from_flax(kernels, layer))(kernels)
                self.assertEqual({name: array.shape for name, array in params.items()},
                                 {name: layer.struct(name, 0).shape for name in layer.weights})
                rows = [np.asarray(params[name])[3, row] for name, row in places]
                self.assertEqual(differences(rows, [gate, up]), [])
                self.assertEqual(differences(np.asarray(params["w2"]), kernels["wo"].swapaxes(1, 2)), [])
                back = jax.jit(lambda params: mj.to_flax(params, layer))(params)
                self.assertEqual(differences(back, kernels), [])

    def test_other_names(self):
        layer, kernels = plan("bf16"), kernels_of()
        axlearn = {f"{name}_weight": kernels[name] for name in ("wi_0", "wi_1", "wo")}
        own = {"gate": kernels["wi_0"], "up": kernels["wi_1"], "down": kernels["wo"]}
        wanted = mj.from_flax(kernels, layer)
        self.assertEqual(differences(mj.from_flax(axlearn, layer, "axlearn"), wanted), [])
        self.assertEqual(differences(mj.from_flax(own, layer, {name: name for name in own}), wanted), [])

    def test_refusals(self):
        layer, kernels = plan("bf16"), kernels_of()
        for sentence, given, names in (
                ("kernels have no wi_1, got wi_0, wo", {name: kernels[name] for name in ("wi_0", "wo")}, "maxtext"),
                (r"the kernels of w2 make the shape \[8, 128, 256\], wanted \[8, 256, 128\]",
                 {**kernels, "wo": kernels["wo"].swapaxes(1, 2)}, "maxtext"),
                ("names: got 'haiku', which has no name of gate", kernels, "haiku")):
            with self.subTest(sentence), self.assertRaisesRegex(moejit.Error, sentence):
                mj.from_flax(given, layer, names)


if __name__ == "__main__":
    unittest.main()
