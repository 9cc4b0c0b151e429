# SPDX-License-Identifier: Apache-2.0
"""Experts of torchtitan's models on moejit, beside float32 and torchtitan's own, on one rank."""
import copy
import importlib
import re
import sys
import unittest
from unittest import mock

import titan_case as case
import torch
from support import BOUNDS, DEVICE, E, H, I, RECIPES, ROOT, assert_same_bits, relative_error, told

if case.IS_THERE:
    from torchtitan.components.quantization import QuantizationConverter
    from torchtitan.models.common.moe import GroupedExperts

    from moejit.torch import titan_experts
    from moejit.torch.titan import ExpertsConverter, MoejitGroupedExperts

SIZES = (3, 0, 5, 2, 0, 0, 4, 1)  # of E experts
USED, ROWS = sum(SIZES), sum(SIZES) + 3  # nobody has the last three


def rows(dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, H, generator=generator).to(dtype).requires_grad_(), torch.tensor(SIZES)


def results_of(experts, x, sizes):
    """[y, gradients of the rows and of the parameters]."""
    experts.zero_grad()
    x.grad = None
    y = experts(x, sizes)
    y[:USED].float().square().sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in experts.parameters())]


@case.needed
@unittest.skipIf(DEVICE.type == "cuda", "the models of these tests are on the CPU")
class Models(unittest.TestCase):

    def test_a_layer_is_near_float32(self):
        reference = case.reference()
        want = case.layer_results_of(reference)
        for recipe in RECIPES:
            got = case.layer_results_of(case.model_of(recipe, torch.float32))
            names = ["y", "dx", *(name for name, _ in reference.layers["0"].moe.named_parameters())]
            for name, one, other in zip(names, got, want, strict=True):
                with self.subTest((recipe, name)):
                    self.assertEqual(one.dtype, torch.float32)
                    self.assertLessEqual(relative_error(one, other), BOUNDS[recipe])

    def test_state_dicts_are_those_of_torchtitan(self):
        theirs, ours = case.model_of(layers=2), case.model_of("bf16", layers=2)
        state = theirs.state_dict()
        self.assertEqual(list(state), list(ours.state_dict()))
        for name, value in state.items():
            self.assertTrue(torch.equal(value, ours.state_dict()[name]), name)
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.zero_()
        self.assertEqual(str(ours.load_state_dict(state)), "<All keys matched successfully>")
        self.assertTrue(torch.equal(case.experts_of(ours).w3_EFD, case.experts_of(theirs).w3_EFD))

    def test_a_model_learns_as_in_float32(self):
        ends = []
        for model in case.reference(), case.model_of("fp8_flow", torch.float32):
            optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
            for _ in range(6):
                optimizer.zero_grad()
                losses.append(case.loss_of(model, case.tokens()))
                losses[-1].backward()
                optimizer.step()
            self.assertLess(losses[-1], losses[0] - 0.5)
            ends.append(losses[-1].item())
        self.assertLessEqual(abs(ends[1] / ends[0] - 1), 0.1)

    def test_a_block_compiles_whole(self):
        model = case.model_of("fp8_flow", torch.float32)
        batches = case.tokens(), case.tokens(1)[:, :, :4]
        want = [case.results_of(model, batch) for batch in batches]
        for block in model.layers.values():  # as torchtitan's apply_compile() does
            block.compile(backend="aot_eager", fullgraph=True)
        for batch, results in zip(batches, want):
            assert_same_bits(self, case.results_of(model, batch), results)


