# SPDX-License-Identifier: Apache-2.0
"""The benchmark of transformers' experts runs at small sizes, and its result has what the plot and the page take."""
import contextlib
import io
import json
import sys
import unittest

from support import BOUNDS, DEVICE, ROOT

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests" / "bench")]
import generate_step_times  # noqa: E402
import hf_experts_bench  # noqa: E402
import hf_experts_sections  # noqa: E402


class Bench(unittest.TestCase):

    def result(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            hf_experts_bench.main(["--tiny", "--device", DEVICE.type, *arguments])
        return json.loads(output.getvalue())

    def test_steps_have_times_and_errors(self):
        result = self.result("--only", ", eager")
        for case in result["cases"]:
            self.assertEqual([row["implementation"] for row in case["results"]],
                             ["eager", "grouped_mm", "moejit bf16", "moejit fp8_flow"])
            for row in case["results"]:
                self.assertNotIn("error", row)
                self.assertLessEqual({"step_hot_ms", "forward_hot_ms", "peak_bytes"}, set(row))
                for error in row["errors"].values():
                    self.assertLessEqual(error, BOUNDS[row.get("recipe", "bf16")])
        self.assertIn("transformers grouped_mm", generate_step_times.svg([result]))
        self.assertEqual(len(hf_experts_sections.step_sections(result)), 2)

    def test_an_implementation_that_fails_leaves_its_sentence(self):
        result = self.result("--only", "moejit bf16, eager", "--splits-alignment", "7", "--case", "Qwen3")
        (row,), = [case["results"] for case in result["cases"]]
        self.assertIn("splits_alignment", row["error"])
        self.assertNotIn("step_hot_ms", row)

    def test_host_times(self):
        result = self.result("--host", "--experts", "4")
        self.assertEqual([row["call"] for row in result["calls"]],
                         ["torch.add on the CPU, to compare with", "torch.add, to compare with", "operator moejit::forward",
                          "module, no_grad", "module, forward with autograd", "backward"])
        self.assertEqual({row["sync"] for row in result["calls"]}, {""})
        self.assertEqual(len(hf_experts_sections.host_sections(result)), 1)


if __name__ == "__main__":
    unittest.main()
