# SPDX-License-Identifier: Apache-2.0
"""Wrong input through the command line: the documented exit status, exactly one sentence that names
the place, no stack trace, nothing printed as a result and no file left behind."""
import json
import os
import struct

import tool
from tool import GEMMS, TINY, safetensors, tensor, with_header

USAGE, FILE, TOOLCHAIN, DEVICE, KERNEL = 2, 3, 4, 5, 6
E, T, K, H, I = 8, 4, 2, 256, 128


class Refusal(tool.ToolTest):
    def refuse(self, arguments, status, *words, **environment):
        """`moejit ARGUMENTS` ends with the status and one sentence that holds all the words."""
        before = sorted(os.listdir(self.folder))
        done = self.run_tool(*arguments, **environment)
        shown = f"{arguments}\n{done.stderr}"
        self.assertEqual(done.returncode, status, shown)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("moejit: target ")]
        self.assertTrue(lines, shown)
        self.assertRegex(lines[0], r"^moejit: \S", shown)
        self.assertTrue(all(line.startswith("hint: ") for line in lines[1:]), shown)
        self.assertLessEqual(len(lines), 2, shown)
        self.assertNotRegex(done.stderr, r"terminate called|what\(\)|exception|0x[0-9a-f]{9}", shown)
        for word in words:
            self.assertIn(str(word), done.stderr, shown)
        self.assertEqual(done.stdout, "", shown)
        self.assertEqual(sorted(os.listdir(self.folder)), before, shown)


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
        self.refuse(["plan", self.layer(recipe="mxfp8")], USAGE, "mxfp8", "fp8_flow")
        self.refuse(["plan", self.layer(recipe="bf16", passes=["forward", "backward"],
                                        splits_alignment=16)], USAGE,
                    "splits_alignment \"16\"", "multiples of 64")

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

    def test_a_configuration_where_a_description_is_wanted_and_the_reverse(self):
        config = self.write("config.json", {"hidden_size": 64, "model_type": "mixtral"})
        for command in (["layer"], ["plan"], ["build", "--no-cache"], ["run", "--target", "sim"]):
            self.refuse([*command, config], USAGE, "moejit layer --from-hf", "config.json")
        self.refuse(["layer", "--from-hf", TINY], USAGE, "looks like a layer description already")
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


