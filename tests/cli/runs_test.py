# SPDX-License-Identifier: Apache-2.0
"""What `moejit run` does in the simulator: results, dumps, gradients, single calls."""
import json
import math
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess

import tool
from tiny_tensors import DUMPED, E, H, I, K, bf16, numbers, token_tensors, weight_tensors
from tool import TINY, read_safetensors, safetensors


class SimulatedRuns(tool.ToolTest):
    keeps_kernels = True

    def run_tiny(self, *arguments):
        return self.succeed_json("run", TINY, "--target", "sim", *arguments)

    def run_file(self, tensors, *arguments):
        path = self.write("in.safetensors", safetensors(tensors))
        report = self.run_tiny("--input", path, "--check", "--dump-intermediates", "--output",
                               "out.safetensors", *arguments)
        self.assertTrue(report["check"]["passed"])
        return report, read_safetensors(self.folder / "out.safetensors")

    def test_the_target_is_told_before_anything_is_done(self):
        refused = self.run_tool("run", TINY, "--target", "sim", "--input", "absent")
        self.assertRegex(refused.stderr, r"^moejit: target sim\n.*absent")
        no_gpu = self.run_tool("run", TINY, "--input", "absent", MOEJIT_CUDA_DRIVER="/nonexistent")
        self.assertRegex(no_gpu.stderr, r"^moejit: target sim, the simulator, since there is no GPU: no CUDA driver")

    def test_modes_of_a_preloaded_library_change_nothing(self):
        source = self.write("modes.c", "#include <fenv.h>\n__attribute__((constructor)) void choose(void)"
                                       "{ fesetround(FE_UPWARD); }\n")
        library = self.folder / "modes.so"
        built = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-lm"], stderr=subprocess.PIPE, text=True,
                               check=False)
        self.assertEqual(built.returncode, 0, built.stderr)
        layer = self.layer(activation={"expression": "0.1 * 0.7 / 3 * gate * up"})
        plans = [self.succeed_json("plan", layer, LD_PRELOAD=preloaded) for preloaded in ("", str(library))]
        self.assertEqual(*plans)

    def test_a_long_run_is_told_beforehand_and_ends_at_once(self):
        layer = TINY.parent / "deepseek-v3-ep8.json"
        run = subprocess.Popen([tool.moejit, "run", layer, "--target", "sim", "--check", "--no-cache"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(run.kill)
        self.assertEqual(run.stderr.readline(), "moejit: target sim\n")
        self.assertRegex(run.stderr.readline(), r"^moejit: warning: this takes about [0-9]+ (s|min|h) in the "
                         r"simulator; try (--tokens [0-9]+, or )?fewer experts, as in docs/examples/layers/\S+\.json$")
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), -signal.SIGINT)
        run.stderr.close()

    def test_a_second_run_compiles_nothing(self):
        first = self.run_tiny("--cache-dir", "own", "--check")
        self.assertEqual((first["compiled"], first["from_cache"]), (len(first["kernels"]), 0))
        second = self.run_tiny("--cache-dir", "own", "--check")
        self.assertEqual((second["compiled"], second["from_cache"]), (0, len(first["kernels"])))

        # A flipped bit anywhere is found, told once and made good.
        entries = self.succeed_json("cache", "ls", "--cache-dir", "own")["entries"]
        path = entries[3]["path"]
        with open(path, "r+b") as file:
            content = bytearray(file.read())
            content[len(content) // 2] ^= 0x10
            file.seek(0)
            file.write(content)
        damaged = self.run_tool("cache", "verify", "--cache-dir", "own")
        self.assertEqual(damaged.returncode, 4)
        self.assertIn(os.path.basename(path), damaged.stderr)
        third = self.succeed("run", TINY, "--target", "sim", "--cache-dir", "own", "--check", "--json")
        report = json.loads(third.stdout)
        self.assertEqual((report["compiled"], report["corrupt"]), (1, 1))
        self.assertEqual(third.stderr.count("warning"), 1, third.stderr)
        fourth = self.run_tiny("--cache-dir", "own", "--check")
        self.assertEqual((fourth["compiled"], fourth["corrupt"]), (0, 0))
        self.succeed("cache", "verify", "--cache-dir", "own")

    def test_a_dump_has_the_documented_tensors(self):
        tokens = 5
        report, out = self.run_file({**token_tensors(tokens), **weight_tensors()})
        rows = report["rows"]
        shapes = {"x_q": ("F8_E4M3", [tokens, H]), "x_scale_inv": ("F32", [tokens, H // 128]),
                  "counts": ("I32", [E]), "offs": ("I32", [E + 1]), "row_map": ("I32", [tokens, K]),
                  "permuted_q": ("F8_E4M3", [rows, H]), "permuted_probs": ("F32", [rows]),
                  "permuted_scale_inv": ("F32", [rows, H // 128]),
                  "w1_q": ("F8_E4M3", [E, 2 * I, H]), "w1_scale_inv": ("F32", [E, 2, 2]),
                  "w2_q": ("F8_E4M3", [E, H, I]), "w2_scale_inv": ("F32", [E, 2, 1]),
                  "h1": ("BF16", [rows, 2 * I]), "act_q": ("F8_E4M3", [rows, I]),
                  "act_scale_inv": ("F32", [rows, 1]), "h2": ("BF16", [rows, H]),
                  "y": ("BF16", [tokens, H])}
        self.assertEqual(sorted(out), DUMPED)
        self.assertEqual({name: (dtype, shape) for name, (dtype, shape, _) in out.items()}, shapes)
        offs = struct.unpack(f"<{E + 1}i", out["offs"][2])
        self.assertEqual((offs[0], offs[-1]), (0, rows))

    def test_formulas_that_are_not_finite_at_zero_leave_pad_rows_alone(self):
        layer = {"name": "pads", "experts": 4, "top_k": 2, "hidden": 128, "intermediate": 144, "splits_alignment": 64,
                 "max_tokens": 16, "passes": ["forward", "backward"]}
        for recipe, formula in (("bf16", "sqrt(abs(gate)) * up"), ("fp8_flow", "log(abs(gate)) * up"),
                                ("fp8_flow", "sqrt(abs(up))")):
            with self.subTest(recipe=recipe, formula=formula):
                description = {**layer, "recipe": recipe, "activation": {"expression": formula}}
                report = self.succeed_json("run", self.write("pads.json", json.dumps(description)), "--target", "sim",
                                           "--pass", "backward", "--tokens", "9", "--check")
                self.assertTrue(report["check"]["passed"])

    def test_a_backward_pass_gives_gradients_and_dumps_what_it_made(self):
        tokens = 5
        tensors = {**token_tensors(tokens), **weight_tensors(),
                   "dy": ("BF16", [tokens, H], numbers(4, tokens * H))}
        report, out = self.run_file(tensors, "--pass", "backward")
        rows, counts = report["rows"], struct.unpack(f"<{E}i", out["counts"][2])
        shapes = {"dx": ("BF16", [tokens, H]), "dprobs": ("F32", [tokens, K]),
                  "dw1": ("F32", [E, 2 * I, H]), "dw2": ("F32", [E, H, I]),
                  "w1_colwise_q": ("F8_E4M3", [E, H, 2 * I]),
                  "w1_colwise_scale_inv": ("F32", [E, 2, 2]),
                  "w2_colwise_q": ("F8_E4M3", [E, I, H]),
                  "w2_colwise_scale_inv": ("F32", [E, 1, 2]),
                  "dy_q": ("F8_E4M3", [tokens, H]), "dy_scale_inv": ("F32", [tokens, 2]),
                  "grad_permuted_q": ("F8_E4M3", [rows, H]),
                  "grad_permuted_scale_inv": ("F32", [rows, 2]),
                  "dact": ("BF16", [rows, I]), "dh1_q": ("F8_E4M3", [rows, 2 * I]),
                  "dh1_scale_inv": ("F32", [rows, 2]), "dprobs_blocks": ("F32", [rows, 1]),
                  "dx_permuted": ("BF16", [rows, H])}
        for operand, width in {"x": H, "grad": H, "act": I, "dh1": 2 * I}.items():
            for expert, count in enumerate(counts):
                blocks = (count + 127) // 128
                shapes[f"{operand}_colwise_q.{expert}"] = ("F8_E4M3", [width, count])
                shapes[f"{operand}_colwise_scale_inv.{expert}"] = ("F32", [blocks, width])
        for name, wanted in shapes.items():
            self.assertEqual(out[name][:2], wanted, name)
        # The only row of an expert becomes its only column, with the same scales.
        offs = struct.unpack(f"<{E + 1}i", out["offs"][2])
        single = [expert for expert, count in enumerate(counts) if count == 1]
        self.assertGreater(len(single), 1)
        for operand, rows_of in {"x": "permuted", "grad": "grad_permuted", "act": "act",
                                 "dh1": "dh1"}.items():
            width = out[f"{rows_of}_q"][1][1]
            for expert in single:
                row = offs[expert]
                codes = out[f"{rows_of}_q"][2][row * width:(row + 1) * width]
                self.assertEqual(out[f"{operand}_colwise_q.{expert}"][2], codes, operand)
                blocks = width // 128
                scales = out[f"{rows_of}_scale_inv"][2][4 * row * blocks:4 * (row + 1) * blocks]
                wanted = b"".join(scales[4 * block:4 * block + 4] * 128 for block in range(blocks))
                self.assertEqual(out[f"{operand}_colwise_scale_inv.{expert}"][2], wanted, operand)

    def test_a_backward_pass_reads_the_codes_of_a_checkpoint(self):
        stream = random.Random(6)

        def codes(*shape):
            return "F8_E4M3", list(shape), bytes(stream.randrange(0x70) | stream.choice((0, 0x80))
                                                 for _ in range(math.prod(shape)))

        def scales(*shape):  # no powers of two
            return "F32", list(shape), struct.pack(f"<{math.prod(shape)}f", *(
                stream.uniform(1e-3, 2e-3) for _ in range(math.prod(shape))))

        tensors = {"w1_q": codes(E, 2 * I, H), "w1_scale_inv": scales(E, 2, 2), "w2_q": codes(E, H, I),
                   "w2_scale_inv": scales(E, 2, 1), "dy": ("BF16", [5, H], numbers(4, 5 * H))}
        report, out = self.run_file({**token_tensors(5), **tensors}, "--pass", "backward", "--check")
        self.assertTrue(report["check"]["passed"])
        checked = {entry["tensor"]: entry for entry in report["check"]["tensors"]}
        for name in ("h1", "h2", "dact", "dx_permuted", "dx", "dprobs"):
            self.assertEqual(checked[name]["verdict"], "exact", name)
        self.assertNotIn("w1_q", checked)
        of_w1 = tensors["w1_q"][2]
        self.assertEqual(out["w1_colwise_q"][2][:2 * I], of_w1[:2 * I * H:H])  # the first column of expert 0

    def test_a_backward_pass_needs_dy(self):
        path = self.write("in.safetensors", safetensors({**token_tensors(1), **weight_tensors()}))
        done = self.run_tool("run", TINY, "--target", "sim", "--input", path, "--pass", "backward")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('"dy"', done.stderr)
        done = self.run_tool("run", TINY, "--pass", "sideways")
        self.assertEqual(done.returncode, 2)

    def test_a_backward_pass_without_scales_of_columns_needs_bf16_weights(self):
        quantized = {"w1_q": ("F8_E4M3", [E, 2 * I, H], bytes(E * 2 * I * H)),
                     "w1_scale_inv": ("F32", [E, 2 * I], bytes(8 * I * E)),
                     "w2_q": ("F8_E4M3", [E, H, I], bytes(E * H * I)),
                     "w2_scale_inv": ("F32", [E, H], bytes(4 * H * E))}
        tensors = {**token_tensors(1), **quantized, "dy": ("BF16", [1, H], bytes(2 * H))}
        path = self.write("in.safetensors", safetensors(tensors))
        layer = self.write("rowwise.json", json.dumps({**json.loads(TINY.read_text()), "recipe": "fp8_rowwise"}))
        done = self.run_tool("run", layer, "--target", "sim", "--input", path, "--pass", "backward")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the weights are quantized already, wanted bf16 for a backward pass of this recipe", done.stderr)

    def test_no_tokens_are_a_valid_input(self):
        report, out = self.run_file({**token_tensors(0), **weight_tensors()})
        self.assertEqual((report["tokens"], report["rows"]), (0, 0))
        self.assertEqual(out["y"], ("BF16", [0, H], b""))

    def test_bad_expert_ids_are_told_and_not_routed(self):
        tensors = {**token_tensors(2, [0, 8, -2, 3]), **weight_tensors()}
        report, out = self.run_file(tensors)
        self.assertTrue(report["status"]["bad_expert_id"])
        self.assertEqual([v < 0 for v in struct.unpack("<4i", out["row_map"][2])],
                         [False, True, True, False])
        strict = self.run_tool("run", TINY, "--target", "sim", "--input", "in.safetensors", "--strict", "--output", "s")
        self.assertEqual(strict.returncode, 6)
        self.assertIn("topk_ids", strict.stderr)
        self.assertEqual(read_safetensors(self.folder / "s")["y"], out["y"])

    def test_routing_as_frameworks_have_it(self):
        for changes in ({}, {"max_tokens": 16, "splits_alignment": 1}):  # then the first GEMM reads ids, too
            with self.subTest(changes):
                self.check_routing_as_frameworks_have_it(changes)

    def check_routing_as_frameworks_have_it(self, changes):
        layer = json.loads(pathlib.Path(TINY).read_text())
        layer.update(topk_ids_dtype="i64", topk_probs_dtype="bf16", foreign_experts="ignore", **changes)
        path = self.write("routed.json", json.dumps(layer).encode())
        ids = [0, E, 7, 1 << 40, -1, 3]
        tensors = {**token_tensors(3), **weight_tensors(),
                   "topk_ids": ("I64", [3, K], struct.pack("<6q", *ids)),
                   "topk_probs": ("BF16", [3, K], bf16([0.5] * 6))}
        arguments = ["run", path, "--target", "sim", "--check", "--strict", "--dump-intermediates",
                     "--output", "out.safetensors", "--input",
                     self.write("in.safetensors", safetensors(tensors))]
        report = self.succeed_json(*arguments)
        self.assertEqual((report["status"]["word"], report["check"]["passed"]), (0, True))
        out = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual([v < 0 for v in struct.unpack("<6i", out["row_map"][2])],
                         [False, True, False, True, True, False])
        self.assertEqual(out["permuted_probs"][0], "F32")
        tensors["topk_ids"] = ("I64", [3, K], struct.pack("<6q", *ids[:5], -(1 << 32)))
        self.write("in.safetensors", safetensors(tensors))
        strict = self.run_tool(*arguments)
        self.assertEqual(strict.returncode, 6)
        self.assertIn("topk_ids", strict.stderr)

    def test_a_seed_gives_the_same_file(self):
        for name in ("a", "b"):
            self.run_tiny("--seed", "7", "--tokens", "9", "--output", name)
        self.run_tiny("--seed", "8", "--tokens", "9", "--output", "c")
        first, second, other = ((self.folder / name).read_bytes() for name in "abc")
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)

    def test_a_failed_write_leaves_nothing(self):
        run = [tool.moejit, "run", TINY, "--target", "sim", "--tokens", "1", "--dump-intermediates", "--output", "y"]
        self.run_tiny(*run[5:])  # makes the kernels
        self.assertEqual(os.listdir(self.folder), ["y"])
        self.write("y", "old")
        # Bytes of a file: w1_q alone has more, and no kernel.
        limits = (500000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        done = subprocess.run(run, cwd=self.folder, env={**os.environ, "MOEJIT_CACHE_DIR": str(self.cache)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("cannot write y: File too large", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["y"])
        self.assertEqual((self.folder / "y").read_text(), "old")


class Calls(tool.ToolTest):
    """`moejit run --call`: a call of the plan, and those that it needs."""

    keeps_kernels = True

    def run_call(self, layer, *options):
        """The report, and what was written."""
        report = self.succeed_json("run", layer, "--target", "sim", "--tokens", "5", "--check", "--output", "out",
                                   *options)
        self.assertTrue(report["check"]["passed"])
        return report, read_safetensors(self.folder / "out")

    def test_halves_and_dispatch_calls_make_what_a_whole_pass_makes(self):
        layer = self.layer(passes=["forward", "backward"], backward_halves=True, dispatch_calls=True, dispatch="fp8")
        whole, made = self.run_call(layer, "--pass", "backward")
        self.assertNotIn("calls", whole)
        first = ["update_weights", "forward"]
        for needed, call in ((["backward_data"], "backward_weights"), (["backward_data"], "backward_weights+add"),
                             (["quantize_grad"], "experts_grad"), ([], "backward+add")):
            report, written = self.run_call(layer, "--call", call)
            self.assertEqual(report["calls"], [*first, *needed, call])
            self.assertEqual({name: written[name] for name in made}, made, call)
        for call in ("forward", "update_weights+forward"):
            written = self.run_call(layer, "--call", call)[1]
            self.assertEqual(written["y"], made["y"], call)
        report, written = self.run_call(layer, "--call", "backward_data")
        self.assertEqual(set(written), {"y", "dx", "dprobs", "dy_q", "dy_scale_inv"})
        self.assertFalse([kernel for kernel in report["kernels"] if "wgrad" in kernel["operation"]])
        report, written = self.run_call(layer, "--call", "experts")
        self.assertEqual((report["calls"], written),
                         (["update_weights", "quantize", "experts"], {"y": made["y"]}))

    def test_a_call_writes_what_it_alone_makes(self):
        layer = self.layer(passes=["forward", "backward"], dispatch_calls=True, dispatch="fp8")
        self.assertEqual(set(self.run_call(layer, "--call", "quantize")[1]), {"x_q", "x_scale_inv"})
        weights = {f"{w}_{end}" for w in ("w1", "w2") for end in ("q", "scale_inv", "colwise_q", "colwise_scale_inv")}
        report, written = self.run_call(layer, "--call", "update_weights")
        self.assertEqual((report["calls"], set(written)), (["update_weights"], weights))
        report, dumped = self.run_call(layer, "--call", "experts", "--dump-intermediates")
        self.assertLessEqual({"x_q", "w1_q", "h1", "y"}, set(dumped))
        self.assertFalse({"dx", "dw1", "dact"} & set(dumped))  # of calls that were not made

    def test_a_file_needs_dy_for_calls_that_take_it(self):
        path = self.write("in.safetensors", safetensors({**token_tensors(5), **weight_tensors()}))
        layer = self.layer(passes=["forward", "backward"])
        arguments = ["run", layer, "--target", "sim", "--input", path, "--call"]
        self.succeed(*arguments, "forward")
        refused = self.run_tool(*arguments, "backward")
        self.assertEqual(refused.returncode, 3)
        self.assertRegex(refused.stderr, r'"dy" is missing.*\nhint: .* choose a call before the backward pass\n')

    def test_the_scales_of_the_next_step_come_after_a_pass(self):
        # Its kernels are compiled for tests/gpu/recipe_rows_test.cpp.
        layer = self.layer(name="delayed", recipe="fp8_delayed", experts=4, local_experts=None, top_k=2, hidden=272,
                           intermediate=144, splits_alignment=64, max_tokens=40, max_permuted_rows=None,
                           passes=["forward", "backward"])
        report, written = self.run_call(layer, "--call", "update_forward_scales")
        self.assertEqual(report["calls"], ["update_weights", "forward", "update_forward_scales"])
        _, whole = self.run_call(layer, "--pass", "forward")
        for name in ("y", "fc1_scale", "fc2_amax_history"):
            self.assertEqual(written[name], whole[name])
        self.assertNotEqual(written["fc1_scale"], self.run_call(layer, "--call", "forward")[1]["fc1_scale"])

    def test_a_call_without_kernels_is_told(self):
        done = self.succeed("run", TINY, "--target", "sim", "--call", "update_forward_scales")
        self.assertIn("moejit: warning: the call update_forward_scales of the layer tiny has no kernels", done.stderr)
        self.assertIn("\n\ncalls: update_forward_scales\n\n", done.stdout)


if __name__ == "__main__":
    tool.main()
