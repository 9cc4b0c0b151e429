# SPDX-License-Identifier: Apache-2.0
"""What people run on GPUs that the project does not have, and send the report of: here in the simulator."""
import json

import tool


class Selftest(tool.ToolTest):
    keeps_kernels = True

    def test_a_target_that_keeps_its_rules_passes(self):
        done = self.succeed("selftest", "--target", "sim:sm_86", "--recipe", "mxfp8", "--report", "report.json")
        self.assertIn("selftest passed", done.stdout)
        self.assertIn("target sim:sm_86", done.stderr)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertTrue(report["passed"])
        self.assertEqual(report["failures"], [])
        self.assertEqual((report["target"], report["evidence"]), ("sim:sm_86", "simulated"))
        self.assertEqual([rule["target"] for rule in report["rules"]], ["sim:sm_86", "cuda:sm_90a", "cuda:sm_100f"])
        self.assertEqual(report["rules"][0], {"target": "sim:sm_86", "fp8_in_f16": True, "products": 8, "fraction": 24})
        asked = report["tensor_cores"]
        self.assertEqual({one["products"] for one in asked}, {"e4m3 x e4m3", "e5m2 x e4m3", "e4m3 x e5m2", "bf16 x bf16"})
        self.assertTrue(all(one["differing"][0] == 0 for one in asked))
        self.assertGreater(sum(one["differing"][1] for one in asked), 0)
        layer, = report["layers"]
        self.assertEqual((layer["recipe"], layer["differing"], layer["failed"], layer["error"]), ("mxfp8", 0, [], None))
        self.assertGreater(layer["tensors"], 20)
        self.assertEqual(report["gemms"], [])  # a simulator has no rate
        self.assertIn("compiler", report)

    def test_what_cannot_run_is_in_the_report(self):
        done = self.run_tool("selftest", "--target", "sim:sm_120f", "--recipe", "bf16", "--recipe", "nvfp4", "--frozen",
                             "--cache-dir", "empty", "--report", "report.json", "--json")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("and 2 more failures", done.stderr)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report, json.loads(done.stdout))
        self.assertFalse(report["passed"])
        self.assertEqual(len(report["failures"]), 3)
        self.assertIn("tensor cores were not asked: ", report["failures"][0])
        self.assertEqual([layer["recipe"] for layer in report["layers"]], ["bf16", "nvfp4"])
        for layer in report["layers"]:
            self.assertEqual(layer["error"]["code"], "cache_miss")

    def test_without_a_gpu_it_says_what_can_be_tested(self):
        done = self.run_tool("selftest", CUDA_VISIBLE_DEVICES="")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("test the simulator: --target sim", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_report_that_cannot_be_written_is_refused_first(self):
        done = self.run_tool("selftest", "--target", "sim", "--report", "missing/report.json")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("missing/report.json", done.stderr)
        self.assertNotIn("target", done.stderr)


if __name__ == "__main__":
    tool.main()
