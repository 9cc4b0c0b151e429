# SPDX-License-Identifier: Apache-2.0
"""What `moejit run --ranks` does in the simulator: results, dumps, files of each rank."""
import struct

import tool
from tiny_tensors import DUMPED, E, H, I, K, token_tensors, weight_tensors
from tool import TINY, read_safetensors, safetensors


def cut(tensor, first, count):
    """Slices of a tensor's first dimension."""
    dtype, shape, data = tensor
    size = len(data) // shape[0]
    return dtype, [count, *shape[1:]], data[first * size:(first + count) * size]


def of_rank(rank, tensors, first, count):
    """A rank's part of tensors, under the names that it has in a file of a group."""
    return {f"rank{rank}.{name}": cut(tensor, first, count) for name, tensor in tensors.items()}


def gates(w1, section):
    """The gate (section 0) or up (1) of all experts."""
    _, [experts, _, columns], data = w1
    size = I * columns * 2
    return b"".join(data[(2 * e + section) * size:(2 * e + section + 1) * size] for e in range(experts))


class SimulatedRanks(tool.ToolTest):
    keeps_kernels = True

    def test_all_ranks_of_a_group_agree_with_one_rank(self):
        group = TINY.parent / "tiny-ep2.json"
        report = self.succeed_json("run", group, "--ranks", "2", "--target", "sim", "--tokens", "5",
                                   "--check", "--pass", "backward")
        self.assertEqual((report["ranks"], report["tokens"], report["status"]), (2, [5, 5], [0, 0]))
        self.assertTrue(report["check"]["passed"])
        names = {check["tensor"] for check in report["check"]["tensors"]}
        for name in ("y", "dx", "dprobs", "dw1", "dw2"):
            self.assertLessEqual({f"{name} of rank 0", f"{name} of rank 1", f"{name} of one rank"}, names)

    def test_a_call_is_made_by_all_ranks(self):
        group = TINY.parent / "tiny-ep2.json"
        written = {}
        for call, options in (("backward+add", ("--call", "backward+add")), ("backward", ("--pass", "backward"))):
            report = self.succeed_json("run", group, "--ranks", "2", "--target", "sim", "--tokens", "3", "--check",
                                       "--output", "out.safetensors", *options)
            self.assertTrue(report["check"]["passed"])
            self.assertEqual(report.get("calls", []), ["update_weights", "forward", call] if "+" in call else [])
            written[call] = read_safetensors(self.folder / "out.safetensors")
        self.assertIn("rank1.dw1", written["backward"])
        self.assertEqual(written["backward+add"], written["backward"])  # adds to zeros
        weights = self.succeed_json("run", group, "--ranks", "2", "--target", "sim", "--call", "update_weights",
                                    "--check", "--output", "out.safetensors")
        self.assertEqual(weights["calls"], ["update_weights"])
        self.assertEqual({check["tensor"].split(" ")[0] for check in weights["check"]["tensors"]},
                         {name.split(".")[1] for name in read_safetensors(self.folder / "out.safetensors")})

    def run_group(self, tensors, *arguments):
        """Runs tiny-ep2 with a file of inputs; returns the report and the tensors that it wrote."""
        report = self.succeed_json("run", TINY.parent / "tiny-ep2.json", "--ranks", "2", "--target", "sim", "--input",
                                   self.write("in.safetensors", safetensors(tensors)), "--output", "out.safetensors",
                                   *arguments)
        self.assertNotIn("routing", report)
        return report, read_safetensors(self.folder / "out.safetensors")

    def test_ranks_read_and_write_files(self):
        tokens, weights = token_tensors(8), weight_tensors()
        alone = {**of_rank(0, tokens, 0, 5), **of_rank(1, tokens, 5, 3)}
        alone_report, by_rank = self.run_group(
            {**alone, **of_rank(0, weights, 0, 4), **of_rank(1, weights, 4, 4)}, "--check")
        self.assertEqual((alone_report["tokens"], alone_report["check"]["passed"]), ([5, 3], True))
        self.assertEqual({name: shape for name, (_, shape, _) in by_rank.items()},
                         {"rank0.y": [5, H], "rank1.y": [3, H]})
        y = by_rank["rank0.y"][2] + by_rank["rank1.y"][2]

        # The same as for one rank: each rank gets its part of tokens and experts.
        report, parted = self.run_group({**tokens, **weights}, "--check")
        self.assertEqual((report["tokens"], report["check"]["passed"]), ([4, 4], True))
        self.assertEqual(parted["rank0.y"][2] + parted["rank1.y"][2], y)
        uneven = {name: cut(tensor, 0, 7) for name, tensor in tokens.items()}
        self.assertEqual(self.run_group({**uneven, **weights})[0]["tokens"], [4, 3])

        # A checkpoint has the experts of all ranks.
        checkpoint = {f"model.layers.3.mlp.experts.{e}.{name}_proj.weight": ("BF16", shape, data[e * size:(e + 1) * size])
                      for e in range(E)
                      for name, shape, data in (("gate", [I, H], gates(weights["w1"], 0)),
                                                ("up", [I, H], gates(weights["w1"], 1)),
                                                ("down", [H, I], weights["w2"][2]))
                      for size in [2 * I * H]}
        path = self.write("model.safetensors", safetensors(checkpoint))
        for inputs, which in ((alone, by_rank), (tokens, parted)):
            self.assertEqual(self.run_group(inputs, "--weights", path)[1], which)

    def test_ranks_dump_what_each_of_them_wrote(self):
        ids = [(t * t + 3 * k) % E for t in range(8) for k in range(K)]  # more for rank 0
        tokens = token_tensors(8, ids)
        _, dumped = self.run_group({**tokens, **weight_tensors()}, "--dump-intermediates")
        for rank in range(2):
            counts = [ids.count(4 * rank + e) for e in range(4)]
            self.assertEqual(dumped[f"rank{rank}.counts"], ("I32", [4], struct.pack("<4i", *counts)))
            rows = struct.unpack("<5i", dumped[f"rank{rank}.offs"][2])[4]
            self.assertEqual(dumped[f"rank{rank}.h1"][1], [rows, 2 * I])
            names = {f"rank{rank}.{name}" for name in DUMPED if name not in ("x_q", "x_scale_inv")}  # in slots
            self.assertLessEqual(names, dumped.keys())

    def test_states_of_ranks_begin_as_those_of_a_first_step(self):
        # One rank runs kernels that are compiled for tests/gpu/recipe_rows_test.cpp.
        layer = self.layer(name="delayed", recipe="fp8_delayed", experts=4, local_experts=None, top_k=2, hidden=272,
                           intermediate=144, splits_alignment=64, max_tokens=40, max_permuted_rows=None,
                           dispatch="none", passes=["forward", "backward"], expert_parallel={"ranks": 2})
        report = self.succeed_json("run", layer, "--ranks", "2", "--target", "sim", "--tokens", "5", "--check", "--pass",
                                   "backward", "--output", "out.safetensors")
        self.assertTrue(report["check"]["passed"])
        written = read_safetensors(self.folder / "out.safetensors")
        for rank in range(2):
            scales = struct.unpack("<6f", written[f"rank{rank}.fc1_scale"][2])
            self.assertTrue(any(scale > 1.0 for scale in scales), scales)  # those of the next step


if __name__ == "__main__":
    tool.main()
