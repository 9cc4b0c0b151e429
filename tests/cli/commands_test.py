# SPDX-License-Identifier: Apache-2.0
"""What each command of the tool does, seen from outside; `run` has a file of its own."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import tool
from tool import ROOT, TINY

VERBS = ("layer", "activation", "plan", "emit", "build", "run", "bench", "inspect", "cache", "pack",
         "env")


def read_terminal(terminal):
    """Returns all that was written to a terminal whose other end is closed, and closes it."""
    shown = b""
    try:
        while part := os.read(terminal, 4096):  # a read may give a part of what is there
            shown += part
    except OSError:
        pass  # which is how Linux says that nothing more comes
    os.close(terminal)
    return shown.decode()


class Descriptions(tool.ToolTest):
    def test_every_command_has_help_with_examples(self):
        self.assertIn("build", self.succeed("--help").stdout)
        for verb in VERBS:
            self.assertIn(f"moejit {verb}", self.succeed(verb, "--help").stdout)
        self.assertRegex(self.succeed("--version").stdout, r"^moejit \d+\.\d+\.\d+\n$")

    def test_help_and_version_are_commands_too(self):
        self.assertEqual(self.succeed("help").stdout, self.succeed("--help").stdout)
        self.assertEqual(self.succeed("help", "plan").stdout, self.succeed("plan", "--help").stdout)
        self.assertEqual(self.succeed("help", "cache", "show").stdout,
                         self.succeed("cache", "show", "--help").stdout)
        version = self.succeed("--version").stdout
        self.assertEqual((self.succeed("version").stdout, self.succeed("-V").stdout), (version, version))

    def test_layers_come_from_standard_input_too(self):
        self.stdin = TINY.read_text()
        for command in (["plan"], ["emit", "--operation", "route_quantize_permute_pad"], ["layer"], ["cache", "why", "--target", "sim"],
                        ["build", "--target", "sim", "--with-intermediates"], ["inspect", "--target", "sim"]):
            self.assertIn("route" if command != ["layer"] else "tiny", self.succeed(*command, "-").stdout)
        self.assertIn("unpermute", self.succeed("run", "-", "--target", "sim", "--tokens", "2").stdout)
        self.stdin = "{"
        self.assertIn("standard input:1:2:", self.run_tool("plan", "-").stderr)

    def test_plan_emit_and_inspect_take_many_layers(self):
        other = self.layer(name="other", intermediate=256)
        plans = self.succeed_json("plan", TINY, other)["plans"]
        self.assertEqual([plan["layer"]["name"] for plan in plans], ["tiny", "other"])
        self.assertEqual(self.succeed_json("plan", TINY), plans[0])
        text = self.succeed("plan", TINY, other).stdout
        self.assertEqual(text, "\n".join(self.succeed("plan", layer).stdout for layer in (TINY, other)))
        self.succeed("emit", TINY, other, "--output-dir", "sources")
        for name in ("tiny", "other"):
            self.assertTrue((self.folder / "sources" / name / "gemm_fc1_activation_quantize.cu").is_file(), name)
        twice = self.run_tool("emit", TINY, TINY, "--output-dir", "twice")
        self.assertEqual(twice.returncode, 2)
        self.assertIn('both describe a layer "tiny"', twice.stderr)
        self.assertFalse((self.folder / "twice").exists())
        kernels = self.succeed_json("inspect", TINY, other, "--target", "sim")["kernels"]
        self.assertEqual({kernel["layer"] for kernel in kernels}, {"tiny", "other"})
        table = self.succeed("inspect", TINY, other, "--target", "sim").stdout.splitlines()
        self.assertTrue(table[0].startswith("layer  kernel"))

    def test_plans_of_the_passes_that_are_asked_for(self):
        both = self.layer(passes=["forward", "backward"])
        self.assertEqual(self.succeed("plan", TINY, "--pass", "training").stdout, self.succeed("plan", both).stdout)
        self.assertEqual(self.succeed("plan", both, "--pass", "forward").stdout, self.succeed("plan", TINY).stdout)
        self.assertEqual(self.succeed("emit", TINY, "--pass", "training", "--operation", "gemm_fc1_dgrad").stdout,
                         self.succeed("emit", both, "--operation", "gemm_fc1_dgrad").stdout)
        group = ROOT / "docs/examples/layers/tiny-ep2.json"
        self.assertIn("gemm_fc1_dgrad", self.succeed("plan", group, "--pass", "training").stdout)
        wanted = self.succeed_json("cache", "why", TINY, "--target", "sim", "--pass", "training")["kernels"]
        self.assertIn("gemm_fc1_dgrad", [kernel["operation"] for kernel in wanted])

    def test_passes_decide_how_experts_are_padded(self):
        fields = {"experts": 8, "top_k": 2, "hidden": 64, "intermediate": 64, "max_tokens": 64, "recipe": "mxfp8"}
        both = self.write("both.json", {**fields, "passes": ["forward", "backward"]})
        for layer in (self.write("forward.json", fields), both):
            for passes, wanted in (("forward", (1, 128)), ("training", (32, 352))):
                planned = self.succeed_json("plan", layer, "--pass", passes)["layer"]
                self.assertEqual((planned["splits_alignment"], planned["max_permuted_rows"]), wanted)
        given = self.write("given.json", {**fields, "splits_alignment": 16})
        self.assertIn("multiples of 32", self.run_tool("plan", given, "--pass", "training").stderr)

    def on_terminal(self, columns, *arguments):
        """What a terminal of so many columns shows of `moejit ARGUMENTS`."""
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        done = subprocess.Popen([tool.moejit, *map(str, arguments)], stdout=end, stderr=subprocess.DEVNULL)
        os.close(end)
        shown = b""
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(terminal)
        self.assertEqual(done.wait(), 0)
        return shown.decode().replace("\r\n", "\n")

    def test_tables_and_help_keep_to_the_width_of_the_terminal(self):
        layer = self.layer(passes=["forward", "backward"])
        for arguments in (["plan", layer], ["build", "--help"], ["help", "run"]):
            wide = self.succeed(*arguments).stdout
            shown = self.on_terminal(100, *arguments).split("Examples:")[0]
            self.assertLessEqual(max(map(len, shown.splitlines())), 100, shown)
            self.assertGreater(max(map(len, wide.split("Examples:")[0].splitlines())), 100, "needs no shortening")
        self.assertEqual(self.on_terminal(400, "plan", layer), self.succeed("plan", layer).stdout)
        starts = {line.index(" CTA x ") > 0 and line.split(" CTA x ")[0].rfind("  ")
                  for line in self.succeed("plan", layer).stdout.splitlines() if " CTA x " in line}
        self.assertEqual(len(starts), 1, "columns do not stand below each other")

    def test_layer_prints_a_description_that_it_reads_back_to_itself(self):
        first = self.succeed("layer", TINY).stdout
        again = self.succeed("layer", self.write("again.json", first)).stdout
        self.assertEqual(first, again)

    def test_layers_of_published_figures_are_those_that_were_measured(self):
        layers = ROOT / "docs/performance/layers"
        unseen = {path.name for path in layers.glob("*.json")}
        for path in (ROOT / "docs/performance").glob("*.json"):
            result = json.loads(path.read_text())
            name = re.search(r"moejit bench (\S+\.json)|$", result["command_line"])[1]
            if name is None or not (layers / name).exists():
                continue
            unseen.discard(name)
            plan = self.succeed_json("plan", layers / name, "--target", "cuda")["layer"]
            # Backward was asked for on the command line; fields that came later have their defaults.
            of_pass = {"passes", "gradients"}
            measured = {field: value for field, value in result["description"].items() if field not in of_pass}
            self.assertEqual({field: plan[field] for field in measured}, measured, path.name)
        self.assertEqual(unseen, set())

    def test_layer_comes_from_a_published_configuration(self):
        config = self.write("config.json", {
            "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu"})
        done = self.succeed("layer", "--from-hf", config, "--ep", "2", "--output", "layer.json")
        layer = json.loads((self.folder / "layer.json").read_text())
        self.assertEqual((layer["experts"], layer["local_experts"], layer["top_k"]), (8, 4, 2))
        self.assertTrue({"splits_alignment", "max_permuted_rows"}.isdisjoint(layer))
        self.assertIn("num_experts_per_tok", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_layer_with_the_router_of_a_model(self):
        config = self.write("config.json", {
            "model_type": "deepseek_v3", "hidden_size": 256, "moe_intermediate_size": 128, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "hidden_act": "silu", "n_group": 4, "topk_group": 2})
        layer = json.loads(self.succeed("layer", "--from-hf", config, "--router", "--ep", "2").stdout)
        self.assertEqual(layer["router"], {"score": "sigmoid", "bias": True, "groups": 4, "groups_kept": 2,
                                           "normalize": "sum", "epsilon": 1e-20, "scale": 2.5})
        self.assertEqual(layer["foreign_experts"], "ignore")
        done = self.succeed("layer", "--from-hf", config)
        self.assertNotIn("router", json.loads(done.stdout))
        self.assertIn('by "router": {"score": "sigmoid", "bias": true, "groups": 4,', done.stderr)

    def test_layer_with_the_shared_experts_of_a_model(self):
        config = self.write("config.json", {
            "model_type": "qwen3_next", "hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 8,
            "num_experts_per_tok": 2, "hidden_act": "silu", "shared_expert_intermediate_size": 256})
        layer = json.loads(self.succeed("layer", "--from-hf", config, "--shared", "--router").stdout)
        self.assertEqual(layer["shared"], {"experts": 2, "gate": True})
        self.assertIn("router", layer)
        done = self.succeed("layer", "--from-hf", config)
        self.assertNotIn("shared", json.loads(done.stdout))
        self.assertIn('shared: such experts run in the layer by "shared": {"experts": 2, "gate": true}', done.stderr)

    def test_layer_comes_from_the_folder_of_a_model(self):
        self.write("config.json", {
            "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu"})
        done = self.succeed("layer", "--from-hf", self.folder)
        self.assertEqual(json.loads(done.stdout)["hidden"], 4096)

    def test_layers_for_torch_are_those_of_its_calls(self):
        config = self.write("config.json", {
            "model_type": "gpt_oss", "hidden_size": 128, "intermediate_size": 64, "num_local_experts": 8,
            "num_experts_per_tok": 2, "hidden_act": "silu", "swiglu_limit": 7.0})
        self.succeed("layer", "--from-hf", config, "--for", "torch", "--max-tokens", "17", "--recipe", "mxfp8",
                     "--ep", "4", "--output", "layers.json")
        layers = json.loads((self.folder / "layers.json").read_text())
        self.assertEqual({layer["max_tokens"] for layer in layers}, {16, 32})
        for name, wanted in (("recipe", "mxfp8"), ("experts", 2), ("local_experts", 2),
                             ("dispatch", "none"), ("topk_ids_dtype", "i64")):
            self.assertEqual({layer[name] for layer in layers}, {wanted}, name)
        self.assertEqual({(len(layer["passes"]), layer["splits_alignment"]) for layer in layers}, {(1, 1), (2, 32)})
        self.assertEqual({layer["foreign_experts"] for layer in layers}, {"report", "ignore"})
        calls = {(layer["topk_probs_dtype"], layer["wgrad_dtype"], tuple(layer.get("gradients", ())),
                  layer.get("weight_checks", False)) for layer in layers}
        self.assertEqual(len(calls), len(layers) / 4, "both sizes have the same calls, for both kinds of ids, each once")
        for call in (("f32", "f32", ()), ("bf16", "bf16", ("dx", "dprobs", "dw1", "dw2", "db1", "db2")),
                     ("bf16", "f32", ("dx", "dprobs")), ("f32", "bf16", ("dw2",))):
            self.assertLess({(*call, False), (*call, True)}, calls)

    def test_build_takes_a_list(self):
        layer = json.loads(TINY.read_text())
        operation = {"operation": "quantize", "max_tokens": 64, "columns": 256}
        one = self.succeed_json("build", TINY, "--target", "sim")
        listed = self.write("layers.json", [layer, {**layer, "name": "again"}, operation])
        both = self.succeed_json("build", listed, "--target", "sim")
        entries = [{kernel["entry"] for kernel in report["kernels"]} for report in (one, both)]
        self.assertEqual(len(entries[1] - entries[0]), 1, "the operation's")
        self.assertLess(entries[0], entries[1])

    def test_plan_is_a_table_or_json(self):
        self.assertIn("gemm_fc1", self.succeed("plan", TINY).stdout)
        self.assertGreater(len(self.succeed("plan", TINY, "--explain").stdout),
                           len(self.succeed("plan", TINY).stdout))
        plan = self.succeed_json("plan", TINY, "--target", "sim")
        self.assertIn("unpermute", [kernel["operation"] for kernel in plan["kernels"]])

    def test_plan_of_a_group_tells_memory_and_wire(self):
        group = TINY.parent / "tiny-ep2.json"
        self.assertIn("group memory of a rank", self.succeed("plan", group).stdout)
        plan = self.succeed_json("plan", group)
        self.assertEqual(plan["group"]["ranks"], 2)
        last = plan["group"]["memory"][-1]
        self.assertEqual(plan["group"]["memory_bytes"], -(-(last["offset"] + last["bytes"]) // 256) * 256)
        self.assertEqual(len(self.succeed_json("plan", group, TINY)["plans"]), 2)

    def test_every_example_can_be_planned(self):
        for layer in sorted((ROOT / "docs/examples/layers").glob("*.json")):
            self.succeed("plan", layer)

    def test_operations_are_planned_emitted_and_built(self):
        operations = sorted((ROOT / "docs/examples/operations").glob("*.json"))
        plans = self.succeed_json("plan", *operations)["plans"]
        self.assertEqual([plan["operation"]["operation"] for plan in plans], [path.stem for path in operations])
        route, gemm = (ROOT / f"docs/examples/operations/{name}.json" for name in ("route", "grouped_gemm"))
        self.assertIn("operation route for cuda:sm_90a", self.succeed("plan", route, "--explain").stdout)
        self.assertIn("moejit_route_", self.succeed("emit", route).stdout)
        self.succeed("emit", route, gemm, TINY, "--output-dir", "sources")
        self.assertTrue((self.folder / "sources/grouped_gemm/grouped_gemm.cu").is_file())
        self.assertTrue((self.folder / "sources/tiny/unpermute.cu").is_file())
        built = self.succeed_json("build", route, "--target", "sim", "--variants", "all", "--cache-dir", "kernels")
        self.assertEqual(built["compiled"], 1)
        refused = self.run_tool("layer", route)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("describes an operation", refused.stderr)
        wrong = self.write("wrong.json", {"operation": "route", "max_tokens": 4, "local_experts": 2, "top_k": 0})
        self.assertIn("$.top_k", self.run_tool("plan", wrong).stderr)

    def test_emit_writes_one_file_per_kernel(self):
        self.succeed("emit", TINY, "--output-dir", "sources")
        names = sorted(os.listdir(self.folder / "sources"))
        self.assertIn("gemm_fc1_activation_quantize.cu", names)
        for name in names:
            for line in (self.folder / "sources" / name).read_text().splitlines():
                if line.startswith("#include"):
                    self.assertIn('"moejit_device/', line)
        text = self.succeed("emit", TINY, "--operation", "unpermute").stdout
        self.assertEqual(text, (self.folder / "sources/unpermute.cu").read_text())

    def test_env_tells_what_is_there_and_what_is_not(self):
        found = self.succeed_json("env", MOEJIT_NVRTC="/nonexistent")
        self.assertFalse(found["compiler of cuda"]["found"])
        self.assertEqual(found["variables"]["MOEJIT_NVRTC"], "/nonexistent")
        self.assertIn("MOEJIT_CACHE_DIR", self.succeed("env").stdout)
        self.assertEqual(found["executable"]["text"], os.path.realpath(tool.moejit))
        self.assertIn("65536 files", found["cache limits"]["text"])
        self.assertTrue(any("libstdc++" in path or "libc." in path for path in found["libraries"]))
        wrong = self.succeed_json("env", MOEJIT_CACHE_MAX_FILES="few")["cache limits"]
        self.assertFalse(wrong["found"])
        self.assertIn("MOEJIT_CACHE_MAX_FILES", wrong["text"])

    def test_a_reader_that_goes_away_is_no_error(self):
        reader = subprocess.run(f"'{tool.moejit}' plan '{TINY}' --json | true; "
                                f"'{tool.moejit}' plan '{TINY}' > /dev/null",
                                shell=True, stderr=subprocess.PIPE, check=True)
        self.assertEqual(reader.stderr, b"")


class Kernels(tool.ToolTest):
    """Compiles for the GPU where there is NVRTC."""

    def setUp(self):
        super().setUp()
        if not self.succeed_json("env")["compiler of cuda"]["found"]:
            self.skipTest("there is no NVRTC on this machine")

    def expect_times_slowest_first(self, kernels):
        times = [kernel["compile_seconds"] for kernel in kernels]
        self.assertGreater(min(times), 0)
        self.assertEqual(times, sorted(times, reverse=True))
        for kernel in kernels:
            phases = [kernel[f"{phase}_seconds"] for phase in ("front_end", "optimizer", "assembler")]
            self.assertGreater(sum(phases), 0)
            self.assertLess(sum(phases), kernel["compile_seconds"] + 0.01)  # they are rounded
            self.assertLess(kernel["cpu_seconds"], kernel["compile_seconds"] + 0.01)

    def test_what_a_build_says_in_a_log(self):
        self.cache = self.folder / "cache"
        other = self.layer(name="other")
        done = self.succeed("build", TINY, other, "--quiet")
        self.assertEqual(done.stderr, "")
        table = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([row[:5] for row in table[1:3]], [[name, "6", "6", "0", "0"] for name in ("tiny", "other")])
        self.assertEqual(done.stdout.splitlines()[-1], "compiled: 6, from cache: 0")
        # Without --quiet each row says for which layer the kernel is.
        rows = self.succeed("build", TINY, other).stdout.splitlines()
        self.assertTrue(rows[0].startswith("layer  kernel"))
        self.assertTrue(all(row.startswith("tiny ") and "  from cache  " in row for row in rows[1:7]), rows)
        kernels = self.succeed_json("build", TINY, other)["kernels"]
        self.assertEqual({tuple(kernel["layers"]) for kernel in kernels}, {("tiny", "other")})
        # Each kernel was missed once, and hit once by each later build.
        stats = self.succeed_json("cache", "stats")["counted"]
        self.assertEqual((stats["misses"], stats["published"], stats["hits"]), (6, 6, 12))

    def test_build_fills_a_cache_that_inspect_and_cache_read(self):
        first = self.succeed_json("build", TINY, "--jobs", "2")
        kernels = len(first["kernels"])
        self.assertEqual((first["compiled"], first["from_cache"]), (kernels, 0))
        self.assertFalse(any(kernel["from_cache"] for kernel in first["kernels"]))
        self.expect_times_slowest_first(first["kernels"])
        second = self.succeed_json("build", TINY)
        self.assertEqual((second["compiled"], second["from_cache"]), (0, kernels))
        self.assertTrue(all(kernel["from_cache"] for kernel in second["kernels"]))
        self.assertFalse(any("compile_seconds" in kernel for kernel in second["kernels"]))
        self.assertIn("from cache", self.succeed("build", TINY).stdout)
        frozen = self.succeed_json("build", TINY, "--frozen")
        self.assertEqual(frozen["compiled"], 0)

        usage = self.succeed_json("inspect", TINY)["kernels"]
        self.assertTrue(all(kernel["registers"] > 0 for kernel in usage))
        listing = self.succeed_json("cache", "ls")
        self.assertEqual(len(listing["entries"]), kernels)
        self.succeed("cache", "verify")
        entry = self.succeed_json("inspect", listing["entries"][0]["path"])["kernels"]
        self.assertEqual(entry[0]["entry"], listing["entries"][0]["entry"])

    def test_inspect_counts_instructions_where_there_is_a_disassembler(self):
        if not self.succeed_json("env")["disassembler"]["found"]:
            self.skipTest("there is no disassembler on this machine")
        for kernel in self.succeed_json("inspect", TINY)["kernels"]:
            counts = kernel["instructions"]
            spills = kernel["spill_store_bytes"] + kernel["spill_load_bytes"]
            self.assertGreater(counts["total"], 40)
            self.assertEqual(counts["LDL"] + counts["STL"] > 0, spills > 0, kernel["operation"])
            multiplies = counts["HMMA"] + counts["QGMMA"] > 0
            self.assertEqual(multiplies, kernel["operation"].startswith("gemm"))
        self.assertIn("EXIT ;", self.succeed("inspect", TINY, "--sass").stdout)

    def test_inspect_runs_the_disassembler_that_a_variable_names(self):
        # Stands in for nvdisasm: what the tool does with an output is tested on any machine.
        stand_in = self.write("nvdisasm", "#!/bin/sh\n[ \"$1\" = -c ] && [ -s \"$2\" ] || exit 9\n"
                              "entry=$(grep -ao 'moejit_[a-z0-9_]*' \"$2\" | head -n 1)\n"
                              "echo \"//--------------------- .text.$entry     -----------\"\n"
                              "echo '        /*0000*/    QGMMA.64x8x32 R24, gdesc[UR8] ;'\n"
                              "echo '        /*0010*/    @!P0 UTMALDG.2D [UR4], [UR8] ;'\n")
        stand_in.chmod(0o755)
        report = self.succeed_json("inspect", TINY, "--sass", MOEJIT_DISASSEMBLER=str(stand_in))
        for kernel in report["kernels"]:
            counts = kernel["instructions"]
            self.assertEqual((counts["QGMMA"], counts["UTMALDG"], counts["LDL"], counts["total"]),
                             (1, 1, 0, 2))
            self.assertIn("UTMALDG.2D", kernel["sass"])
        text = self.succeed("inspect", TINY, "--sass", MOEJIT_DISASSEMBLER=str(stand_in)).stdout
        self.assertEqual(text.count("UTMALDG.2D"), len(report["kernels"]))
        self.assertIn("// gemm_fc1_activation_quantize: moejit_gemm_fc1", text)

    def test_inspect_does_without_a_disassembler(self):
        done = self.succeed("inspect", TINY, "--json", MOEJIT_DISASSEMBLER="/nonexistent")
        self.assertIn("/nonexistent", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for kernel in json.loads(done.stdout)["kernels"]:
            self.assertNotIn("instructions", kernel)
        self.succeed("inspect", TINY, "--sass", MOEJIT_DISASSEMBLER="/nonexistent")
        if not self.succeed_json("env")["disassembler"]["found"]:
            self.assertIn("pip install --target FOLDER nvidia-cuda-nvdisasm", self.succeed("inspect", TINY).stderr)

    def test_progress_is_a_bar_on_a_terminal(self):
        self.succeed("build", TINY)
        self.assertEqual(self.succeed("build", TINY).stderr, "")  # nothing to wait for
        terminal, end = pty.openpty()
        subprocess.run([tool.moejit, "build", TINY, "--cache-dir", str(self.cache)], check=True,
                       stdout=subprocess.DEVNULL, stderr=end)
        os.close(end)
        shown = read_terminal(terminal)
        self.assertIn("6/6", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"), "the bar is not wiped away")


if __name__ == "__main__":
    tool.main()
