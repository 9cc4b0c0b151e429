# SPDX-License-Identifier: Apache-2.0
"""Homes and folders as they are on other people's machines, as root and as an ordinary user."""
import os
import pathlib
import pwd
import shutil
import subprocess
import unittest

import faults

NOBODY = 65534


def may_mount():
    return shutil.which("unshare") is not None and subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class HostileTest(faults.FaultTest):
    """Each case as the present user and, where that is root, as an ordinary one as well."""

    def prefixes(self):
        yield ()
        if os.geteuid() == 0 and shutil.which("setpriv"):
            yield ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

    def wanted(self, prefix):
        return self.run_session("run", "a", "b", prefix=prefix, preload=False, HOME=None,
                                MOEJIT_CACHE_DIR=self.scratch(prefix)).stdout

    def scratch(self, prefix):
        folder = self.folder / f"scratch{len(prefix)}"
        folder.mkdir(exist_ok=True)
        if prefix:
            os.chown(folder, NOBODY, NOBODY)
        return folder / "cache"

    def check(self, prefix, wanted, warnings, **variables):
        done = self.run_session("run", "a", "b", prefix=prefix, preload=False, **variables)
        where = f"{prefix} {variables}: {done.stderr}"
        self.assertEqual((done.returncode, done.stdout), (0, wanted), where)
        # In each of the program's two sessions.
        self.assertEqual(len(done.stderr.splitlines()), 2 * warnings, where)
        self.assertEqual(len(set(done.stderr.splitlines())), warnings, where)
        return done.stderr

    def test_homes(self):
        for prefix in self.prefixes():
            wanted = self.wanted(prefix)
            before = set(self.folder.iterdir())
            own = self.folder / f"own{len(prefix)}"
            for value in (None, "", "/", "relative/home", own / "missing", self.folder / "plain"):
                # What the password database says holds for the first four: it must not be written
                # to by a test, so that XDG_CACHE_HOME points elsewhere.
                fallback = self.scratch(prefix).parent / "caches"
                if value in (None, "", "/", "relative/home"):
                    self.check(prefix, wanted, 0, HOME=value, XDG_CACHE_HOME=fallback)
                    self.assertTrue((fallback / "moejit/v2").is_dir())
                    shutil.rmtree(fallback)
            self.assertEqual(set(self.folder.iterdir()), before)  # nothing in the working directory

    def test_a_home_that_is_missing_is_made_or_passed_over(self):
        self.check((), self.wanted(()), 0, HOME=self.folder / "missing/home")
        for prefix in list(self.prefixes())[1:]:
            # Root's folder: an ordinary user can neither make nor write anything there.
            self.check(prefix, self.wanted(prefix), 1, HOME=self.folder / "other/home")
            self.check(prefix, self.wanted(prefix), 1, HOME=self.home)

    def test_a_home_that_is_a_file(self):
        plain = self.folder / "plain"
        plain.write_text("text")
        for prefix in self.prefixes():
            self.check(prefix, self.wanted(prefix), 1, HOME=plain)

    def test_no_home_at_all(self):
        # A user whom the password database does not know has none.
        unknown = 54321
        with self.assertRaises(KeyError):
            pwd.getpwuid(unknown)
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("only root can become a user that does not exist")
        prefix = ("setpriv", f"--reuid={unknown}", f"--regid={unknown}", "--clear-groups")
        before = set(self.folder.iterdir())
        for value in (None, "", "/", "relative"):
            done = self.run_session("run", "a", "b", prefix=prefix, preload=False, HOME=value)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(len(done.stdout.splitlines()), 4)
        self.assertEqual(set(self.folder.iterdir()), before)

    def test_folders_of_others_and_for_others(self):
        for prefix in self.prefixes():
            wanted = self.wanted(prefix)
            cache = self.scratch(prefix)
            for mode in (0o770, 0o707, 0o777, 0o1777):
                cache.chmod(mode)
                self.assertIn("other users may write to it",
                              self.check(prefix, wanted, 1, MOEJIT_CACHE_DIR=cache))
            cache.chmod(0o700)
            if os.geteuid() != 0:
                continue
            os.chown(cache, 12345, 12345)
            cache.chmod(0o755)
            self.assertIn("belongs to user 12345",
                          self.check(prefix, wanted, 1, MOEJIT_CACHE_DIR=cache))

    def test_folders_behind_links(self):
        for prefix in self.prefixes():
            wanted = self.wanted(prefix)
            link = self.scratch(prefix).parent / "link"
            link.symlink_to(self.scratch(prefix))
            self.check(prefix, wanted, 0, MOEJIT_CACHE_DIR=link)
            # Behind a link in place of v2 there may be anything.
            trap = self.scratch(prefix).parent / "trap"
            trap.mkdir()
            (trap / "v2").symlink_to(self.scratch(prefix) / "v2")
            if prefix:
                os.chown(trap, NOBODY, NOBODY)
            trap.chmod(0o700)
            self.check(prefix, wanted, 1, MOEJIT_CACHE_DIR=trap)

    def test_a_loop_of_links(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        for prefix in self.prefixes():
            self.check(prefix, self.wanted(prefix), 1, MOEJIT_CACHE_DIR=loop)


@unittest.skipUnless(may_mount(), "mounting is not permitted here")
class MountTest(faults.FaultTest):
    """File systems that are too small, in a mount namespace of the test's own."""

    def in_mount(self, options, *arguments, prepare=""):
        script = (f"mount -t tmpfs -o {options} tmpfs {self.home} && {prepare or 'true'} && "
                  f'"$@" && find {self.home} -type f | wc -l >&2')
        return subprocess.run(
            ["unshare", "-Urm", "sh", "-c", script, "sh", faults.session, *arguments],
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")

    def check(self, done, warnings):
        plain = self.run_session("run", *"abcdefgh", preload=False)
        self.assertEqual((done.returncode, done.stdout), (0, plain.stdout), done.stderr)
        self.assertEqual(len(set(done.stderr.splitlines()[:-1])), warnings, done.stderr)

    def test_a_full_file_system(self):
        done = self.in_mount("size=64k,mode=700", "run", *"abcdefgh",
                             prepare=f"head -c 40000 /dev/zero > {self.home}/filler")
        self.check(done, 1)
        self.assertIn("No space left on device", done.stderr)

    def test_a_file_system_that_is_full_from_the_start(self):
        done = self.in_mount("size=64k,mode=700", "run", *"abcdefgh",
                             prepare=f"(cat /dev/zero > {self.home}/filler 2>/dev/null || true)")
        self.check(done, 1)

    def test_a_file_system_without_inodes(self):
        for inodes in range(2, 12):
            with self.subTest(inodes=inodes):
                self.check(self.in_mount(f"size=1m,mode=700,nr_inodes={inodes}", "run",
                                         *"abcdefgh"), 1)

    def test_a_read_only_file_system(self):
        self.run_session("put", "a", preload=False)
        script = (f"mount --bind {self.home} {self.home} && "
                  f'mount -o remount,bind,ro {self.home} && "$@"')
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", script, "sh", faults.session, "run", "a", "b"],
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 4), done.stderr)
        self.assertEqual(len(set(done.stderr.splitlines())), 1, done.stderr)
        self.assertIn("is read-only", done.stderr)


if __name__ == "__main__":
    faults.main()
