# SPDX-License-Identifier: Apache-2.0
"""Descriptions from configurations are those of `moejit layer --from-hf`."""
import json
import re
import subprocess
import unittest

from package_case import ROOT, TOOL, PackageTest

import moejit

CONFIGS = sorted((ROOT / "tests/unit/parser/configs").glob("*.json"))
QWEN = ROOT / "tests/unit/parser/configs/qwen3-30b-a3b.json"


class Configuration:
    """What a configuration object of transformers offers, with a value that JSON does not know."""

    def to_dict(self):
        return {**json.loads(QWEN.read_text()), "torch_dtype": complex(1, 2)}


class Describe(PackageTest):
    def test_is_what_the_tool_prints(self):
        self.assertGreater(len(CONFIGS), 10)
        for config in CONFIGS:
            told = subprocess.run([TOOL, "layer", "--from-hf", config], capture_output=True, text=True, check=False)
            if told.returncode != 0:
                with self.assertRaises(moejit.Error) as raised:
                    moejit.describe(config)
                self.assertIn(raised.exception.message, told.stderr)
                continue
            description = moejit.describe(config)
            self.assertEqual(description, json.loads(told.stdout), config.name)
            self.assertEqual(re.findall("^moejit: note: (.*)$", told.stderr, re.MULTILINE), description.notes)
            for key in description.used_keys:
                self.assertIn(key, told.stderr)

    def test_takes_what_programs_have(self):
        wanted = moejit.describe(QWEN)
        self.assertEqual((wanted.model_type, wanted["experts"]), ("qwen3_moe", 128))
        self.assertEqual(wanted.router, {"normalize": "sum", "logits_dtype": "bf16"})
        phimoe = {"model_type": "phimoe", "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_size": 256,
                  "intermediate_size": 128}
        self.assertIsNone(moejit.describe(phimoe).router)
        self.assertIsNone(wanted.shared)
        deepseek = {"model_type": "deepseek_v2", "n_routed_experts": 8, "num_experts_per_tok": 2, "hidden_size": 256,
                    "moe_intermediate_size": 128, "hidden_act": "silu"}
        self.assertEqual(moejit.describe(deepseek).shared, {"experts": 2, "gate": False})
        (self.folder / "config.json").write_text(QWEN.read_text())
        for config in (str(QWEN), QWEN.read_text(), json.loads(QWEN.read_text()), self.folder, Configuration()):
            self.assertEqual(moejit.describe(config), wanted)

    def test_takes_options(self):
        made = moejit.describe(QWEN, recipe="bf16", max_tokens=96, expert_parallel=8)
        self.assertEqual((made["recipe"], made["max_tokens"], made["local_experts"], made["dispatch"]),
                         ("bf16", 96, 16, "none"))
        made["passes"] = ["forward", "backward"]
        self.assertTrue(moejit.Layer(made, "cuda:sm_90a").info.has_backward)

    def test_says_what_is_wrong_and_where(self):
        with self.raises("missing_key", "config:1"):
            moejit.describe({"model_type": "qwen3_moe", "num_experts": 4})
        with self.raises("invalid_value", "option recipe", "fp7"):
            moejit.describe(QWEN, recipe="fp7")
        with self.assertRaises(FileNotFoundError):
            moejit.describe(self.folder)
        with self.assertRaises(TypeError):
            moejit.describe(7)


if __name__ == "__main__":
    unittest.main(verbosity=0)
