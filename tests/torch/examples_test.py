# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/examples/pytorch run and do what they say."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch
import transformers

import moejit.torch
from ranks import is_possible
from support import DEVICE, ROOT


transformers.utils.logging.disable_progress_bar()


def losses_of(output):
    return [float(loss) for loss in re.findall(r"step \d: loss ([\d.]+)", output)]


class Examples(unittest.TestCase):

    def output_of(self, name, *launcher, arguments=()):
        """What an example prints."""
        program = ROOT / "docs" / "examples" / "pytorch" / name
        for _ in range(3):
            command = [sys.executable, *launcher, program, DEVICE.type, *arguments]
            done = subprocess.run(command, env=os.environ, check=False, capture_output=True, text=True)
            # Ranks of gloo sometimes end like this when the interpreter takes their threads down, after all output.
            if "terminate called without an active exception" not in done.stderr:
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_whole_blocks_learn(self):
        few = "--steps", "10", "--tokens", "32", "--kinds", "8", "--recipe", "fp8_flow"
        told = re.search(r"fp8_flow: first loss ([\d.]+), last ([\d.]+), load [\d.]+ [\d.]+\n",
                         self.output_of("train_moe.py", arguments=few))
        self.assertLess(float(told[2]), float(told[1]) / 2)

    def test_a_model_of_transformers_learns(self):
        losses = losses_of(self.output_of("train_hf.py"))
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] - 0.2)

    @unittest.skipUnless(is_possible(), "needs two GPUs")
    def test_sharded_blocks_learn(self):
        losses = losses_of(self.output_of("fsdp2.py", "-m", "torch.distributed.run", "--standalone",
                                          "--nproc-per-node", "2"))
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0] / 4)

    def test_a_block_with_delayed_scaling_learns_and_keeps_its_scales(self):
        output = self.output_of("delayed_scaling.py")
        losses = losses_of(output)
        self.assertEqual(len(losses), 8)
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertRegex(output, r"scales of the inputs of experts: \['\d+\.\d'(, '\d+\.\d'){7}\]\n")

    def test_blocks_that_share_experts_learn_or_say_what_is_missing(self):
        output = self.output_of("expert_parallel.py", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                "2")
        if torch.cuda.device_count() < 2:
            self.assertEqual(output, f"2 ranks need a GPU each, this host has {torch.cuda.device_count()}: nothing was "
                             "trained\n")
            return
        losses = losses_of(output)
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0] / 4)

    def test_the_lines_of_the_readme_switch_a_model_over(self):
        lines = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
        config = transformers.Qwen3MoeConfig(
            vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2)
        with tempfile.TemporaryDirectory() as folder:
            transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder)
            changed = lines.replace("Qwen/Qwen3-30B-A3B", folder).replace('"cuda"', f'"{DEVICE.type}"')
            self.assertEqual(len([line for line in lines.splitlines() if line]), 6)
            names = {}
            exec(changed, names)
        tokens = torch.randint(0, 64, (1, 16), device=DEVICE)
        model = names["model"]
        with unittest.mock.patch("moejit.torch.ops.call", wraps=moejit.torch.ops.call) as call:
            model(tokens, labels=tokens).loss.backward()
        self.assertEqual([given.args[1] for given in call.call_args_list], ["update_weights+forward", "backward"])
        self.assertTrue(all(parameter.grad is not None for parameter in model.parameters()))

    def test_a_captured_loop_decodes_the_tokens_of_an_eager_one(self):
        output = self.output_of("decode_graph.py")
        self.assertRegex(output, r"tokens of the first sequence: \[\d+(, \d+){7}\]\n")
        self.assertIn("decoded without a CUDA graph" if DEVICE.type == "cpu" else "the same tokens: True", output)


if __name__ == "__main__":
    unittest.main()
