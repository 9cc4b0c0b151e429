# SPDX-License-Identifier: Apache-2.0
"""The process is killed at every call that it makes on the cache, and at random times: 300 times,
or as often as KILL_RUNS says."""
import os
import random
import shutil
import signal
import subprocess
import time

import faults
from faults import LIMIT, SESSION


RUNS = int(os.environ.get("KILL_RUNS", 300))


class KillTest(faults.FaultTest):
    def test_a_kill_at_any_call_loses_nothing_that_was_published(self):
        self.make_template()
        calls, good = self.calls(*SESSION, **LIMIT)
        self.assertGreater(len(calls), 200)
        for call in range(1, len(calls) + 1):
            self.restore_template()
            before = {path for path in self.entries() if faults.is_whole(path)}
            killed = self.run_session(*SESSION, FAULT_FUNCTION="*", FAULT_CALL=call, FAULT_KILL=1,
                                      **LIMIT)
            self.assertEqual(killed.returncode, -signal.SIGKILL)
            self.assert_published_entries_are_whole()
            self.assertLessEqual(len(list(self.cache.glob("v2/tmp/*"))), 2, call)
            # What was there is there, less what was evicted: the oldest of the unused ones.
            gone = {self.entry(name) for name in "xyz"}
            self.assertLessEqual(before - gone, set(self.entries()), call)
            again = self.run_session(*SESSION, preload=False, **LIMIT)
            self.assertEqual((again.returncode, again.stdout), (0, good.stdout), call)
            # The next one that publishes sweeps at once: the writer is dead.
            self.run_session("put", "fresh", preload=False)
            self.assertEqual(list(self.cache.glob("v2/tmp/*")), [], call)

    def test_random_kills_leave_bounded_litter_and_whole_entries(self):
        names = [f"{i}" for i in range(64)]
        chance = random.Random(1)
        killed = verified = 0
        latest = 0.02  # seconds; follows how fast this machine is just now, so that most are killed
        for run in range(RUNS):
            if run % 100 == 0:  # else all is there at some time, and nothing is written any more
                shutil.rmtree(self.home)
                self.home.mkdir()
                before = set()
            process = subprocess.Popen([faults.session, "put", *names],
                                       env={"HOME": str(self.home)}, cwd=self.folder)
            time.sleep(chance.uniform(0, latest))
            process.kill()
            is_killed = process.wait(timeout=60) == -signal.SIGKILL
            killed += is_killed
            latest *= 1.1 if is_killed else 0.8
            litter = list(self.cache.glob("v2/tmp/*"))
            self.assertLessEqual(len(litter), 2)
            self.assert_published_entries_are_whole(besides=())
            entries = set(self.entries())
            self.assertLessEqual(before, entries)
            verified += len(entries)
            before = entries
        self.assertGreater(killed, RUNS // 6)
        done = self.run_session("put", *names, preload=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        listing = self.run_session("list", preload=False).stdout.splitlines()
        self.assertEqual(listing, sorted(f"{faults.key_of(name)} " for name in names))
        if "KILL_RUNS" in os.environ:
            print(f"{RUNS} runs, {killed} killed, {verified} entries verified")


if __name__ == "__main__":
    faults.main()
