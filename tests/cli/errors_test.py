# SPDX-License-Identifier: Apache-2.0
"""Wrong input through the command line: the documented exit status, exactly one sentence that names
the place, no stack trace, nothing printed as a result and no file left behind."""
import json
import os
import struct

import tool
from refusal import DEVICE, E, FILE, H, I, K, T, TOOLCHAIN, USAGE, Refusal
from tool import GEMMS, ROOT, TINY, safetensors, tensor, with_header


class CommandLineErrors(Refusal):
    def test_words_that_do_not_exist(self):
        self.refuse(["help", "plam"], USAGE, "plam", "did you mean plan")
        self.refuse(["help", "cache", "lss"], USAGE, "lss", "did you mean ls")
        self.refuse(["plam"], USAGE, "plam", "did you mean plan")
        self.refuse(["plan", TINY, "--explian"], USAGE, "--explian", "did you mean --explain")
        self.refuse(["bench", TINY, "more"], USAGE, '"more"')
        self.refuse(["cache", "lss"], USAGE, "lss", "did you mean ls")
        self.refuse(["emit", TINY, "--operation", "gem_fc2"], USAGE, "gem_fc2", "gemm_fc2")

    def test_no_command_lists_those_that_there_are(self):
        for arguments, commands in (([], ("plan", "bench", "help", "version")), (["cache"], ("ls", "verify")),
                                    (["pack"], ("merge", "sign"))):
            done = self.run_tool(*arguments)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertRegex(done.stderr, r"^moejit: moejit.* wants a command\nhint: ")
            for command in commands:
                self.assertRegex(done.stderr, rf"\n  {command}  +[A-Z]")
            self.assertNotIn("compile-worker", done.stderr)

    def test_missing_and_contradicting_arguments(self):
        self.refuse(["plan"], USAGE, "LAYER")
        self.refuse(["build"], USAGE, "LAYER")
        self.refuse(["layer"], USAGE, "--from-hf")
        self.refuse(["layer", TINY, "--from-hf", TINY], USAGE, "--from-hf")
        self.refuse(["run", TINY, "--prefix", "model"], USAGE, "--weights")
        self.refuse(["run", TINY, "--dump-intermediates"], USAGE, "--output")
        self.refuse(["run", TINY, "--tokens", "4", "--input", "in"], USAGE, "--input")
        self.refuse(["plan", TINY, "--target"], USAGE, "--target")

    def test_lists_of_descriptions(self):
        layer = json.loads(TINY.read_text())
        wrong = self.write("wrong.json", [layer, {**layer, "hidden": 250}])
        self.refuse(["build", wrong, "--target", "sim"], USAGE, "wrong.json[1]:1: $.hidden: got 250")
        self.refuse(["build", self.write("empty.json", [])], USAGE, "empty.json:1: $: got an array")
        self.refuse(["build", self.write("deep.json", "[" * 100000)], USAGE, "deep.json:1:")
        self.refuse(["build", self.write("numbers.json", [1])], USAGE, "numbers.json[0]:1: $: got 1")
        self.refuse(["plan", self.write("layers.json", [layer])], USAGE, "got an array", "build alone takes a list")

    def test_calls(self):
        def refuse(arguments, *words):
            self.refuse(["run", *arguments], USAGE, *words)

        refuse([TINY, "--call", "backwards"], "the layer tiny has no call backwards, wanted one of update_weights, "
               "update_forward_scales, forward, update_weights+forward\n")
        refuse([TINY, "--call", "backward"], "the layer tiny has no backward pass", "\nhint: add \"backward\"")
        refuse([TINY, "--call", "quantize"], "no calls before and after a dispatch", "\nhint: add \"dispatch_calls\"")
        refuse([TINY, "--call", "forward", "--pass", "backward"], "--call", "--pass")
        refuse([TINY, "--call", ""], "--call", "the name is empty")
        refuse([TINY.parent / "tiny-ep2.json", "--ranks", "2", "--call", "backward_data"], "has no halves")
        operation = TINY.parents[1] / "operations/quantize.json"
        refuse([operation, "--call", "forward"], "the operation quantize has no call forward, wanted one of run\n")

    def test_groups(self):
        group = TINY.parent / "tiny-ep2.json"
        self.refuse(["run", TINY, "--ranks", "2"], USAGE, "--ranks is 2", "expert_parallel")
        self.refuse(["run", group, "--ranks", "4"], USAGE, "--ranks is 4", "wanted the 2 ranks")
        self.refuse(["run", group, "--ranks", "9"], USAGE, "--ranks")
        self.refuse(["run", group, "--ranks", "2", "--target", "sim", "--input", "absent"], FILE, "absent")
        for tensors, words in (({"y": tensor("BF16", [1])}, ['neither tensor "rank0.x" nor "x"', "rank1.x"]),
                               ({"rank0.x": tensor("BF16", [2, 9])}, ['"rank0.x" is BF16 [2, 9]', "wanted BF16 [2, 256]"]),
                               ({"rank0.x": tensor("BF16", [65, 256])}, ['"rank0.x" has 65 tokens']),
                               ({"x": tensor("BF16", [129, 256])}, ['"x" has 129 tokens', "max_tokens is 128"])):
            path = self.write("in.safetensors", safetensors(tensors))
            self.refuse(["run", group, "--ranks", "2", "--target", "sim", "--input", path], FILE, *words)
        delayed = self.layer(name="delayed", recipe="fp8_delayed", dispatch="none", local_experts=None,
                             max_permuted_rows=None, expert_parallel={"ranks": 2})
        path = self.write("in.safetensors", safetensors({"x": tensor("BF16", [2, 256]),
                                                         "fc1_scale": tensor("F32", [1])}))
        self.refuse(["run", delayed, "--ranks", "2", "--target", "sim", "--input", path], FILE,
                    '"fc1_scale" for all ranks', "rank0.fc1_scale")
        self.refuse(["run", group, "--target", "sim"], USAGE, "expert_parallel with 2 ranks", "--ranks")
        self.refuse(["bench", group], USAGE, "expert_parallel with 2 ranks", "moejit run --ranks")
        self.refuse(["bench", TINY, "--ranks", "2"], USAGE, "--ranks is 2", "expert_parallel")
        self.refuse(["bench", group, "--ranks", "3"], USAGE, "--ranks is 3", "wanted the 2 ranks")
        self.refuse(["bench", group, "--ranks", "2", "--target", "sim"], USAGE, "GPU", "simulator")
        self.refuse(["bench", group, "--ranks", "2", "--report", "page.html"], USAGE, "--report is for one rank")

    def test_values_out_of_range(self):
        for verb in ("plan", "emit", "build", "run", "inspect"):
            self.refuse([verb, TINY, "--target", "cuda:sm_20"], USAGE, "cuda:sm_20", "sim")
        self.refuse(["run", TINY, "--target", "sim", "--tokens", "many"], USAGE, "many")
        self.refuse(["run", TINY, "--target", "sim", "--tokens", "65"], USAGE, "65", "0 to 64")
        self.refuse(["run", TINY, "--target", "sim", "--tokens", "-1"], USAGE, "-1")
        self.refuse(["run", TINY, "--target", "sim", "--seed", "-1"], USAGE, "--seed")
        self.refuse(["run", TINY, "--target", "sim", "--weights", "w", "--first-expert", "-1"],
                    USAGE, "--first-expert")
        self.refuse(["build", TINY, "--jobs", "-1"], USAGE, "--jobs")
        self.refuse(["bench", TINY, "--repeat", "0"], USAGE, "--repeat")
        for seconds in ("0", "-1", "nan", "61"):
            self.refuse(["bench", TINY, "--hot-seconds", seconds], USAGE, "--hot-seconds", seconds,
                        "0.001 to 60")
        self.refuse(["bench", TINY, "--tokens", "0"], USAGE, "--tokens")
        self.refuse(["bench", TINY, "--target", "sim"], USAGE, "GPU", "simulator")
        self.refuse(["bench"], USAGE, "layer description", "--gemms")
        self.refuse(["bench", TINY, "--gemms", GEMMS], USAGE, "layer description", "--gemms")
        self.refuse(["bench", TINY, "--case", "dsv3_fc1"], USAGE, "--case", "--gemms")
        self.refuse(["bench", "--gemms", GEMMS, "--tokens", "8"], USAGE, "--tokens", "--gemms")
        self.refuse(["bench", "--gemms", GEMMS, "--routing", "uniform"], USAGE, "--routing", "--gemms")
        self.refuse(["bench", TINY, "--routing", "even"], USAGE, "--routing", "even", "uniform")
        self.refuse(["run", TINY, "--routing", "uniform", "--input", "in.safetensors"], USAGE, "--routing", "--input")
        self.refuse(["bench", "--gemms", GEMMS, "--case", "dsv4"], USAGE, "dsv4", "dsv3_fc1")
        self.refuse(["bench", "--gemms", GEMMS, "--repeat", "0"], USAGE, "--repeat")
        self.refuse(["bench", "--gemms", GEMMS, "--target", "sim"], USAGE, "GPU", "simulator")
        self.refuse(["bench", "--gemms", TINY], USAGE, "$.name", "unknown key")


    def test_commands_that_want_a_gpu_say_what_to_do_without_one(self):
        none = {"MOEJIT_CUDA_DRIVER": "/nonexistent"}
        self.refuse(["bench", TINY], DEVICE, "/nonexistent", "bench has no other target", "moejit run", **none)
        self.refuse(["run", TINY, "--target", "cuda"], DEVICE, "hint: run it in the simulator: --target sim", **none)


