# SPDX-License-Identifier: Apache-2.0
"""Main gradients: what backward adds to `main_grad` of parameters, and how it heeds their attributes."""
import unittest

import torch

from support import DEVICE, RECIPES, Inputs, ModuleTest, assert_same_bits, relative_error


class MainGradients(ModuleTest):

    def test_main_gradients_get_what_autograd_would_give(self):
        for recipe in RECIPES:
            inputs = Inputs()
            want = self.step(self.make(recipe), inputs)
            module = self.make(recipe, fuse_wgrad_accumulation=True)
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros(parameter.shape, device=DEVICE)
            for _ in range(2):
                got = self.step(module, inputs)
            assert_same_bits(self, got[:3], want[:3])
            self.assertEqual(got[3:], [None] * 4)
            for parameter, gradient in zip(module.parameters(), want[3:]):
                # Autograd's gradients are rounded to bf16 once.
                self.assertLessEqual(relative_error(parameter.main_grad, 2 * gradient.float()), 2 ** -8)

    def test_main_gradients_heed_the_attributes_of_megatron_and_transformer_engine(self):
        inputs, module = Inputs(), self.make(fuse_wgrad_accumulation=True)
        for parameter in module.parameters():
            parameter.main_grad = torch.full(parameter.shape, 7.0, device=DEVICE)
            parameter.grad_added_to_main_grad = False
            parameter.overwrite_main_grad = True
            parameter.zero_out_wgrad = True
        gradients = self.step(module, inputs)[3:]
        self.assertTrue(all(parameter.grad_added_to_main_grad for parameter in module.parameters()))
        self.assertFalse(any(gradient.any() for gradient in gradients), "dummies of zeros were asked for")
        overwritten = [parameter.main_grad.clone() for parameter in module.parameters()]
        self.step(module, inputs)
        assert_same_bits(self, [parameter.main_grad for parameter in module.parameters()], overwritten)
        module.down_proj.overwrite_main_grad = False
        with self.assertRaisesRegex(RuntimeError, "overwrite_main_grad is True for some parameters"):
            self.step(module, inputs)

    def test_main_gradients_that_move_are_asked_for_in_backward(self):
        inputs, module = Inputs(), self.make(fuse_wgrad_accumulation=True)
        for parameter in module.parameters():
            parameter.main_grad = torch.zeros(parameter.shape, device=DEVICE)
        want = self.step(module, inputs)
        given = []
        for parameter in module.parameters():
            parameter.get_main_grad = lambda like=parameter.main_grad: given.append(torch.zeros_like(like)) or given[-1]
            parameter.grad_added_to_main_grad = False
        y = module(inputs.x, inputs.ids, inputs.probs)
        self.assertEqual(given, [])
        y.backward(inputs.dy)
        assert_same_bits(self, [y.detach(), *given], [want[0], *(each.main_grad for each in module.parameters())])
        self.assertTrue(all(each.grad_added_to_main_grad and each.grad is not None for each in module.parameters()))

    def test_main_gradients_in_bf16_are_added_to_with_one_rounding(self):
        for recipe in RECIPES:
            inputs, module = Inputs(), self.make(recipe, fuse_wgrad_accumulation=True)
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
            self.step(module, inputs)
            sums = [parameter.main_grad for parameter in module.parameters()]
            want = [each.bfloat16() for each in sums]
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros_like(parameter)
            for _ in range(2):
                self.step(module, inputs)
                assert_same_bits(self, [parameter.main_grad for parameter in module.parameters()], want)
                want = [(old.float() + each).bfloat16() for old, each in zip(want, sums)]

    def test_main_gradients_of_a_module_have_one_dtype(self):
        module = self.make(fuse_wgrad_accumulation=True)
        for parameter in module.parameters():
            parameter.main_grad = torch.zeros_like(parameter)
        module.down_proj.main_grad = module.down_proj.main_grad.float()
        with self.assertRaisesRegex(RuntimeError, "down_proj.main_grad is float32, wanted bfloat16"):
            self.step(module, Inputs())
        module.gate_up_proj.main_grad = module.gate_up_proj.main_grad.half()
        with self.assertRaisesRegex(RuntimeError, "gate_up_proj.main_grad is float16, wanted float32"):
            self.step(module, Inputs())

    def test_a_missing_main_gradient_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "gate_up_proj has no main_grad"):
            self.step(self.make(fuse_wgrad_accumulation=True), Inputs())


if __name__ == "__main__":
    unittest.main()
