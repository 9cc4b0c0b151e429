# SPDX-License-Identifier: Apache-2.0
"""Nodes without a compiler, home, PATH or anything to write to: folders and packs serve them."""
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess

import tool
from tool import TINY

UNSHARE = shutil.which("unshare")
MOUNT = shutil.which("mount")
NAMESPACE = [UNSHARE, "-m"] if os.geteuid() == 0 else [UNSHARE, "-Urm"]


def may_mount():
    return bool(UNSHARE and MOUNT) and subprocess.run(
        [*NAMESPACE, MOUNT, "-t", "tmpfs", "tmpfs", "/mnt"], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class NodeTest(tool.ToolTest):
    """Kernels are made once, into a folder and a pack."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.missing = None
        cls.pack = cls.shared / "kernels.moejitpack"
        done = cls.run_bare(["build", TINY, "--cache-dir", cls.cache, "--pack", cls.pack,
                             "--variants", "described", "--json"], LD_DEBUG="files")
        if done.returncode != 0:
            cls.missing = "there is no NVRTC on this machine"
            return
        assert cls.opened_nvrtc(done), done.stderr
        cls.kernels = len(json.loads(done.stdout)["kernels"])
        environment = json.loads(cls.run_bare(["env", "--json"]).stdout)
        cls.nvrtc = pathlib.Path(environment["compiler of cuda"]["text"].split(", ")[-1])

    def setUp(self):
        super().setUp()
        if self.missing:
            self.skipTest(self.missing)

    @classmethod
    def run_bare(cls, arguments, prefix=(), **environment):
        """With no variables but these: no HOME, no PATH."""
        return subprocess.run([*prefix, tool.moejit, *map(str, arguments)], cwd=cls.shared,
                              env={name: str(value) for name, value in environment.items()},
                              stdin=subprocess.DEVNULL, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @staticmethod
    def opened_nvrtc(done):
        """Whether the dynamic linker, asked with LD_DEBUG, has opened it; to look is no harm."""
        opened = [line for line in done.stderr.splitlines() if "calling init: " in line]
        assert opened, "LD_DEBUG says nothing"
        return any("libnvrtc" in line for line in opened)

    def served(self, prefix=(), layer=TINY, **environment):
        """How many kernels came from folder and packs, and what the process said."""
        done = self.run_bare(["build", layer, "--json"], prefix, LD_DEBUG="files", **environment)
        said = "\n".join(line for line in done.stderr.splitlines() if "moejit: " in line)
        self.assertEqual(done.returncode, 0, said)
        self.assertFalse(self.opened_nvrtc(done))
        report = json.loads(done.stdout)
        self.assertEqual(report["compiled"], 0)
        return report["from_cache"], report["from_packs"], said

    def places(self):
        """Where the kernels are, and how many then come from folder and pack."""
        yield {"MOEJIT_CACHE_DIR": self.cache}, (self.kernels, 0, "")
        yield {"MOEJIT_CACHE_DIR": self.folder / "empty", "MOEJIT_PACKS": self.pack}, (
            0, self.kernels, "")

    def test_any_library_for_nvrtc_will_do(self):
        # One of another name tells no version unless it is opened, which nobody does.
        other = self.folder / "other.so"
        other.symlink_to(self.nvrtc)
        for place, wanted in self.places():
            for nvrtc in ("/nonexistent", other, self.nvrtc):
                self.assertEqual(self.served(MOEJIT_NVRTC=nvrtc, MOEJIT_FROZEN=1, **place), wanted)
            self.assertEqual(self.served(MOEJIT_NVRTC="/nonexistent", **place), wanted)

    def test_a_machine_without_nvrtc(self):
        if not may_mount():
            self.skipTest("mounting is not permitted here")
        script = 'for file in "$0"/libnvrtc*; do "$1" --bind /dev/null "$file"; done; shift; exec "$@"'
        prefix = [*NAMESPACE, "/bin/sh", "-c", script, self.nvrtc.parent, MOUNT]
        found = json.loads(self.run_bare(["env", "--json"], prefix).stdout)
        if found["compiler of cuda"]["found"]:
            self.skipTest("NVRTC is in several places")
        for place, wanted in self.places():
            self.assertEqual(self.served(prefix, MOEJIT_FROZEN=1, **place), wanted)
            self.assertEqual(self.served(prefix, **place), wanted)

    def test_a_file_system_that_is_only_read(self):
        if not may_mount():
            self.skipTest("mounting is not permitted here")
        script = '"$0" --bind "$1" "$1" && "$0" -o remount,bind,ro "$1" && shift && exec "$@"'
        prefix = [*NAMESPACE, "/bin/sh", "-c", script, MOUNT, self.shared]
        written = self.run_bare(["build", TINY, "--json"], prefix, MOEJIT_CACHE_DIR=self.cache)
        self.assertEqual(json.loads(written.stdout)["cache"], f"{self.cache} (read-only)")
        for frozen in ({"MOEJIT_FROZEN": 1}, {}):
            self.assertEqual(self.served(prefix, MOEJIT_NVRTC="/nonexistent", **frozen,
                                         MOEJIT_CACHE_DIR=self.cache), (self.kernels, 0, ""))
            # Where the default folder cannot be made, the pack serves all the same.
            from_cache, from_packs, said = self.served(
                prefix, MOEJIT_NVRTC="/nonexistent", **frozen, HOME=self.shared / "none",
                MOEJIT_PACKS=self.pack)
            self.assertEqual((from_cache, from_packs), (0, self.kernels))
            self.assertIn("kernels stay in memory", said)

    def test_folders_of_earlier_versions_and_copies_of_entries(self):
        copy = self.folder / "copy"
        shutil.copytree(self.cache, copy)
        shutil.rmtree(copy / "v2/compilers")
        wanted = (self.kernels, 0, "")
        for _ in range(2):
            self.assertEqual(self.served(MOEJIT_NVRTC="/nonexistent", MOEJIT_CACHE_DIR=copy), wanted)
            # Read once and recorded for the next process; a damaged record is as none.
            record, = (copy / "v2/compilers").iterdir()
            self.assertIn("nvrtc", record.read_text())
            record.write_text("damaged")

    def build_elsewhere(self, *arguments, prefix=(), **environment):
        """A build that compiles all kernels; its report and what it said at its end."""
        done = self.run_bare(["build", TINY, "--json", *arguments], prefix, **environment)
        errors = [line for line in done.stderr.splitlines()
                  if line.startswith("moejit: ") and not re.match(r"moejit: (warning|\d+/)", line)]
        return done.returncode, json.loads(done.stdout), "\n".join(errors)

    def refuse_to_build(self, layer, missing, why, prefix=(), **environment):
        """A build that ends before it compiles anything: it says why the missing kernels could not be written."""
        done = self.run_bare(["build", layer], prefix, **environment)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        self.assertNotRegex(done.stderr, r"moejit: \d+/\d+ ")  # no kernel was compiled
        self.assertIn(f"moejit: {missing} of {self.kernels} kernels are missing, and could not be written: {why}",
                      done.stderr)
        self.assertIn("hint: nothing was compiled", done.stderr)

    def test_a_build_looks_first_whether_it_can_write(self):
        self.refuse_to_build(TINY, self.kernels, "cache folder /proc/none/.cache/moejit: it cannot be made: ",
                             HOME="/proc/none")
        other = self.layer(intermediate=384)
        missing = json.loads(self.why(other, "--json", MOEJIT_CACHE_DIR=self.cache))["missing"]
        self.assertIn(missing, range(1, self.kernels))
        if not may_mount():
            self.skipTest("mounting is not permitted here")
        script = '"$0" --bind "$1" "$1" && "$0" -o remount,bind,ro "$1" && shift && exec "$@"'
        prefix = [*NAMESPACE, "/bin/sh", "-c", script, MOUNT, self.shared]
        self.refuse_to_build(other, missing, f"cache folder {self.cache}: it is read-only\n", prefix,
                             MOEJIT_CACHE_DIR=self.cache)

    def test_a_pack_that_cannot_be_written_costs_no_compile(self):
        for pack, why in ((self.folder / "none/a", "No such file or directory"), (self.folder, "Is a directory")):
            done = self.run_bare(["build", self.layer(hidden=384), "--pack", pack], MOEJIT_CACHE_DIR=self.folder / "c")
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn(f"moejit: cannot write {pack}: {why}\nhint: ", done.stderr)
            self.assertNotRegex(done.stderr, r"moejit: \d+/\d+ ")

    def test_a_build_fails_where_kernels_are_not_written(self):
        # If the product is another, or nobody wanted a folder, that is no failure.
        for arguments in (["--no-cache"], ["--pack", self.folder / "a", "--variants", "described"]):
            status, report, said = self.build_elsewhere(*arguments, HOME="/proc/none")
            self.assertEqual((status, said), (0, ""))
        if not may_mount():
            self.skipTest("mounting is not permitted here")
        script = '"$0" -t tmpfs -o size=150k,mode=700 tmpfs "$1" && shift && exec "$@"'
        prefix = [*NAMESPACE, "/bin/sh", "-c", script, MOUNT, self.folder]
        status, report, said = self.build_elsewhere(prefix=prefix, MOEJIT_CACHE_DIR=self.folder / "c")
        self.assertEqual(status, 3)
        self.assertIn(report["unpublished"], range(1, self.kernels))
        self.assertEqual(said, f"moejit: {report['unpublished']} of {self.kernels} kernels were not "
                               f"written: cache folder {self.folder}/c: No space left on device")

    def check_folder(self, wanted, prefix=(), **environment):
        """What env says of the cache, and that a build says the same."""
        said = json.loads(self.run_bare(["env", "--json"], prefix, **environment).stdout)["cache"]
        self.assertEqual(said["text"], wanted)
        built = self.run_bare(["build", TINY, "--json", "--frozen", "--packs", self.pack], prefix,
                              **environment)
        if said["text"].startswith("cache folder"):  # that somebody named: nothing goes on
            self.assertIn(said["text"], built.stderr)
        else:
            used = json.loads(built.stdout)["cache"].removesuffix(" (read-only)")
            self.assertEqual(said["text"][:len(used)], used)
        self.assertEqual(said["found"], not said["text"].startswith(("memory only", "cache folder")))

    def test_env_names_the_folder_in_use(self):
        home = self.folder / "home"
        self.run_bare(["env"], HOME=home)
        self.assertFalse(home.exists())  # a look makes nothing
        self.check_folder(f"{home}/.cache/moejit (will be made)", HOME=home)
        self.check_folder(f"{home}/.cache/moejit", HOME=home)
        self.check_folder(f"{self.cache}", MOEJIT_CACHE_DIR=self.cache)
        plain = self.write("plain", "text")
        self.check_folder(f"memory only: cache folder {plain}/.cache/moejit: Not a directory",
                          HOME=plain)
        self.check_folder(f"cache folder {plain}: Not a directory", MOEJIT_CACHE_DIR=plain)
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        self.check_folder(f"cache folder {shared}: its mode is 0777: other users may write to "
                          "it, wanted 0700",
                          MOEJIT_CACHE_DIR=shared)

    def test_env_of_users_without_a_home(self):
        setpriv = shutil.which("setpriv")
        if os.geteuid() != 0 or not setpriv:
            self.skipTest("only root can become another user")
        if any(not os.stat(folder).st_mode & 1 for folder in pathlib.Path(tool.moejit).parents):
            self.skipTest("others may not reach moejit")
        self.shared.chmod(0o755)
        self.pack.chmod(0o644)
        for user, wanted in ((54321, "memory only: neither MOEJIT_CACHE_DIR nor XDG_CACHE_HOME is "
                                     "set and the user has no home"), (65534, None)):
            prefix = [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            if wanted is None:
                home = pwd.getpwuid(user).pw_dir
                if os.path.exists(home):
                    continue
                wanted = f"memory only: cache folder {home}/.cache/moejit: it cannot be made: " \
                         "Permission denied"
            self.check_folder(wanted, prefix)
            self.assertIn(f"HOME{' ' * 21}(not set: that of the password database)\n",
                          self.run_bare(["env"], prefix).stdout)

    def test_env_of_a_file_system_that_is_only_read(self):
        if not may_mount():
            self.skipTest("mounting is not permitted here")
        script = '"$0" --bind "$1" "$1" && "$0" -o remount,bind,ro "$1" && shift && exec "$@"'
        prefix = [*NAMESPACE, "/bin/sh", "-c", script, MOUNT, self.shared]
        empty = self.folder / "empty"
        empty.mkdir()
        self.check_folder(f"{self.cache} (read-only)", prefix, MOEJIT_CACHE_DIR=self.cache)
        self.check_folder(f"cache folder {empty}: it cannot be written to: Read-only file system",
                          prefix, MOEJIT_CACHE_DIR=empty)
        self.check_folder(f"memory only: cache folder {empty}/.cache/moejit: it cannot be made: "
                          "Read-only file system", prefix, HOME=empty)

    def why(self, *arguments, **environment):
        done = self.run_bare(["cache", "why", *arguments], LD_DEBUG="files", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.opened_nvrtc(done))
        return done.stdout

    def test_why_says_where_kernels_are(self):
        for place, (in_folder, _, _) in self.places():
            wanted = str(self.cache if in_folder else self.pack)
            for change in ({"MOEJIT_NVRTC": "/nonexistent"}, {"MOEJIT_FROZEN": 1},
                           {"MOEJIT_NVRTC": self.nvrtc}):
                told = json.loads(self.why(TINY, "--json", **place, **change))
                self.assertEqual((told["missing"], len(told["kernels"])), (0, self.kernels))
                self.assertEqual({kernel["found_in"] for kernel in told["kernels"]}, {wanted})
                self.assertTrue(told["kernels"][0]["compiler"].startswith("nvrtc "))
        text = self.why(TINY, MOEJIT_NVRTC="/nonexistent", **place)
        self.assertIn(f"in pack {self.pack.name}, made by nvrtc ", text)
        self.assertTrue(text.endswith(f"{self.kernels} of {self.kernels} kernels are there: 0 in "
                                      f"{place['MOEJIT_CACHE_DIR']}, {self.kernels} in {self.pack}\n"))
        key = told["kernels"][0]["key"]
        self.assertEqual(self.why("--packs", self.pack, key[:12], MOEJIT_CACHE_DIR=self.folder),
                         f"in pack {self.pack}\n")

    def test_why_tells_packs_of_one_name_apart(self):
        (self.folder / "new").mkdir()
        other = self.folder / "new" / self.pack.name
        shutil.copy(self.pack, other)
        text = self.why(TINY, MOEJIT_CACHE_DIR=self.folder / "empty",
                        MOEJIT_PACKS=f"{other}:{self.pack}")
        self.assertIn(f"in pack {other}\n", text)
        self.assertIn(f", {self.kernels} in {other}, 0 in {self.pack}\n", text)

    def test_why_says_what_is_not_there(self):
        layer = self.layer(hidden=384)
        told = json.loads(self.why(layer, "--json", MOEJIT_NVRTC="/nonexistent",
                                   MOEJIT_CACHE_DIR=self.cache))
        self.assertGreater(told["missing"], 0)
        missing = [kernel for kernel in told["kernels"] if not kernel["is_present"]]
        self.assertTrue(all(kernel["nearest"] for kernel in missing))
        empty = json.loads(self.why(layer, "--json", MOEJIT_NVRTC="/nonexistent",
                                    MOEJIT_CACHE_DIR=self.folder / "empty"))
        self.assertEqual(empty["missing"], len(empty["kernels"]))
        self.assertEqual((empty["kernels"][0]["key"], empty["kernels"][0]["nearest"]), (None, None))

    def test_export_records_compilers(self):
        self.succeed("pack", "export", self.pack, "--output-dir", "exported")
        self.assertEqual(len(list((self.folder / "exported/v2/compilers").iterdir())), 1)

    def test_what_is_not_there_is_said_with_a_way_out(self):
        layer = self.layer(hidden=384)
        for frozen in ({"MOEJIT_FROZEN": 1}, {}):
            done = self.run_bare(["build", layer], MOEJIT_NVRTC="/nonexistent",
                                 MOEJIT_CACHE_DIR=self.cache, **frozen)
            self.assertEqual(done.returncode, 4)
            self.assertIn("with kernels of nvrtc ", done.stderr)
            self.assertIn("for cuda:sm_90a by any compiler\n", done.stderr)
            self.assertIn("make it beforehand, on a machine with a compiler and the same moejit: "
                          f"moejit build {layer} --target cuda:sm_90a --cache-dir {self.cache}",
                          done.stderr)
            self.assertEqual("no usable NVRTC" in done.stderr, not frozen)

    def test_a_pack_is_made_by_the_compiler_of_this_machine_alone(self):
        new = self.folder / "new.moejitpack"
        for frozen, said in (({}, "no usable NVRTC"), ({"MOEJIT_FROZEN": 1}, "the frozen cache")):
            done = self.run_bare(["build", TINY, "--pack", new, "--variants", "described"], **frozen,
                                 MOEJIT_NVRTC="/nonexistent", MOEJIT_CACHE_DIR=self.cache)
            self.assertEqual(done.returncode, 4)
            self.assertIn(said, done.stderr)
            self.assertIn("by the compiler of this machine", done.stderr)
            self.assertIn("moejit pack merge FOLDER", done.stderr)
            self.assertFalse(new.exists())
        done = self.run_bare(["pack", "merge", self.cache, "--output", new],
                             MOEJIT_NVRTC="/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(new.read_bytes(), self.pack.read_bytes())


if __name__ == "__main__":
    tool.main()
