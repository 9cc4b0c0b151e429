# SPDX-License-Identifier: Apache-2.0
"""Argument: a C++ compiler. What calls the driver compiles with the oldest cuda.h that is supported,
whose folder is in OLDEST_CUDA_INCLUDE (docs/testing.md), and names it where an older one is used."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = os.environ.get("OLDEST_CUDA_INCLUDE", "")
OLDEST = 12000


class OldestCudaHeader(unittest.TestCase):
    def compile(self, folder, *files):
        return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-I", ROOT, "-I",
                               ROOT / "templates", "-isystem", folder, *files],
                              capture_output=True, text=True, check=False)

    @unittest.skipUnless(FOLDER, "OLDEST_CUDA_INCLUDE names no folder of a cuda.h of CUDA 12.0")
    def test_the_oldest_is_enough(self):
        header = (pathlib.Path(FOLDER) / "cuda.h").read_text(encoding="utf-8", errors="replace")
        self.assertEqual(int(re.search(r"#define CUDA_VERSION (\d+)", header)[1]), OLDEST)
        for folder in ("runtime/driver", "tests/fakes/cuda"):
            for file in sorted((ROOT / folder).glob("*.cpp")):
                done = self.compile(FOLDER, file)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_older_one_is_refused_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            older = f"#define CUDA_VERSION {OLDEST - 10}\n"
            (pathlib.Path(folder) / "cuda.h").write_text(older, encoding="utf-8")
            done = self.compile(folder, ROOT / "runtime/driver/context.cpp")
            self.assertIn("moejit is built with the cuda.h of CUDA 12.0 or later", done.stderr)


if __name__ == "__main__":
    COMPILER = sys.argv.pop(1)
    unittest.main()
