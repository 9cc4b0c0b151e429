# SPDX-License-Identifier: Apache-2.0
"""Calls without gradients pad no experts' rows, or as few as the recipe needs, and have the bits of padded ones."""
import sys
import unittest

import torch
import transformers

from support import (DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, ROOT, Inputs, Recorder, assert_same_bits, cleared_blocks,
                     text)
from moejit.torch import Experts, convert, ops, serving
from moejit.torch.layers import block_keys
from moejit.torch.plans import plan_of

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

OF_FUNCTIONS = (*RECIPES, "fp8_current", "fp8_rowwise", "mxfp8", "nvfp4")
ALL = (*OF_FUNCTIONS, "fp8_delayed")
TOKENS = (1, 5, 40)

transformers.logging.set_verbosity_error()


def make(recipe, **options):
    torch.manual_seed(0)
    return Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, device=DEVICE, **options)


def padding(planned):
    """The alignment of a plan, and its rows for all experts."""
    return planned.description["splits_alignment"], planned.description["max_permuted_rows"]


def padding_of_calls(call):
    """padding() of the layers that calls with this common part have run."""
    return [padding(plan_of(layer)) for layer in call.layers.values()]


def least_padding(recipe, tokens):
    """padding() without gradients. nvfp4 pads E experts by 15 rows at most, in whole groups of 16."""
    return (16, (tokens * K + 15 * E) // 16 * 16) if recipe == "nvfp4" else (1, tokens * K)


class WithoutGradients(unittest.TestCase):

    def test_modules_have_the_bits_of_padded_ones(self):
        for recipe in ALL:
            module, padded = make(recipe), make(recipe, splits_alignment=64)
            for tokens in TOKENS:
                inputs = Inputs(tokens)
                with self.subTest(recipe=recipe, tokens=tokens), torch.no_grad():
                    assert_same_bits(self, [module(inputs.x, inputs.ids, inputs.probs)],
                                     [padded(inputs.x, inputs.ids, inputs.probs)])
            self.assertEqual(padding_of_calls(module._call), [least_padding(recipe, MAX_TOKENS)])
            self.assertEqual(padding_of_calls(padded._call), [(64, 576)])

    def test_plans_have_as_few_rows_as_their_recipe_takes(self):
        for recipe in ALL:
            module = make(recipe)
            with self.subTest(recipe=recipe), module.plan(has_gradients=False) as forward, module.plan() as whole:
                self.assertEqual(padding(forward), least_padding(recipe, MAX_TOKENS))
                self.assertEqual(padding(whole), (32, 352) if recipe == "mxfp8" else least_padding(recipe, MAX_TOKENS))
                rows = forward.description["max_permuted_rows"]
                self.assertIn(f"P = {rows}\n", module.explain(has_gradients=False))

    def test_plans_keep_what_the_user_gives(self):
        module = make("bf16", splits_alignment=128)
        with module.plan(has_gradients=False) as forward, module.plan() as whole:
            self.assertEqual((padding(forward), padding(whole)), ((128, 1024), (128, 1024)))

    def test_a_layer_for_one_token(self):
        module, one = make("bf16"), Experts(E, H, I, K, max_tokens=1, recipe="bf16", device=DEVICE)
        one.load_state_dict(module.state_dict())
        inputs = Inputs(1)
        with torch.no_grad():
            assert_same_bits(self, [one(inputs.x, inputs.ids, inputs.probs)],
                             [module(inputs.x, inputs.ids, inputs.probs)])
        self.assertEqual(padding_of_calls(one._call), [(1, K)])

    def test_weights_that_a_padded_layer_has_quantized_serve(self):
        for recipe in ("fp8_flow", "mxfp8", "nvfp4"):
            trained, forward = text(recipe, splits_alignment=64), text(recipe, passes=["forward"])
            self.assertEqual(block_keys(trained)[0], block_keys(forward)[0])
            inputs = Inputs()
            given = {"x": inputs.x, "topk_ids": inputs.ids.int(), "topk_probs": inputs.probs, "w1": inputs.w1,
                     "w2": inputs.w2}
            with self.subTest(recipe=recipe), torch.no_grad(), cleared_blocks():
                blocks = ops.run(trained, "update_weights", given)
                y, padded = (ops.run(layer, "forward", {**given, **blocks})["y"] for layer in (forward, trained))
                assert_same_bits(self, [y, ops.run(forward, "update_weights", given)["quantized"]],
                                 [padded, blocks["quantized"]])

    def test_a_training_call_quantizes_for_calls_without_gradients(self):
        module, padded = make("nvfp4"), make("nvfp4", splits_alignment=64)  # no column-wise weights beside the row-wise
        inputs = Inputs()
        module(inputs.x, inputs.ids, inputs.probs, is_first_microbatch=True)
        with torch.no_grad():
            with Recorder() as recorder:
                got = module(inputs.x, inputs.ids, inputs.probs, is_first_microbatch=False)
            self.assertEqual([name for name, _ in recorder.calls], ["forward"])
            assert_same_bits(self, [got], [padded(inputs.x, inputs.ids, inputs.probs)])

    def test_serving_functions(self):
        for recipe in OF_FUNCTIONS:
            for tokens in TOKENS:
                inputs = Inputs(tokens)
                with self.subTest(recipe=recipe, tokens=tokens), torch.no_grad():
                    got = serving.run(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, None, None,
                                      activation="swiglu", recipe=recipe)
                    call, = serving._states[inputs.w1].calls.values()
                    bound = 16 if tokens < 17 else 64
                    self.assertEqual(padding_of_calls(call), [least_padding(recipe, bound)])
                    assert_same_bits(self, [got], [inputs.run(recipe, splits_alignment=64, max_tokens=bound)])

    def test_experts_of_transformers(self):
        for recipe in RECIPES:
            modules = []
            for options in ({}, {"splits_alignment": 64}):
                torch.manual_seed(0)
                model = make_checkpoints.make_model("qwen3_moe", E, H, I).to(DEVICE)
                modules.append(make_checkpoints.experts_of(convert(model, recipe, **options)))
            for tokens in TOKENS:
                inputs = Inputs(tokens)
                with self.subTest(recipe=recipe, tokens=tokens), torch.no_grad():
                    assert_same_bits(self, *([module(inputs.x, inputs.ids, inputs.probs)] for module in modules))
            calls = modules[0]._moejit_state.calls.values()
            self.assertEqual([padding_of_calls(call) for call in calls], [[(1, 16 * K)], [(1, 64 * K)]])


class Training(unittest.TestCase):

    def test_steps_have_the_bits_of_padded_ones(self):
        for recipe in ("fp8_flow", "fp8_blockwise", "fp8_rowwise"):
            inputs = Inputs()
            with self.subTest(recipe=recipe):
                assert_same_bits(self, inputs.results(lambda: inputs.run(recipe)),
                                 inputs.results(lambda: inputs.run(recipe, splits_alignment=16)))


if __name__ == "__main__":
    unittest.main()