class LayerErrors(Refusal):
    def test_text_that_is_no_layer(self):
        bad = self.write("bad.json", '{\n  "name": "x",\n  "experts": 8,,\n}')
        self.refuse(["plan", bad], USAGE, "bad.json:3:16:")
        for text in ("", "null", "[]", "{", "\0\1\2", '{"name": "x"} {}', "{" * 5, "[" * 5000):
            self.refuse(["plan", self.write("bad.json", text)], USAGE, "bad.json")
        self.refuse(["plan", self.write("bad.json", b'{"name": "\xff"}')], USAGE, "bad.json")
        self.refuse(["plan", self.write("bad.json", '{"top_k": 1, "top_k": 2}')], USAGE, "top_k")

    def test_fields(self):
        self.refuse(["plan", self.layer(hiden=256)], USAGE, "hiden", "hidden")
        self.refuse(["plan", self.layer(hidden=None)], USAGE, "hidden")
        self.refuse(["plan", self.layer(hidden="256")], USAGE, "hidden")
        self.refuse(["plan", self.layer(hidden=1.5)], USAGE, "hidden")
        self.refuse(["plan", self.layer(hidden=1 << 70)], USAGE, "hidden")
        self.refuse(["plan", self.layer(hidden=100)], USAGE, "hidden", "16")
        self.refuse(["plan", self.layer(experts=0)], USAGE, "experts")
        self.refuse(["plan", self.layer(local_experts=-1)], USAGE, "local_experts")
        self.refuse(["plan", self.layer(local_experts=9)], USAGE, "local_experts")
        self.refuse(["plan", self.layer(top_k=9)], USAGE, "top_k", "experts")
        self.refuse(["plan", self.layer(max_tokens=-1)], USAGE, "max_tokens")
        self.refuse(["plan", self.layer(recipe="fp8_flwo")], USAGE, "fp8_flow")
        self.refuse(["activation", "sigmod(gate)"], USAGE, "column 1", "sigmoid")
        self.refuse(["plan", self.layer(activation="swigul")], USAGE, "swiglu")

    def test_what_the_target_cannot_run(self):
        self.refuse(["plan", self.layer(recipe="nvfp4", biases=True)], USAGE, "recipe nvfp4 with biases", "biases false")
        self.refuse(["plan", self.layer(recipe="mxfp8", passes=["forward", "backward"],
                                        splits_alignment=16)], USAGE,
                    "splits_alignment \"16\"", "multiples of 32")

    def test_files(self):
        self.refuse(["plan", "absent.json"], FILE, "absent.json")
        self.refuse(["plan", self.folder], FILE, "folder")
        self.refuse(["build", TINY, "absent.json"], FILE, "absent.json")
        self.refuse(["layer", "--from-hf", "absent.json"], FILE, "absent.json")
        self.refuse(["inspect", "absent.cubin"], FILE, "absent.cubin")
        if os.geteuid() != 0:
            hidden = self.layer()
            hidden.chmod(0)
            self.refuse(["plan", hidden], FILE, "layer.json")

    def test_published_configurations(self):
        self.refuse(["layer", "--from-hf", self.write("c.json", "{}")], USAGE, "c.json")
        self.refuse(["layer", "--from-hf", self.write("c.json", {"model_type": "gpt2"})], USAGE,
                    "gpt2")
        self.refuse(["layer", "--from-hf", self.write("c.json", "{,}")], USAGE, "c.json:1:2:")
        self.refuse(["layer", "--from-hf", TINY, "--ep", "0"], USAGE)
        config = self.write("c.json", {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
                                       "hidden_size": 256, "intermediate_size": 128, "hidden_act": "silu"})
        self.refuse(["layer", "--from-hf", config, "--ep", "3"], USAGE, "--expert-parallel (--ep): got 3")
        self.refuse(["layer", "--from-hf", config, "--max-tokens", "0"], USAGE, "--max-tokens: got 0")
        self.refuse(["layer", TINY, "--router"], USAGE, "--from-hf")
        self.refuse(["layer", "--from-hf", config, "--router", "--for", "torch"], USAGE, "--for")
        self.refuse(["layer", TINY, "--shared"], USAGE, "--from-hf")
        self.refuse(["layer", "--from-hf", config, "--shared"], USAGE, "mixtral has no shared experts")
        config = self.write("c.json", {"model_type": "phimoe", "num_local_experts": 8, "num_experts_per_tok": 2,
                                       "hidden_size": 256, "intermediate_size": 128, "hidden_act": "silu"})
        self.refuse(["layer", "--from-hf", config, "--router"], USAGE, "whose router no formula expresses",
                    "choose experts by the model's own router")
        operation = ROOT / "docs/examples/operations/transpose.json"
        for command in ("plan", "emit", "inspect", "cache why"):
            self.refuse([*command.split(), operation, "--pass", "training"], USAGE,
                        "--pass is for layers, not for the operation transpose", "leave --pass out")

    def test_a_configuration_where_a_description_is_wanted_and_the_reverse(self):
        config = self.write("config.json", {"hidden_size": 64, "model_type": "mixtral"})
        for command in (["layer"], ["plan"], ["build", "--no-cache"], ["run", "--target", "sim"]):
            self.refuse([*command, config], USAGE, "moejit layer --from-hf", "config.json")
        self.refuse(["layer", "--from-hf", TINY], USAGE, "looks like a layer description already")
        self.refuse(["layer", "--from-hf", config, "--for", "jax"], USAGE, "--for", "torch")
        self.refuse(["layer", "--from-hf", config, "--recipe", "fp9"], USAGE, '--recipe is "fp9", wanted one of', "fp8_flow")
        self.refuse(["layer", TINY, "--for", "torch"], USAGE, "wants a model's configuration", "--from-hf config.json")
        model = tool.ROOT / "tests/fixtures/hugging_face/mixtral"
        self.refuse(["layer", "--from-hf", model, "--for", "torch", "--recipe", "fp8_delayed"], USAGE, "has a state",
                    "fp8_current")
        self.refuse(["plan", self.folder], FILE, "is a folder", f"--from-hf {self.folder}")
        config.unlink()
        self.refuse(["layer", "--from-hf", self.folder], FILE, "is a folder without config.json")

    def test_descriptions_that_are_too_long(self):
        self.refuse(["layer", self.write("long.json", b" " * ((1 << 20) + 1))], USAGE,
                    "long.json: got 1048577 bytes, wanted at most 1048576")
        self.refuse(["layer", self.write("many.json", {"a": [1] * 20000})], USAGE,
                    "got more than 10000 values")
        self.refuse(["layer", "--from-hf", self.write("c.json", b" " * ((1 << 24) + 1))], USAGE,
                    "wanted at most 16777216")

    def test_inspected_files(self):
        self.refuse(["inspect", self.write("k.cubin", b"\x7fELF" + bytes(60))], FILE, "k.cubin")
        self.refuse(["inspect", self.write("k", b"moejit\x1a\n" + bytes(500))], FILE, "k: ")


