# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/examples/pytorch run and do what they say."""
import os
import re
import subprocess
import sys
import unittest

from support import DEVICE, ROOT


class Examples(unittest.TestCase):

    def output_of(self, name, *launcher):
        """What an example prints."""
        done = subprocess.run([sys.executable, *launcher, ROOT / "docs" / "examples" / "pytorch" / name, DEVICE.type],
                              env=os.environ, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assert_learns(self, output):
        losses = [float(loss) for loss in re.findall(r"step \d: loss ([\d.]+)", output)]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] - 0.2)

    def test_a_model_of_transformers_learns(self):
        self.assert_learns(self.output_of("train_hf.py"))

    def test_a_captured_loop_decodes_the_tokens_of_an_eager_one(self):
        output = self.output_of("decode_graph.py")
        self.assertRegex(output, r"tokens of the first sequence: \[\d+(, \d+){7}\]\n")
        self.assertIn("decoded without a CUDA graph" if DEVICE.type == "cpu" else "the same tokens: True", output)


if __name__ == "__main__":
    unittest.main()
