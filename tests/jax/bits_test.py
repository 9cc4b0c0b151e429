# SPDX-License-Identifier: Apache-2.0
"""Results and gradients have the bits of moejit.Layer, and the values of plain jax.numpy."""
import unittest

from support import *

F32 = jnp.float32


def plain(params, x, ids, probs):
    """The experts in float32, each token's by themselves."""
    hidden = jnp.einsum("th,tkih->tki", x.astype(F32), params["w1"].astype(F32)[ids])
    gate, up = jnp.split(hidden, 2, axis=-1)
    activated = jax.nn.silu(gate) * up * probs[..., None]
    return jnp.einsum("tki,tkhi->th", activated, params["w2"].astype(F32)[ids]).astype(x.dtype)


def relative_error(got, wanted):
    got, wanted = np.asarray(got, np.float32), np.asarray(wanted, np.float32)
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


class Bits(unittest.TestCase):

    def check(self, layer, tokens=40):
        given, state = inputs(tokens, layer), mj.init_state(layer)
        step = jax.jit(step_of(layer))
        for number in range(3 if state else 1):
            got, after = step(*given, state)
            self.assertEqual(differences({**got, **after}, of_layer(layer, *given, state)), [], f"step {number}")
            state = after

    def test_every_recipe(self):
        for recipe in RECIPES:
            with self.subTest(recipe):
                self.check(plan(recipe))

    def test_biases(self):
        layer = plan("fp8_flow", biases=True)
        self.assertEqual(layer.weights, ("w1", "w2", "b1", "b2"))
        self.check(layer)

    def test_packed_weights(self):
        layer = plan("bf16", weight_format="int4", backward=False)
        params, x, ids, probs, dy = inputs(40, plan("bf16"))
        random = np.random.default_rng(0)
        params = {name: random.integers(0, 256, struct.shape, np.uint8) if struct.dtype == np.uint8 else
                  random.uniform(0.01, 0.02, struct.shape).astype(np.float32)
                  for name, struct in ((name, layer.struct(name, 0)) for name in layer.weights)}
        y = jax.jit(experts_of(layer))(params, x, ids, probs)
        self.assertEqual(differences({"y": y}, of_layer(layer, params, x, ids, probs, dy)), [])

    def test_gradients_in_float32_are_rounded_once(self):
        layer, wide = plan("fp8_flow"), plan("fp8_flow", wgrad_dtype="f32")
        given = inputs(40, layer)
        results = [jax.jit(lambda *given: value_and_grads(experts_of(of), *given))(*given) for of in (layer, wide)]
        self.assertEqual(differences(*results), [])

    def test_gradients_that_the_description_leaves_out_are_zeros(self):
        layer = plan("fp8_flow", gradients=["dx"])
        given = inputs(40, layer)
        got = jax.jit(lambda *given: named(*value_and_grads(experts_of(layer), *given)))(*given)
        self.assertFalse(any(got.pop(name).any() for name in ("dw1", "dw2", "dprobs")))
        self.assertEqual(differences(got, {name: array for name, array in of_layer(plan("fp8_flow"), *given).items()
                                           if name in got}), [])

    def test_values_are_those_of_plain_jax(self):
        # Between x and a result at most four roundings to bf16 lie one behind the other (activation, its product with
        # a gradient, dy, the result), each of at most 2^-9 of its value; in the norm that is below 2^-7.
        layer = plan("bf16")
        given = inputs(40, layer)
        got, wanted = (named(*jax.jit(lambda *given: value_and_grads(function, *given))(*given))
                       for function in (experts_of(layer), plain))
        for name in wanted:
            self.assertLess(relative_error(got[name], wanted[name]), 2 ** -7, name)


if __name__ == "__main__":
    unittest.main()
