# SPDX-License-Identifier: Apache-2.0
"""Main gradients: what backward adds to `main_grad` of parameters, and how it heeds their attributes."""
import gc
import unittest
import unittest.mock

import torch

from moejit.torch import function
from support import DEVICE, RECIPES, Inputs, ModuleTest, Recorder, assert_same_bits, relative_error


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

    def with_dummies(self):
        """A module whose hooks are told of main gradients by empty dummies, and inputs."""
        inputs, module = Inputs(), self.make(fuse_wgrad_accumulation=True)
        for parameter in module.parameters():
            parameter.main_grad = torch.zeros(parameter.shape, device=DEVICE)
            parameter.grad_added_to_main_grad = False
        return module, inputs

    def test_dummies_take_the_memory_of_the_largest_of_them(self):
        module, inputs = self.with_dummies()
        gradients = self.step(module, inputs)[3:]
        self.assertEqual([(each.shape, each.dtype, each.stride()) for each in gradients],
                         [(each.shape, each.dtype, each.stride()) for each in module.parameters()])
        storage, = {each.untyped_storage().data_ptr() for each in gradients}
        self.assertEqual(gradients[0].untyped_storage().nbytes(), max(each.nbytes for each in module.parameters()))
        del module.down_proj.grad_added_to_main_grad
        self.assertEqual([each is None for each in self.step(module, inputs)[3:]], [False, True, False, False])

    def test_what_was_saved_is_free_before_there_are_dummies(self):
        module, inputs = self.with_dummies()
        living, make = [], function.dummies_of

        def dummies_of(*arguments):
            gc.collect()
            living.append(sum(not block.expired() for block in recorder.blocks))
            return make(*arguments)

        with Recorder() as recorder, unittest.mock.patch.object(function, "dummies_of", dummies_of):
            self.step(module, inputs)
        self.assertEqual(living, [0])
        for _ in range(2):  # a graph that is kept keeps them
            y = module(inputs.x, inputs.ids, inputs.probs)
            y.backward(inputs.dy, retain_graph=True)
            y.backward(inputs.dy)

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
