# SPDX-License-Identifier: Apache-2.0
"""Tuning records as the tool uses them, shows them and joins them."""
import json
import subprocess

import tool
from tool import ROOT, TINY, read_safetensors

MIXTRAL = ROOT / "docs/examples/layers/mixtral-8x7b.json"
H200 = {"name": "NVIDIA H200", "arch": "sm_90a", "sm_count": 132, "l2_bytes": 60 << 20, "memory_bus_bits": 6144,
        "memory_megahertz": 3201, "most_megahertz": 1980, "power_limit_watts": 700}
H100 = dict(H200, name="NVIDIA H100 80GB HBM3", l2_bytes=50 << 20, memory_bus_bits=5120, memory_megahertz=2619)


def entry(problem, choices, rounds=12, **fields):
    return {"problem": problem, "choices": choices, "rounds": rounds, "microseconds": 905.0,
            "default_microseconds": 1000.0, "ratio": 0.905, "ratio_low": 0.895, "ratio_high": 0.91,
            "date": "2026-12-02", **fields}


class Tuning(tool.ToolTest):
    keeps_kernels = True

    def record(self, name, entries, gpu=None, **fields):
        return self.write(name, {"format": "moejit-tuning-1", "gpu": gpu or H200, "entries": entries, **fields})

    def kernel(self, layer, operation, *arguments, **environment):
        plan = self.succeed_json("plan", layer, *arguments, **environment)
        return next(kernel for kernel in plan["kernels"] if kernel["operation"] == operation)

    def tuned(self, layer, operation, **changes):
        """A record with other choices for one kernel, and these choices."""
        kernel = self.kernel(layer, operation)
        choices = dict(kernel["choices"], **changes)
        self.assertNotEqual(choices, kernel["choices"])
        return self.record("record.json", [entry(kernel["problem"], choices)]), choices

    def refuse(self, code, *arguments):
        done = self.run_tool(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def test_a_record_is_used_where_it_is_named(self):
        record, choices = self.tuned(MIXTRAL, "gemm_fc2", band_tiles=4)
        usual = self.kernel(MIXTRAL, "gemm_fc2")
        for given in ({"arguments": ["--tuning", record]}, {"environment": {"MOEJIT_TUNING": str(record)}}):
            kernel = self.kernel(MIXTRAL, "gemm_fc2", *given.get("arguments", []), **given.get("environment", {}))
            self.assertEqual(kernel["choices"], choices)
            self.assertIn("band_tiles=4", kernel["spec"])
        kernel = self.kernel(MIXTRAL, "gemm_fc2", "--no-tuning", MOEJIT_TUNING=str(record))
        self.assertEqual(kernel, usual)
        explained = " ".join(self.succeed("plan", MIXTRAL, "--tuning", record, "--explain").stdout.split())
        self.assertIn("tuned: band_tiles=4 ", explained)
        self.assertIn("9.5 % less time than the usual choices take (95 %: 9.0 to 10.5)", explained)
        self.assertIn("usual choices: no tuning record has this problem", explained)
        emitted = self.succeed("emit", MIXTRAL, "--operation", "gemm_fc2", "--tuning", record).stdout
        self.assertIn("kBandTiles = 4;", emitted)
        self.assertNotIn("kBandTiles", self.succeed("emit", MIXTRAL, "--operation", "gemm_fc2").stdout)

    def test_a_record_is_used_for_operations_too(self):
        operation = self.write("gemm.json", {"operation": "grouped_gemm", "local_experts": 8, "scales": "row_block",
                                             "max_permuted_rows": 32768, "n": 4096, "k": 7168})
        record, choices = self.tuned(operation, "grouped_gemm", band_tiles=4)
        kernel = self.kernel(operation, "grouped_gemm", "--tuning", record)
        self.assertEqual(kernel["choices"], choices)
        explained = " ".join(self.succeed("plan", operation, "--tuning", record, "--explain").stdout.split())
        self.assertIn("tuned: band_tiles=4 ", explained)
        self.assertIn("kBandTiles = 4;", self.succeed("emit", operation, "--tuning", record).stdout)

    def test_ranks_of_a_group_run_what_the_records_say(self):
        group = TINY.parent / "tiny-ep2.json"
        record, _ = self.tuned(group, "gemm_fc2", tile_rows=64, stages=8)
        run = ["run", group, "--ranks", "2", "--target", "sim", "--tokens", "5"]
        told = self.succeed_json(*run, "--check", "--tuning", record)
        self.assertTrue(told["check"]["passed"])
        self.assertEqual((told["tuning"]["recorded"], told["tuning"]["hints"]), (1, 0))
        self.assertNotIn("tuning", self.succeed_json(*run))
        absent = self.run_tool(*run, "--tuning", self.folder / "absent.json")
        self.assertNotEqual(absent.returncode, 0)
        self.assertIn("absent.json", absent.stderr)

    def test_a_sweep_of_a_groups_layer_measures_what_its_ranks_look_up(self):
        for name, left_out in (("tiny-ep2", []), ("tiny-ep2-nccl", ["quantize", "quantize_dy"])):
            group = TINY.parent / f"{name}.json"
            plan = self.succeed_json("plan", group)
            wanted = {kernel["problem"] for kernel in plan["kernels"]
                      if "problem" in kernel and kernel["operation"] not in left_out}
            listed = self.succeed_json("tune", group, "--dry-run")
            self.assertEqual({one["problem"] for one in listed["problems"]}, wanted)
            self.assertEqual(listed.get("unmeasured", []), [f"{name} {operation}" for operation in left_out])
        blockwise = self.write("blockwise.json", dict(json.loads(group.read_text()), recipe="fp8_blockwise", dispatch="none",
                                                      expert_parallel={"ranks": 2}))
        text = self.succeed("tune", blockwise, "--dry-run").stdout
        self.assertIn("not measured, since no layer of one GPU has them: tiny-ep2-nccl keep_x;", text)
        self.assertIn("wanted 1 to 64", self.refuse(2, "tune", group, "--dry-run", "--tokens", "65"))

    def test_prune_keeps_what_ranks_of_a_group_use(self):
        group = TINY.parent / "tiny-ep2.json"
        used = self.kernel(group, "gemm_fc2")
        record = self.record("r.json", [entry(used["problem"], used["choices"]), entry("of nobody", {})])
        self.succeed("tuning", "prune", record, group, "--output", "mine.json")
        pruned = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual([one["problem"] for one in pruned["entries"]], [used["problem"]])

    def test_the_records_that_come_with_the_examples_have_their_problems(self):
        for gpu, layers in (("h100-sxm", ("deepseek-v3-ep8", "gpt-oss-20b", "mixtral-8x7b", "qwen3-30b-a3b")),
                            ("h200-sxm", ("deepseek-v3-ep8", "qwen3-235b-a22b-ep8"))):
            self.check_record(ROOT / f"docs/examples/tuning/{gpu}.json", layers)

    def check_record(self, record, layers):
        names = {entry["problem"] for entry in json.loads(record.read_text())["entries"]}
        for name in layers:
            layer = ROOT / f"docs/examples/layers/{name}.json"
            training = self.write(f"{name}.json", dict(json.loads(layer.read_text()), passes=["forward", "backward"]))
            kernels = self.succeed_json("plan", training, "--tuning", record)["kernels"]
            problems = {kernel["problem"] for kernel in kernels if kernel["operation"].startswith("gemm_")}
            self.assertGreaterEqual(len(problems), 6)
            self.assertEqual(problems - names, set(), name)

    def test_nothing_is_used_that_nobody_named(self):
        self.tuned(MIXTRAL, "gemm_fc2", band_tiles=4)  # lies in the working folder
        for name in ("tuning.json", "h200.json", "moejit-tuning.json"):
            self.write(name, (self.folder / "record.json").read_bytes())
        self.assertEqual(self.kernel(MIXTRAL, "gemm_fc2")["choices"]["band_tiles"], 16)

    def test_ranks_with_the_same_files_have_the_same_plan(self):
        record, _ = self.tuned(MIXTRAL, "gemm_fc2", band_tiles=4)
        ranks = [subprocess.Popen([tool.moejit, "plan", MIXTRAL, "--json", "--tuning", record],
                                  stdout=subprocess.PIPE) for _ in range(4)]
        plans = {rank.communicate()[0] for rank in ranks}
        self.assertEqual(len(plans), 1)
        usual = self.succeed_json("plan", MIXTRAL)
        self.assertNotEqual(json.loads(plans.pop())["plan_digest"], usual["plan_digest"])

    def test_a_tuned_run_has_the_bits_of_the_usual_one(self):
        record, choices = self.tuned(TINY, "gemm_fc2", tile_rows=32)
        run = ["run", TINY, "--target", "sim", "--check", "--tokens", "60"]
        self.succeed(*run, "--output", "usual.safetensors")
        self.succeed(*run, "--output", "tuned.safetensors", "--tuning", record)
        self.assertEqual(read_safetensors(self.folder / "tuned.safetensors"),
                         read_safetensors(self.folder / "usual.safetensors"))
        told = self.succeed_json("run", TINY, "--target", "sim", "--tokens", "60", "--tuning", record)["tuning"]
        self.assertEqual((told["recorded"], told["hints"], told["measured_on"]),
                         (1, 0, ["NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W)"]))
        missing = self.refuse(4, "run", TINY, "--target", "sim", "--tuning", record, "--frozen", "--cache-dir", "empty")
        self.assertIn(f"--tuning {record}", missing)

    def test_a_tuned_chain_has_the_bits_of_the_usual_one(self):
        record, _ = self.tuned(TINY, "unpermute", threads=64)
        run = ["run", TINY, "--target", "sim", "--check", "--tokens", "60"]
        self.succeed(*run, "--output", "usual.safetensors")
        self.succeed(*run, "--output", "tuned.safetensors", "--tuning", record)
        self.assertEqual(read_safetensors(self.folder / "tuned.safetensors"),
                         read_safetensors(self.folder / "usual.safetensors"))
        explained = " ".join(self.succeed("plan", TINY, "--tuning", record, "--explain").stdout.split())
        self.assertIn("tuned: segments_in_flight=1 threads=64 threads_per_sm=1024;", explained)

    def test_a_record_that_cannot_be_used_is_an_error(self):
        self.assertIn("nowhere.json", self.refuse(3, "plan", TINY, "--tuning", "nowhere.json"))
        self.write("broken.json", "{")
        self.assertIn("broken.json:1", self.refuse(2, "plan", TINY, "--tuning", "broken.json"))
        one, other = self.record("a.json", []), self.record("b.json", [], H100)
        said = self.refuse(2, "plan", TINY, "--tuning", f"{one}:{other}")
        self.assertIn("are of two GPUs, the NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W) and the NVIDIA H100", said)
        self.assertIn("--no-tuning", self.refuse(2, "plan", TINY, "--tuning", one, "--no-tuning"))

    def test_show_tells_what_is_in_a_record(self):
        record = self.record("r.json", [entry("p", {"stages": 3}), entry("q", {"stages": 4}, ratio=1.0)])
        self.assertEqual(self.succeed("tuning", "show", record).stdout,
                         "NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W): 2 entries\n\n"
                         "p\n    stages=3\n    -9.5 % time (95 %: -10.5 to -9.0); 12 rounds, 2026-12-02\n\n"
                         "q\n    stages=4\n    the usual choices are the fastest; 12 rounds, 2026-12-02\n")
        self.assertEqual(self.succeed_json("tuning", "show", record)["entries"][0]["choices"], {"stages": 3})

    def test_steps_of_earlier_versions_are_left_out(self):
        record = self.record("r.json", [entry("p", {"stages": 3})], steps=[{"step": "step layer=tiny", "ratio": 0.95}])
        self.assertIn(": 1 entry\n", self.succeed("tuning", "show", record).stdout)
        self.assertNotIn("steps", self.succeed_json("tuning", "show", record))

    def test_merge_keeps_the_better_founded_entry_in_any_order(self):
        one = self.record("a.json", [entry("p", {"stages": 3}, rounds=8), entry("q", {"stages": 4})])
        other = self.record("b.json", [entry("p", {"stages": 5}, rounds=16)])
        said = self.succeed("tuning", "merge", one, other, "--output", "ab.json").stdout
        self.assertEqual(said, "ab.json: 2 entries of the NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W)\n")
        self.succeed("tuning", "merge", other, one, "--output", "ba.json")
        merged = (self.folder / "ab.json").read_text()
        self.assertEqual(merged, (self.folder / "ba.json").read_text())
        self.assertEqual(json.loads(merged)["entries"][0]["choices"], {"stages": 5})
        h100 = self.record("h100.json", [], H100)
        said = self.refuse(2, "tuning", "merge", one, h100, "--output", "none.json")
        self.assertIn(f"{h100}: one record is of the NVIDIA H200", said)
        self.assertFalse((self.folder / "none.json").exists())

    def test_diff_names_problems_with_other_choices(self):
        one = self.record("a.json", [entry("p", {"stages": 3}), entry("q", {"stages": 4})])
        other = self.record("b.json", [entry("p", {"stages": 5}), entry("q", {"stages": 4}), entry("r", {})])
        self.assertEqual(self.succeed("tuning", "diff", one, one).stdout, "the same choices\n")
        self.assertEqual(self.succeed("tuning", "diff", one, other).stdout,
                         "p\n    a: stages=3\n    b: stages=5\nr\n    a: no entry\n    b: \n")
        found = self.succeed_json("tuning", "diff", one, other)["differing"]
        self.assertEqual([(one["problem"], one["a"]) for one in found], [("p", {"stages": 3}), ("r", None)])

    def test_prune_keeps_what_plans_use(self):
        used = self.kernel(MIXTRAL, "gemm_fc2")
        record = self.record("r.json", [entry(used["problem"], used["choices"]), entry("of nobody", {})])
        self.succeed("tuning", "prune", record, MIXTRAL, "--output", "mine.json")
        pruned = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual([one["problem"] for one in pruned["entries"]], [used["problem"]])
        self.refuse(3, "tuning", "prune", record, MIXTRAL, "--output", "/no/such/folder/mine.json")


if __name__ == "__main__":
    tool.main()