class InputFileErrors(Refusal):
    def refuse_input(self, content, status, *words, options=()):
        path = self.write("in.safetensors", content)
        self.refuse(["run", TINY, "--target", "sim", "--input", path, "--output", "out.safetensors", *options],
                    status, "in.safetensors", *words)

    def inputs(self, **changes):
        tensors = {"x": tensor("BF16", [T, H]), "topk_ids": tensor("I32", [T, K]),
                   "topk_probs": tensor("F32", [T, K]), "w1": tensor("BF16", [E, 2 * I, H]),
                   "w2": tensor("BF16", [E, H, I])}
        tensors.update(changes)
        return {name: value for name, value in tensors.items() if value is not None}

    def test_headers_that_lie(self):
        entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
        self.refuse_input(b"", FILE, "0 bytes")
        self.refuse_input(b"1234567", FILE, "7 bytes")
        self.refuse_input(struct.pack("<Q", 1 << 63) + b"{}", FILE, str(1 << 63))
        self.refuse_input(struct.pack("<Q", 100_000_001) + b"{}", FILE, "100000001")
        self.refuse_input(struct.pack("<Q", 1000) + b"{}", FILE, "1000", "truncated")
        self.refuse_input(with_header(b"{,}"), FILE, "header")
        self.refuse_input(with_header(b"[]"), FILE, "object")
        self.refuse_input(with_header(b"[" * 10000), FILE)
        self.refuse_input(with_header({"x": entry}, bytes(15)), FILE, '"x"', "15")
        self.refuse_input(with_header({"x": entry, "y": dict(entry, data_offsets=[8, 24])},
                                      bytes(24)), FILE, '"x"', '"y"', "overlap")
        self.refuse_input(with_header({"x": dict(entry, dtype="F33")}, bytes(16)), FILE, "F33")
        self.refuse_input(with_header({"x": dict(entry, dtype=3)}, bytes(16)), FILE, '"x"')
        self.refuse_input(with_header({"x": dict(entry, shape=[-4])}, bytes(16)), FILE, "shape")
        self.refuse_input(with_header({"x": dict(entry, shape=[4.0])}, bytes(16)), FILE, "shape")
        self.refuse_input(with_header({"x": dict(entry, shape=[5])}, bytes(16)), FILE, "20", "16")
        self.refuse_input(with_header({"x": dict(entry, shape=[1 << 40, 1 << 40])}, bytes(16)),
                          FILE, "too large")
        self.refuse_input(with_header({"x": dict(entry, data_offsets=[16, 0])}, bytes(16)), FILE,
                          "data_offsets")
        self.refuse_input(with_header({"x": dict(entry, data_offsets=[0])}, bytes(16)), FILE,
                          "data_offsets")
        self.refuse_input(with_header({"x": 1}), FILE, '"x"')
        twice = json.dumps(entry)
        self.refuse_input(with_header(f'{{"x": {twice}, "x": {twice}}}'.encode(), bytes(16)), FILE,
                          "x")

    def test_tensors_that_do_not_fit(self):
        for name in ("x", "topk_ids", "topk_probs", "w1", "w2"):
            self.refuse_input(safetensors(self.inputs(**{name: None})), FILE, f'"{name}"', "missing")
        self.refuse_input(safetensors(self.inputs(x=tensor("F32", [T, H]))), FILE, '"x"', "F32",
                          f"BF16 [{T}, {H}]")
        self.refuse_input(safetensors(self.inputs(x=tensor("BF16", [T, H + 1]))), FILE, '"x"')
        self.refuse_input(safetensors(self.inputs(x=tensor("BF16", [H]))), FILE, '"x"')
        self.refuse_input(safetensors(self.inputs(x=tensor("BF16", []))), FILE, '"x"')
        self.refuse_input(safetensors(self.inputs(x=tensor("BF16", [65, H]))), FILE, '"x"', "65",
                          "max_tokens")
        self.refuse_input(safetensors(self.inputs(topk_ids=tensor("I64", [T, K]))), FILE, "I64")
        self.refuse_input(safetensors(self.inputs(topk_ids=tensor("I32", [T + 1, K]))), FILE,
                          '"topk_ids"', f"[{T + 1}, {K}]", f"[{T}, {K}]")
        self.refuse_input(safetensors(self.inputs(topk_probs=tensor("F64", [T, K]))), FILE, "F64")
        self.refuse_input(safetensors(self.inputs(w1=tensor("BF16", [E, I, H]))), FILE, '"w1"')
        self.refuse_input(safetensors(self.inputs(w1=None, w1_q=tensor("F8_E4M3", [E, 2 * I, H]))),
                          FILE, '"w1_scale_inv"')

    def test_tensors_of_a_backward_pass_that_do_not_fit(self):
        def refuse(*words, **changes):
            content = safetensors(self.inputs(**{"dy": tensor("BF16", [T, H]), **changes}))
            self.refuse_input(content, FILE, *words, options=["--pass", "backward"])

        refuse('"dy" is missing', f"BF16 [{T}, {H}]", "--pass backward", dy=None)
        refuse('"dy" is F32', f"BF16 [{T}, {H}]", dy=tensor("F32", [T, H]))
        refuse('"dy"', f"[{T + 1}, {H}]", f"[{T}, {H}]", dy=tensor("BF16", [T + 1, H]))

    def test_files(self):
        run = ["run", TINY, "--target", "sim", "--output", "out.safetensors", "--input"]
        self.refuse([*run, "absent"], FILE, "absent")
        self.refuse([*run, self.folder], FILE, "folder")
        self.refuse([*run, "/dev/null"], FILE, "/dev/null")


