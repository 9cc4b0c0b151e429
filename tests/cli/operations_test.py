# SPDX-License-Identifier: Apache-2.0
"""What `moejit run` and `moejit bench` do with the description of an operation."""
import json
import struct

import tool
from tool import ROOT, read_safetensors, safetensors

EXAMPLES = sorted((ROOT / "docs/examples/operations").glob("*.json"))


def example(name):
    return ROOT / f"docs/examples/operations/{name}.json"


class Operations(tool.ToolTest):
    keeps_kernels = True

    def run_operation(self, name, *arguments):
        return self.succeed_json("run", example(name), "--target", "sim", "--check", *arguments)

    def refuse(self, code, *arguments):
        done = self.run_tool("run", *arguments, "--target", "sim")
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_every_example_runs_and_agrees_with_the_reference(self):
        for path in EXAMPLES:
            report = self.succeed_json("run", path, "--target", "sim", "--check", "--output", "out.safetensors")
            written = set(read_safetensors(self.folder / "out.safetensors"))
            checked = {one["tensor"] for one in report["check"]["tensors"]}
            self.assertEqual(report["operation"], path.stem)
            self.assertEqual(written | {"status"}, checked | {"status"}, path.stem)
            self.assertTrue(report["check"]["passed"])

    def test_the_one_call_is_run(self):
        report = self.run_operation("quantize", "--tokens", "4", "--call", "run")
        self.assertEqual((report["calls"], report["check"]["passed"]), (["run"], True))

    def test_rows_of_any_format_are_permuted_and_checked(self):
        routed = {"max_tokens": 40, "top_k": 3, "local_experts": 5, "splits_alignment": 16}
        for name in ("permute_pad", "permute_pad_grad"):
            for fields in ({"recipe": "mxfp8", "columns": 2896}, {"format": "fp4", "columns": 2896},
                           {"format": "fp4", "columns": 16}):
                path = self.write("permute.json", {"operation": name, **routed, **fields})
                report = self.succeed_json("run", path, "--target", "sim", "--check", "--output", "out.safetensors")
                self.assertTrue(report["check"]["passed"])
                self.assertEqual(len(report["check"]["tensors"]), 3 if name == "permute_pad" else 2)
            self.assertEqual(self.succeed_json("run", path, "--target", "sim", "--check", "--tokens", "0")["rows"], 0)
        dtype, shape, _ = read_safetensors(self.folder / "out.safetensors")["output"]
        self.assertEqual((dtype, shape[1]), ("F4_E2M1X2", 8))

    def test_gradients_that_are_added_to_are_checked_in_each_dtype(self):
        gemm = {"operation": "contraction_grouped_gemm", "local_experts": 2, "max_columns": 256, "rows": 64, "n": 128}
        for output in ("f32_add", "bf16_add"):
            path = self.write("gemm.json", json.dumps({**gemm, "output": output}))
            report = self.succeed_json("run", path, "--target", "sim", "--check", "--seed", "1")
            self.assertEqual([one["tensor"] for one in report["check"]["tensors"]], ["d"], output)

    def test_the_output_of_one_is_the_input_of_the_next(self):
        routed = {"max_tokens": 16, "top_k": 2, "local_experts": 4, "splits_alignment": 16}
        route = self.write("route.json", {"operation": "route", **routed})
        permute = self.write("permute.json", {"operation": "permute_pad", "format": "bf16", "columns": 32, **routed})
        back = self.write("back.json", {"operation": "unpermute", "columns": 32, **routed})
        ids = [(3 * i) % 4 for i in range(20)]
        rows = [[float(token + column % 3) for column in range(32)] for token in range(10)]
        x = b"".join(struct.pack("<f", value)[2:] for row in rows for value in row)
        self.write("ids.safetensors", safetensors({"topk_ids": ("I32", [10, 2], struct.pack("<20i", *ids))}))
        self.succeed("run", route, "--target", "sim", "--input", "ids.safetensors", "--output", "route.safetensors")
        tensors = read_safetensors(self.folder / "route.safetensors")
        tensors |= {"input": ("BF16", [10, 32], x), "probs": ("F32", [10, 2], struct.pack("<f", 0.5) * 20)}
        self.write("x.safetensors", safetensors(tensors))
        report = self.succeed_json("run", permute, "--target", "sim", "--check", "--input", "x.safetensors",
                                   "--output", "permuted.safetensors")
        self.assertEqual((report["tokens"], report["rows"]), (10, 64))
        permuted = read_safetensors(self.folder / "permuted.safetensors")
        most = 10 * 2 + 4 * 15  # what any routing may need
        dtype, shape, content = permuted["output"]
        self.assertEqual((dtype, shape), ("BF16", [64, 32]))
        padded = content + bytes(2 * 32 * (most // 16 * 16 - 64))
        self.write("rows.safetensors", safetensors({"row_map": tensors["row_map"],
                                                    "input": ("BF16", [most // 16 * 16, 32], padded)}))
        self.succeed("run", back, "--target", "sim", "--check", "--input", "rows.safetensors", "--output", "y.safetensors")
        y = read_safetensors(self.folder / "y.safetensors")["output"][2]
        doubled = b"".join(struct.pack("<f", 2 * value)[2:] for row in rows for value in row)
        self.assertEqual(y, doubled)  # each token has two rows

    def test_tokens_are_those_that_are_asked_for(self):
        self.assertEqual(self.run_operation("quantize", "--tokens", "3")["tokens"], 3)
        self.assertEqual(self.run_operation("transpose", "--tokens", "0")["rows"], 0)
        text = self.succeed("run", example("quantize"), "--target", "sim", "--tokens", "5").stdout
        self.assertIn('operation "quantize", target sim, 5 tokens', text)
        self.assertIn("wanted 0 to 64 (T of quantize)", self.refuse(2, example("quantize"), "--tokens", "65"))
        self.assertIn("wanted 0 to 192 (P of transpose)", self.refuse(2, example("transpose"), "--tokens", "193"))
        self.assertIn("leave --tokens out", self.refuse(2, example("quantize_weights"), "--tokens", "1"))

    def test_experts_are_drawn_alike_if_asked_for(self):
        route = {"operation": "route", "max_tokens": 512, "top_k": 1, "local_experts": 4, "splits_alignment": 1}
        path = self.write("route.json", route)
        shares = {}
        for routing in ("skewed", "uniform"):
            report = self.succeed_json("run", path, "--target", "sim", "--check", "--tokens", "512", "--routing", routing,
                                       "--output", "out.safetensors")
            self.assertEqual(report["routing"], routing)
            counts = struct.unpack("<4i", read_safetensors(self.folder / "out.safetensors")["counts"][2])
            shares[routing] = max(counts) / sum(counts)
        self.assertGreater(shares["skewed"], 0.4)
        self.assertLess(shares["uniform"], 0.33)
        text = self.succeed("run", path, "--target", "sim", "--routing", "uniform").stdout
        self.assertIn(", uniform routing", text)
        self.assertNotIn("routing", self.succeed("run", path, "--target", "sim").stdout)
        self.assertNotIn("routing", self.run_operation("quantize"))
        self.assertIn("no rows of quantize belong to experts", self.refuse(2, example("quantize"), "--routing", "uniform"))

    def test_what_only_layers_have_is_refused(self):
        for option in (["--pass", "backward"], ["--dump-intermediates", "--output", "x"], ["--weights", "."]):
            self.assertIn(f"{' '.join(option[:1 + (option[0] == '--pass')])} is for layers",
                          self.refuse(2, example("route"), *option))

    def test_a_wrong_file_is_told_with_the_tensor(self):
        self.write("none.safetensors", safetensors({"other": tool.tensor("BF16", [3, 256])}))
        self.assertRegex(self.refuse(3, example("quantize"), "--input", "none.safetensors"),
                         r'"input".*wanted BF16 \[T <= 64, 256\]')
        self.write("wrong.safetensors", safetensors({"input": tool.tensor("F32", [3, 256])}))
        self.assertRegex(self.refuse(3, example("quantize"), "--input", "wrong.safetensors"),
                         r'wrong.safetensors: tensor "input" is F32 \[3, 256\], wanted BF16 \[T <= 64, 256\]')

    def test_a_bad_scale_is_a_warning_or_an_error(self):
        tensors = {"input": tool.tensor("F8_E4M3", [16, 256], 0x38),
                   "input_scale_inv": ("F32", [16, 2], struct.pack("<f", 0.3) * 32),
                   "counts": ("I32", [4], struct.pack("<4i", 16, 0, 0, 0)),
                   "offs": ("I32", [5], struct.pack("<5i", 0, 16, 16, 16, 16)),
                   "output_offs": ("I32", [5], struct.pack("<5i", 0, 128, 128, 128, 128))}
        path = self.write("in.safetensors", safetensors(tensors))
        done = self.succeed("run", example("transpose"), "--target", "sim", "--input", path, "--json")
        self.assertTrue(json.loads(done.stdout)["status"]["bad_scale"])
        self.assertIn("neither powers of two nor 0", done.stderr)
        self.assertNotEqual(self.run_tool("run", example("transpose"), "--target", "sim", "--input", path,
                                          "--strict").returncode, 0)

    def test_bench_needs_a_gpu(self):
        done = self.run_tool("bench", example("quantize"), MOEJIT_CUDA_DRIVER="/nonexistent")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("without a GPU", done.stderr)
        done = self.run_tool("bench", example("quantize"), "--pass", "training", MOEJIT_CUDA_DRIVER="/nonexistent")
        self.assertIn("--pass training is for layers", done.stderr)
        done = self.run_tool("bench", example("quantize"), "--tokens", "0", MOEJIT_CUDA_DRIVER="/nonexistent")
        self.assertIn("--tokens is 0, wanted 1 to 64 (T of quantize)", done.stderr)


if __name__ == "__main__":
    tool.main()
