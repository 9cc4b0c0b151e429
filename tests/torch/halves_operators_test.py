# SPDX-License-Identifier: Apache-2.0
"""The operators of backward in two halves: what torch checks of any, their bits, and what they refuse."""
import unittest

import torch

from support import MAX_TOKENS, RECIPES, Inputs, arguments, assert_same_bits, halves_arguments
from moejit.torch import ops


class Operators(unittest.TestCase):

    def test_they_keep_what_their_schemas_and_fake_kernels_promise(self):
        for recipe in RECIPES:
            for operator, given in halves_arguments(recipe, Inputs(biases=True), biases=True).items():
                with self.subTest(recipe=recipe, operator=str(operator)):
                    torch.library.opcheck(operator, given)

    def test_halves_have_the_bits_of_the_whole(self):
        for recipe in RECIPES:
            for tokens in (0, 1, 12, MAX_TOKENS):
                inputs = Inputs(tokens, biases=True)
                want = ops.backward(*arguments(recipe, inputs, biases=True)[ops.backward])
                given = halves_arguments(recipe, inputs, biases=True)
                dx, dprobs, _ = ops.backward_data(*given[ops.backward_data])
                assert_same_bits(self, [dx, dprobs, *ops.backward_weights(*given[ops.backward_weights])], want)
                assert_same_bits(self, ops.backward(*given[ops.backward]), want)

    def test_added_gradients_of_two_calls_are_twice_those_of_one(self):
        for recipe in RECIPES:
            given = halves_arguments(recipe, Inputs(biases=True), biases=True)
            want = ops.backward_weights(*given[ops.backward_weights])
            *kept, _, layer = given[ops.backward_weights_add]
            main = kept[11:]
            for _ in range(2):
                ops.backward_weights_add(*kept, False, layer)
            for one, other in zip(main, want):
                torch.testing.assert_close(one, 2 * other, rtol=1e-6, atol=1e-6)
            ops.backward_weights_add(*kept, True, layer)
            assert_same_bits(self, main, want)

    def test_blocks_of_other_calls_and_layers_without_halves_are_refused(self):
        given = halves_arguments("fp8_flow", Inputs())
        dy, *kept, deferred, layer = given[ops.backward_weights]
        with self.assertRaisesRegex(RuntimeError, rf"tensor deferred: it has {deferred.numel() - 1} elements"):
            ops.backward_weights(dy, *kept, deferred[1:], layer)
        with self.assertRaisesRegex(RuntimeError, "unsupported[^$]*backward_halves"):
            ops.backward_data(*arguments("fp8_flow", Inputs())[ops.backward])


if __name__ == "__main__":
    unittest.main()
