# SPDX-License-Identifier: Apache-2.0
"""The tuner where its files cannot be written, or where it is killed at any call that changes them: the record and the
page are the old ones or the new ones to the byte, and the journal has every round that was over."""
import itertools
import json
import os
import random
import signal
import subprocess

import crash_states
import faults

SMALL = {"name": "small", "operation": "grouped_gemm", "groups": 1, "rows_per_group": 8, "n": 128, "k": 128}
GEMMS = {"gemms": [SMALL]}
CANDIDATES = [{"stages": stages} for stages in (4, 5, 6)]
KILLS = 200 if "FAULT_ALL" in os.environ else 20
MOST = 2000 if "FAULT_ALL" in os.environ else 60


def journal_of(problem, rounds):
    """A journal in which the second candidate gains ten percent."""
    lines = [{"journal": "moejit-tuning-journal-1", "session": problem, "gpu": {"name": "A", "arch": "sm_90a"}},
             {"session": problem, "problem": problem, "candidates": CANDIDATES}]
    for number in range(rounds):
        timed = (("default_first", 0, 100.0), ("candidate", 1, 90.0), ("candidate", 2, 99.0),
                 ("default_last", 0, 100.0))
        lines += [{"session": problem, "problem": problem, "round": number + 1, "place": place,
                   "choices": CANDIDATES[choice], "microseconds": us} for place, choice, us in timed
                  if choice != 2 or number < 4]
    return "".join(json.dumps(line) + "\n" for line in lines)


