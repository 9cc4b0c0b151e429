# SPDX-License-Identifier: Apache-2.0
"""Benchmarks run at small sizes, and their results have what plots and pages take."""
import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

from support import BOUNDS, DEVICE, ROOT

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests" / "bench")]
import experts_cases  # noqa: E402
import experts_tool  # noqa: E402
import fine_grained_bench  # noqa: E402
import grouped_mm_bench  # noqa: E402
import generate_step_times  # noqa: E402
import hf_experts_bench  # noqa: E402
import hf_experts_sections  # noqa: E402
import megatron_device  # noqa: E402
from moejit.torch import te_permute  # noqa: E402


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

    def test_grouped_gemms_have_times_and_errors(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            grouped_mm_bench.main(["--tiny", "--device", DEVICE.type, "--rounds", "1"])
        case, = json.loads(output.getvalue())["cases"]
        self.assertEqual([row["function"] for row in case["results"]], ["torch", "bf16", "fp8", "fp8_rowwise", "mxfp8"])
        for row in case["results"]:
            self.assertLessEqual(max(row["errors"]), BOUNDS["fp8_flow" if "fp8" in row["function"] else "bf16"])

    @unittest.skipUnless(megatron_device.IS_THERE, "needs megatron-core, which .ci/setup-torch fetches")
    def test_fused_layers_of_megatron_have_times(self):
        import megatron_bench
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()), \
             mock.patch.object(te_permute, "moe_permute_with_probs", wraps=te_permute.moe_permute_with_probs) as permute:
            megatron_bench.main(["--tiny", "--fused", "--graphs", "--only", "bf16, grouped"])
        case, = json.loads(output.getvalue())["cases"]
        row, = case["layers"]
        self.assertNotIn("error", row)
        permute.assert_called()
        self.assertLessEqual({"step_hot_ms", "experts_step_hot_ms", "peak_bytes"}, set(row))

    def test_experts_beside_peers_have_times_and_errors(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            fine_grained_bench.main(["--tiny"])
        case, = json.loads(output.getvalue())["cases"]
        self.assertEqual(list(case["experts"]), list(fine_grained_bench.MAKERS))
        for name, bound in (("moejit bf16", BOUNDS["bf16"]), ("moejit fp8_flow", BOUNDS["fp8_flow"])):
            row = case["experts"][name]
            self.assertEqual(len(row["errors"]), 5)
            self.assertLessEqual(max(row["errors"]), bound)
            self.assertGreater(row["step_tflops"], 0)

    def test_an_implementation_that_fails_leaves_its_sentence(self):
        result = self.result("--only", "moejit bf16, eager", "--splits-alignment", "0", "--case", "Qwen3")
        (row,), = [case["results"] for case in result["cases"]]
        self.assertIn("splits_alignment", row["error"])
        self.assertNotIn("step_hot_ms", row)

    def test_the_layer_of_a_step_beside_the_tool(self):
        result = self.result("--only", "moejit", "--case", "Qwen3", "--moejit-bench", "--seconds", "0.05")
        (rows,) = [case["results"] for case in result["cases"]]
        self.assertEqual([row["implementation"] for row in rows],
                         ["moejit bf16", "moejit bf16", "moejit fp8_flow", "moejit fp8_flow"])
        for row in rows:
            if DEVICE.type == "cuda":
                self.assertNotIn("error", row)
                self.assertGreater(row["ratio_to_tool"], 0.5)
            else:
                self.assertRegex(row["error"], "RuntimeError: moejit: .*(GPU|CUDA|simulator|driver)")
            self.assertIn("step_hot_ms", row)

    def test_the_tool_gets_the_layer_that_the_module_runs(self):
        case = experts_cases.TINY["tiny Qwen3-MoE"]
        module, inputs = experts_cases.make_module(case, DEVICE), experts_cases.Inputs(case, DEVICE)
        implementation = experts_cases.Implementation("moejit fp8_flow", "eager", "fp8_flow")
        step = experts_cases.Step(module, implementation, inputs, case.tokens)
        layer = json.loads(experts_tool.layer_of(step))
        self.assertEqual({name: layer[name] for name in ("experts", "hidden", "recipe", "max_tokens", "wgrad_dtype",
                                                         "topk_ids_dtype", "gradients")},
                         {"experts": case.experts, "hidden": case.hidden, "recipe": "fp8_flow",
                          "max_tokens": case.tokens, "wgrad_dtype": "bf16", "topk_ids_dtype": "i64",
                          "gradients": ["dx", "dprobs", "dw1", "dw2"]})
        step.inputs = experts_tool.with_rows_of_tool(inputs)
        self.assertTrue(step().isfinite().all())

    def test_a_step_by_the_tool_has_the_kernels_of_the_weights(self):
        result = json.loads((ROOT / "docs" / "performance" / "h200-qwen3-30b-training.json").read_text())
        self.assertAlmostEqual(experts_tool.step_ms(result) - 1e-3 * result["step_hot_us"], 0.403 + 0.204, places=2)

    def host_calls(self):
        result = self.result("--host", "--experts", "4")
        self.assertEqual({row["sync"] for row in result["calls"]}, {""})
        self.assertEqual(len(hf_experts_sections.host_sections(result)), 1)
        return [row["call"] for row in result["calls"]]

    def test_host_times(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("MOEJIT_TORCH_FLOOR", None)
            self.assertEqual(self.host_calls(), [
                "torch.add on the CPU, to compare with", "torch.add, to compare with", "torch.empty, to compare with",
                "operator moejit::call", "module, no_grad", "module, forward with autograd", "backward"])

    @unittest.skipUnless(os.environ.get("MOEJIT_TORCH_FLOOR"), "MOEJIT_TORCH_FLOOR names no library")
    def test_host_times_have_a_floor(self):
        self.assertLessEqual({"floor: operator", "floor: module, no_grad", "floor: module, forward with autograd",
                              "floor: backward"}, set(self.host_calls()))


if __name__ == "__main__":
    unittest.main()
