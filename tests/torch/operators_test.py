# SPDX-License-Identifier: Apache-2.0
"""The operators themselves: what torch checks of any, numbers, and what they refuse."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

from support import (BOUNDS, DEVICE, E, H, K, MAX_TOKENS, RECIPES, Inputs, arguments, assert_same_bits, describe,
                     relative_error, text)
from moejit.frameworks import torch_library_path
from moejit.torch import experts, layer_text, ops


class Opcheck(unittest.TestCase):

    def test_every_operator_keeps_what_its_schema_and_fake_kernel_promise(self):
        for recipe in RECIPES:
            for operator, given in arguments(recipe, Inputs(biases=True), biases=True).items():
                with self.subTest(recipe=recipe, operator=str(operator)):
                    torch.library.opcheck(operator, given)


class Numbers(unittest.TestCase):

    def test_results_are_those_of_float32_within_the_recipes_rounding(self):
        for recipe in RECIPES:
            for biases in (False, True):
                with self.subTest(recipe=recipe, biases=biases):
                    inputs = Inputs(tokens=48, biases=biases)
                    got = inputs.results(lambda: inputs.run(recipe))
                    want = inputs.results(inputs.reference)
                    for index, (one, other) in enumerate(zip(got, want)):
                        self.assertLessEqual(relative_error(one, other), BOUNDS[recipe], f"result {index}")

    def test_two_times_the_same_call_gives_the_same_bits(self):
        for recipe in RECIPES:
            inputs = Inputs()
            assert_same_bits(self, inputs.results(lambda: inputs.run(recipe)),
                             inputs.results(lambda: inputs.run(recipe)))

    def test_no_token_and_the_most_tokens(self):
        for recipe in RECIPES:
            for tokens in (0, 1, MAX_TOKENS):
                inputs = Inputs(tokens)
                results = inputs.results(lambda: inputs.run(recipe))
                self.assertEqual(results[0].shape, (tokens, H))
                self.assertEqual([list(each.shape) for each in results[1:]],
                                 [list(leaf.shape) for leaf in inputs.leaves])
                if tokens == 0:
                    self.assertFalse(any(each.any() for each in results))

    def test_a_choice_of_minus_one_is_no_expert(self):
        inputs = Inputs()
        all_of_first = inputs.ids.clone()
        all_of_first[:, 1] = -1
        inputs.ids = all_of_first
        self.assertLessEqual(relative_error(inputs.run("bf16"), inputs.reference()), BOUNDS["bf16"])

    def test_views_that_are_not_contiguous_give_the_same_bits(self):
        inputs = Inputs()
        want = inputs.run("fp8_flow")
        inputs.x = torch.cat([inputs.x, inputs.x], 1)[:, :H]
        inputs.probs = inputs.probs.T.contiguous().T
        self.assertFalse(inputs.x.is_contiguous())
        assert_same_bits(self, [inputs.run("fp8_flow")], [want])

    def test_added_gradients_of_two_calls_are_twice_those_of_one(self):
        for recipe in RECIPES:
            given = arguments(recipe, Inputs(biases=True), biases=True)
            _, _, *want = ops.backward(*given[ops.backward])
            main = given[ops.backward_add][10:14]
            for _ in range(2):
                ops.backward_add(*given[ops.backward_add])
            for one, other in zip(main, want):
                torch.testing.assert_close(one, 2 * other, rtol=1e-6, atol=1e-6)
            ops.backward_add(*given[ops.backward_add][:14], True, given[ops.backward_add][-1])
            assert_same_bits(self, main, want)

    def test_weights_are_left_as_they_are_where_skip_update_says_so(self):
        w1, w2, *blocks, skip, layer = arguments("fp8_flow", Inputs())[ops.quantize_]
        other = Inputs(seed=1)
        kept = [block.clone() for block in blocks]
        ops.quantize_(other.w1.detach(), other.w2.detach(), *blocks, skip, layer)
        assert_same_bits(self, blocks, kept)
        skip.zero_()
        ops.quantize_(other.w1.detach(), other.w2.detach(), *blocks, skip, layer)
        assert_same_bits(self, blocks, ops.quantize(other.w1.detach(), other.w2.detach(), layer))

    def test_each_pass_takes_the_block_of_quantized_weights_that_it_reads(self):
        for recompute, reads_both in (("none", False), ("moe_expert", True)):
            *given, layer = arguments("fp8_flow", Inputs(), recompute=recompute)[ops.backward]
            want = ops.backward(*given, layer)
            none = given[8].new_empty(0)
            for index, name, is_read in ((8, "quantized", reads_both), (9, "quantized_colwise", True)):
                less = [*given[:index], none, *given[index + 1:]]
                with self.subTest(recompute=recompute, left_out=name):
                    if is_read:
                        with self.assertRaisesRegex(RuntimeError, f"tensor {name}: it has 0 elements"):
                            ops.backward(*less, layer)
                    else:
                        assert_same_bits(self, ops.backward(*less, layer), want)


class Refusals(unittest.TestCase):

    def setUp(self):
        self.inputs = Inputs()
        self.given = arguments("fp8_flow", self.inputs)[ops.forward]

    def refuses(self, pattern, index, value):
        """A forward call with another argument is refused with a sentence."""
        given = list(self.given)
        given[index] = value
        with self.assertRaisesRegex(RuntimeError, pattern):
            ops.forward(*given)

    def test_wrong_dtypes_shapes_and_devices(self):
        x, ids, probs = self.given[:3]
        self.refuses(r"moejit: tensor_mismatch: tensor x: its dtype is float32, wanted BF16", 0, x.float())
        self.refuses(r"tensor x: its dtype is none that the library knows", 0, x.to(torch.complex64))
        self.refuses(r"tensor x: .*\[12, 48\]", 0, x[:, :48].contiguous())
        self.refuses(r"tensor x: its strides are", 0, torch.cat([x, x], 1)[:, :H])
        self.refuses(r"tensor topk_ids: it has 11 tokens, tensors before it have 12", 1, ids[:11])
        self.refuses(r"tensor topk_probs: its dtype is float64", 2, probs.double())
        self.refuses(r"tensor quantized: it has 3 elements", 7, torch.zeros(3, dtype=torch.uint8, device=DEVICE))

    def test_a_meta_tensor_among_others(self):
        self.refuses(r"tensor topk_ids: it is on .*, wanted meta, where x is", 0, self.given[0].to("meta"))
        self.refuses(r"tensor w1: it is on meta", 3, self.given[3].to("meta"))

    @unittest.skipIf(DEVICE.type == "cpu", "needs two devices")
    def test_a_cpu_tensor_among_others(self):
        self.refuses(r"tensor w1: it is on the CPU, wanted CUDA", 3, self.given[3].cpu())

    def test_more_tokens_than_the_layer_takes(self):
        with self.assertRaisesRegex(RuntimeError, rf"tensor x: it has {MAX_TOKENS + 1} tokens, wanted at most "
                                                  rf"{MAX_TOKENS}, which is max_tokens of the layer"):
            Inputs(MAX_TOKENS + 1).run("fp8_flow")

    def test_the_saved_block_of_another_number_of_tokens(self):
        dy, saved, x, probs, *others = arguments("bf16", self.inputs)[ops.backward]
        with self.assertRaisesRegex(RuntimeError, rf"tensor saved: it has {saved.numel()} elements of 8 bits, wanted"):
            ops.backward(dy[:8], saved, x, probs[:8], *others)

    def test_a_description_that_is_wrong(self):
        with self.assertRaisesRegex(RuntimeError, r"unknown key[^$]*hint: did you mean top_k"):
            experts(self.inputs.x, self.inputs.ids, self.inputs.probs, self.inputs.w1, self.inputs.w2,
                    layer={**describe("bf16"), "topk": 2})

    def test_a_text_that_is_none(self):
        self.refuses(r"argument layer: it begins with \"nonsense\"[^$]*hint", 8, "nonsense")

    def test_a_text_of_another_version_or_plan_is_stale(self):
        words = self.given[8].split(" ", 4)
        for index, other in ((1, "0.0.9"), (3, "0" * 32)):
            stale = list(words)
            stale[index] = other
            sentence = rf"the compiled graph is stale: it was made with moejit .*{other}.*\nhint: compile"
            self.refuses(sentence, 8, " ".join(stale))
            with self.subTest("the shapes of results"), self.assertRaisesRegex(RuntimeError, sentence):
                ops.forward(*(tensor.to("meta") for tensor in self.given[:8]), " ".join(stale))

    def test_a_text_for_another_target(self):
        other = "cuda:sm_90a" if DEVICE.type == "cpu" else "sim"
        self.refuses(rf"argument layer: it is planned for {other}", 8, layer_text(describe("fp8_flow"), other))

    def test_other_calls_serve_after_a_refusal(self):
        self.refuses(r"tensor x", 0, self.given[0].float())
        y, _, status = ops.forward(*self.given)
        self.assertTrue(torch.isfinite(y).all())
        self.assertEqual(status.item(), 0)

    def test_an_id_out_of_range_is_told_in_the_status_word(self):
        ids = self.given[1].clone()
        ids[0, 0] = E
        _, _, status = ops.forward(self.given[0], ids, *self.given[2:])
        self.assertEqual(status.item(), 1)


class SecondCopy(unittest.TestCase):
    """Two kernels of one operator would end the process."""

    def run_python(self, code):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy_of_moejit_torch.so"
            shutil.copy(torch_library_path(), copy)
            return subprocess.run([sys.executable, "-c", code, str(copy)], env=os.environ, capture_output=True,
                                  text=True, check=False)

    def test_a_copy_behind_the_package_is_left_out_with_a_sentence(self):
        done = self.run_python("import sys, torch, moejit.torch\n"
                               "torch.ops.load_library(sys.argv[1])\n"
                               "print(moejit.torch.layer_text({'experts': 8, 'top_k': 2, 'hidden': 64, "
                               "'intermediate': 32, 'max_tokens': 8})[:6])")
        self.assertEqual((done.returncode, done.stdout), (0, "moejit\n"), done.stderr)
        self.assertIn("moejit: the operators of moejit are registered already: another copy", done.stderr)

    def test_a_copy_before_the_package_is_an_import_error(self):
        done = self.run_python("import ctypes, os, sys, torch\n"
                               "ctypes.CDLL(os.environ['MOEJIT_LIBRARY'])\n"
                               "torch.ops.load_library(sys.argv[1])\n"
                               "try:\n  import moejit.torch\n"
                               "except ImportError as error:\n  print(error)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("another copy of libmoejit_torch.so is loaded in this process\nhint: load one copy only",
                      done.stdout)


if __name__ == "__main__":
    unittest.main()
