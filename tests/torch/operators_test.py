# SPDX-License-Identifier: Apache-2.0
"""The operators themselves: what torch checks of any, numbers, and what they refuse."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

from support import (BOUNDS, DEVICE, E, H, MAX_TOKENS, RECIPES, Inputs, assert_same_bits, calls_of, check_call,
                     cleared_blocks, describe, main_grads, relative_error)
from moejit.frameworks import torch_library_path
from moejit.torch import experts, layer_text, ops, run
from moejit.torch.layers import GRADIENTS, reads_of


class Opcheck(unittest.TestCase):

    def test_every_call_keeps_what_schemas_and_fake_kernels_promise(self):
        for recipe in RECIPES:
            layer, tensors = calls_of(recipe, Inputs(biases=True), biases=True, backward_halves=True)
            tensors["deferred"] = run(layer, "backward_data", tensors)["deferred"]
            for call in ("update_weights", "forward", "update_weights+forward", "backward", "backward+add",
                         "backward_data", "backward_weights", "backward_weights+add"):
                if reads_of(layer, call):  # bf16 has no weights to update
                    with self.subTest(recipe=recipe, call=call):
                        check_call(layer, call, {**tensors, **(main_grads(tensors) if call.endswith("+add") else {})})


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
            layer, tensors = calls_of(recipe, Inputs(biases=True), biases=True)
            want, main = run(layer, "backward", tensors), main_grads(tensors)
            for _ in range(2):
                self.assertEqual(list(run(layer, "backward+add", {**tensors, **main})), ["dx", "dprobs"])
            for name, one in main.items():
                torch.testing.assert_close(one, 2 * want[name], rtol=1e-6, atol=1e-6)
            run(layer, "backward", {**tensors, **main})
            assert_same_bits(self, list(main.values()), [want[name] for name in main])

    def test_weights_are_left_as_they_are_where_skip_update_says_so(self):
        with cleared_blocks():
            layer, tensors = calls_of("fp8_flow", Inputs())
        blocks = {name: tensors[name] for name in ("quantized", "quantized_colwise")}
        kept = [block.clone() for block in blocks.values()]
        other, skip = Inputs(seed=1), torch.ones(1, dtype=torch.int32, device=DEVICE)
        given = {"w1": other.w1.detach(), "w2": other.w2.detach(), "skip_update": skip}
        run(layer, "update_weights", {**given, **blocks})
        assert_same_bits(self, list(blocks.values()), kept)
        skip.zero_()
        run(layer, "update_weights", {**given, **blocks})
        with cleared_blocks():
            assert_same_bits(self, list(blocks.values()), list(run(layer, "update_weights", given).values()))

    def test_each_pass_takes_the_block_of_quantized_weights_that_it_reads(self):
        for recompute, reads_both in (("none", False), ("moe_expert", True)):
            layer, tensors = calls_of("fp8_flow", Inputs(), recompute=recompute)
            for name, is_read in (("quantized", reads_both), ("quantized_colwise", True)):
                with self.subTest(recompute=recompute, left_out=name):
                    self.assertEqual(name in reads_of(layer, "backward"), is_read)
                    if is_read:
                        with self.assertRaisesRegex(RuntimeError, f"tensor {name}: it has 0 elements"):
                            run(layer, "backward", {**tensors, name: tensors[name][:0]})

    def test_an_update_of_weights_and_forward_in_one_call_have_the_results_of_both(self):
        for recompute in ("none", "moe_expert"):
            layer, tensors = calls_of("fp8_flow", Inputs(), recompute=recompute)
            want = {**run(layer, "update_weights", tensors), **run(layer, "forward", tensors)}
            got = run(layer, "update_weights+forward",
                      {name: tensors[name] for name in tensors if name not in ("quantized", "quantized_colwise", "saved")})
            self.assertEqual(got.keys(), {"quantized", "quantized_colwise", "y", "status", "saved"})
            assert_same_bits(self, [got[name] for name in want], list(want.values()))

    def test_halves_have_the_bits_of_the_whole(self):
        for recipe in RECIPES:
            for tokens in (0, 1, 12, MAX_TOKENS):
                layer, tensors = calls_of(recipe, Inputs(tokens, biases=True), biases=True, backward_halves=True)
                want = run(layer, "backward", tensors)
                data = run(layer, "backward_data", tensors)
                # The weights half takes of dy the number of tokens.
                half = {**tensors, **data, "dy": tensors["dy"].new_empty(tokens, 0)}
                got = {**data, **run(layer, "backward_weights", half)}
                assert_same_bits(self, [got[name] for name in GRADIENTS], [want[name] for name in GRADIENTS])
                main = main_grads(tensors)
                for _ in range(2):
                    run(layer, "backward_weights+add", {**half, **main})
                for name, one in main.items():
                    torch.testing.assert_close(one, 2 * want[name], rtol=1e-6, atol=1e-6)
                run(layer, "backward_weights", {**half, **main})
                assert_same_bits(self, list(main.values()), [want[name] for name in main])


class Refusals(unittest.TestCase):

    def setUp(self):
        self.inputs = Inputs()
        self.layer, self.given = calls_of("fp8_flow", self.inputs)
        self.given = {name: self.given[name] for name in reads_of(self.layer, "forward")}

    def refuses(self, pattern, layer=None, call="forward", **others):
        """A forward call with another argument is refused with a sentence."""
        with self.assertRaisesRegex(RuntimeError, pattern):
            ops.call(list({**self.given, **others}.values()), call, layer or self.layer)

    def test_wrong_dtypes_shapes_and_devices(self):
        x, ids, probs = (self.given[name] for name in ("x", "topk_ids", "topk_probs"))
        self.refuses(r"moejit: tensor_mismatch: tensor x: its dtype is float32, wanted BF16", x=x.float())
        self.refuses(r"tensor of the first argument: its dtype is none that the library knows", x=x.to(torch.complex64))
        self.refuses(r"tensor x: .*\[12, 48\]", x=x[:, :48].contiguous())
        self.refuses(r"tensor x: its strides are", x=torch.cat([x, x], 1)[:, :H])
        self.refuses(r"tensor topk_ids: it has 11 tokens, tensors before it have 12", topk_ids=ids[:11])
        self.refuses(r"tensor topk_probs: its dtype is float64", topk_probs=probs.double())
        self.refuses(r"tensor topk_probs: its dtype is none that", topk_probs=probs.to(torch.complex64))
        self.refuses(r"tensor quantized: it has 3 elements", quantized=torch.zeros(3, dtype=torch.uint8, device=DEVICE))

    def test_other_calls_and_numbers_of_tensors(self):
        self.refuses("the layer has no call forwards, wanted one of update_weights, .*forward", call="forwards")
        self.refuses("unsupported: the backward pass of the layer has no halves[^$]*hint: add \"backward_halves\"",
                     call="backward_data")
        self.refuses("argument tensors: the call forward got 5 tensors, wanted 4: x, topk_ids, topk_probs, quantized\n"
                     "hint: moejit.torch.run", more=self.given["x"])
        with self.assertRaisesRegex(RuntimeError, "the call forward got 0 tensors, wanted 3: y, status, saved"):
            ops.call_(list(self.given.values()), [], "forward", self.layer)
        with self.assertRaisesRegex(RuntimeError, "missing_tensor: tensor topk_probs: the call forward reads it"):
            run(self.layer, "forward", {name: self.given[name] for name in ("x", "topk_ids")})
        with self.assertRaisesRegex(RuntimeError, "the plan has no call forwards, it has update_weights, .*forward"):
            run(self.layer, "forwards", self.given)

    def test_a_meta_tensor_among_others(self):
        self.refuses(r"tensor topk_ids: it is on .*, wanted meta, where x is", x=self.given["x"].to("meta"))
        self.refuses(r"tensor quantized: it is on meta", quantized=self.given["quantized"].to("meta"))

    @unittest.skipIf(DEVICE.type == "cpu", "needs two devices")
    def test_a_cpu_tensor_among_others(self):
        self.refuses(r"tensor quantized: it is on the CPU, wanted CUDA", quantized=self.given["quantized"].cpu())

    def test_more_tokens_than_the_layer_takes(self):
        with self.assertRaisesRegex(RuntimeError, rf"tensor x: it has {MAX_TOKENS + 1} tokens, wanted at most "
                                                  rf"{MAX_TOKENS}, which is max_tokens of the description"):
            Inputs(MAX_TOKENS + 1).run("fp8_flow")

    def test_the_saved_block_of_another_number_of_tokens(self):
        layer, tensors = calls_of("bf16", self.inputs)
        tensors.update({name: tensors[name][:8] for name in ("dy", "topk_probs")})
        saved = tensors["saved"].numel()
        with self.assertRaisesRegex(RuntimeError, rf"tensor saved: it has {saved} elements of 8 bits, wanted"):
            run(layer, "backward", tensors)

    def test_a_deferred_block_of_other_bytes(self):
        layer, tensors = calls_of("fp8_flow", self.inputs, backward_halves=True)
        deferred = run(layer, "backward_data", tensors)["deferred"]
        with self.assertRaisesRegex(RuntimeError, rf"tensor deferred: it has {deferred.numel() - 1} elements"):
            run(layer, "backward_weights", {**tensors, "deferred": deferred[1:]})

    def test_a_description_that_is_wrong(self):
        with self.assertRaisesRegex(RuntimeError, r"unknown key[^$]*hint: did you mean top_k"):
            experts(self.inputs.x, self.inputs.ids, self.inputs.probs, self.inputs.w1, self.inputs.w2,
                    layer={**describe("bf16"), "topk": 2})

    def test_a_text_that_is_none(self):
        self.refuses(r"argument plan: it begins with \"nonsense\"[^$]*hint", layer="nonsense")

    def test_a_text_of_another_version_or_plan_is_stale(self):
        words = self.layer.split(" ", 4)
        for index, other in ((1, "0.0.9"), (3, "0" * 32)):
            stale = list(words)
            stale[index] = other
            sentence = rf"the compiled graph is stale: it was made with moejit .*{other}.*\nhint: compile"
            self.refuses(sentence, layer=" ".join(stale))
            with self.subTest("the shapes of results"), self.assertRaisesRegex(RuntimeError, sentence):
                ops.call([tensor.to("meta") for tensor in self.given.values()], "forward", " ".join(stale))

    def test_a_text_for_another_target(self):
        other = "cuda:sm_90a" if DEVICE.type == "cpu" else "sim"
        self.refuses(rf"argument plan: it is planned for {other}", layer=layer_text(describe("fp8_flow"), other))

    def test_other_calls_serve_after_a_refusal(self):
        self.refuses(r"tensor x", x=self.given["x"].float())
        made = run(self.layer, "forward", self.given)
        self.assertTrue(torch.isfinite(made["y"]).all())
        self.assertEqual(made["status"].item(), 0)

    def test_an_id_out_of_range_is_told_in_the_status_word(self):
        ids = self.given["topk_ids"].clone()
        ids[0, 0] = E
        self.assertEqual(run(self.layer, "forward", {**self.given, "topk_ids": ids})["status"].item(), 1)


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
