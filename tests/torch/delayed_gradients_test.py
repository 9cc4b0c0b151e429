# SPDX-License-Identifier: Apache-2.0
"""Gradients of weights that backward_dw() computes: the bits of whole backward calls."""
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from delayed_case import ModuleCase
from support import DEVICE, RECIPES, Recorder, assert_same_bits


class Gradients(ModuleCase):

    def test_two_microbatches_that_wait_have_the_bits_of_the_whole(self):
        self.assert_same_as_whole()
        self.assert_same_as_whole(recompute="moe_expert")

    def test_main_gradients(self):
        def prepare(module):
            for parameter in module.parameters():
                parameter.main_grad = torch.full(parameter.shape, 0.5, device=DEVICE)

        self.assert_same_as_whole(prepare, fuse_wgrad_accumulation=True)

    def test_main_gradients_heed_the_attributes_when_the_weights_half_runs(self):
        module = self.make(fuse_wgrad_accumulation=True, delay_wgrad_compute=True)
        for parameter in module.parameters():
            parameter.grad_added_to_main_grad = False
            parameter.zero_out_wgrad = True
        self.run_all(module, self.microbatches()[:1])
        self.assertFalse(any(parameter.grad_added_to_main_grad for parameter in module.parameters()))
        with self.assertRaisesRegex(RuntimeError, "gate_up_proj has no main_grad"):
            module.backward_dw()
        for parameter in module.parameters():
            parameter.main_grad = torch.zeros(parameter.shape, device=DEVICE)
        module.backward_dw()
        for parameter in module.parameters():
            self.assertTrue(parameter.grad_added_to_main_grad)
            self.assertFalse(parameter.grad.any(), "dummies of zeros were asked for")
            self.assertTrue(parameter.main_grad.any())

    @unittest.skipUnless(hasattr(torch.Tensor, "grad_dtype"), "torch 2.11 has grad_dtype")
    def test_gradients_are_float32_where_the_parameter_says_so(self):
        def prepare(module):
            for parameter in module.parameters():
                parameter.grad_dtype = torch.float32

        self.assert_same_as_whole(prepare)

    def test_autocast_and_parametrizations_carry_the_gradients_to_their_parameters(self):
        self.assert_same_as_whole(recipes=("fp8_flow",), dtype=torch.float32,
                                  context=lambda: torch.autocast(DEVICE.type, torch.bfloat16))

        class Twice(torch.nn.Module):
            def forward(self, weight):
                return weight * 2

        self.assert_same_as_whole(
            lambda module: torch.nn.utils.parametrize.register_parametrization(module, "down_proj", Twice()),
            recipes=("fp8_flow",))

    def test_frozen_parameters_get_nothing(self):
        for frozen in (("down_proj",), ("gate_up_proj_bias", "down_proj_bias", "down_proj")):
            self.assert_same_as_whole(
                lambda module: [getattr(module, name).requires_grad_(False) for name in frozen])
        module = self.make(delay_wgrad_compute=True).requires_grad_(False)
        with Recorder() as recorder:
            self.run_all(module, self.microbatches())
        self.assertEqual([name for name, _ in recorder.calls].count("backward"), 2, "nothing is to be delayed")
        module.backward_dw()

    def test_tokens_and_probabilities_that_want_no_gradient(self):
        for recipe in RECIPES:
            whole, delayed = self.make(recipe), self.make(recipe, delay_wgrad_compute=True)
            for module in (whole, delayed):
                microbatches = self.microbatches()
                for inputs in microbatches:
                    inputs.x, inputs.probs = inputs.x.detach(), inputs.probs.detach()
                self.run_all(module, microbatches)
            self.assertIsNone(delayed.down_proj.grad)
            for _ in range(2):
                delayed.backward_dw()
            assert_same_bits(self, [each.grad for each in delayed.parameters()],
                             [each.grad for each in whole.parameters()])

    def test_checkpoints(self):
        for use_reentrant in (False, True):
            call = lambda module: lambda *given: checkpoint(module, *given, use_reentrant=use_reentrant)
            self.assert_same_as_whole(call=call)
            self.assert_same_as_whole(call=call, recipes=("fp8_flow",), dtype=torch.float32,
                                      context=lambda: torch.autocast(DEVICE.type, torch.bfloat16))

    def test_microbatches_that_share_quantized_weights(self):
        whole, delayed = self.make(), self.make(delay_wgrad_compute=True)
        for module in (whole, delayed):
            first = iter((True, False))
            self.run_all(module, self.microbatches(), lambda *given: module(*given, is_first_microbatch=next(first)))
        for _ in range(2):
            delayed.backward_dw()
        assert_same_bits(self, [each.grad for each in delayed.parameters()],
                         [each.grad for each in whole.parameters()])


if __name__ == "__main__":
    unittest.main()
