# SPDX-License-Identifier: Apache-2.0
"""Second derivatives are refused, also those of losses that are linear in y, whose gradient of y is a constant."""
import unittest

import torch
import torch.distributed as dist

import moejit.torch
from group_case import K_OF_GROUP
from group_compile_test import OneRank
from support import DEVICE, E, H, I, K, MAX_TOKENS, Inputs, describe, relative_error
from moejit.torch import Experts, activation, grouped_gemm, permute_pad, route, unpermute
from moejit.torch.call import call_experts
from moejit.torch.state import ExpertsCall
from moejit.torch.first_order import _Refused

WORDS = "moejit: unsupported: a second derivative goes through the experts"


def functions():
    """The package's autograd functions."""
    return [kind for kind in torch.autograd.Function.__subclasses__()
            if kind.__module__.startswith("moejit.") and kind is not _Refused]


class Case(unittest.TestCase):

    def refuse(self, y, *leaves):
        """The first derivatives of a loss linear in y are there, those of what is made of them are refused."""
        for gradient in torch.autograd.grad(y.float().sum(), leaves, create_graph=True):
            with self.assertRaisesRegex(RuntimeError, WORDS):
                (gradient.float().square().sum() + y.float().sum()).backward(retain_graph=True)


class Refusals(Case):

    def test_of_modules(self):
        for options in ({}, {"fuse_wgrad_accumulation": True}, {"delay_wgrad_compute": True}, {"recipe": "fp8_delayed"}):
            module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, device=DEVICE, **options)
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
            weights = () if len(options) == 1 and "recipe" not in options else module.parameters()
            for _ in range(2):  # the second call repeats the first one's way
                inputs = Inputs()
                with self.subTest(**options):
                    self.refuse(module(inputs.x, inputs.ids, inputs.probs), inputs.x, inputs.probs, *weights)

    def test_of_functions_and_of_gathered_weights(self):
        inputs = Inputs(biases=True)
        self.refuse(inputs.run("fp8_flow"), *inputs.leaves)
        inputs = Inputs()
        call = ExpertsCall(moejit.torch.layers.as_json(describe("fp8_flow")))
        self.refuse(call_experts(call, inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, is_sharded=True),
                    *inputs.leaves)

    def test_of_single_steps(self):
        for number_format in ("bf16", "fp8"):
            inputs = Inputs()
            routing = route(inputs.ids, E, splits_alignment=64)
            rows, row_probs = permute_pad(inputs.x, inputs.probs, routing)
            self.refuse(rows, inputs.x)
            self.refuse(row_probs, inputs.probs)
            leaves = [tensor.detach().requires_grad_() for tensor in (rows, row_probs)]
            gate_up = grouped_gemm(leaves[0], inputs.w1, routing, format=number_format)
            self.refuse(gate_up, leaves[0], inputs.w1)
            gate_up = gate_up.detach().requires_grad_()
            self.refuse(activation(gate_up, leaves[1], routing), gate_up, leaves[1])
            self.refuse(unpermute(leaves[0], routing), leaves[0])

    def test_of_no_function_was_forgotten(self):
        self.assertGreaterEqual(len(functions()), 10)
        for kind in functions():
            self.assertTrue(hasattr(kind.backward, "__wrapped__"), f"{kind.__name__}.backward lacks @first_order")

    def test_first_derivatives_with_a_graph_are_the_same(self):
        inputs = Inputs()
        want = torch.autograd.grad(inputs.run("bf16").float().sum(), inputs.leaves)
        got = torch.autograd.grad(inputs.run("bf16").float().sum(), inputs.leaves, create_graph=True)
        self.assertEqual([relative_error(one.detach(), other) for one, other in zip(got, want)], [0.0] * len(want))


class RefusalsOfGroups(OneRank, Case):

    def test_of_modules(self):
        for options in ({}, {"fuse_wgrad_accumulation": True}, {"recipe": "fp8_delayed"}):
            module = Experts(E, H, I, K_OF_GROUP, max_tokens=MAX_TOKENS, device=DEVICE,
                             process_group=dist.group.WORLD, **options)
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
            for _ in range(2):
                x, ids, probs = self.inputs(12)
                with self.subTest(**options):
                    self.refuse(module(x, ids, probs), x, probs)


if __name__ == "__main__":
    unittest.main()
