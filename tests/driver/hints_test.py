# SPDX-License-Identifier: Apache-2.0
"""Tuning records of this GPU and of another one, as run and bench tell them; the GPU is a fake H200, whose kernels do nothing."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL, FAKE_CUDA = sys.argv[1:3]
LAYER = "docs/examples/layers/tiny.json"
THIS = {"name": "NVIDIA H200", "arch": "sm_90a", "sm_count": 132, "l2_bytes": 60 << 20, "memory_bus_bits": 6144}
OTHER = {**THIS, "name": "NVIDIA H100", "l2_bytes": 50 << 20, "memory_bus_bits": 5120}


class Hints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="moejit-hints-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def moejit(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOEJIT_")}
        environment |= {"MOEJIT_CUDA_DRIVER": FAKE_CUDA, "FAKE_CUDA_CONTROL": f"{self.folder}/control",
                        "MOEJIT_CACHE_DIR": f"{self.folder}/cache", "MOEJIT_RUN_DIR": f"{self.folder}/run"}
        return subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False)

    def record(self, gpu):
        """A record that has the usual choices of the layer's kernels."""
        kernels = json.loads(self.moejit("plan", LAYER, "--json").stdout)["kernels"]
        figures = {"rounds": 12, "microseconds": 9, "default_microseconds": 10, "ratio": 0.9, "ratio_low": 0.89, "ratio_high": 0.91}
        entries = [{"problem": kernel["problem"], "choices": kernel["choices"], **figures} for kernel in kernels if "problem" in kernel]
        path = self.folder / "record.json"
        path.write_text(json.dumps({"format": "moejit-tuning-1", "gpu": gpu, "entries": entries}))
        return str(path), len(entries)

    def test_a_record_of_another_gpu_is_told_to_be_a_hint(self):
        record, count = self.record(OTHER)
        run = self.moejit("run", LAYER, "--target", "cuda", "--tokens", "4", "--json", "--tuning", record)
        self.assertEqual(run.returncode, 0, run.stderr)
        line = (f"moejit: warning: {count} of {count} kernels have choices that were measured on the NVIDIA H100 (132 SMs, 50 MiB "
                f"of L2); {count} of them are hints, since this is the Fake H200 (132 SMs, 60 MiB of L2)\n")
        self.assertEqual(run.stderr.count(line), 1, run.stderr)
        tuning = json.loads(run.stdout)["tuning"]
        self.assertEqual((tuning["kernels"], tuning["recorded"], tuning["hints"]), (count, count, count))
        # The fake GPU has not the memory that a measurement wants; it is told before.
        self.assertEqual(self.moejit("bench", LAYER, "--tuning", record).stderr.count(line), 1)

    def test_a_record_of_this_gpu_is_no_hint(self):
        record, count = self.record(THIS)
        run = self.moejit("run", LAYER, "--target", "cuda", "--tokens", "4", "--json", "--tuning", record)
        self.assertEqual(json.loads(run.stdout)["tuning"]["hints"], 0, run.stderr)
        self.assertIn(f"moejit: {count} of {count} kernels have choices that were measured on the NVIDIA H200", run.stderr)
        self.assertNotIn("hint", run.stderr)
        without = self.moejit("run", LAYER, "--target", "cuda", "--tokens", "4", "--json")
        self.assertNotIn("tuning", json.loads(without.stdout))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
