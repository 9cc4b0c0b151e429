# SPDX-License-Identifier: Apache-2.0
"""Every call that a cache session makes fails once: nobody notices but who reads the warning.

Calls of one function on files of one kind (an entry, a temporary file, the stats, ...) come from
one place of the code. The first of each gets every errno, the next four EIO; with FAULT_ALL=1 all
get every one, which takes some minutes.
"""
import collections
import concurrent.futures
import os
import re
import unittest

import faults
from faults import ERRORS, LIMIT, SESSION, key_of


class ErrnoTest(faults.FaultTest):
    # What a session can call; a new function has to be added here and to the library.
    FUNCTIONS = {"close", "faccessat", "fdopendir", "fstat", "fstatat", "fstatfs", "fsync",
                 "futimens", "mkdirat", "openat", "read", "readdir", "renameat", "unlinkat", "write"}

    def test_the_session_makes_every_kind_of_call(self):
        self.make_template()
        calls, done = self.calls(*SESSION, **LIMIT)
        self.assertEqual({function for function, _ in calls}, self.FUNCTIONS)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)  # the damaged entry
        places = {path.split("/")[0] for _, path in calls}
        self.assertLessEqual({"tmp", "quarantine", "stats", "v2"}, places)

    def test_no_failure_changes_what_the_program_prints(self):
        self.make_template()
        calls, good = self.calls(*SESSION, **LIMIT)
        failures = self.failures_of(calls)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = sum(pool.map(lambda part: self.try_all(part, good.stdout),
                                (failures[0::2], failures[1::2])))
        self.assertGreater(done, 800)

    def failures_of(self, calls):
        """(function, which call of it, errno)"""
        counts = collections.Counter()
        places = collections.defaultdict(list)
        for function, path in calls:
            counts[function] += 1
            places[function, self.kind(path)].append(counts[function])
        return [(function, call, name) for (function, _), at in places.items()
                for place, call in enumerate(at) for name in ERRORS
                if place == 0 or (place < 5 and name == "EIO") or "FAULT_ALL" in os.environ]

    def kind(self, path):
        path = path.removeprefix(str(self.home))
        path = re.sub("^[0-9a-f]{2}/[0-9a-f]{62}$", "entry", path)
        return re.sub("^[0-9a-f]{2}$", "folder", re.sub("/.*-.*|/[0-9]+$", "/", path))

    def try_all(self, failures, wanted):
        """In a home of its own, so that two may work at a time."""
        other = type(self)()
        other.folder = self.folder
        other.home = self.folder / "-".join(map(str, failures[0]))
        for function, call, name in failures:
            other.restore_template()
            result = other.run_session(*SESSION, FAULT_FUNCTION=function, FAULT_CALL=call,
                                       FAULT_ERRNO=faults.error_number(name), **LIMIT)
            where = f"{function} call {call} {name}: {result.stderr}"
            self.assertEqual((result.returncode, result.stdout), (0, wanted), where)
            # One for the failure, and one for the damaged entry: again in the second session where
            # the first could not move it aside.
            warnings = result.stderr.splitlines()
            self.assertEqual(len(set(warnings)), len(warnings), where)
            self.assertLessEqual(len(warnings), 3, where)
            self.assertLessEqual(sum("checksum" not in line for line in warnings), 1, where)
            other.assert_published_entries_are_whole()
        return len(failures)

    def test_lasting_failures_make_one_warning_for_each_cause(self):
        self.make_template()
        _, good = self.calls(*SESSION, **LIMIT)
        for function in sorted(self.FUNCTIONS):
            for name in ERRORS:
                if function in ("read", "write", "fsync") and name == "EINTR":
                    continue  # a call that is interrupted for ever is made again for ever
                self.restore_template()
                done = self.run_session(*SESSION, FAULT_FUNCTION=function, FAULT_CALL=0,
                                        FAULT_ERRNO=faults.error_number(name), **LIMIT)
                where = f"every {function} {name}: {done.stderr}"
                self.assertEqual((done.returncode, done.stdout), (0, good.stdout), where)
                # Opening, reading, writing, the damaged entry; in each of two sessions.
                self.assertLessEqual(len(done.stderr.splitlines()), 6, where)


