# SPDX-License-Identifier: Apache-2.0
"""File systems of a network: recognised, only read unless asked otherwise, and not believed."""
import faults

MAGIC = {"NFS": "6969", "CIFS": "ff534d42", "SMB": "fe534d42", "Lustre": "bd00bd0",
         "GPFS": "47504653", "Ceph": "c36400", "BeeGFS": "19830326"}


class NetworkTest(faults.FaultTest):
    def files(self):
        return {path: path.stat().st_mtime_ns for path in self.home.rglob("*")}

    def test_a_network_file_system_is_only_read(self):
        self.run_session("put", "a", preload=False)
        before = self.files()
        for name, magic in MAGIC.items():
            calls, done = self.calls("run", "a", "b", FAULT_MAGIC=magic)
            self.assertEqual(self.files(), before)
            self.assertFalse({"mkdirat", "write", "renameat", "unlinkat", "futimens", "fsync"} &
                             {function for function, _ in calls})
            warnings = done.stderr.splitlines()
            self.assertEqual(len(warnings), 2)  # one in each of two sessions
            for warning in warnings:
                self.assertEqual(
                    warning,
                    f"cache folder {self.cache} is on a network file system ({name}) and only "
                    "read; new kernels stay in memory. Name a local folder with MOEJIT_CACHE_DIR, "
                    "or allow writing with MOEJIT_CACHE_NETWORK=write")

    def test_nobody_is_told_where_everything_is_there(self):
        self.run_session("put", "a", preload=False)
        done = self.run_session("hit", "a", FAULT_MAGIC=MAGIC["NFS"])
        self.assertEqual((done.stdout, done.stderr), ("100\n", ""))

    def test_nothing_is_made_on_an_empty_one(self):
        done = self.run_session("run", "a", FAULT_MAGIC=MAGIC["NFS"])
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.files(), {})
        self.assertEqual(len(set(done.stderr.splitlines())), 1)

    def test_the_user_may_write_to_it(self):
        done = self.run_session("run", "a", FAULT_MAGIC=MAGIC["NFS"], MOEJIT_CACHE_NETWORK="write")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(faults.is_whole(self.entry("a")))

    def test_local_file_systems_are_written_to(self):
        for magic in ("ef53", "58465342", "9123683e", "1021994", "794c7630", "65735546"):
            self.assertEqual(self.run_session("put", magic, FAULT_MAGIC=magic).stderr, "")
            self.assertTrue(self.entry(magic).exists())


class LyingTest(faults.FaultTest):
    def test_a_new_file_that_is_not_seen_is_a_miss(self):
        plain = self.run_session("run", "a", "b", "a", preload=False)
        self.tearDown()
        self.setUp()
        done = self.run_session("run", "a", "b", "a", FAULT_HIDE_MS=60000)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, plain.stdout, ""))
        self.assertEqual(len(self.entries()), 2)
        self.assert_published_entries_are_whole()

    def test_a_rename_that_was_done_and_reported_as_failed_counts_as_done(self):
        done = self.run_session("run", "a", "b", FAULT_LIE=1)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.run_session("hit", "a", preload=False).stdout, "100\n")

    def test_what_was_there_before_is_not_taken_for_what_was_renamed(self):
        self.run_session("put", "a", preload=False)
        old = self.entry("a").read_bytes()[:-1]
        self.entry("a").write_bytes(old)
        done = self.run_session("put", "a", FAULT_LIE=2)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("writing fails", done.stderr)
        self.assertEqual(self.entry("a").read_bytes(), old)

    def test_a_rename_that_failed_does_not(self):
        done = self.run_session("put", "a", FAULT_FUNCTION="renameat", FAULT_CALL=0,
                                FAULT_ERRNO=faults.error_number("ENOENT"))
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(self.entries(), [])
        self.assertEqual(list(self.cache.glob("v2/tmp/*")), [])


if __name__ == "__main__":
    faults.main()
