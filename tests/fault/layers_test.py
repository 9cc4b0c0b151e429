# SPDX-License-Identifier: Apache-2.0
"""The user's folder and three packs: the first that has a kernel serves it, none of the packs is
ever written to, and what fails in one is made up for by the next."""
import collections
import json
import pathlib
import shutil
import struct
import sys

import faults

TINY = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/layers/tiny.json"
fake_nvrtc = None  # path of the library, set below


class LayersTest(faults.FaultTest):
    """The packs lie below FAULT_FOLDER, the user's folder elsewhere. Sizes of the code say where a
    kernel came from."""

    BYTES = {"compiler": 1 << 10, "a": 1 << 13, "b": 1 << 14, "c": 1 << 15, "user": 1 << 16}

    def setUp(self):
        super().setUp()
        made = {name: self.make_all(name) for name in "abc"}
        # Two are the last: one of them is asked for first, which is while no compiler is open, and then packs come
        # before the user's folder (KernelStore::find).
        asked_first = (b'"moejit_gemm_fc1', b'"moejit_activation_quantize')
        entries = sorted(made["a"].glob("v2/??/*"),
                         key=lambda entry: (any(name in entry.read_bytes() for name in asked_first), entry))
        self.assertGreater(len(entries), 4)
        self.count = len(entries)
        self.keys = [entry.relative_to(made["a"]) for entry in entries]
        self.packs = []
        for name, keys in (("a", self.keys[:1]), ("b", self.keys[:2]), ("c", self.keys[:3])):
            for entry in made[name].glob("v2/??/*"):
                if entry.relative_to(made[name]) not in keys:
                    entry.unlink()
            pack = self.home / f"{name}.moejitpack"
            self.tool("pack", "merge", made[name], "-o", pack)
            self.packs.append(pack)
        # The user's folder has two: one that the packs have as well, and one that they lack.
        self.user = self.make_all("user")
        for key in self.keys[:2] + self.keys[4:]:
            (self.user / key).unlink()

    def tool(self, *arguments, preload=False, bytes_of="compiler", **variables):
        control = self.folder / "control"
        control.write_bytes(struct.pack("<qq", 0, self.BYTES[bytes_of]))
        return self.run_session(*map(str, arguments), preload=preload, MOEJIT_NVRTC=fake_nvrtc,
                                FAKE_NVRTC_CONTROL=control, **variables)

    def build(self, folder, *arguments, **variables):
        return self.tool("build", TINY, "--arch", "sm_90a", "--variants", "described", "--json",
                         "--jobs", "1", "--cache-dir", folder, *arguments, **variables)

    def make_all(self, name):
        folder = self.folder / name
        done = self.build(folder, bytes_of=name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return folder

    def serve(self, **variables):
        """With an own copy of the user's folder, so that each time begins alike."""
        serving = self.folder / "serving"
        shutil.rmtree(serving, ignore_errors=True)
        shutil.copytree(self.user, serving)
        done = self.build(serving, "--packs", ":".join(map(str, self.packs)), preload=True,
                          **variables)
        warnings = [line for line in done.stderr.splitlines() if "warning" in line]
        return done, warnings

    def origins(self, done):
        """How many kernels came from where, by the size of their code."""
        names = sorted(self.BYTES, key=self.BYTES.get, reverse=True)
        return collections.Counter(
            next(name for name in names if kernel["bytes"] > self.BYTES[name])
            for kernel in json.loads(done.stdout)["kernels"])

    def test_the_first_that_has_a_kernel_serves_it_and_packs_are_only_read(self):
        log, record = self.folder / "log", self.folder / "record"
        before = {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns)
                  for path in [self.home, *self.home.iterdir()]}
        done, warnings = self.serve(FAULT_LOG=log, FAULT_RECORD=record)
        self.assertEqual((done.returncode, warnings), (0, []), done.stderr)
        self.assertEqual(self.origins(done), {"user": 2, "a": 1, "b": 1,
                                              "compiler": self.count - 4})
        report = json.loads(done.stdout)
        self.assertEqual((report["from_cache"], report["from_packs"], report["compiled"]),
                         (2, 2, self.count - 4))
        # No call that changes anything, and none but these.
        self.assertEqual(record.read_text(), "")
        functions = {line.split()[0] for line in log.read_text().splitlines()}
        self.assertEqual(functions, {"openat", "fstat", "pread", "close"})
        after = {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns)
                 for path in [self.home, *self.home.iterdir()]}
        self.assertEqual(after, before)
        # What came from packs is not copied; what was compiled is there the next time.
        again = self.build(self.folder / "serving")
        self.assertEqual(json.loads(again.stdout)["compiled"], 2)

    def test_a_pack_that_cannot_be_read_is_made_up_for(self):
        log = self.folder / "log"
        self.serve(FAULT_LOG=log)
        calls = [line.split()[0] for line in log.read_text().splitlines()]
        reads = calls.count("pread")
        # Each is looked at by fstat(), then header and front are read.
        opened = calls[:len(calls) - calls[::-1].index("fstat")].count("pread") + 2
        self.assertEqual(opened, 6)
        self.assertGreaterEqual(reads, opened + 4)  # two entries, and how many more depends on the keys
        for name in faults.ERRORS:
            if name == "EINTR":
                continue  # is tried again: below
            for call in range(1, reads + 1):
                done, warnings = self.serve(FAULT_FUNCTION="pread", FAULT_CALL=call,
                                            FAULT_ERRNO=faults.error_number(name))
                where = f"pread {call} {name}: {done.stderr}"
                if call <= opened:
                    self.assertEqual(done.returncode, 3, where)
                    self.assertIn(".moejitpack: it cannot be read: ", done.stderr, where)
                    continue
                self.assertEqual((done.returncode, len(warnings)), (0, 1), where)
                self.assertEqual(sum(self.origins(done).values()), self.count, where)
        done, warnings = self.serve(FAULT_FUNCTION="pread", FAULT_CALL=reads,
                                    FAULT_ERRNO=faults.error_number("EINTR"))
        self.assertEqual((done.returncode, warnings), (0, []))

    def test_an_entry_that_is_damaged_comes_from_the_next_pack(self):
        content = bytearray(self.packs[0].read_bytes())
        content[-100] ^= 1
        self.packs[0].write_bytes(content)
        done, warnings = self.serve()
        self.assertEqual((done.returncode, len(warnings)), (0, 1), done.stderr)
        self.assertEqual(self.origins(done), {"user": 2, "b": 2, "compiler": self.count - 4})
        self.assertEqual(json.loads(done.stdout)["corrupt"], 1)


if __name__ == "__main__":
    fake_nvrtc = sys.argv.pop(3)
    faults.main()
