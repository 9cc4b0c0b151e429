# SPDX-License-Identifier: Apache-2.0
"""The lines of docs/jax.md run, and the examples do what they say."""
import contextlib
import io
import re
import runpy
import unittest

from support import *


class Docs(unittest.TestCase):

    def test_the_lines_of_the_page(self):
        names = {"RoutedMoE": object}  # MaxText is not installed: its class is made, and no method called
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/jax.md").read_text(), re.DOTALL):
            exec(block, names)
        self.assertEqual(names["y"].shape, (4, 16, 256))
        y, loss, counts = names["block"](names["params"], names["x"], names["logits"])
        self.assertEqual((y.shape, loss.shape, int(counts.sum())), ((4, 16, 256), (), 2 * 64))
        self.assertEqual(differences(names["y_sharded"], names["y"]), [])
        self.assertEqual({name: array.dtype for name, array in names["dparams"].items()},
                         {"w1": jnp.bfloat16, "w2": jnp.bfloat16})
        rounded = {name: (array / 2).astype(jnp.bfloat16) for name, array in names["sums"].items()}
        self.assertEqual(differences(rounded, names["dparams"]), [])

    def test_the_example_learns(self):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            runpy.run_path(str(ROOT / "docs/examples/jax/train.py"))
        losses = [float(loss) for loss in re.findall(r"step \d: loss ([\d.]+)", told.getvalue())]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], 0.7 * losses[0])


if __name__ == "__main__":
    unittest.main()
