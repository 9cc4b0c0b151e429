# SPDX-License-Identifier: Apache-2.0
"""What the tests of delayed gradients share: modules that compute whole backward calls, and halves of them."""
import contextlib
import unittest

import torch

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, Inputs, assert_same_bits
from moejit.torch import Experts


class ModuleCase(unittest.TestCase):

    def make(self, recipe="fp8_flow", **options):
        torch.manual_seed(0)
        return Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, bias=True, device=DEVICE, **options)

    def microbatches(self):
        return [Inputs(tokens, seed) for seed, tokens in enumerate((12, 20))]

    def run_all(self, module, microbatches, call=None):
        """Runs forward and backward of each microbatch. Returns [y, dx, dprobs, y, ...]."""
        results = []
        for inputs in microbatches:
            inputs.x.grad = inputs.probs.grad = None
            y = (module if call is None else call)(inputs.x, inputs.ids, inputs.probs)
            y.backward(inputs.dy.to(y.dtype))
            results += [y.detach(), inputs.x.grad, inputs.probs.grad]
        return results

    def assert_same_as_whole(self, prepare=lambda module: None, call=lambda module: module, recipes=RECIPES,
                             context=contextlib.nullcontext, **options):
        """Two microbatches and then two times backward_dw() give the bits of a module without halves."""
        for recipe in recipes:
            whole = self.make(recipe, **options)
            delayed = self.make(recipe, delay_wgrad_compute=True, **options)
            for module in (whole, delayed):
                prepare(module)
            with context():
                want = self.run_all(whole, self.microbatches(), call(whole))
                got = self.run_all(delayed, self.microbatches(), call(delayed))
            assert_same_bits(self, [each for each in got if each is not None],
                             [each for each in want if each is not None])
            self.assertEqual([parameter.grad for parameter in delayed.parameters()], [None] * 4)
            for _ in range(2):
                delayed.backward_dw()
            for one, other in zip(delayed.parameters(), whole.parameters()):
                self.assertEqual(one.grad is None, other.grad is None)
                if other.grad is not None:
                    self.assertEqual(one.grad.dtype, other.grad.dtype)
                    assert_same_bits(self, [one.grad], [other.grad])
                if hasattr(other, "main_grad"):
                    self.assertTrue(other.main_grad.any())
                    assert_same_bits(self, [one.main_grad], [other.main_grad])
