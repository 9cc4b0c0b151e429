# SPDX-License-Identifier: Apache-2.0
"""Gradients that nobody asks for are not computed; the others have the same bits."""
import re
import unittest

from support import *


class Wanted(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.layer = plan("fp8_flow")
        cls.params, cls.x, cls.ids, cls.probs, cls.dy = inputs(32, cls.layer)
        cls.wanted = named(*jax.jit(functools.partial(value_and_grads, experts_of(cls.layer)))(
            cls.params, cls.x, cls.ids, cls.probs, cls.dy))

    def check(self, names, planned=None, **options):
        """Asks for the gradients of some arguments, and looks for them alone in the plans of a program's calls."""
        arguments = {**self.params, "x": self.x, "probs": self.probs}
        asked = {name: arguments.pop(name) for name in names}

        def gradients(asked, rest):
            def function(asked):
                given = {**asked, **rest}
                return mj.experts(given, given["x"], self.ids, given["probs"], layer=self.layer, **options)
            return jax.vjp(function, asked)[1](self.dy)[0]

        lowered = jax.jit(gradients).lower(asked, arguments)
        plans = set(re.findall(r"gradients[^[\]]{1,9}\[([^\]]*)\]", lowered.as_text()))
        self.assertEqual({tuple(re.findall("dx|dprobs|dw1|dw2", plan)) for plan in plans},
                         {tuple(planned or (f"d{name}" for name in names))})
        got = lowered.compile()(asked, arguments)
        self.assertEqual(differences(got, {name: self.wanted[f"d{name}"] for name in names}), [])

    def test_frozen_experts(self):
        self.check(["x", "probs"])

    def test_a_first_layer(self):
        self.check(["w1", "w2"])

    def test_a_single_weight(self):
        self.check(["w2"])

    def test_blocks_that_are_quantized_for_all_gradients(self):
        blocks = mj.quantize(self.params, layer=self.layer)
        self.check(["x", "probs"], quantized=blocks)
        # Backward reads w2 alone. In the block it lies behind w1, so all gradients are computed.
        self.check(["w1", "w2"], ["dx", "dprobs", "dw1", "dw2"], quantized=blocks)

    def test_a_loss_of_the_status_alone(self):
        def loss(x):
            y, status = mj.experts(self.params, x, self.ids, self.probs, layer=self.layer, with_status=True)
            return x.astype(jnp.float32).sum() + status[0].astype(jnp.float32)

        self.assertTrue((jax.jit(jax.grad(loss))(self.x) == 1).all())

    def test_a_state_has_to_be_asked_for(self):
        layer = plan("fp8_delayed", amax_history_len=4)
        state = mj.init_state(layer)
        with self.assertRaisesRegex(moejit.Error, "gradients without the gradient of the state, which is the state after"):
            jax.grad(lambda x: mj.experts(self.params, x, self.ids, self.probs, layer=layer, state=state).sum())(self.x)


if __name__ == "__main__":
    unittest.main()