class TuneCrashTest(faults.FaultTest):
    def setUp(self):
        super().setUp()
        self.record, self.page = self.home / "record.json", self.home / "page.html"

    def write(self, name, text, folder=None):
        path = (folder or self.folder) / name
        path.write_text(text)
        return path

    def command(self, journal):
        return "tune", "--replay", str(journal), "--output", str(self.record), "--report", str(self.page)

    def replay(self, journal, **variables):
        return self.run_session(*self.command(journal), **variables)

    def old_and_new(self):
        """A journal, and the contents of record and page before and after they are made from it."""
        before, journal = self.write("old", journal_of("old", 8)), self.write("new", journal_of("new", 8))
        self.assertEqual(self.replay(before).returncode, 0)
        old = self.contents()
        self.assertEqual(self.replay(journal).returncode, 0)
        new = self.contents()
        self.assertEqual([entry["problem"] for entry in json.loads(new[0])["entries"]], ["new", "old"])
        self.restore(old)
        return journal, old, new

    def contents(self):
        return self.record.read_bytes(), self.page.read_bytes()

    def restore(self, contents):
        for path in self.home.iterdir():
            path.unlink()
        self.record.write_bytes(contents[0])
        self.page.write_bytes(contents[1])

    def test_a_kill_at_any_call_leaves_the_old_files_or_the_new_ones(self):
        journal, old, new = self.old_and_new()
        calls, _ = self.calls(*self.command(journal))
        self.assertLessEqual({"write", "fsync", "renameat"}, {function for function, _ in calls})
        seen = set()
        for call in range(1, len(calls) + 1):
            self.restore(old)
            done = self.replay(journal, FAULT_FUNCTION="*", FAULT_CALL=call, FAULT_KILL=1)
            self.assertEqual(done.returncode, -signal.SIGKILL, call)
            record, page = self.contents()
            self.assertIn(record, (old[0], new[0]), call)
            self.assertIn(page, (old[1], new[1]), call)
            seen.add((record == new[0], page == new[1]))
            self.assertEqual(self.replay(journal).returncode, 0)
            self.assertEqual(self.contents(), new, call)
        self.assertEqual(seen, {(False, False), (True, False), (True, True)})

    def test_a_power_cut_leaves_the_old_files_or_the_new_ones(self):
        journal, old, new = self.old_and_new()
        disk, record = crash_states.Disk(self.home), self.folder / "changes"
        self.assertEqual(self.replay(journal, FAULT_RECORD=record).returncode, 0)
        changes = crash_states.read_changes(record)
        states = list(crash_states.crash_states(disk, changes, MOST))
        self.assertGreater(len(states), 10)
        for at, state in states:
            self.assertIn(state["record.json"], (old[0], new[0]), at)
            self.assertIn(state["page.html"], (old[1], new[1]), at)
        self.assertEqual((states[-1][1]["record.json"], states[-1][1]["page.html"]), new)

    def test_a_sweep_goes_on_from_a_kill_at_any_call_on_its_journal(self):
        gemms = self.write("gemms.json", json.dumps(GEMMS))
        journal = self.home / "record.json.journal"
        sweep = ["tune", "--gemms", str(gemms), "--target", "sim", "--block-ms", "0.001", "--heat-seconds", "0",
                 "--output", str(self.record), "--cache-dir", str(self.folder / "cache")]
        path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(self.folder)}
        chance, rounds, kills = random.Random(1), 0, 0
        while kills < KILLS:
            resumes = ["--resume"] if journal.exists() else []
            done = self.run_session(*sweep, *resumes, FAULT_FUNCTION="*", FAULT_CALL=chance.randrange(1, 60),
                                    FAULT_KILL=1, **path)
            kills += 1
            if done.returncode == 0:  # it had fewer calls left than that
                journal.unlink()
                rounds = 0
                continue
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            if not journal.exists():
                continue
            lines = [line for line in journal.read_text().splitlines() if line.endswith("}")]
            before, rounds = rounds, len([line for line in lines if '"default_last"' in line])
            self.assertGreaterEqual(rounds, before)
        done = self.run_session(*sweep, *(["--resume"] if journal.exists() else []), **path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 of 1 problems are settled", done.stdout)
        self.assertEqual(len(json.loads(self.record.read_text())["entries"]), 1)

    def refused(self, error, *arguments, folder, **variables):
        """What the tool says if a folder's files cannot be written."""
        done = self.run_session(*arguments, FAULT_FOLDER=str(folder), FAULT_ERRNO=faults.error_number(error),
                                **variables)
        self.assertEqual(done.returncode, 3, done.stderr)
        said = [line for line in done.stderr.splitlines() if not line.startswith("moejit: target")]
        self.assertTrue(said[0].startswith("moejit: "), said)
        return said

    def test_folders_that_cannot_be_written_are_told_in_a_sentence(self):
        journal = self.write("some.journal", journal_of("some", 8))
        hint = f"the journal has all that was measured: moejit tune --replay {journal}"
        for name, error in (("EROFS", "Read-only file system"), ("EACCES", "Permission denied")):
            for option, path in (("--output", self.record), ("--report", self.page)):
                said = self.refused(name, "tune", "--replay", str(journal), option, str(path), folder=self.home,
                                    FAULT_FUNCTION="openat")
                self.assertEqual(said[0], f"moejit: cannot write {path}: {error}")
                self.assertIn(f"{hint} {option} FILE writes it elsewhere", " ".join(said))
                self.assertFalse(path.exists())
            gemms = self.write("gemms.json", json.dumps(GEMMS))
            said = self.refused(name, "tune", "--gemms", str(gemms), "--target", "sim", "--output", str(self.record),
                                "--cache-dir", str(self.folder / "cache"), folder=self.home, FAULT_FUNCTION="openat",
                                PATH="/usr/local/bin:/usr/bin:/bin")
            # In front of it the tool warns of times in the simulator.
            self.assertEqual(said[1], f"moejit: cannot write {self.record}.journal: {error}")
            self.assertEqual(list(self.home.iterdir()), [])

    def test_a_full_disk_leaves_the_old_files(self):
        journal, old, _ = self.old_and_new()
        for function, error in itertools.product(("write", "fsync", "close"), ("ENOSPC", "EDQUOT")):
            said = self.refused(error, "tune", "--replay", str(journal), "--output", str(self.record),
                                folder=self.home, FAULT_FUNCTION=function)
            text = os.strerror(faults.error_number(error))
            self.assertEqual(said[0], f"moejit: cannot write {self.record}: {text}")
            self.assertEqual(self.contents(), old)
            self.assertEqual(sorted(path.name for path in self.home.iterdir()), ["page.html", "record.json"])

    def test_tuners_that_end_at_once_on_one_record_lose_nothing(self):
        names = [f"problem{number}" for number in range(6)]
        journals = [self.write(f"{name}.journal", journal_of(name, 8)) for name in names]
        for _ in range(10):
            self.record.unlink(missing_ok=True)
            tuners = [subprocess.Popen([faults.session, "tune", "--replay", journal, "--output", self.record],
                                       stdout=subprocess.DEVNULL) for journal in journals]
            self.assertEqual([tuner.wait() for tuner in tuners], [0] * len(tuners))
            entries = json.loads(self.record.read_text())["entries"]
            self.assertEqual([entry["problem"] for entry in entries], names)


if __name__ == "__main__":
    faults.main()
