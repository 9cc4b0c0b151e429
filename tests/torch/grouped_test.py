# SPDX-License-Identifier: Apache-2.0
"""Rows in the order of experts, beside the same rows as tokens with one choice each."""
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from support import DEVICE, E, H, K, RECIPES, Inputs, assert_same_bits, describe
from moejit.torch import experts, fp8_dispatched_experts, grouped_experts

SIZES = (3, 0, 1, 17, 0, 9, 2, 4)  # of E experts
ROWS = 40  # of which nobody has the last four


class Grouped(unittest.TestCase):

    def setUp(self):
        self.inputs = Inputs(tokens=ROWS, biases=True)
        self.sizes = torch.tensor(SIZES, device=DEVICE)
        ids = torch.full((ROWS, 1), -1)
        ids[:sum(SIZES), 0] = torch.repeat_interleave(torch.arange(E), torch.tensor(SIZES))
        self.ids = ids.to(DEVICE)
        self.inputs.probs = self.inputs.probs.detach()[:, 0].contiguous().requires_grad_()

    def layer(self, recipe, **fields):
        fields = describe(recipe, biases=True, **fields)
        del fields["top_k"]
        return fields

    def grouped(self, recipe, sizes=None):
        of = self.inputs
        return grouped_experts(of.x, self.sizes if sizes is None else sizes, of.w1, of.w2, probs=of.probs,
                               layer=self.layer(recipe), gate_up_proj_bias=of.b1, down_proj_bias=of.b2)

    def tokens(self, recipe):
        of = self.inputs
        return experts(of.x, self.ids, of.probs[:, None], of.w1, of.w2, layer=describe(recipe, biases=True, top_k=1),
                       gate_up_proj_bias=of.b1, down_proj_bias=of.b2)

    def test_has_the_bits_of_tokens_with_one_choice(self):
        for recipe in RECIPES:
            with self.subTest(recipe):
                want = self.inputs.results(lambda: self.tokens(recipe))
                assert_same_bits(self, self.inputs.results(lambda: self.grouped(recipe)), want)
                narrow = self.sizes.to(torch.int32)
                assert_same_bits(self, self.inputs.results(lambda: self.grouped(recipe, narrow)), want)

    def test_rows_of_nobody_may_be_anything_and_are_zero(self):
        with torch.no_grad():
            self.inputs.x[sum(SIZES):] = float("nan")
        for recipe in RECIPES:
            y, dx, dprobs, *weights = self.inputs.results(lambda: self.grouped(recipe))
            for rows in y, dx, dprobs:
                self.assertTrue((rows[sum(SIZES):] == 0).all())
            for gradient in weights:
                self.assertTrue(gradient.isfinite().all())

    def test_compiles_whole_for_any_number_of_rows(self):
        compiled = torch.compile(self.grouped, fullgraph=True)
        for recipe in RECIPES[-1:]:
            want = self.inputs.results(lambda: self.grouped(recipe))
            assert_same_bits(self, self.inputs.results(lambda: compiled(recipe)), want)

    def test_a_checkpoint_gives_the_same_bits(self):
        want = self.inputs.results(lambda: self.grouped("fp8_flow"))
        got = self.inputs.results(lambda: checkpoint(self.grouped, "fp8_flow", use_reentrant=False))
        assert_same_bits(self, got, want)

    def test_takes_no_rows_and_no_probabilities(self):
        of = self.inputs
        for recipe in RECIPES:
            layer = {**self.layer(recipe), "biases": False}
            none = of.x.detach()[:0].requires_grad_()
            y = grouped_experts(none, torch.zeros_like(self.sizes), of.w1, of.w2, layer=layer)
            y.sum().backward()
            self.assertEqual((y.shape, none.grad.shape), (none.shape, none.shape))
            self.assertEqual(of.w1.grad.count_nonzero(), 0)
            with torch.no_grad():
                ones = grouped_experts(of.x, self.sizes, of.w1, of.w2, layer=layer)
                probs = torch.ones(ROWS, dtype=torch.bfloat16, device=DEVICE)
                self.assertTrue(torch.equal(
                    ones, grouped_experts(of.x, self.sizes, of.w1, of.w2, probs=probs, layer=layer)))

    def test_says_what_is_wrong(self):
        of = self.inputs
        layer = {**self.layer("bf16"), "biases": False}
        for words, rows, sizes, more in (
                ("tensor x: it has 3 dimensions", of.x[None], self.sizes, {}),
                ("tensor tokens_per_expert: its dtype is float32", of.x, self.sizes.float(), {}),
                ("tokens_per_expert", of.x, self.sizes[:-1], {}),
                ("top_k: got 2", of.x, self.sizes, {"top_k": 2}),
                ("probs", of.x, self.sizes, {"probs": of.probs[:-1]})):
            probs = more.pop("probs", None)
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                grouped_experts(rows, sizes, of.w1, of.w2, layer={**layer, **more}, probs=probs)


class Dispatched(unittest.TestCase):
    """Tokens with two choices, whose rows a host copies to their experts and adds up again."""

    def setUp(self):
        self.inputs = Inputs()
        choices = self.inputs.ids.flatten()
        self.order = choices.argsort(stable=True)
        self.sizes = choices.bincount(minlength=E)
        self.layer = {name: value for name, value in describe("fp8_flow").items()
                      if name not in ("top_k", "splits_alignment")}
        self.sent = []

    def dispatch(self, *rows):
        self.sent.append([row.dtype for row in rows])
        return tuple(row.repeat_interleave(K, dim=0)[self.order] for row in rows)

    def combine(self, rows):
        y = torch.zeros_like(self.inputs.x)
        for each in range(K):  # in one order, so that sums have the same bits
            home = torch.zeros(len(self.order), H, dtype=rows.dtype, device=DEVICE).index_copy(0, self.order, rows)
            y = y + home.view(-1, K, H)[:, each]
        return y

    def run_as(self, function):
        of = self.inputs
        probs = of.probs.flatten()[self.order]
        return of.results(lambda: function(probs))

    def test_has_the_bits_of_a_bf16_exchange(self):
        of = self.inputs
        want = self.run_as(lambda probs: self.combine(grouped_experts(
            self.dispatch(of.x)[0], self.sizes, of.w1, of.w2, probs=probs, layer=self.layer)))
        self.sent.clear()
        got = self.run_as(lambda probs: fp8_dispatched_experts(
            of.x, self.sizes, of.w1, of.w2, dispatch=self.dispatch, combine=self.combine, probs=probs,
            layer=self.layer))
        self.assertEqual(self.sent, [[torch.float8_e4m3fn, torch.float32]] * 2)
        assert_same_bits(self, got, want)

    def test_frozen_experts_and_calls_without_gradients(self):
        of = self.inputs
        of.w1.requires_grad_(False), of.w2.requires_grad_(False)

        def run(probs):
            return fp8_dispatched_experts(of.x, self.sizes, of.w1, of.w2, dispatch=self.dispatch, combine=self.combine,
                                          probs=probs, layer=self.layer)

        y, dx, dprobs, *weights = self.run_as(run)
        self.assertEqual((dx.shape, dprobs.shape, weights), (of.x.shape, of.probs.shape, [None, None]))
        with torch.no_grad():
            self.assertTrue(torch.equal(run(of.probs.flatten()[self.order]), y))


if __name__ == "__main__":
    unittest.main()
