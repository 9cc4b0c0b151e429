# SPDX-License-Identifier: Apache-2.0
"""The command line tool itself, on a layer whose kernels the cache has, where the file system of
the cache fails: the same results to the byte, status 0, and one warning at most."""
import pathlib

import faults

TINY = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/layers/tiny.json"


class ToolTest(faults.FaultTest):
    def run_layer(self, **variables):
        output = self.folder / "y.safetensors"
        output.unlink(missing_ok=True)
        done = self.run_session("run", str(TINY), "--target", "sim", "--tokens", "4", "--output",
                                str(output), PATH="/usr/local/bin:/usr/bin:/bin", **variables)
        self.assertEqual(done.returncode, 0, f"{variables}: {done.stderr}")
        return output.read_bytes(), [line for line in done.stderr.splitlines() if "warning" in line]

    def test_results_do_not_depend_on_the_file_system_of_the_cache(self):
        wanted, warnings = self.run_layer(preload=False)
        self.assertEqual(warnings, [])
        log = self.folder / "log"
        self.assertEqual(self.run_layer(FAULT_LOG=log), (wanted, []))
        functions = {line.split()[0] for line in log.read_text().splitlines()}
        self.assertLessEqual({"openat", "read", "fstat", "close"}, functions)
        error = faults.error_number("EIO")
        for function in sorted(functions):
            result, warnings = self.run_layer(FAULT_FUNCTION=function, FAULT_CALL=1,
                                              FAULT_ERRNO=error)
            self.assertEqual(result, wanted, function)
            self.assertLessEqual(len(warnings), 1, warnings)
        # A folder that was named is no less forgiven.
        for name in ("EIO", "ESTALE", "EMFILE", "ENOSPC"):
            result, warnings = self.run_layer(
                MOEJIT_CACHE_DIR=self.cache, FAULT_FUNCTION="openat", FAULT_CALL=2,
                FAULT_ERRNO=faults.error_number(name))
            self.assertEqual(result, wanted, name)
            self.assertEqual(len(warnings), 1, warnings)

    def test_locks_are_not_made_on_a_file_system_of_a_network(self):
        wanted, warnings = self.run_layer(preload=False)
        self.assertEqual(warnings, [])
        self.tearDown()
        self.setUp()
        result, warnings = self.run_layer(FAULT_MAGIC="6969", MOEJIT_CACHE_NETWORK="write",
                                          MOEJIT_RUN_DIR=self.home / "run")
        self.assertEqual(result, wanted)
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("it is on NFS, a network file system", warnings[0])


if __name__ == "__main__":
    faults.main()
