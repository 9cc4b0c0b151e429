# SPDX-License-Identifier: Apache-2.0
"""What `moejit run` computes with weights from checkpoints: the bits of the same experts in an input file."""
import json
import math
import random
import struct

import tool
from tiny_tensors import E, H, I, token_tensors, weight_tensors
from tool import TINY, read_safetensors, safetensors


class Checkpoints(tool.ToolTest):
    """Experts from shards give what the same experts in an input file give."""

    keeps_kernels = True

    def run_shards(self, shards, prefix, *arguments):
        paths = [self.write(f"shard{i}.safetensors", safetensors(s)) for i, s in enumerate(shards)]
        path = self.write("in.safetensors", safetensors(token_tensors(4)))
        report = self.succeed_json("run", TINY, "--target", "sim", "--input", path, "--check",
                                   "--dump-intermediates", "--output", "out.safetensors",
                                   "--weights", *paths, "--prefix", prefix, *arguments)
        self.assertTrue(report["check"]["passed"])
        return report, read_safetensors(self.folder / "out.safetensors")

    def test_bf16_experts_of_both_namings(self):
        weights = weight_tensors()
        path = self.write("whole.safetensors", safetensors({**token_tensors(4), **weights}))
        self.succeed("run", TINY, "--target", "sim", "--input", path, "--check", "--output", "y")
        wanted = read_safetensors(self.folder / "y")["y"]
        half, whole = I * H * 2, H * I * 2
        for prefix, names in (("model.layers.3.mlp", ("gate_proj", "up_proj", "down_proj")),
                              ("model.layers.3.block_sparse_moe", ("w1", "w3", "w2"))):
            shards = [{}, {}]
            for n in range(E):
                w1 = weights["w1"][2][2 * n * half:2 * (n + 1) * half]
                w2 = weights["w2"][2][n * whole:(n + 1) * whole]
                parts = ([I, H], w1[:half]), ([I, H], w1[half:]), ([H, I], w2)
                for name, (shape, content) in zip(names, parts):
                    shards[n % 2][f"{prefix}.experts.{n + 3}.{name}.weight"] = "BF16", shape, content
            _, out = self.run_shards(shards, prefix, "--first-expert", "3")
            self.assertEqual(out["y"], wanted)

    def test_a_layer_is_found_by_its_number_in_a_folder_with_an_index(self):
        weights = weight_tensors()
        path = self.write("whole.safetensors", safetensors({**token_tensors(4), **weights}))
        self.succeed("run", TINY, "--target", "sim", "--input", path, "--check", "--output", "y")
        tokens = self.write("in.safetensors", safetensors(token_tensors(4)))
        # Beside the decoder's layer 3 there is one of multi-token prediction, and a layer 31; shard 2 does not exist.
        stem, folder = "model.language_model.layers.3.feed_forward.experts.", self.folder / "model"
        folder.mkdir()
        (folder / "1.safetensors").write_bytes(safetensors({stem + "gate_up_proj": weights["w1"]}))
        (folder / "3.safetensors").write_bytes(safetensors({stem + "down_proj": weights["w2"]}))
        index = {stem + "gate_up_proj": "1.safetensors", stem + "down_proj": "3.safetensors",
                 "mtp.layers.3.mlp.experts.gate_up_proj": "2.safetensors",
                 "model.language_model.layers.31.feed_forward.experts.down_proj": "2.safetensors",
                 "model.language_model.layers.3.feed_forward.shared_expert.up_proj.weight": "2.safetensors"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        for given in (["model"], ["model/model.safetensors.index.json"],
                      ["model/1.safetensors", "model/../model/3.safetensors"],
                      ["./model/1.safetensors", "model/model.safetensors.index.json"]):
            self.succeed("run", TINY, "--target", "sim", "--input", tokens, "--check", "--output", "out",
                         "--weights", *given, "--layer", "3")
            self.assertEqual(read_safetensors(self.folder / "out")["y"], read_safetensors(self.folder / "y")["y"])

    def test_fp8_experts_are_used_as_they_are_by_backward_passes(self):
        stream, shard = random.Random(7), {}
        layer = {"name": "pads", "experts": 4, "top_k": 2, "hidden": 128, "intermediate": 144, "splits_alignment": 64,
                 "max_tokens": 16, "passes": ["forward", "backward"], "recipe": "fp8_flow",
                 "activation": {"expression": "log(abs(gate)) * up"}}
        for n in range(4):  # blocks of 128 have a rest, so columns of gate and up are padded
            for name, shape, blocks in (("gate_proj", [144, 128], [2, 1]), ("up_proj", [144, 128], [2, 1]),
                                        ("down_proj", [128, 144], [1, 2])):
                prefix = f"model.layers.0.mlp.experts.{n}.{name}.weight"
                shard[prefix] = "F8_E4M3", shape, bytes(stream.randrange(0x60) | stream.choice((0, 0x80))
                                                        for _ in range(math.prod(shape)))
                shard[prefix + "_scale_inv"] = "F32", blocks, struct.pack("<2f", stream.uniform(1e-3, 2e-3),
                                                                          stream.uniform(1e-3, 2e-3))
        weights = self.write("fp8.safetensors", safetensors(shard))
        report = self.succeed_json("run", self.write("pads.json", json.dumps(layer)), "--target", "sim", "--pass",
                                   "backward", "--tokens", "9", "--check", "--weights", weights, "--layer", "0")
        self.assertTrue(report["check"]["passed"])
        self.assertNotIn("quantize_w1", [kernel["operation"] for kernel in report["kernels"]])
        checked = {entry["tensor"]: entry["verdict"] for entry in report["check"]["tensors"]}
        for name in ("w1_colwise_q", "dact", "dx_permuted", "dx"):
            self.assertEqual(checked[name], "exact", name)

    def test_fp8_experts_are_used_as_they_are(self):
        stream = random.Random(5)
        prefix, shard, codes, scales = "model.layers.3.mlp", {}, [], []
        for n in range(E):
            for name, shape in (("gate_proj", [I, H]), ("up_proj", [I, H]), ("down_proj", [H, I])):
                blocks = [math.ceil(d / 128) for d in shape]
                # Finite codes only; scales that are no powers of two, as DeepSeek publishes them.
                code = bytes(stream.randrange(0x60) | stream.choice((0, 0x80))
                             for _ in range(math.prod(shape)))
                scale = struct.pack(f"<{math.prod(blocks)}f",
                                    *(stream.uniform(1e-3, 2e-3) for _ in range(math.prod(blocks))))
                shard[f"{prefix}.experts.{n}.{name}.weight"] = "F8_E4M3", shape, code
                shard[f"{prefix}.experts.{n}.{name}.weight_scale_inv"] = "F32", blocks, scale
                codes.append(code)
                scales.append(scale)
        report, out = self.run_shards([shard], prefix)
        self.assertNotIn("quantize_w1", [kernel["operation"] for kernel in report["kernels"]])
        self.assertEqual(out["w1_q"][2], b"".join(c for i, c in enumerate(codes) if i % 3 != 2))
        self.assertEqual(out["w2_q"][2], b"".join(codes[2::3]))
        self.assertEqual(out["w1_scale_inv"][2],
                         b"".join(s for i, s in enumerate(scales) if i % 3 != 2))
        for name, (dtype, shape, content) in shard.items():  # as DeepSeek-V4 has them: exponents of two
            if dtype == "F32":
                shard[name] = "F8_E8M0", shape, bytes(stream.randrange(110, 120) for _ in range(len(content) // 4))
        _, out = self.run_shards([shard], prefix)
        first = shard[f"{prefix}.experts.0.gate_proj.weight_scale_inv"][2]
        self.assertEqual(out["w1_scale_inv"][2][:4 * len(first)], struct.pack("<2f", *(2.0 ** (e - 127) for e in first)))

if __name__ == "__main__":
    tool.main()
