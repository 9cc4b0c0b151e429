# SPDX-License-Identifier: Apache-2.0
"""The power fails while a pack is written: under its name is the old one or the new one, each to
the byte, and the new one once the tool has said that it is done. What else lies there is refused.
"""
import os
import pathlib
import shutil
import sys

import crash_states
import faults

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from pack_file import pack_of  # noqa: E402: after the path

TINY = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/layers/tiny.json"
PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEILwxEe+khyh+EqECK4UY+TDcYd7HsT/QXUN3fxNCDKKq
-----END PRIVATE KEY-----
"""
MOST = 2000 if "FAULT_ALL" in os.environ else 60
fake_nvrtc = None  # path of the library, set below


class PackCrashTest(faults.FaultTest):
    def setUp(self):
        super().setUp()
        self.inputs = self.folder / "inputs"
        self.inputs.mkdir(mode=0o700)
        self.pack = self.home / "some.moejitpack"

    def input(self, name, content):
        path = self.inputs / name
        path.write_bytes(content)
        path.chmod(0o600)
        return str(path)

    def write(self, content):
        self.pack.write_bytes(content)
        self.pack.chmod(0o644)

    def verify(self, path):
        return self.run_session("pack", "verify", str(path), preload=False)

    def check_power_cuts(self, *arguments, **variables):
        old = self.pack.read_bytes() if self.pack.exists() else None
        disk = crash_states.Disk(self.home)
        record = self.folder / "record"
        record.unlink(missing_ok=True)
        done = self.run_session(*arguments, FAULT_RECORD=record, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        new = self.pack.read_bytes()
        self.assertTrue(old != new, "the pack did not change")
        changes = crash_states.read_changes(record)
        states = list(crash_states.crash_states(disk, changes, MOST, again=True))
        self.assertGreater(len(states), 10)
        self.assertIn("sync", {change[0] for change in changes})
        for at, state in states:
            present = state.get(self.pack.name)
            # Not assertIn, which prints whole packs.
            self.assertTrue(present == new or (present == old and at < len(changes)),
                            f"neither the old pack nor the new after {at} of {len(changes)} changes: {changes[:at][-3:]}")
            shutil.rmtree(self.home)
            self.home.mkdir()
            crash_states.write_state(state, self.home)
            for name, content in state.items():
                verified = self.verify(self.home / name)
                self.assertEqual(verified.returncode, 0 if content in (old, new) else 4,
                                 f"{name}: {verified.stderr}")
            if present is None:
                self.assertEqual(self.verify(self.pack).returncode, 3)

    def test_merging(self):
        inputs = [self.input("a", pack_of((0, 1))), self.input("b", pack_of((1, 2)))]
        self.check_power_cuts("pack", "merge", *inputs, "-o", str(self.pack))

    def test_merging_over_another_pack(self):
        self.write(pack_of((7, 8)))
        inputs = [self.input("a", pack_of((0, 1))), self.input("b", pack_of((1, 2)))]
        self.check_power_cuts("pack", "merge", *inputs, "-o", str(self.pack))

    def test_signing_in_place(self):
        self.write(pack_of(range(5)))
        key = self.input("private.pem", PRIVATE.encode())
        self.check_power_cuts("pack", "sign", str(self.pack), "--key", key, "--serial", "1")
        self.check_power_cuts("pack", "sign", str(self.pack), "--key", key, "--serial", "2")

    def test_building(self):
        control = self.folder / "control"
        self.check_power_cuts("build", str(TINY), "--arch", "sm_90a", "--variants", "described",
                              "--cache-dir", str(self.folder / "cache"), "--pack", str(self.pack),
                              MOEJIT_NVRTC=fake_nvrtc, FAKE_NVRTC_CONTROL=control)


if __name__ == "__main__":
    fake_nvrtc = sys.argv.pop(3)
    faults.main()
