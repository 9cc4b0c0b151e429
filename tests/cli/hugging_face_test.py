# SPDX-License-Identifier: Apache-2.0
"""Layers of Hugging Face models come near what transformers' own modules compute: y and all gradients.

tests/fixtures/hugging_face has, of each family, the configuration and experts as save_pretrained wrote them, and what
the module of the experts gave in fp32. make_checkpoints.py there made them, and compares larger layers.
"""
import array
import json
import math
import struct

import tool
from tool import read_safetensors

FIXTURES = tool.ROOT / "tests/fixtures/hugging_face"
LAYER = 1
FAMILIES = sorted(path.parent.name for path in FIXTURES.glob("*/expected.safetensors"))

# The largest |got - expected| / |expected| in the 2-norm. A number that is rounded to p bits behind its first one is off by
# 2^-(p + 1) at most, and by about 0.42 of that in the mean of squares: 0.0016 for bf16 (7 bits), 0.026 for e4m3 (3 bits).
# Errors of a long sum's factors add in squares, and those of gate and up count about 1.3 times behind the activation.
#   bf16      h1, act, h2 and y are rounded, and for dx also dact, dh1, dx_permuted and dx: at most 8 times,
#             sqrt(8) * 1.3 * 0.0016 = 0.006.
#   fp8_flow  x, w1, act and w2 are quantized, and dy, w2, h1 (by x and w1), dh1 and w1 on the way to dx: at most 6 times,
#             sqrt(6) * 1.3 * 0.026 = 0.083, and what bf16 adds.
BOUNDS = {"bf16": 0.006, "fp8_flow": 0.09}


def floats(entry):
    """The numbers of a tensor that is F32 or BF16."""
    dtype, _, content = entry
    if dtype == "F32":
        return array.array("f", content)
    halves = array.array("H", content)
    return array.array("f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves)))


def relative_error(got, expected):
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, expected, strict=True)))
    return difference / math.sqrt(sum(b * b for b in expected))


class HuggingFace(tool.ToolTest):
    keeps_kernels = True

    def describe(self, family, recipe):
        path = self.folder / "from_hf.json"
        self.succeed("layer", "--from-hf", FIXTURES / family, "--max-tokens", "16", "--output", path)
        return self.write("layer.json", {**json.loads(path.read_text()), "recipe": recipe, "splits_alignment": 64})

    def compare(self, family, weights):
        for recipe, bound in BOUNDS.items():
            self.succeed("run", self.describe(family, recipe), "--target", "sim", "--pass", "backward", "--weights",
                         *weights, "--layer", LAYER, "--input", FIXTURES / "inputs.safetensors", "--output",
                         "out.safetensors")
            got = read_safetensors(self.folder / "out.safetensors")
            expected = read_safetensors(FIXTURES / family / "expected.safetensors")
            self.assertTrue({"y", "dx", "dprobs", "dw1", "dw2"} <= set(expected))
            self.assertEqual(set(got), set(expected))
            for name, entry in expected.items():
                self.assertEqual(got[name][1], entry[1], name)
                error = relative_error(floats(got[name]), floats(entry))
                self.assertLessEqual(error, bound, f"{family}, {recipe}: {name}")

    def test_families(self):
        self.assertGreaterEqual(len(FAMILIES), 9)  # gpt-oss is there in bf16 and in MXFP4
        for family in FAMILIES:
            with self.subTest(family=family):
                # Shards that the index names and that have nothing of this layer are not there.
                folder = FIXTURES / family
                index = folder / "model.safetensors.index.json"
                self.compare(family, [index if index.exists() else folder / "model.safetensors"])

    def test_experts_as_modules_of_transformers_have_them(self):
        self.compare("qwen3_moe", [FIXTURES / "qwen3_moe_fused"])

    def test_weights_in_mxfp4_may_stay_packed(self):
        layer = json.loads(self.describe("gpt_oss_mxfp4", "fp8_flow").read_text())
        path = self.write("packed.json", {**layer, "weight_format": "mxfp4"})
        report = self.succeed_json("run", path, "--target", "sim", "--pass", "forward", "--check", "--weights",
                                   FIXTURES / "gpt_oss_mxfp4" / "model.safetensors", "--layer", LAYER, "--input",
                                   FIXTURES / "inputs.safetensors", "--output", "out.safetensors")
        self.assertTrue(report["check"]["passed"])
        got = read_safetensors(self.folder / "out.safetensors")["y"]
        expected = read_safetensors(FIXTURES / "gpt_oss_mxfp4" / "expected.safetensors")["y"]
        self.assertLessEqual(relative_error(floats(got), floats(expected)), BOUNDS["fp8_flow"])


if __name__ == "__main__":
    tool.main()
