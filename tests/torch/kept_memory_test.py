# SPDX-License-Identifier: Apache-2.0
"""Training holds no quantized weights between its steps, also where parts of it run forward without gradients."""
import gc
import sys
import unittest

import torch
import transformers

from support import DEVICE, ROOT, Recorder
from moejit.torch import register_hf

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

EXPERTS, HIDDEN, INTERMEDIATE, TOKENS = 8, 64, 32, 8  # as in convert_test.py

transformers.logging.set_verbosity_error()
register_hf("kept_memory", max_tokens=64)


class KeptMemory(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(0)
        self.model = make_checkpoints.make_model("qwen3_moe", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        self.model.set_experts_implementation("kept_memory")
        self.model.config.use_cache = False
        self.tokens = torch.arange(TOKENS, device=DEVICE)[None]
        self.recorder = Recorder()

    def step(self):
        with self.recorder:
            self.model.train()
            self.model(self.tokens, labels=self.tokens).loss.backward()

    def evaluate(self):
        with self.recorder, torch.no_grad():
            self.model.eval()
            self.model(self.tokens)

    def living_blocks(self):
        """How many blocks of the library's operators are alive: quantized weights, as saved blocks end with backward."""
        gc.collect()
        return sum(not block.expired() for block in self.recorder.blocks)

    def checkpoint(self, **options):
        self.model.gradient_checkpointing_enable(options)
        self.model.enable_input_require_grads()

    def test_evaluation_keeps_them(self):
        self.evaluate()
        self.assertGreater(self.living_blocks(), 0, "the other tests could not fail")

    def test_plain_steps(self):
        for _ in range(2):
            self.step()
        self.assertEqual(self.living_blocks(), 0)

    def test_steps_of_checkpoints(self):
        for use_reentrant in (False, True):
            with self.subTest(use_reentrant=use_reentrant):
                self.setUp()
                self.checkpoint(use_reentrant=use_reentrant)
                for _ in range(2):
                    self.step()
                self.assertEqual(self.living_blocks(), 0)

    def test_steps_behind_an_evaluation(self):
        for use_reentrant in (None, False, True):
            with self.subTest(use_reentrant=use_reentrant):
                self.setUp()
                if use_reentrant is not None:
                    self.checkpoint(use_reentrant=use_reentrant)
                self.evaluate()
                self.step()
                self.assertEqual(self.living_blocks(), 0)


if __name__ == "__main__":
    unittest.main()