@case.needed
class Rows(unittest.TestCase):

    def experts_of(self, recipe, dtype=torch.bfloat16):
        return case.experts_of(case.model_of(recipe, dtype)).to(DEVICE)

    def test_rows_of_nobody_may_be_anything_and_are_zero(self):
        experts = self.experts_of("fp8_flow")
        x, sizes = (each.to(DEVICE) for each in rows())
        want = results_of(experts, x.detach().clone().requires_grad_(), sizes)
        dirty = x.detach().clone()
        dirty[USED:] = float("nan")
        got = results_of(experts, dirty.requires_grad_(), sizes.int())
        assert_same_bits(self, got, want)
        for each in got[:2]:
            self.assertEqual(each[USED:].count_nonzero(), 0)

    def test_no_rows_frozen_weights_and_no_gradients(self):
        experts = self.experts_of("bf16")
        x, sizes = (each.detach().to(DEVICE) for each in rows())
        with torch.no_grad():
            y = experts(x, sizes)
        none = x[:0].requires_grad_()
        experts(none, sizes * 0).sum().backward()
        self.assertEqual([parameter.grad.count_nonzero() for parameter in experts.parameters()], [0] * 3)
        experts.zero_grad()
        experts.w3_EFD.requires_grad_(False)
        got = results_of(experts, x.requires_grad_(), sizes)
        self.assertTrue(torch.equal(got[0], y))
        self.assertIsNone(experts.w3_EFD.grad)
        self.assertTrue(all(each.any() for each in (x.grad, experts.w1_EFD.grad, experts.w2_EDF.grad)))

    def test_gate_and_up_have_their_places(self):
        experts = self.experts_of("bf16", torch.float32)
        x, sizes = (each.to(DEVICE) for each in rows(torch.float32))
        got = results_of(experts, x.detach()[:USED].requires_grad_(), sizes)
        experts.forward = lambda *arguments: case.exact(experts, *arguments)
        want = results_of(experts, x.detach()[:USED].requires_grad_(), sizes)
        for one, other in zip(got, want):
            self.assertEqual(one.dtype, torch.float32)
            self.assertLessEqual(relative_error(one, other), BOUNDS["bf16"])

    def test_gate_and_up_are_read_where_they_are_with_the_bits_of_one_weight(self):
        x, sizes = (each.to(DEVICE) for each in rows())
        for recipe in (*RECIPES, "fp8_rowwise"):
            with self.subTest(recipe):
                experts, joins = self.experts_of(recipe), recipe == "fp8_rowwise"
                with mock.patch.object(torch, "cat", side_effect=torch.cat) as cat:
                    got = results_of(experts, x, sizes)
                self.assertEqual(cat.called, joins)
                if joins:
                    continue
                with mock.patch.object(titan_experts, "_call_text", titan_experts.call_text):
                    assert_same_bits(self, got, results_of(experts, x, sizes))
                self.assertFalse(torch.equal(got[2], got[4]))

    def test_no_copy_of_weights_is_kept_for_backward(self):
        kept = []
        for recipe in RECIPES:
            experts = self.experts_of(recipe)
            kept.clear()
            hooks = lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor
            with torch.autograd.graph.saved_tensors_hooks(*hooks):
                experts(*(each.to(DEVICE) for each in rows()))
            places = {parameter.data_ptr() for parameter in experts.parameters()}
            self.assertEqual({tensor.data_ptr() for tensor in kept if tensor.dim() == 3}, places)
            self.assertLess(sum(tensor.nbytes for tensor in kept if tensor.dim() < 3), experts.w1_EFD.numel())

    def test_a_copy_has_the_bits(self):
        experts = self.experts_of("fp8_blockwise")
        x, sizes = (each.to(DEVICE) for each in rows())
        assert_same_bits(self, results_of(copy.deepcopy(experts), x, sizes), results_of(experts, x, sizes))


@case.needed
class Converter(unittest.TestCase):

    def test_it_is_a_quantization_converter(self):
        config = ExpertsConverter.Config(recipe="bf16", max_tokens=64, model_compile_enabled=True)
        self.assertIsInstance(config, QuantizationConverter.Config)
        given = case.config_of(layers=2)
        dispatcher = given.layers[1].moe.routed_experts.token_dispatcher
        converted = config.build().convert(given)
        self.assertIs(converted, given)
        for layer in converted.layers:
            experts = layer.moe.routed_experts.inner_experts
            self.assertIs(type(experts), MoejitGroupedExperts.Config)
            self.assertEqual((experts.recipe, experts.max_tokens, experts.dim, experts.param_init is None),
                             ("bf16", 64, H, False))
        self.assertIs(given.layers[1].moe.routed_experts.token_dispatcher, dispatcher)
        alone = config.build().convert(GroupedExperts.Config(dim=H, hidden_dim=I, num_experts=E))
        self.assertIs(type(alone), MoejitGroupedExperts.Config)

    def test_the_lines_of_the_docs_convert_a_model(self):
        names = {"config": case.config_of()}
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/torchtitan.md").read_text(), re.DOTALL)
        exec(blocks[-1], names)
        self.assertIsInstance(case.experts_of(names["model"]), MoejitGroupedExperts)

    def test_what_it_cannot_convert(self):

        class Others(GroupedExperts):
            class Config(GroupedExperts.Config):
                __slots__ = ()

        other = case.config_of(layers=2)
        other.layers[1].moe.routed_experts.inner_experts = Others.Config(dim=H, hidden_dim=I, num_experts=E)
        converter = ExpertsConverter.Config().build()
        for words, function in (
                ("ExpertsConverter: .*recipe: got \"fp8\"", lambda: ExpertsConverter.Config(recipe="fp8").build()),
                ("fp8_delayed", lambda: ExpertsConverter.Config(recipe="fp8_delayed").build()),
                ("max_tokens", lambda: ExpertsConverter.Config(max_tokens=-1).build()),
                ("no GroupedExperts in the model", lambda: converter.convert(case.config_of().norm)),
                ("layers.1.moe.routed_experts.inner_experts belongs to Others", lambda: converter.convert(other)),
                ("belongs to MoejitGroupedExperts", lambda: converter.convert(converter.convert(case.config_of()))),
                ("inner_experts: .*hidden", lambda: converter.convert(case.config_of(dim=72))),
                ("inner_experts: .*intermediate", lambda: converter.convert(case.config_of(hidden_dim=24)))):
            with self.subTest(words):
                self.assertRegex(told(function) or "nothing", words)
        self.assertIs(type(other.layers[0].moe.routed_experts.inner_experts), GroupedExperts.Config)

    def test_without_torchtitan_the_sentence_says_so(self):
        with mock.patch.dict(sys.modules, {"torchtitan.components.quantization": None}):
            with self.assertRaisesRegex(ImportError, "moejit.torch.titan needs torchtitan 0.3 or newer"):
                importlib.reload(importlib.import_module("moejit.torch.titan"))


if __name__ == "__main__":
    unittest.main()
