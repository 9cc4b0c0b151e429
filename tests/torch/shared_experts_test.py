# SPDX-License-Identifier: Apache-2.0
"""Shared experts: beside a dense MLP in float32, beside experts that tokens choose, and as parameters of their own."""
import copy
import io
import unittest

import torch

from support import BOUNDS, DEVICE, E, H, I, K, MAX_TOKENS, TOKENS, Inputs, assert_same_bits, describe, relative_error
from moejit.torch import Experts, experts

SHARED = 2


class SharedInputs(Inputs):
    """Random inputs with shared experts behind the others, and a gate's logit of each token."""

    def __init__(self, tokens=TOKENS, biases=False):
        super().__init__(tokens, biases=biases)
        more = Inputs(tokens, seed=1, biases=biases)
        for name in ("w1", "w2", "b1", "b2"):
            if getattr(self, name) is not None:
                whole = torch.cat((getattr(self, name), getattr(more, name)[:SHARED])).detach()
                setattr(self, name, whole.requires_grad_())
        self.gate = more.x.detach()[:, 0].float().clone().requires_grad_()

    @property
    def leaves(self):
        return super().leaves + [self.gate]

    def run(self, recipe, **fields):
        return experts(self.x, self.ids, self.probs, self.w1, self.w2, gate_up_proj_bias=self.b1,
                       down_proj_bias=self.b2, shared_probs=self.gate.sigmoid(),
                       layer=describe(recipe, biases=self.b1 is not None, shared={"experts": SHARED, "gate": True}, **fields))

    def chosen(self, recipe):
        """The same by choices: K + n of each token."""
        tokens = self.x.shape[0]
        ids = torch.cat((self.ids, torch.arange(E, E + SHARED, device=DEVICE).expand(tokens, -1)), 1)
        probs = torch.cat((self.probs, self.gate.sigmoid()[:, None].expand(-1, SHARED)), 1)
        layer = describe(recipe, biases=self.b1 is not None)
        return experts(self.x, ids, probs, self.w1, self.w2, gate_up_proj_bias=self.b1, down_proj_bias=self.b2,
                       layer={**layer, "experts": E + SHARED, "top_k": K + SHARED})

    def reference(self):
        """Routed experts, and one wide dense expert, in float32."""
        gate, up = (torch.cat([self.w1[E + s, half * I:(half + 1) * I] for s in range(SHARED)]).float() for half in (0, 1))
        down = torch.cat([self.w2[E + s] for s in range(SHARED)], 1).float()
        x = self.x.float()
        h1 = x @ gate.T, x @ up.T
        shared = (torch.nn.functional.silu(h1[0]) * h1[1]) @ down.T
        return super().reference() + self.gate.sigmoid()[:, None] * shared


class SharedExpertsTest(unittest.TestCase):

    def test_results_are_near_routed_and_dense_experts_in_float32(self):
        inputs = SharedInputs()
        want = inputs.results(inputs.reference)
        for recipe, bound in BOUNDS.items():
            got = inputs.results(lambda: inputs.run(recipe))
            for name, one, other in zip(("y", "dx", "dprobs", "dw1", "dw2", "dgate"), got, want):
                # A choice's gradient is a sum of I = 32 products, both of whose factors have such errors.
                of_both = 2 if name == "dprobs" else 1
                with self.subTest(recipe=recipe, tensor=name):
                    self.assertLessEqual(relative_error(one, other), of_both * bound)

    def test_bits_are_those_of_chosen_experts(self):
        for recipe in BOUNDS:
            inputs = SharedInputs(biases=recipe == "bf16")
            got = inputs.results(lambda: inputs.run(recipe))
            want = inputs.results(lambda: inputs.chosen(recipe))
            assert_same_bits(self, got, want)

    def test_a_compiled_function_has_the_same_bits(self):
        inputs = SharedInputs()
        want = inputs.results(lambda: inputs.run("bf16"))
        torch._dynamo.reset()
        compiled = torch.compile(lambda: inputs.run("bf16"), fullgraph=True, backend="aot_eager")
        assert_same_bits(self, inputs.results(compiled), want)

    def test_missing_and_surplus_probabilities_are_errors(self):
        inputs = SharedInputs()
        with self.assertRaisesRegex(RuntimeError, "tensor shared_probs: got none, wanted the gate's value"):
            experts(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2,
                    layer=describe("bf16", shared={"experts": SHARED, "gate": True}))
        with self.assertRaisesRegex(RuntimeError, "without a gate of shared experts, wanted none"):
            experts(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, shared_probs=inputs.gate,
                    layer=describe("bf16", shared={"experts": SHARED}))
        with self.assertRaisesRegex(RuntimeError, f"it has 1 elements, wanted {TOKENS}: one of each token"):
            experts(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, shared_probs=inputs.gate[:1],
                    layer=describe("bf16", shared={"experts": SHARED, "gate": True}))


