# SPDX-License-Identifier: Apache-2.0
"""`moejit tuning verify` on the simulator, whose times are what this machine takes: what must not depend on them is
recorded with intervals that any time meets, or none."""
import json
import random
import re
import signal
import subprocess

import tool
from tool import TINY

GEMM = {"operation": "grouped_gemm", "groups": 1, "n": 128, "k": 128, "splits_alignment": 16}
# Three problems, of which most kernels are the same and are compiled once.
GEMMS = {"gemms": [dict(GEMM, name=f"rows{rows}", rows_per_group=rows) for rows in (16, 32, 64)]}
QUICK = ["--target", "sim", "--block-ms", "0.001", "--heat-seconds", "0"]
ANY = {"ratio": 0.9, "ratio_low": 0.8, "ratio_high": 1e6}  # whatever is measured is not slower
NONE = {"ratio": 2e-6, "ratio_low": 1e-6, "ratio_high": 3e-6}  # whatever is measured is slower


class TuningVerify(tool.ToolTest):
    keeps_kernels = True
    listed = {}  # which all tests share: for each case the journal of a sweep that settles it, and the GPU's record

    def setUp(self):
        super().setUp()
        self.gemms = self.write("gemms.json", GEMMS)

    def candidates(self, case):
        """A problem and its candidates, the usual one first."""
        if case not in self.listed:
            gemms = self.write("one.json", {"gemms": [GEMMS["gemms"][case]]})
            self.succeed("tune", "--gemms", gemms, *QUICK, "--output", f"sweep{case}.json")
            journal = (self.folder / f"sweep{case}.json.journal").read_text()
            self.listed[case] = [json.loads(line) for line in journal.splitlines()]
            self.listed["gpu"] = json.loads((self.folder / f"sweep{case}.json").read_text())["gpu"]
        return self.listed[case][1]["problem"], self.listed[case][1]["candidates"]

    def own_gpu(self):
        self.candidates(0)
        return self.listed["gpu"]

    def slow_candidate(self, case):
        """The candidate that was the slowest in the first round, not the usual one, which is timed among them."""
        first = [line for line in self.listed[case] if line.get("round") == 1]
        others = [line for line in first if line["choices"] != first[0]["choices"]]
        return max(others, key=lambda line: line["microseconds"])["choices"]

    def record(self, entries, name="record.json", gpu=None):
        full = [{"rounds": 12, "microseconds": 905.0, "default_microseconds": 1000.0, "date": "2026-12-02",
                 "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, **entry}
                for entry in entries]
        return self.write(name, {"format": "moejit-tuning-1", "gpu": gpu or self.own_gpu(), "entries": full})

    def verify(self, code, record, *arguments):
        done = self.run_tool("tuning", "verify", record, *arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_entries_hold_or_not(self):
        problem, candidates = self.candidates(0)
        other, others = self.candidates(1)
        entries = [{"problem": problem, "choices": candidates[1], **ANY},
                   {"problem": other, "choices": others[1], **ANY},
                   {"problem": "of another layer", "choices": {}}]
        record = self.record(entries)
        said = self.verify(0, record, "--gemms", self.gemms, *QUICK).stdout
        self.assertIn("rows16: holds\n", said)
        self.assertIn("\n    recorded -10.0 % time (95 %: -20.0 to +99999900.0), 12 rounds\n", said)
        self.assertRegex(said, r"\n    measured [+-][\d.]+ % time \(95 %: [+-][\d.]+ to [+-][\d.]+\), \d+ rounds\n")
        self.assertTrue(said.endswith("\n2 of 2 entries hold; 1 of no layer or case that was named\n"), said)
        # What holds whatever was recorded are choices that are faster for certain.
        entries[0].update(NONE, choices=self.slow_candidate(0))
        done = self.run_tool("tuning", "verify", self.record(entries), "--gemms", self.gemms, *QUICK, "--json")
        found = json.loads(done.stdout)
        self.assertEqual((found["sampled"], found["elsewhere"]), (2, 1))
        verdicts = {entry["subject"]: entry for entry in found["entries"]}
        self.assertEqual(verdicts["rows32"]["verdict"], "holds")
        gone = verdicts["rows16"]
        is_gone = gone["measured"]["ratio_high"] >= 1.0
        self.assertEqual((gone["verdict"], gone["problem"]), ("no_longer_holds" if is_gone else "holds", problem))
        self.assertGreaterEqual(gone["measured"]["rounds"], 6)
        self.assertEqual(gone["recorded"], {**NONE, "rounds": 12})
        self.assertEqual((done.returncode, found["holding"]), (8, 1) if is_gone else (0, 2))
        self.assertEqual("1 of 2 entries of" in done.stderr, is_gone)

    def test_other_texts_and_choices_of_other_versions_are_told(self):
        problem, candidates = self.candidates(0)
        other, others = self.candidates(1)
        usual, usuals = self.candidates(2)
        record = self.record([{"problem": problem, "choices": candidates[1], "text_digest": "0" * 32, **ANY},
                              {"problem": other, "choices": {"stages": 99}, **ANY},
                              {"problem": usual, "choices": usuals[0]}])
        said = self.verify(8, record, "--gemms", self.gemms, *QUICK).stdout
        self.assertIn("rows16: text changed: ", said)
        self.assertIn("rows32: is not offered any more: ", said)
        self.assertIn("\n    measured nothing\n", said)
        self.assertIn("\n0 of 2 entries hold; 1 with the usual choices, where there is nothing to measure\n", said)
        # The text that is there now is no other one.
        digests = self.listed[0][1]["text_digests"]
        record = self.record([{"problem": problem, "choices": candidates[1], "text_digest": digests[1], **ANY}])
        self.verify(0, record, "--gemms", self.gemms, *QUICK)

    def test_a_sample_is_the_same_for_the_same_record(self):
        entries = []
        for case in range(3):
            problem, candidates = self.candidates(case)
            entries.append({"problem": problem, "choices": candidates[1], **ANY})
        sampled = set()
        for seed in range(3):
            random.Random(seed).shuffle(entries)
            done = self.verify(0, self.record(entries), "--gemms", self.gemms, *QUICK, "--sample", "2", "--json")
            found = json.loads(done.stdout)
            self.assertEqual((found["sampled"], found["left_out"]), (2, 1))
            sampled.add(tuple(entry["problem"] for entry in found["entries"]))
        self.assertEqual(len(sampled), 1)
        said = self.verify(0, self.record(entries), "--gemms", self.gemms, *QUICK, "--sample", "9").stdout
        self.assertIn("\n3 of 3 entries hold\n", said)

    def test_kernels_of_layers_are_verified(self):
        plan = self.succeed_json("plan", TINY, "--target", "sim")
        kernel = next(one for one in plan["kernels"] if one["operation"] == "gemm_fc2")
        record = self.record([{"problem": kernel["problem"], "choices": dict(kernel["choices"], tile_rows=32), **ANY}])
        said = self.verify(0, record, TINY, *QUICK).stdout
        self.assertIn("tiny gemm_fc2: holds\n", said)

    def test_an_interrupted_command_tells_what_it_has(self):
        entries = [{"problem": problem, "choices": candidates[1], **ANY}
                   for problem, candidates in (self.candidates(0), self.candidates(1))]
        slow = ["--target", "sim", "--block-ms", "50", "--heat-seconds", "0"]
        verification = subprocess.Popen(
            [tool.moejit, "tuning", "verify", self.record(entries), "--gemms", self.gemms, *slow], cwd=self.folder,
            env={"MOEJIT_CACHE_DIR": str(self.cache), "MOEJIT_CACHE_MAX_BYTES": "none", "MOEJIT_CACHE_MAX_FILES": "none",
                 "HOME": str(self.shared), "PATH": "/usr/bin:/bin"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in verification.stderr:
            if "(1 of 2)" in line:
                break
        verification.send_signal(signal.SIGINT)
        said, _ = verification.communicate(timeout=120)
        self.assertEqual(verification.returncode, -signal.SIGINT, said)
        self.assertIn(": holds\n", said)
        self.assertIn("not measured: interrupted", said)
        self.assertIn("\n1 of 2 entries hold\n", said)

    def test_wrong_uses_are_told(self):
        record = self.record([{"problem": "of another layer", "choices": {}}])
        said = self.verify(2, record, *QUICK).stderr
        self.assertIn("wanted layer descriptions or --gemms FILE beside the record", said)
        self.assertIn("running it takes a layer or case that has it", said)
        said = self.verify(2, record, TINY, "--gemms", self.gemms, *QUICK).stderr
        self.assertRegex(said, r"none of the 1 entries of \S*record.json is a problem of the layers and cases")
        self.assertIn("name those that the record was measured with", " ".join(said.split()))
        said = self.verify(2, self.record([]), TINY, *QUICK).stderr
        self.assertIn("has no entries, wanted one or more to verify", said)
        h200 = self.record([{"problem": "p", "choices": {}}], gpu={"name": "NVIDIA H200", "arch": "sm_90a"})
        said = self.verify(2, h200, TINY, *QUICK).stderr
        self.assertTrue(re.search(r"is of the NVIDIA H200.*, and this is the simulator", said), said)
        self.verify(2, record, TINY, *QUICK, "--sample", "0")
        self.verify(3, "nowhere.json", TINY, *QUICK)


if __name__ == "__main__":
    tool.main()
