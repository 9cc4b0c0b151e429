# SPDX-License-Identifier: Apache-2.0
"""Argument: moejit_cpu_seconds. It notes what a test and its processes take, and ends as the test does."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from source_tree import ROOT

sys.path.insert(0, str(ROOT / "tests"))
import cpu_table  # noqa: E402

PROGRAM = sys.argv.pop(1)
# A child of the test takes the time.
BUSY = "import subprocess, sys; subprocess.run([sys.executable, '-c', " \
       "'import time\\nwhile time.process_time() < 0.2: pass'])"


class CpuSeconds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name) / "log"

    def run_noted(self, *command):
        done = subprocess.run([PROGRAM, *command], env={**os.environ, "CPU_LOG": str(self.log)}, check=False)
        return done.returncode, cpu_table.noted(self.log)

    def test_children_count(self):
        command = (sys.executable, "-c", BUSY)
        status, noted = self.run_noted(*command)
        self.assertEqual((status, list(noted)), (0, [command]))
        self.assertGreaterEqual(noted[command], 0.2)

    def test_a_test_that_runs_twice_is_summed(self):
        command = (sys.executable, "-c", BUSY)
        first = self.run_noted(*command)[1][command]
        self.assertGreater(self.run_noted(*command)[1][command], first + 0.1)

    def test_it_ends_as_the_test_does(self):
        self.assertEqual(self.run_noted("/bin/sh", "-c", "exit 77")[0], 77)
        self.assertEqual(self.run_noted("/bin/sh", "-c", "kill -SEGV $$")[0], -signal.SIGSEGV)
        self.assertEqual(self.run_noted("/no/such/program")[0], 127)
        self.assertEqual(len(cpu_table.noted(self.log)), 3)

    def test_nothing_is_noted_unless_asked(self):
        variables = {name: value for name, value in os.environ.items() if name != "CPU_LOG"}
        self.assertEqual(subprocess.run([PROGRAM, "/bin/sh", "-c", "exit 3"], env=variables, check=False).returncode, 3)
        self.assertFalse(self.log.exists())


class Table(unittest.TestCase):
    def test_labels_are_sums_and_the_dearest_come_first(self):
        tests = [{"name": name, "command": ["cpu_seconds", name], "properties": [{"name": "LABELS", "value": [label]}]}
                 for name, label in (("a", "sim"), ("b", "unit"), ("c", "sim"), ("unrun", "gpu"))]
        rows = cpu_table.described(tests, {("a",): 1.0, ("b",): 2.5, ("c",): 3.0})
        self.assertEqual([line.split() for line in cpu_table.table(rows, [10.0, 0.5])],
                         [["CPU", "seconds:", "17.0"], ["10.5", "build"], ["4.0", "sim", "(2)"], ["2.5", "unit", "(1)"],
                          ["CPU", "seconds", "of", "the", "slowest", "tests:"], ["3.0", "c", "[sim]"],
                          ["2.5", "b", "[unit]"], ["1.0", "a", "[sim]"]])


if __name__ == "__main__":
    unittest.main()
