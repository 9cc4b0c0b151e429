# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/examples/pytorch run and do what they say."""
import os
import re
import subprocess
import sys
import unittest

from support import DEVICE, ROOT


class Examples(unittest.TestCase):

    def test_a_model_of_transformers_learns(self):
        done = subprocess.run([sys.executable, ROOT / "docs" / "examples" / "pytorch" / "train_hf.py", DEVICE.type],
                              env=os.environ, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(loss) for loss in re.findall(r"step \d: loss ([\d.]+)", done.stdout)]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] - 0.2)


if __name__ == "__main__":
    unittest.main()
