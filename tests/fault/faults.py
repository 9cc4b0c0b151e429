# SPDX-License-Identifier: Apache-2.0
"""Runs a cache session in a home folder of its own, with a file system that fails as it is told."""
import errno
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import entry_file

session = faults = None  # paths of the program and of the library, set by main()
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "ESTALE", "EBUSY", "EMFILE",
          "ENOMEM", "EINTR", "ENOLCK", "ENAMETOOLONG", "EXDEV", "ELOOP")
HOUR = 3600


def key_of(name):
    return hashlib.sha256(name.encode()).hexdigest()


def is_whole(path):
    """Whether a cache entry's checksum matches, without the code under test."""
    return entry_file.is_whole(path.read_bytes())


class FaultTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moejit-fault-"))
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self.home.mkdir()

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def cache(self):
        return self.home / ".cache/moejit"

    def entry(self, name):
        key = key_of(name)
        return self.cache / "v2" / key[:2] / key[2:]

    def entries(self):
        return [path for path in self.cache.glob("v2/??/*") if len(path.name) == 62]

    def run_session(self, *arguments, prefix=(), preload=True, **variables):
        """Runs the program; keyword arguments are its whole environment but HOME."""
        env = {"HOME": str(self.home), "FAULT_FOLDER": str(self.home)}
        if preload:
            env["LD_PRELOAD"] = faults
        env.update({name: str(value) for name, value in variables.items() if value is not None})
        env = {name: value for name, value in env.items() if variables.get(name, "") is not None}
        return subprocess.run([*prefix, session, *arguments], env=env, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              timeout=120)

    def calls(self, *arguments, **variables):
        """(function, path) of each call on the home folder that a session makes, and the session."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        done = self.run_session(*arguments, FAULT_LOG=log, **variables)
        return [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()], done

    def make_template(self):
        """A cache in which a session of "run a b c d e" does everything that sessions ever do: it
        hits an old entry, quarantines a damaged one among many, sweeps, publishes and evicts."""
        assert self.run_session("put", "a", "b", "x", "y", "z", preload=False).returncode == 0
        damaged = bytearray(self.entry("b").read_bytes())
        damaged[200] ^= 1
        self.entry("b").write_bytes(damaged)
        for age, name in enumerate(("a", "x", "y", "z"), start=2):
            os.utime(self.entry(name), times=(0, time.time() - age * HOUR))
        for number in range(16):
            (self.cache / f"v2/quarantine/{number}").write_text("damaged")
        stale = self.cache / "v2/tmp/01234567-1-0123456789abcdef"
        stale.write_text("half a file")
        os.utime(stale, times=(0, time.time() - 2 * HOUR))
        self.home.rename(self.folder / "template")
        self.restore_template()

    def restore_template(self):
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.folder / "template", self.home, symlinks=True)

    def assert_published_entries_are_whole(self, besides=("b",)):
        allowed = {self.entry(name) for name in besides}
        for path in self.entries():
            self.assertTrue(path in allowed or is_whole(path), path)


SESSION = ("run", "a", "b", "c", "d", "e")
LIMIT = {"MOEJIT_CACHE_MAX_FILES": 5}


def error_number(name):
    return getattr(errno, name)


def main():
    global session, faults
    session, faults = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main(verbosity=0)
