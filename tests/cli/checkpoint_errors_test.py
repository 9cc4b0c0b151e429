# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that `moejit run --weights` refuses: files that are none, indexes that lead nowhere, and
experts that are missing or have another form than the layer."""
import json
import struct

import tool
from refusal import E, FILE, H, I, USAGE, Refusal
from tool import TINY, safetensors, tensor, with_header


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

    def test_scales_that_are_no_numbers(self):
        name = "model.layers.3.mlp.experts.6.up_proj.weight_scale_inv"
        nan, infinity = (struct.pack("<2f", 1.0, float(bad)) for bad in ("nan", "inf"))
        for bad, dtype, content in (("nan", "F32", nan), ("inf", "F32", infinity), ("nan", "BF16", nan[2:4] + nan[6:8]),
                                    ("nan", "F8_E8M0", b"\x7f\xff")):
            self.refuse_shards([{**self.experts(dtype="F8_E4M3"), name: (dtype, [1, 2], content)}], FILE, "shard0",
                               f'"{name}" has the scale {bad} at [0, 1], wanted a finite number', "damaged")
        self.refuse_shards([{**self.experts(dtype="F8_E4M3"), name: tensor("F8_E8M0", [I, H // 32])}], FILE,
                           f"F8_E8M0 [{I}, {H // 32}], wanted F32 [1, 2]", "128x128 block")

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


if __name__ == "__main__":
    tool.main()
