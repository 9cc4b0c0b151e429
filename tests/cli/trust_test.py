# SPDX-License-Identifier: Apache-2.0
"""Attacks on what the tool trusts: docs/operations.md, "What is trusted, and why", names these tests."""
import os
import resource
import shutil
import struct
import subprocess
import unittest

import entry_file
import refusal
import tool
from refusal import DEVICE, TOOLCHAIN, USAGE
from tool import TINY

STRANGER = 65534


def kernel_of(cache):
    """The file of one of the kernels that a build of the layer wants."""
    return next(path for path in cache.glob("v2/??/*") if b'"entry":"moejit_route_' in path.read_bytes())


class CacheTrustTest(tool.ToolTest):
    """A cache of the test's own, with the kernels that all tests keep."""

    keeps_kernels = True

    def setUp(self):
        super().setUp()
        kept = self.cache
        self.succeed("build", TINY, "--target", "sim", "--cache-dir", kept)
        self.succeed("build", TINY, "--target", "sim", "--cache-dir", kept, "--variants", "described",
                     "--pack", self.folder / "pack")
        self.own = self.folder / "own"
        self.succeed("pack", "export", self.folder / "pack", "--output-dir", self.own)

    def build(self, **environment):
        return self.run_tool("build", TINY, "--target", "sim", "--cache-dir", self.own, **environment)

    def test_hints_mend_a_folder_that_was_opened_to_all(self):
        subprocess.run(["chmod", "-R", "777", self.own], check=True)
        for _ in range(3):
            done = self.run_tool("cache", "verify", "--cache-dir", self.own)
            if done.returncode == 0:
                break
            self.assertIn("other users may write to it", done.stderr)
            hint = done.stderr.split("hint: ")[1].split(",")[0]
            subprocess.run(hint.split(), check=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        open_to_all = [path for path in [self.own, *self.own.rglob("*")] if path.lstat().st_mode & 0o022]
        self.assertEqual(open_to_all, [])
        self.assertIn("from cache: 6", self.build().stdout)

    def test_code_that_others_could_write_is_not_run(self):
        # A foreign payload, with right checksums, in an entry that somebody else may write to.
        victim = kernel_of(self.own)
        content = victim.read_bytes()
        length, = struct.unpack_from("<Q", content, 56)
        key, metadata = content[16:48], content[80:80 + length]
        for mode in (0o666, 0o620, 0o602):
            victim.write_bytes(entry_file.entry(key, metadata, b"\x7fELF of a stranger"))
            victim.chmod(mode)
            done = self.build()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("compiled: 1, from cache: 5", done.stdout)
            self.assertIn(f"{victim}: its mode is {mode:04o}: other users may write to it", done.stderr)
            self.assertIn(f"chmod -R go-w {self.own}", done.stderr)
            self.assertEqual(victim.stat().st_mode & 0o022, 0)  # made anew, as ours

    def test_a_folder_of_entries_that_others_could_write_serves_nothing(self):
        victim = kernel_of(self.own).parent
        victim.chmod(0o777)
        done = self.build()
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertNotIn("compiled: 0,", done.stdout)
        self.assertIn(f"{victim}: its mode is 0777: other users may write to it", done.stderr)
        listed = self.run_tool("cache", "verify", "--cache-dir", self.own)
        self.assertEqual(listed.returncode, TOOLCHAIN)
        self.assertIn("other users may write to it", listed.stdout)
        victim.chmod(0o700)
        self.assertEqual(self.build().returncode, 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a file away")
    def test_code_of_a_stranger_is_not_run(self):
        victim = kernel_of(self.own)
        os.chown(victim, STRANGER, STRANGER)
        done = self.build()
        self.assertIn("compiled: 1, from cache: 5", done.stdout)
        self.assertIn(f"{victim}: it belongs to user {STRANGER}", done.stderr)

    def test_pipes_and_folders_in_place_of_files(self):
        entry = kernel_of(self.own)
        # The unit test of the cache has all kinds in all places.
        for path, make in ((entry, os.mkdir), (self.own / "v2/stats", os.mkfifo), (entry, os.mkfifo),
                           (entry.parent, lambda path: path.write_text("text"))):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            make(path)
            done = self.build(MOEJIT_PACKS=str(self.folder / "pack"))
            self.assertEqual(done.returncode, 0, f"{path} {make}: {done.stderr}")
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            make(path)
            self.succeed("cache", "clear", "--yes", "--cache-dir", self.own)
            self.succeed("pack", "export", self.folder / "pack", "--output-dir", self.own)


class SwitchTest(refusal.Refusal):
    """A guard that is not understood is an error, not a guard that is off."""

    keeps_kernels = True

    def test_frozen_compiles_nothing(self):
        for value in ("1", "true", "yes", "on", "True"):
            self.refuse(["build", TINY, "--target", "sim", "--cache-dir", self.shared / "none"], TOOLCHAIN,
                        "the frozen cache", MOEJIT_FROZEN=value)
        for value in ("2", "1 ", "enabled", "tru"):
            for command in (["build", TINY, "--target", "sim", "--cache-dir", self.shared / "none"],
                            ["cache", "why", TINY, "--target", "sim"]):
                self.refuse(command, USAGE, f'MOEJIT_FROZEN is "{value}", wanted 1 or 0', MOEJIT_FROZEN=value)
        self.succeed("cache", "why", TINY, "--target", "sim", MOEJIT_FROZEN="off")
        self.assertIn('MOEJIT_FROZEN is "2", wanted 1 or 0', self.succeed("env", MOEJIT_FROZEN="2").stdout)


class PipeTest(refusal.Refusal):
    """A pipe in place of a file is never waited for."""

    keeps_kernels = True

    def test_libraries_packs_and_keys(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for variable in ("MOEJIT_NVRTC", "MOEJIT_CUDA_DRIVER", "MOEJIT_PACKS", "MOEJIT_PACK_KEYS", "MOEJIT_CXX",
                         "MOEJIT_RUN_DIR"):
            self.assertIn(str(pipe), self.succeed("env", **{variable: str(pipe)}).stdout, variable)


class NamesTest(refusal.Refusal):
    """Names in files never lead to another folder."""

    def test_emit_stays_in_its_folder(self):
        for name in ("../escaped", str(self.folder / "abs"), "..", ".", "a/b", ""):
            evil = self.layer(name=name)
            self.refuse(["emit", TINY, evil, "--output-dir", self.folder / "out"], USAGE, "describes a layer",
                        "wanted a name that can be that of the folder")
        self.succeed("emit", TINY, self.layer(name="..."), "--output-dir", self.folder / "out")
        self.assertEqual(sorted(os.listdir(self.folder / "out")), ["...", "tiny"])

    def test_names_do_not_command_the_terminal(self):
        for text in ("\x1b[2J", "\u009b2J", "\x7f"):
            done = self.run_tool("plan", TINY, "--target", text)
            self.assertEqual(done.returncode, USAGE)
            self.assertNotIn(text, done.stderr)
            self.assertNotIn(text, self.run_tool("plan", text).stderr)
        shown = self.succeed("plan", self.layer(name="\u009b2J"), "--target", "sim").stdout
        self.assertNotIn("\u009b", shown)


class ResourceTest(refusal.Refusal):
    """What has run out is named, and is no bug of moejit."""

    keeps_kernels = True

    def limited(self, limit, value, *arguments, **options):
        return subprocess.run([tool.moejit, *map(str, arguments)], check=False, text=True, cwd=self.folder,
                              env={"PATH": os.environ["PATH"], "HOME": str(self.shared),
                                   "MOEJIT_CACHE_DIR": str(self.cache)},
                              preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become a user without processes")
    def test_threads(self):
        self.shared.chmod(0o755)
        done = self.limited(resource.RLIMIT_NPROC, 1, "build", TINY, "--target", "sim", "--no-cache",
                            user=54321, group=54321, extra_groups=[])
        self.assertNotIn("a bug in moejit:", done.stderr)
        self.assertIn("ulimit -u", done.stderr)
        self.assertIn(done.returncode, (TOOLCHAIN, DEVICE), done.stderr)

    def test_files(self):
        done = self.limited(resource.RLIMIT_NOFILE, 5, "build", TINY, "--target", "sim", "--no-cache")
        self.assertIn("Too many open files", done.stderr)
        self.assertIn("ulimit -n", done.stderr)

    def test_size_of_files(self):
        # The kernel sends SIGXFSZ, of which a process dies that does not care.
        done = self.limited(resource.RLIMIT_FSIZE, 64, "emit", TINY, "--output-dir", "out")
        self.assertEqual(done.returncode, refusal.FILE, done.stderr)
        self.assertIn("File too large", done.stderr)


if __name__ == "__main__":
    tool.main()
