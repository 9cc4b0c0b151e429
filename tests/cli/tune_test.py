# SPDX-License-Identifier: Apache-2.0
"""Sweeps of the tuner, on the simulator: what they write, and what is left when they are ended."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import tool

GEMMS = {"gemms": [{"name": "small", "operation": "grouped_gemm", "groups": 1, "rows_per_group": 8, "n": 128, "k": 128}]}
QUICK = ["--target", "sim", "--block-ms", "0.001", "--heat-seconds", "0"]
SLOW = ["--target", "sim", "--block-ms", "20", "--heat-seconds", "0"]


class Tune(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.gemms = self.write("gemms.json", GEMMS)
        self.tune = ["tune", "--gemms", self.gemms, *QUICK, "--output", "record.json"]
        # Two problems whose rounds take a third of a second, for tests that have to meet a sweep while it runs.
        cases = [dict(GEMMS["gemms"][0], name=f"k{k}", k=k) for k in (128, 256)]
        two = self.write("two_gemms.json", {"gemms": cases})
        self.two_gemms = ["tune", "--gemms", two, *QUICK, "--output", "record.json"]
        self.slow_tune = ["tune", "--gemms", two, *SLOW, "--output", "record.json"]

    def read(self, name="record.json"):
        return json.loads((self.folder / name).read_text())

    def lines(self, name="record.json.journal"):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def start(self, *arguments):
        return subprocess.Popen([tool.moejit, *map(str, arguments)], cwd=self.folder, text=True,
                                env={"MOEJIT_CACHE_DIR": str(self.cache), "HOME": str(self.shared), "PATH": "/usr/bin:/bin"},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def refuse(self, code, *arguments):
        done = self.run_tool(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def wait_for_blocks(self, process, count, name="record.json.journal"):
        """Waits until the journal has that many blocks, or the process has ended."""
        journal = self.folder / name
        while process.poll() is None:
            if journal.exists() and journal.read_text().count('"microseconds"') >= count:
                return
            time.sleep(0.01)

    def test_a_dry_run_lists_what_would_be_measured(self):
        text = self.succeed("tune", "--gemms", self.gemms, "--dry-run").stdout
        self.assertIn("small: 24 candidates, 100 % of the estimated time", text)
        self.assertIn("1 problem, 24 candidates: about 1 min on a GPU, and never more than --budget\n", text)
        self.assertIn("about 8 min", self.succeed("tune", "--gemms", self.gemms, "--dry-run", "--block-ms", "1000").stdout)
        listed = self.succeed_json("tune", "--gemms", self.gemms, "--dry-run")
        problems = listed["problems"]
        self.assertEqual(listed["estimated_seconds"], 48)  # 20 blocks of 0.1 s for each candidate
        self.assertEqual([(one["subject"], one["candidates"], one["estimated_share"]) for one in problems],
                         [("small", 24, 1.0)])
        self.assertIn(problems[0]["problem"], text)
        training = self.layer(max_tokens=4096)
        text = self.succeed("tune", training, "--pass", "training", "--dry-run").stdout
        self.assertIn("tiny gemm_fc1_dgrad: ", text)
        self.assertRegex(text, r"tiny unpermute: \d+ candidates, [\d.]+ % of the estimated time\n    row_chain load=combined_rows ")
        shares = [float(share) for share in re.findall(r"([\d.]+) % of the estimated time", text)]
        self.assertAlmostEqual(sum(shares), 100.0, delta=0.5 * len(shares))
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertFalse((self.folder / "record.json").exists())

    def test_kernels_that_are_bound_by_memory_are_not_the_last(self):
        training = self.layer(passes=["forward", "backward"], max_tokens=4096, hidden=4096, intermediate=128)
        text = self.succeed("tune", training, "--dry-run").stdout
        kinds = re.findall(r"\n    (\w+) ", text)
        self.assertGreater(len(kinds), kinds.index("row_chain") + 1)
        self.assertIn("grouped_gemm", kinds[kinds.index("row_chain"):])

    def test_candidates_are_compiled_without_a_gpu(self):
        # A group of so many rows has 4 candidates. NVRTC takes about two seconds for each.
        gemms = self.write("many_rows.json", {"gemms": [dict(GEMMS["gemms"][0], rows_per_group=300)]})
        said = self.succeed("tune", "--gemms", gemms, "--compile-only").stdout
        self.assertIn("4 kernels; compiled: 4, from cache: 0", said)
        said = self.succeed("tune", "--gemms", gemms, "--compile-only").stdout
        self.assertIn("4 kernels; compiled: 0, from cache: 4", said)

    def test_a_sweep_settles_and_its_journal_decides_the_same(self):
        done = self.succeed(*self.tune)
        self.assertIn("1 of 1 problems are settled", done.stdout)
        self.assertRegex(done.stderr, r"moejit: small: .*, \d+ rounds \(1 of 1, 100 % of the estimated time, done\)\n")
        record, lines = self.read(), self.lines()
        self.assertEqual((record["gpu"]["name"], len(record["entries"])), ("simulator", 1))
        self.assertEqual(len(lines[1]["candidates"]), len(lines[1]["text_digests"]))
        self.assertIn(record["entries"][0]["choices"], lines[1]["candidates"])
        # A race may end after two rounds, when all candidates are far behind.
        self.assertGreaterEqual(record["entries"][0]["rounds"], 2)
        first = [line for line in lines if line.get("round") == 1]
        self.assertEqual([line["place"] for line in (first[0], first[-1])], ["default_first", "default_last"])
        self.succeed("tune", "--replay", "record.json.journal", "--output", "again.json")
        self.assertEqual(self.read("again.json"), record)
        summary = self.succeed_json("tune", "--replay", "record.json.journal")
        self.assertEqual((summary["settled"], summary["changed_bits"]), (1, 0))
        self.assertEqual(summary["estimated_shares"], {lines[1]["problem"]: 1.0})
        # Nothing is left to do.
        before = len(lines)
        self.succeed(*self.tune, "--resume")
        self.assertEqual(len([line for line in self.lines()[before:] if "microseconds" in line]), 0)
        self.assertEqual(self.read()["entries"][0]["choices"], record["entries"][0]["choices"])
        self.assertIn("--resume goes on with it", self.refuse(2, *self.tune))

    def test_a_spent_budget_leaves_a_record_of_what_is_settled(self):
        said = self.succeed(*self.tune, "--budget", "0.000001s").stdout
        self.assertIn("the budget of 0.000001s is spent; --resume goes on with what is left", said)
        self.assertEqual(self.read()["entries"], [])
        self.assertIn("1 of 1 problems are settled", self.succeed(*self.tune, "--resume").stdout)

    def test_an_interrupted_sweep_writes_its_record_and_goes_on_later(self):
        blocks = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            sweep = self.start(*self.slow_tune, *(["--resume"] if blocks else []))
            self.wait_for_blocks(sweep, blocks + 1)
            sweep.send_signal(number)
            out, _ = sweep.communicate(timeout=120)
            self.assertEqual(sweep.returncode, -number, out)
            self.assertIn("interrupted; --resume goes on with what is left", out)
            self.read()
            blocks = len([line for line in self.lines() if "microseconds" in line])
        self.assertIn("2 of 2 problems are settled", self.succeed(*self.two_gemms, "--resume").stdout)
        sessions = {line["session"] for line in self.lines() if "microseconds" in line}
        self.assertEqual(len(sessions), 3)
        self.assertGreater(len([line for line in self.lines() if "microseconds" in line]), blocks)

    def test_a_killed_sweep_loses_a_round_at_most(self):
        chance = random.Random(3)
        for i in range(6):
            sweep = self.start(*self.tune, *(["--resume"] if i else []))
            self.wait_for_blocks(sweep, 1)
            time.sleep(chance.random() * 0.2)
            sweep.kill()
            sweep.communicate()
            self.succeed_json("tune", "--replay", "record.json.journal")
        self.assertIn("1 of 1 problems are settled", self.succeed(*self.tune, "--resume").stdout)

    def worker_of(self, process):
        """Waits for the process in which the kernels of a sweep run; returns its number."""
        while process.poll() is None:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if children:
                return int(children[0])
            time.sleep(0.01)
        return None

    def test_kernels_run_in_a_process_that_may_die(self):
        for number, fault in ((signal.SIGSEGV, None), (signal.SIGSTOP, "hangs")):
            journal = f"{number}.journal"
            # Slow enough to be met in its first rounds, and no slower: it goes on to its end.
            tune = ["5" if word == "20" else word for word in self.slow_tune]
            sweep = self.start(*tune, "--candidate-limit", "5s", "--journal", journal)
            worker = self.worker_of(sweep)
            self.wait_for_blocks(sweep, 1, journal)
            os.kill(worker, number)
            out, said = sweep.communicate(timeout=300)
            self.assertEqual(sweep.returncode, 0, said)
            self.assertIn("2 of 2 problems are settled", out)
            faults = [line["fault"] for line in self.lines(journal) if "fault" in line]
            self.assertEqual([one for one in faults if one != fault], [], said)

    def test_no_process_is_left_behind(self):
        sweep = self.start(*self.slow_tune)
        worker = self.worker_of(sweep)
        self.wait_for_blocks(sweep, 1)
        sweep.kill()
        sweep.communicate()
        state = pathlib.Path(f"/proc/{worker}/stat")
        for _ in range(1000):
            # One that nobody has waited for yet is a zombie.
            if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
            time.sleep(0.01)
        self.fail("the process in which kernels run outlives the tuner")

    def test_two_tuners_on_one_journal_are_one_too_many(self):
        sweep = self.start(*self.slow_tune)
        self.wait_for_blocks(sweep, 1)
        said = self.refuse(3, *self.slow_tune, "--resume")
        sweep.kill()
        sweep.communicate()
        self.assertIn("record.json.journal", said)
        self.assertIn("another tuner has it open", said)

    def test_wrong_uses_are_told(self):
        self.assertIn("wanted layer descriptions, --gemms FILE, or --replay", self.refuse(2, "tune"))
        self.assertIn("--output", self.refuse(2, "tune", "--gemms", self.gemms))
        self.assertIn("wanted a time such as 90s", self.refuse(2, *self.tune, "--budget", "soon"))
        self.assertIn("nowhere", self.refuse(3, *self.tune[:-1], "/nowhere/record.json"))
        self.write("torn.journal", "{")
        self.assertIn("torn.journal", self.refuse(3, "tune", "--replay", "torn.journal"))
        done = self.run_tool("tune", "--gemms", self.gemms, "--output", "r.json", "--target", "cuda",
                             MOEJIT_CUDA_DRIVER="/no/libcuda.so")
        self.assertEqual(done.returncode, 5)
        self.assertIn("--dry-run", done.stderr)


if __name__ == "__main__":
    tool.main()