class WriteTest(faults.FaultTest):
    """A call that writes an entry fails: a warning gives the error, and the cache has no new file."""
    # The next write would fail as well.
    LASTING = {"ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM"}
    # No failures: a file system without fsync, calls that are made again, a descriptor that is closed all the same.
    # If openat() fails with ELOOP, a link is in the way: EPERM.
    LEFT_OUT = {("fsync", "EROFS"), ("fsync", "EINTR"), ("write", "EINTR"), ("close", "EINTR"), ("openat", "ELOOP")}

    def test_no_error_counts_as_success(self):
        self.run_session("put", "other", preload=False)
        self.home.rename(self.folder / "template")
        self.restore_template()
        tried = [(function, call, name) for function, call in self.calls_that_write("new")
                 for name in ERRORS if (function, name) not in self.LEFT_OUT]
        self.assertEqual({function for function, _, _ in tried},
                         {"openat", "write", "fsync", "close", "mkdirat", "fstat", "renameat"})
        for function, call, name in tried:
            self.restore_template()
            number = faults.error_number(name)
            done = self.run_session("put", "new", FAULT_FUNCTION=function, FAULT_CALL=call, FAULT_ERRNO=number)
            where = f"{function} call {call} {name}: {done.stderr}"
            kept = "new kernels" if name in self.LASTING else "some new kernels"
            self.assertEqual(done.stderr, f"cache folder {self.cache}: writing fails ({os.strerror(number)}); "
                                          f"{kept} stay in memory\n", where)
            self.assertEqual(self.entries(), [self.entry("other")], where)
            self.assertEqual(list((self.cache / "v2/tmp").iterdir()), [], where)

    def calls_that_write(self, name):
        """(function, which call of it) from the temporary file to its move into place."""
        calls, _ = self.calls("put", name)
        key = key_of(name)
        end = calls.index(("renameat", key[2:]))
        temporary = next(path for function, path in calls if function == "write")
        begin = calls.index(("openat", temporary))
        counts, writes = collections.Counter(), []
        for at, (function, path) in enumerate(calls):
            counts[function] += 1
            if begin <= at <= end and path in (temporary, key[:2], key[2:]):
                writes.append((function, counts[function]))
        return writes


class FirstSessionTest(faults.FaultTest):
    def test_no_failure_changes_what_the_first_session_of_a_user_prints(self):
        calls, good = self.calls("run", "a", "b")
        counts = collections.Counter(function for function, _ in calls)
        for function, count in counts.items():
            for call in range(1, min(count, 8) + 1):
                for name in ("ENOSPC", "EACCES", "EIO"):
                    for path in sorted(self.home.rglob("*"), reverse=True):
                        os.rmdir(path) if path.is_dir() else path.unlink()
                    done = self.run_session("run", "a", "b", FAULT_FUNCTION=function,
                                            FAULT_CALL=call, FAULT_ERRNO=faults.error_number(name))
                    where = f"{function} call {call} {name}: {done.stderr}"
                    self.assertEqual((done.returncode, done.stdout), (0, good.stdout), where)
                    self.assertLessEqual(len(done.stderr.splitlines()), 1, where)


class CountTest(faults.FaultTest):
    def test_a_hit_makes_seven_calls_and_looks_into_no_folder(self):
        self.run_session("put", "a", preload=False)
        calls, done = self.calls("hit", "a")
        self.assertEqual(done.stdout, "100\n")
        self.assertFalse([call for call in calls if "dir" in call[0] and call[0] != "mkdirat"])
        of_hits = [function for function, path in calls[calls.index(("openat", faults.key_of("a")[:2])):]]
        # Owner and mode of the entry's folder are looked at, too.
        self.assertEqual(of_hits[:14], ["openat", "fstat", "openat", "fstat", "read", "close", "close"] * 2)
        self.assertLess(len(calls), 100 * 7 + 30)

    def test_opening_makes_as_many_calls_with_many_entries_as_with_few(self):
        self.run_session("put", "a", preload=False)
        few, _ = self.calls("hit", "a")
        self.run_session("put", *(f"{i}" for i in range(300)), preload=False)
        many, _ = self.calls("hit", "a")
        self.assertEqual(len(few), len(many))

    def test_publishing_looks_through_the_cache_once_only(self):
        self.run_session("put", *(f"{i}" for i in range(100)), preload=False)
        calls, _ = self.calls("put", *(f"{i}" for i in range(100, 140)))
        # The sweeper's look into tmp/; the sizes are known from the stats.
        self.assertEqual(sum(function == "fdopendir" for function, _ in calls), 1)


if __name__ == "__main__":
    faults.main()
