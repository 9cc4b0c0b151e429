# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over two ranks: beside DDP, with bf16 weights gathered and with FP8 codes."""
import unittest

import fsdp_cases
from ranks import run_on_ranks
from support import E, H, I, assert_same_bits

# Of one block: what a rank holds of it, and scales, one of gate, of up and of w2 for each of its experts.
ROUTER_BYTES = H * E * 2 // 2
CODES = 3 * E * I * H // 2
SCALES_BYTES = 3 * 4 * E // 2
BLOCKS, STEPS, GATHERS = 2, 2, 2  # each block's weights are gathered for forward and for backward


class Fsdp(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.ranks = run_on_ranks(fsdp_cases.everything)

    def of(self, case):
        """What each rank returned of a case."""
        return [results[case] for results in self.ranks]

    def test_gradients_are_those_of_ddp(self):
        # Of two ranks the mean is one addition and an exact halving, whoever does it: the bits are the same.
        for made in self.of("training"):
            for fsdp, ddp in (("fsdp fp8_flow", "ddp"), ("fsdp bf16", "ddp bf16"),
                               ("fsdp fp8_delayed", "ddp fp8_delayed")):
                with self.subTest(fsdp=fsdp):
                    assert_same_bits(self, made[fsdp]["results"], made[ddp]["results"])

    def test_gathered_codes_give_the_same_bits_as_gathered_weights(self):
        for made in self.of("training"):
            assert_same_bits(self, made["fp8"]["results"], made["fsdp fp8_flow"]["results"])
            assert_same_bits(self, made["options fp8"]["results"], made["options bf16"]["results"])

    def test_codes_are_half_the_bytes(self):
        times = BLOCKS * STEPS * GATHERS
        for made in self.of("training"):
            self.assertEqual(made["fsdp fp8_flow"]["bytes"], times * (ROUTER_BYTES + 2 * CODES))
            self.assertEqual(made["fp8"]["bytes"], times * (ROUTER_BYTES + CODES + SCALES_BYTES))

    def test_float32_parameters(self):
        for made in self.of("precision"):
            assert_same_bits(self, made["fp8"]["results"], made["bf16"]["results"])
            self.assertLess(made["fp8"]["bytes"], made["bf16"]["bytes"])

    def test_no_quantized_weights_are_kept_for_backward(self):
        for made in self.of("memory"):
            self.assertEqual(made, {"none": 1, "bf16": 0, "fp8": 0})

    def test_activation_checkpointing(self):
        for made in self.of("recomputed"):
            assert_same_bits(self, made["checkpointed"], made["plain"])

    def test_compiled_blocks(self):
        for trained, made in zip(self.of("training"), self.of("compiled")):
            for name in ("plain", "checkpointed"):
                with self.subTest(name):
                    assert_same_bits(self, made[name], trained["fp8"]["results"])

    def test_state_dicts_have_plain_tensors(self):
        for made in self.of("state_dicts"):
            self.assertEqual(made["types"], ["DTensor of Tensor"])
            self.assertEqual(made["unsharded types"], ["Tensor"])
            self.assertEqual(made["names"], made["plain names"])

    def test_state_dicts_load(self):
        for made in self.of("state_dicts"):
            loaded = {way: outcome for way, outcome in made.items() if isinstance(outcome, dict)}
            self.assertEqual(len(loaded), 6)
            for way, outcome in loaded.items():
                with self.subTest(way=way):
                    assert_same_bits(self, outcome["got"], made["want"])
                    self.assertEqual(outcome["bytes"], made["bytes"])

    def test_models_that_are_sharded_on_the_device_meta(self):
        for made in self.of("meta"):
            assert_same_bits(self, made["got"]["results"], made["want"]["results"])
            self.assertLess(made["got"]["bytes"], made["want"]["bytes"])

    def test_what_cannot_be_gathered_as_codes_is_refused(self):
        wanted = {"bf16": "0.experts has the recipe bf16, which quantizes no weights",
                  "scales": "0.experts has the recipe fp8_delayed, whose scales belong to whole experts",
                  "nothing": "no module here has experts of moejit",
                  "late": "0.experts.gate_up_proj is sharded already",
                  "main_grad": "0.experts adds gradients to main_grad",
                  "uneven": "Experts.gate_up_proj [7, 64, 64] is sharded to",
                  "columns": "Experts.gate_up_proj [8, 64, 64] is sharded to [8, 32, 64] on 2 ranks",
                  "replaced 1": "Experts.down_proj was replaced behind enable_fp8_all_gather()",
                  "replaced 2": "Experts.gate_up_proj was replaced behind enable_fp8_all_gather()",
                  "values": "of a weight that was gathered as FP8 codes"}
        for made in self.of("refusals"):
            self.assertEqual(set(made), set(wanted))
            for case, text in wanted.items():
                self.assertIn(text, made[case], case)

    def test_each_rank_sends_the_weights_of_now(self):
        for made in self.of("asked_again"):
            for again in made["gate_up"][1:]:
                assert_same_bits(self, again, made["gate_up"][0])
            (codes, scales), (doubled_codes, doubled_scales) = made["down"], made["doubled"]
            assert_same_bits(self, [doubled_codes, doubled_scales], [codes, 2 * scales])

    def test_a_converted_model_of_transformers(self):
        for made in self.of("transformers_model"):
            self.assertEqual(made["names"], ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"])
            assert_same_bits(self, made["fp8"]["results"], made["bf16"]["results"])
            self.assertLess(made["fp8"]["bytes"], made["bf16"]["bytes"])

    def test_replicas_of_shards(self):
        for made in self.of("replicated"):
            assert_same_bits(self, made["fp8"]["results"], made["bf16"]["results"])


if __name__ == "__main__":
    unittest.main()