class SharedParametersTest(unittest.TestCase):

    def make(self, recipe="fp8_flow", **options):
        module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, num_shared_experts=SHARED, shared_gate=True,
                         device=DEVICE, **options)
        inputs = SharedInputs()
        with torch.no_grad():
            for name, whole in (("gate_up_proj", inputs.w1), ("down_proj", inputs.w2)):
                getattr(module, name).copy_(whole[:E])
                getattr(module, f"shared_{name}").copy_(whole[E:])
        return module, inputs

    def step(self, module, inputs):
        """[y, dx, dprobs, gradients of the parameters, dgate] of a forward and a backward call."""
        module.zero_grad()
        y, dx, dprobs, dgate = inputs.results(lambda: module(inputs.x, inputs.ids, inputs.probs, inputs.gate.sigmoid()))[:3] + [inputs.gate.grad]
        return [y, dx, dprobs, *(each.grad for each in module.parameters()), dgate]

    def expect_function(self, module, inputs, recipe="fp8_flow"):
        y, dx, dprobs, dw1, dw2, dgate = inputs.results(lambda: inputs.run(recipe))
        got = self.step(module, inputs)
        assert_same_bits(self, got, [y, dx, dprobs, dw1[:E], dw1[E:], dw2[:E], dw2[E:], dgate])

    def test_parameters_are_apart_and_are_not_copied(self):
        module, inputs = self.make()
        self.assertEqual([(name, tuple(each.shape)) for name, each in module.named_parameters()], [
            ("gate_up_proj", (E, 2 * I, H)), ("shared_gate_up_proj", (SHARED, 2 * I, H)),
            ("down_proj", (E, H, I)), ("shared_down_proj", (SHARED, H, I))])
        self.expect_function(module, inputs)
        w1, w2, *_ = module._weights()
        self.assertEqual((w1.data_ptr(), w2.data_ptr()), (module.gate_up_proj.data_ptr(), module.down_proj.data_ptr()))

    def test_moved_copied_and_loaded_modules_compute_the_same(self):
        module, inputs = self.make()
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        loaded = Experts(E, H, I, K, max_tokens=MAX_TOKENS, num_shared_experts=SHARED, shared_gate=True, device=DEVICE)
        loaded.load_state_dict({name: tensor.clone() for name, tensor in torch.load(file).items()}, assign=True)
        for other in (copy.deepcopy(module), loaded, module.to(torch.float32).to(torch.bfloat16)):
            self.expect_function(other, inputs)
            self.assertEqual(other._weights()[0].data_ptr(), other.gate_up_proj.data_ptr())

    def test_calls_without_gradients_keep_weights_and_see_their_changes(self):
        module, inputs = self.make()
        def infer():
            with torch.no_grad():
                return module(inputs.x, inputs.ids, inputs.probs, inputs.gate.sigmoid())
        first = infer()
        kept = module._state.weights.blocks
        self.assertTrue(kept)
        assert_same_bits(self, [first], [inputs.run("fp8_flow").detach()])
        with torch.no_grad():
            module.shared_down_proj.zero_()
            inputs.w2[E:] = 0
        assert_same_bits(self, [infer()], [inputs.run("fp8_flow").detach()])
        self.assertIs(module._state.weights.blocks[0], kept[0])

    def test_main_gradients_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "unsupported: fuse_wgrad_accumulation with num_shared_experts"):
            self.make(fuse_wgrad_accumulation=True)

    def test_delayed_gradients_are_the_same(self):
        module, inputs = self.make("bf16", delay_wgrad_compute=True)
        *_, dw1, dw2, _ = inputs.results(lambda: inputs.run("bf16"))
        module.zero_grad()
        module(inputs.x, inputs.ids, inputs.probs, inputs.gate.sigmoid()).backward(inputs.dy)
        self.assertIsNone(module.shared_down_proj.grad)
        module.backward_dw()
        assert_same_bits(self, [each.grad for each in module.parameters()], [dw1[:E], dw1[E:], dw2[:E], dw2[E:]])


if __name__ == "__main__":
    unittest.main()
