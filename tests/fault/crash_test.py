# SPDX-License-Identifier: Apache-2.0
"""The power fails at any time: whatever the disk has then of what a session did, the next one goes
on with it, and nothing that is damaged is served.

The states are those of crash_states.py, some at each time; FAULT_ALL=1 takes many more of them.
"""
import os
import pathlib
import shutil

import crash_states
import faults
from faults import LIMIT, SESSION

MOST = 500 if "FAULT_ALL" in os.environ else 60


class CrashTest(faults.FaultTest):
    def states_of(self, *arguments, again=False, **variables):
        """Runs a session, and gives what the disk may hold at any time of it."""
        disk = crash_states.Disk(self.home)
        record = self.folder / "record"
        self.good = self.run_session(*arguments, FAULT_RECORD=record, **variables)
        self.assertEqual(self.good.returncode, 0)
        self.changes = crash_states.read_changes(record)
        newest = crash_states.Disk(self.home).state({})
        count = 0
        for done, state in crash_states.crash_states(disk, self.changes, MOST, again):
            count += 1
            yield done, state
        self.assertEqual(disk.state({}), newest)  # the record has all that was done
        self.assertGreater(count, 30)

    def power_up(self, state):
        shutil.rmtree(self.home)
        self.home.mkdir()
        crash_states.write_state(state, self.home)

    def check(self, done, arguments, besides, **variables):
        where = f"after {self.changes[:done][-3:]}"
        # A name never comes before the bytes that it stands for.
        self.assert_published_entries_are_whole(besides)
        again = self.run_session(*arguments, preload=False, **variables)
        self.assertEqual((again.returncode, again.stdout), (0, self.good.stdout), where)
        self.assert_published_entries_are_whole(())
        problems = [line for line in again.stderr.splitlines() if "is not used" not in line]
        self.assertEqual(problems, [], where)

    def test_nothing_bad_is_served_after_a_power_cut(self):
        self.make_template()
        for done, state in self.states_of(*SESSION, **LIMIT):
            self.power_up(state)
            self.check(done, SESSION, ("b",), **LIMIT)

    def test_the_first_session_of_a_user_may_be_cut_off(self):
        for done, state in self.states_of("run", "a", "b", "c"):
            self.power_up(state)
            self.check(done, ("run", "a", "b", "c"), ())

    def test_what_was_published_stays(self):
        """In folders that are there: each entry is safe when put() has returned, which it had when
        the next one was begun, and when the session ended."""
        names = [f"{i}" for i in range(2000) if faults.key_of(f"{i}")[:2] == "ab"][:4]
        self.run_session("put", names.pop(), preload=False)
        paths = [str(self.entry(name)) for name in names]
        checked = 0
        for done, state in self.states_of("put", *names, again=True):
            renamed = [change[3] for change in self.changes[:done] if change[0] == "rename"]
            published = [path for path in paths if path in renamed]
            is_over = done == len(self.changes)
            self.power_up(state)
            for path in published if is_over else published[:-1]:
                self.assertTrue(faults.is_whole(pathlib.Path(path)), self.changes[:done][-3:])
                checked += 1
        self.assertGreater(checked, 30)


if __name__ == "__main__":
    faults.main()
