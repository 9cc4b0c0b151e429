# SPDX-License-Identifier: Apache-2.0
"""Tensors whose first element is at no multiple of 16 bytes, as in x[1:]: the same bits as of tensors that are."""
import unittest

import torch
import torch.distributed as dist

from group_case import K_OF_GROUP
from group_compile_test import OneRank
from support import DEVICE, E, H, I, K, MAX_TOKENS, TOKENS, Inputs, assert_same_bits, describe, told
from moejit.torch import Experts, activation, experts, grouped_gemm, permute_pad, route, unpermute
from moejit.torch.sglang import fused_experts

HINT = "\nhint: kernels move 16 bytes at a time"


def unaligned(tensor):
    """The same values, behind one element more."""
    view = torch.cat([tensor.detach().new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)
    assert view.data_ptr() % 16 != 0
    return view.detach().requires_grad_(tensor.requires_grad) if tensor.is_leaf else view


def moved(inputs, *names):
    """Other inputs, of which these tensors are unaligned."""
    other = Inputs(biases=inputs.b1 is not None)
    for name in names:
        setattr(other, name, unaligned(getattr(other, name)))
    return other


class Layers(unittest.TestCase):

    def test_take_everything_but_weights_that_gemms_read(self):
        small = ("x", "ids", "probs", "b1", "b2", "dy")
        for recipe, names in (("bf16", small), ("fp8_flow", (*small, "w1", "w2")), ("fp8_blockwise", small)):
            with self.subTest(recipe):
                inputs = Inputs(biases=True)
                other = moved(inputs, *names)
                assert_same_bits(self, other.results(lambda: other.run(recipe)), inputs.results(lambda: inputs.run(recipe)))

    def test_refuse_weights_that_gemms_read(self):
        for name in ("w1", "w2"):
            inputs = moved(Inputs(), name)
            self.assertRegex(told(lambda: inputs.run("bf16")), f"tensor {name}: its address .* 16{HINT}")

    def test_take_slices_in_graphs(self):
        inputs = Inputs()

        def rows(first):
            return (inputs.x[first:], inputs.ids.int()[first:], inputs.probs[first:], inputs.w1, inputs.w2)

        want = experts(*(tensor.clone() for tensor in rows(1)), layer=describe("fp8_flow"))
        compiled = torch.compile(lambda *tensors: experts(*tensors, layer=describe("fp8_flow")), fullgraph=True,
                                 backend="aot_eager")
        in_graph = torch.compile(lambda: experts(*rows(1), layer=describe("fp8_flow")), fullgraph=True,
                                 backend="aot_eager")
        with torch.no_grad():
            assert_same_bits(self, [compiled(*rows(1)), in_graph()], [want, want])

    def test_take_a_flag_of_many(self):
        module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe="fp8_flow", device=DEVICE)
        inputs = Inputs()
        flags = torch.zeros(4, dtype=torch.int32, device=DEVICE)
        with torch.no_grad():
            want = module(inputs.x, inputs.ids, inputs.probs)
            got = module(inputs.x, inputs.ids, inputs.probs, skip_update=flags[1:2])
        assert_same_bits(self, [got], [want])

    def test_take_delayed_gradients(self):
        results = []
        for inputs in (Inputs(), moved(Inputs(), "x", "ids", "probs", "dy")):
            torch.manual_seed(0)
            module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe="fp8_flow", device=DEVICE,
                             delay_wgrad_compute=True)
            module(inputs.x, inputs.ids, inputs.probs).backward(inputs.dy)
            module.backward_dw()
            results.append([inputs.x.grad, inputs.probs.grad, *(parameter.grad for parameter in module.parameters())])
        assert_same_bits(self, *results)


class Functions(unittest.TestCase):

    def test_of_single_steps(self):
        inputs = Inputs()
        results = []
        for change in (lambda tensor: tensor, unaligned):
            x, ids, probs, w1, w2 = map(change, (inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2))
            routing = route(ids, E, splits_alignment=64)
            rows, row_probs = permute_pad(x, probs, routing)
            gate_up = grouped_gemm(change(rows), w1, routing, format="fp8")
            y = unpermute(change(grouped_gemm(activation(change(gate_up), change(row_probs), routing), w2, routing,
                                              format="bf16")), routing)
            y.backward(change(inputs.dy))
            results.append([y, *(leaf.grad for leaf in (x, probs, w1, w2))])
            inputs = Inputs()
        assert_same_bits(self, *results)

    def test_of_serving(self):
        class Config:
            activation = "silu"

        inputs = Inputs()
        results = []
        for change in (lambda tensor: tensor, unaligned):
            x, ids, probs = (change(tensor.detach()) for tensor in (inputs.x, inputs.ids, inputs.probs))
            results.append([fused_experts(x, inputs.w1.detach(), inputs.w2.detach(), (probs, ids), Config())])
        assert_same_bits(self, *results)


class Groups(OneRank):

    def test_take_unaligned_tokens(self):
        results = []
        for change in (lambda tensor: tensor, unaligned):
            torch.manual_seed(0)
            module = Experts(E, H, I, K_OF_GROUP, max_tokens=MAX_TOKENS, recipe="fp8_flow", device=DEVICE,
                             process_group=dist.group.WORLD)
            x, ids, probs = map(change, self.inputs(TOKENS))
            y = module(x, ids, probs)
            y.backward(change(torch.ones_like(y)))
            results.append([y, x.grad, probs.grad, *(parameter.grad for parameter in module.parameters())])
        assert_same_bits(self, *results)


if __name__ == "__main__":
    unittest.main()