class CheckpointErrors(Refusal):
    def experts(self, count=E, dtype="BF16", prefix="model.layers.3.mlp"):
        shard = {}
        for n in range(count):
            for projection, shape in (("gate_proj", [I, H]), ("up_proj", [I, H]),
                                      ("down_proj", [H, I])):
                name = f"{prefix}.experts.{n}.{projection}.weight"
                shard[name] = tensor(dtype, shape)
                if dtype == "F8_E4M3":
                    shard[name + "_scale_inv"] = tensor("F32", [(d + 127) // 128 for d in shape])
        return shard

    def refuse_shards(self, shards, status, *words, options=()):
        paths = [self.write(f"shard{i}.safetensors", safetensors(shard))
                 for i, shard in enumerate(shards)]
        self.refuse(["run", TINY, "--target", "sim", "--output", "out.safetensors", "--weights",
                     *paths, "--prefix", "model.layers.3.mlp", *options], status, *words)

    def test_missing_experts(self):
        self.refuse_shards([self.experts(7)], FILE, "experts.7.gate_proj.weight", "shard0",
                           "hint: experts 0 to 6 of model.layers.3.mlp are there, wanted 0 to 7\n")
        self.refuse_shards([self.experts(8)], FILE, "experts.8.gate_proj.weight",
                           options=["--first-expert", "1"])
        self.refuse_shards([self.experts(prefix="model.layers.4.mlp")], FILE,
                           'no experts are under the prefix "model.layers.3.mlp"',
                           "hint: experts there are under model.layers.4.mlp\n")
        self.refuse_shards([{}], FILE, "no experts are under the prefix", "Mixture-of-Experts")
        shard = self.experts()
        del shard["model.layers.3.mlp.experts.5.down_proj.weight"]
        self.refuse_shards([shard], FILE, "experts.5.down_proj.weight", "missing")

    def test_tensors_that_do_not_fit(self):
        name = "model.layers.3.mlp.experts.6.up_proj.weight"
        self.refuse_shards([{**self.experts(), name: tensor("F8_E4M3", [I, H])}], FILE, name,
                           "F8_E4M3", "one dtype")
        self.refuse_shards([{**self.experts(), name: tensor("BF16", [H, I])}], FILE, name,
                           f"[{I}, {H}]")
        self.refuse_shards([self.experts(dtype="F32")], FILE, "F32", "BF16 or F8_E4M3")
        shard = self.experts(dtype="F8_E4M3")
        del shard[name + "_scale_inv"]
        self.refuse_shards([shard], FILE, name + "_scale_inv", "missing")
        shard[name + "_scale_inv"] = tensor("F32", [I, H])
        self.refuse_shards([shard], FILE, name + "_scale_inv", "[1, 2]")
        shard[name + "_scale_inv"] = tensor("F16", [1, 2])
        self.refuse_shards([shard], FILE, name + "_scale_inv", "F32")
        self.refuse_shards([self.experts(dtype="F32")], FILE, "torch.bfloat16")

    def test_experts_that_the_description_does_not_have(self):
        prefix = "model.layers.3.mlp.experts."
        biases = {f"{prefix}{n}.{name}.bias": tensor("BF16", [size]) for n in range(E)
                  for name, size in (("gate_proj", I), ("up_proj", I), ("down_proj", H))}
        self.refuse_shards([{**self.experts(), **biases}], FILE, "have biases (down_proj.bias), the layer has none",
                           '"biases": true')
        fused = {prefix + "gate_up_proj": tensor("F8_E4M3", [E, 2 * I, H]),
                 prefix + "down_proj": tensor("BF16", [E, H, I])}
        self.refuse_shards([fused], FILE, f"is F8_E4M3 [{E}, {2 * I}, {H}], wanted BF16 [{E}, {2 * I}, {H}]", "bfloat16")
        self.refuse_shards([{prefix + "gate_up_proj": tensor("BF16", [E, 2 * I, H])}], FILE,
                           '"model.layers.3.mlp.experts.down_proj" is missing')
        self.refuse_shards([{prefix + "qweight": tensor("U8", [1])}], FILE, '"qweight"', "gate_up_proj and down_proj")
        self.refuse_shards([{prefix + "0.qweight": tensor("U8", [1])}], FILE, '"qweight"', "bfloat16")

    def refuse_checkpoint(self, paths, status, *words, options=("--layer", "3")):
        self.refuse(["run", TINY, "--target", "sim", "--output", "out.safetensors", "--weights", *paths, *options],
                    status, *words)

    def test_shards_that_were_not_given(self):
        paths = [self.write(f"model-0000{n}-of-00003.safetensors", safetensors(self.experts(4) if n == 1 else {}))
                 for n in (1, 3)]
        missing = "model-00002-of-00003.safetensors is not among the files"
        self.refuse_checkpoint(paths, FILE, "experts.4.gate_proj.weight", "experts 0 to 3 of model.layers.3.mlp", missing)
        self.refuse_checkpoint(paths, FILE, "layer 5 has no experts there", "under model.layers.3.mlp; " + missing,
                               options=["--layer", "5"])

    def test_layers_that_are_not_clear(self):
        both = {**self.experts(1), **self.experts(1, prefix="model.vision.layers.3.mlp")}
        path = self.write("a.safetensors", safetensors(both))
        self.refuse_checkpoint([path], USAGE, "2 groups of experts have the layer number 3",
                               "model.layers.3.mlp, model.vision.layers.3.mlp", "--prefix")
        self.refuse_checkpoint([path], USAGE, "2 layers have experts", "--layer N", options=[])
        self.refuse_checkpoint([path], USAGE, "--prefix", options=["--layer", "3", "--prefix", "model"])
        self.refuse_checkpoint([path], USAGE, "--layer", options=["--layer", "-1"])
        self.refuse(["run", TINY, "--layer", "3"], USAGE, "--weights")
        many = {}
        for n in (10, 2, 7, 1, 3):
            many.update(self.experts(1, prefix=f"model.layers.{n}.mlp"))
        path = self.write("a.safetensors", safetensors(many))
        self.refuse_checkpoint([path], FILE, "under model.layers.1.mlp, model.layers.2.mlp, model.layers.3.mlp ... "
                               "model.layers.10.mlp (5 in all)", options=["--layer", "0"])

    def test_indexes(self):
        name = "model.layers.3.mlp.experts.0.gate_proj.weight"
        def refuse(content, *words):
            path = self.write("model.safetensors.index.json", content)
            for given in (path, self.folder):
                self.refuse_checkpoint([given], FILE, *words)
        refuse({"weight_map": {name: "a.safetensors"}}, "a.safetensors", "the index says that it holds tensor", name)
        refuse({"weight_map": {name: "../a.safetensors"}}, name, '"../a.safetensors"', "in the same folder")
        refuse({"weight_map": {name: "/etc/passwd"}}, '"/etc/passwd"', "in the same folder")
        refuse({"weight_map": {name: ""}}, "in the same folder")
        refuse({"weight_map": {name: 3}}, name, "wanted the name of a file")
        refuse({"weight_map": {name: ["a"]}}, name, "wanted the name of a file")
        refuse({"weight_map": []}, "weight_map is not an object")
        refuse({"metadata": {}}, "has no weight_map")
        refuse([], "has no weight_map")
        refuse("{", "index.json")
        refuse("[" * 10000, "index.json")
        refuse({"weight_map": {}}, "layer 3 has no experts there")
        refuse({"weight_map": {name.replace("3", "4"): "model-00002-of-00002.safetensors"}},
               "hint: experts there are under model.layers.4.mlp\n")
        self.write("a.safetensors", safetensors({}))
        refuse({"weight_map": {name: "a.safetensors"}}, "which the index places there", "download both again")
        self.refuse_checkpoint([self.write("config.json", {"model_type": "x"})], FILE, "has no weight_map",
                               "model.safetensors.index.json")

    def test_folders(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.refuse_checkpoint([empty], FILE, "neither a safetensors file nor an index")
        for name in ("b.safetensors", "a.safetensors"):
            (empty / name).write_bytes(safetensors({}))
        self.refuse_checkpoint([empty], FILE, "the folder has a.safetensors, b.safetensors", "name the files")

    def test_files_that_are_something_else(self):
        for content, *words in ((b'{"weight_map": {}}', "JSON text", "index"),
                                (b"import torch\nprint(1)\n", "seems to be text"),
                                (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
                                (b"PK\x03\x04" + bytes([20, 0, 1, 0] * 9), "ZIP archive", "save_pretrained"),
                                (b"\x80\x02}q\x00(X\x01\x00", "pickle", "save_pretrained"),
                                (b"GGUF\x03\x00\x00\x00\x01", "GGUF"),
                                (b"<!DOCTYPE html><html>", "web page")):
            self.refuse_checkpoint([self.write("w.safetensors", content)], FILE, "w.safetensors: seems to be", *words)
        # A header of 640 bytes begins as a pickle does.
        name, entry = "__metadata__", {"a": ""}
        entry["a"] = "b" * (640 - len(json.dumps({name: entry})))
        content = with_header({name: entry})
        self.assertEqual(content[:2], b"\x80\x02")
        self.refuse_checkpoint([self.write("w.safetensors", content)], FILE, "layer 3 has no experts there")

    def test_shards(self):
        self.refuse_shards([self.experts(), self.experts(1)], FILE, "shard1", "shard0")
        self.refuse(["run", TINY, "--target", "sim", "--weights", "absent"], FILE, "absent")


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