class MachineErrors(Refusal):
    def test_compilers_that_are_missing(self):
        self.refuse(["build", TINY, "--no-cache"], TOOLCHAIN, "/nonexistent",
                    MOEJIT_NVRTC="/nonexistent")
        self.refuse(["build", TINY, "--target", "sim", "--no-cache"], TOOLCHAIN, "/nonexistent",
                    MOEJIT_CXX="/nonexistent")

    def test_kernels_that_do_not_compile(self):
        """Others are made all the same, and each failure is told with the layer's file."""
        compiler = self.write("cxx", """#!/bin/sh
case "$*" in
  *kernel.cu*) grep -q route: kernel.cu || { echo "kernel.cu:1: error: the-log" >&2; exit 1; } ;;
esac
exec c++ "$@"
""")
        compiler.chmod(0o755)
        layer = self.layer(max_tokens=1024)  # fc1 and the activation are one kernel
        build = ["build", layer, "--target", "sim", "--cache-dir", "own"]
        done = self.run_tool(*build, "--json", MOEJIT_CXX=str(compiler))
        self.assertEqual(done.returncode, TOOLCHAIN, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([kernel["operation"] for kernel in report["kernels"]], ["route"])
        self.assertEqual(report["compiled"], 1)
        self.assertEqual({kernel["file"] for kernel in report["failed"]}, {str(layer)})
        self.assertEqual({kernel["code"] for kernel in report["failed"]}, {"compile_failed"})
        count = len(report["failed"])
        self.assertGreaterEqual(count, 5)
        self.assertIn(f"{count} of {count + 1} kernels do not compile", done.stderr)
        self.assertIn(f'{layer}: layer "tiny": gemm_fc2: kernel ', done.stderr)
        self.assertIn(f'hint: set "fuse_activation": false in {layer}', done.stderr)
        self.assertNotIn("the-log", done.stderr)
        verbose = self.run_tool("--verbose", *build, "--pack", "p", "--variants", "described",
                                MOEJIT_CXX=str(compiler))
        self.assertEqual(verbose.returncode, TOOLCHAIN)
        self.assertIn("the-log", verbose.stderr)
        self.assertFalse((self.folder / "p").exists())

    def test_disassemblers_that_fail(self):
        if self.run_tool("build", TINY).returncode != 0:
            self.skipTest("there is no NVRTC on this machine")
        broken = self.write("nvdisasm", "#!/bin/sh\necho '//----- .text.k -----'\nexit 3\n")
        broken.chmod(0o755)
        done = self.run_tool("--verbose", "inspect", TINY, MOEJIT_DISASSEMBLER=str(broken))
        self.assertEqual(done.returncode, TOOLCHAIN, done.stderr)
        self.assertIn("nvdisasm ended with exit code 3", done.stderr)
        self.assertIn(".text.k", done.stderr)  # what the program printed
        self.refuse(["inspect", TINY], TOOLCHAIN, "/bin/true", "0 kernels",
                    MOEJIT_DISASSEMBLER="/bin/true")

    def test_drivers_that_are_missing(self):
        for verb in ("run", "bench"):
            self.refuse([verb, TINY, "--target", "cuda"], DEVICE, "/nonexistent",
                        MOEJIT_CUDA_DRIVER="/nonexistent")
        self.refuse(["bench", TINY], DEVICE, "/nonexistent", MOEJIT_CUDA_DRIVER="/nonexistent")

    def test_caches_that_cannot_be_used(self):
        plain = self.write("plain", "a file")
        self.refuse(["build", TINY, "--target", "sim", "--cache-dir", plain], TOOLCHAIN, "plain")
        self.refuse(["build", TINY, "--target", "sim", "--cache-dir", plain / "below"], TOOLCHAIN,
                    "plain/below")
        self.refuse(["cache", "ls", "--cache-dir", plain], TOOLCHAIN, "plain")
        self.refuse(["build", TINY, "--target", "sim"], TOOLCHAIN, "plain",
                    MOEJIT_CACHE_DIR=str(plain))

    def test_frozen_caches(self):
        empty = self.folder / "empty"
        empty.mkdir(mode=0o700)
        self.refuse(["build", TINY, "--target", "sim", "--frozen", "--cache-dir", empty], TOOLCHAIN,
                    "frozen")
        self.refuse(["run", TINY, "--target", "sim", "--frozen", "--cache-dir", empty], TOOLCHAIN,
                    "moejit: the layer tiny: the frozen cache", "moejit build")

    def test_outputs_that_cannot_be_written(self):
        run = ["run", TINY, "--target", "sim", "--output"]
        self.refuse([*run, "absent/out.safetensors"], FILE, "absent")
        self.refuse([*run, self.folder], FILE, "folder")
        self.refuse([*run, ""], USAGE, "--output", "empty")
        self.refuse(["layer", TINY, "--output", "absent/layer.json"], FILE, "absent")
        plain = self.write("plain", "a file")
        self.refuse(["emit", TINY, "--output-dir", plain], FILE, "plain")
        self.refuse(["emit", TINY, "--output-dir", plain / "below"], FILE, "plain/below")

    def test_a_full_disk_under_standard_output(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        status = os.system(f"'{tool.moejit}' plan '{TINY}' > /dev/full 2> '{self.folder}/err'")
        self.assertEqual(os.waitstatus_to_exitcode(status), FILE)
        self.assertIn("standard output", (self.folder / "err").read_text())


if __name__ == "__main__":
    tool.main()
