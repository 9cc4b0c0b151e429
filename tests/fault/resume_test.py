# SPDX-License-Identifier: Apache-2.0
"""A build that was killed goes on where it was: the next one compiles what is missing, no more."""
import json
import pathlib
import signal
import struct
import subprocess
import sys
import time

import faults

TINY = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/layers/tiny.json"
BEGUN_AT = 32  # in FakeNvrtcControl
fake_nvrtc = None  # path of the library, set below


class ResumeTest(faults.FaultTest):
    def setUp(self):
        super().setUp()
        self.control = self.folder / "control"
        self.control.write_bytes(struct.pack("<q", 20000).ljust(BEGUN_AT + 8, b"\0"))
        self.variables = {"MOEJIT_NVRTC": fake_nvrtc, "FAKE_NVRTC_CONTROL": str(self.control)}
        self.arguments = ["build", str(TINY), "--arch", "sm_90a", "--variants", "all", "--json",
                          "--jobs", "2", "--cache-dir", str(self.cache)]

    def compiles(self):
        return struct.unpack_from("<q", self.control.read_bytes(), BEGUN_AT)[0]

    def test_a_build_that_was_killed_goes_on(self):
        for wanted in (1, 4, 8):
            process = subprocess.Popen([faults.session, *self.arguments],
                                       env={"HOME": str(self.home), **self.variables},
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and len(self.entries()) < wanted:
                time.sleep(0.001)
            process.kill()
            self.assertEqual(process.wait(timeout=60), -signal.SIGKILL)
            self.assert_published_entries_are_whole(besides=())
        published, before = len(self.entries()), self.compiles()
        done = self.run_session(*self.arguments, preload=False, **self.variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        kernels = len({kernel["entry"] for kernel in report["kernels"]})
        self.assertGreaterEqual(published, 8)
        self.assertGreater(kernels, published + 4)
        self.assertEqual(self.compiles() - before, kernels - published)
        self.assertEqual(report["compiled"], kernels - published)
        self.assertEqual(len(self.entries()), kernels)
        again = self.run_session(*self.arguments, preload=False, **self.variables)
        self.assertEqual(json.loads(again.stdout)["compiled"], 0)


if __name__ == "__main__":
    fake_nvrtc = sys.argv.pop(3)
    faults.main()
