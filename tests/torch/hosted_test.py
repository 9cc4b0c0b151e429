# SPDX-License-Identifier: Apache-2.0
"""Experts inside modules that keep the parameters themselves, beside the functions with the same inputs."""
import copy
import pickle
import unittest

import torch

from moejit.torch import HostedExperts, experts, grouped_experts
from support import DEVICE, E, Inputs, assert_same_bits, describe


def layer_of(recipe, **fields):
    layer = describe(recipe, **fields)
    del layer["max_tokens"]
    return layer


class Module(torch.nn.Module):
    """A module of somebody else's, with names of its own."""

    def __init__(self, inputs, recipe="fp8_flow", **options):
        super().__init__()
        self.gate_up, self.down = (torch.nn.Parameter(each.detach().clone()) for each in (inputs.w1, inputs.w2))
        self.hosted = HostedExperts(layer_of(recipe), device=DEVICE, **options)

    def forward(self, x, ids, probs):
        return self.hosted(x, ids, probs, self.gate_up, self.down, owner="mlp", names=("gate_up", "down"))

    def step(self, inputs):
        """[y, gradients of x, probs and the parameters]"""
        leaves = [inputs.x, inputs.probs, self.gate_up, self.down]
        for leaf in leaves:
            leaf.grad = None
        y = self(inputs.x, inputs.ids, inputs.probs)
        y.backward(inputs.dy)
        return [y.detach(), *(leaf.grad for leaf in leaves)]


class Hosted(unittest.TestCase):

    def test_has_the_bits_of_the_function_at_every_size(self):
        for tokens in (0, 5, 40):
            inputs = Inputs(tokens)
            want = inputs.results(lambda: inputs.run("fp8_flow"))
            assert_same_bits(self, Module(inputs).step(inputs), want)

    def test_takes_grouped_rows_whose_numbers_are_on_the_host(self):
        inputs, sizes = Inputs(), torch.tensor([3, 0, 1, 17, 0, 9, 2, 4])
        probs, layer = inputs.probs[:, 0].contiguous(), layer_of("bf16")
        del layer["top_k"]
        with torch.no_grad():
            want = grouped_experts(inputs.x, sizes.to(DEVICE), inputs.w1, inputs.w2, probs=probs,
                                   layer={**layer, "max_tokens": 64})
            got = HostedExperts({**layer, "input": "grouped"}, device=DEVICE)(inputs.x, sizes, probs.double(), inputs.w1,
                                                                              inputs.w2)
        assert_same_bits(self, [got], [want])

    def test_copies_and_pickles_start_anew(self):
        inputs = Inputs()
        module = Module(inputs, delay_wgrad_compute=True)
        module.step(inputs)
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            self.assertEqual(len(other.hosted.delayed.queue), 0)
            assert_same_bits(self, other.step(inputs)[:3], module.step(inputs)[:3])
            other.hosted.backward_dw()
            self.assertTrue(other.down.grad.any())

    def test_delayed_and_fused_gradients(self):
        inputs, done = Inputs(), []
        want = Module(inputs).step(inputs)
        module = Module(inputs, delay_wgrad_compute=True, fuse_wgrad_accumulation=True)
        module.hosted.call_after_backward_dw(lambda: done.append(True))
        for parameter in (module.gate_up, module.down):
            parameter.main_grad = torch.zeros_like(parameter)
        module.step(inputs)
        module.hosted.backward_dw()
        assert_same_bits(self, [module.gate_up.main_grad, module.down.main_grad], want[3:])
        self.assertEqual(done, [True])

    def test_compiles_whole_for_any_number_of_tokens(self):
        inputs = Inputs()
        module = Module(inputs)
        want = module.step(inputs)
        module.compile(fullgraph=True)
        assert_same_bits(self, module.step(inputs), want)
        few = Inputs(5, seed=1)
        with torch.no_grad():
            assert_same_bits(self, [module(few.x, few.ids, few.probs)],
                             [experts(few.x, few.ids, few.probs, inputs.w1, inputs.w2, layer=describe("fp8_flow"))])

    def test_errors_come_when_it_is_made_and_have_the_modules_names(self):
        with self.assertRaisesRegex(RuntimeError, "hidden: got 8"):
            HostedExperts({**layer_of("bf16"), "hidden": 8})
        with self.assertRaisesRegex(RuntimeError, "cache_weights: got .yes."):
            HostedExperts(layer_of("bf16"), cache_weights="yes")
        with self.assertRaisesRegex(RuntimeError, "without delay_wgrad_compute"):
            HostedExperts(layer_of("bf16")).call_after_backward_dw(print)
        inputs = Inputs()
        with self.assertRaisesRegex(RuntimeError, "mlp.gate_up is float32"):
            Module(inputs).float()(inputs.x, inputs.ids, inputs.probs)

    def test_reports_the_status_of_calls(self):
        inputs = Inputs()
        module = Module(inputs)
        module.step(inputs)
        self.assertEqual(module.hosted.status(), 0)
        with torch.no_grad():
            module(inputs.x, torch.full_like(inputs.ids, E), inputs.probs)
        self.assertNotEqual(module.hosted.status(), 0)


if __name__ == "__main__":
    unittest.main()
