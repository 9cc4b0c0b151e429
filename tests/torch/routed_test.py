# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.routed_experts() beside router() and experts(): the same bits of results and gradients."""
import unittest

import torch

from moejit.torch import experts, routed_experts, router
from support import DEVICE, E, K, Inputs, assert_same_bits, describe

T = 24
FORMULA = {"score": "sigmoid", "normalize": "sum", "epsilon": 1e-20, "scale": 2.5, "aux": "chosen", "z": True}


class Routed(unittest.TestCase):

    def setUp(self):
        self.inputs = Inputs(tokens=T)
        torch.manual_seed(1)
        self.logits = torch.randn(T, E, device=DEVICE).requires_grad_()
        self.bias = 0.1 * torch.randn(E, device=DEVICE)

    def together(self, recipe="bf16", logits=None, **others):
        of = self.inputs
        return routed_experts(of.x, self.logits if logits is None else logits, of.w1, of.w2, bias=self.bias,
                              layer=describe(recipe, router=FORMULA), **others)

    def apart(self, recipe="bf16"):
        of = self.inputs
        probs, ids, made = router(self.logits, K, bias=self.bias, **FORMULA)
        return experts(of.x, ids, probs, of.w1, of.w2, layer=describe(recipe)), {**made, "topk_ids": ids,
                                                                                "topk_probs": probs}

    def results(self, run):
        """Returns y, all else that a call makes, and the gradients of a loss of y and both losses."""
        y, made = run()
        loss = (y.float() * torch.linspace(-1, 1, y.numel(), device=DEVICE).view_as(y)).sum()
        loss = loss + 0.01 * made["aux_loss"] + 0.001 * made["z_loss"]
        of = self.inputs
        gradients = torch.autograd.grad(loss, (of.x, self.logits, of.w1, of.w2))
        return [y, *[made[name] for name in ("topk_ids", "topk_probs", "counts", "aux_loss", "z_loss")], *gradients]

    def test_has_the_bits_of_router_and_experts(self):
        for recipe in ("bf16", "fp8_flow"):
            with self.subTest(recipe):
                assert_same_bits(self, self.results(lambda: self.together(recipe)),
                                 self.results(lambda: self.apart(recipe)))

    def test_shared_experts_with_a_gate_have_the_bits_of_router_and_experts(self):
        of, formula = self.inputs, {"normalize": "sum"}
        logits, gate = self.logits[:, 1:].detach().requires_grad_(), torch.rand(T, device=DEVICE).requires_grad_()
        fields = {"experts": E - 1, "shared": {"experts": 1, "gate": True}}
        leaves = of.x, logits, gate, of.w1, of.w2
        for recipe in ("bf16", "fp8_flow"):
            with self.subTest(recipe):
                y, made = routed_experts(of.x, logits, of.w1, of.w2, shared_probs=gate,
                                         layer=describe(recipe, router=formula, **fields))
                probs, ids, _ = router(logits, K, **formula)
                wanted = experts(of.x, ids, probs, of.w1, of.w2, shared_probs=gate, layer=describe(recipe, **fields))
                assert_same_bits(self, [made["topk_ids"], y, *torch.autograd.grad(y.float().square().sum(), leaves)],
                                 [ids, wanted, *torch.autograd.grad(wanted.float().square().sum(), leaves)])
        with self.assertRaisesRegex(RuntimeError, "tensor shared_probs: got none"):
            routed_experts(of.x, logits, of.w1, of.w2, layer=describe("bf16", router=formula, **fields))
        with self.assertRaisesRegex(RuntimeError, "it has 1 elements, wanted 24"):
            routed_experts(of.x, logits, of.w1, of.w2, shared_probs=gate[:1],
                           layer=describe("bf16", router=formula, **fields))

    def test_compiles_whole(self):
        compiled = torch.compile(self.together, fullgraph=True, backend="aot_eager")
        assert_same_bits(self, self.results(compiled), self.results(self.together))

    def test_routes_by_given_ids_with_factors_that_have_gradients(self):
        of, ids = self.inputs, self.inputs.ids
        scale = torch.linspace(0.5, 2, E, device=DEVICE).requires_grad_()
        formula = {"normalize": "sum"}
        y, made = routed_experts(of.x, self.logits, of.w1, of.w2, layer=describe("bf16", router=formula), topk_ids=ids,
                                 expert_scale=scale)
        probs, _, _ = router(self.logits, K, topk_ids=ids, expert_scale=scale, **formula)
        want = experts(of.x, ids, probs, of.w1, of.w2, layer=describe("bf16"))
        self.assertTrue(torch.equal(y, want))
        of_both = [torch.autograd.grad(result.float().square().sum(), (self.logits, scale)) for result in (y, want)]
        for got, wanted in zip(*of_both):
            self.assertTrue(torch.equal(got, wanted))

    def test_adds_counts_and_needs_no_gradients(self):
        counts = torch.ones(E, dtype=torch.int32, device=DEVICE)
        with torch.no_grad():
            y, made = self.together(counts=counts)
        self.assertEqual(int(counts.sum()), E + T * K)
        self.assertEqual(y.shape, self.inputs.x.shape)
        self.assertFalse(made["aux_loss"].requires_grad)

    def test_refuses_layers_of_the_other_kind(self):
        of = self.inputs
        with self.assertRaisesRegex(RuntimeError, "(?s)a layer with \"router\".*routed_experts"):
            experts(of.x, of.ids, of.probs, of.w1, of.w2, layer=describe("bf16", router=FORMULA))
        with self.assertRaisesRegex(RuntimeError, "it has no \"router\""):
            routed_experts(of.x, self.logits, of.w1, of.w2, layer=describe("bf16"))
        with self.assertRaisesRegex(RuntimeError, "the router has \"bias\", and got no tensor"):
            routed_experts(of.x, self.logits, of.w1, of.w2, layer=describe("bf16", router={"bias": True}))
        with self.assertRaisesRegex(RuntimeError, "tensor logits: .* wanted float32 or bfloat16"):
            self.together(logits=self.logits.double())


if __name__ == "__main__":
    unittest.main()
