# SPDX-License-Identifier: Apache-2.0
"""Argument: cmake. One sentence names all that the build misses, with the packages that .ci/setup installs."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Packages of .ci/setup whose absence the shell, pip or Python tells.
TOLD_BY_OTHERS = {"cmake", "ninja-build", "python3-venv"}
REQUIRED = re.compile(r'^ *moejit_(?:require|find_package)\((?:[^)"]|"[^"]*")*?([\w+-]+)\)', re.MULTILINE)
CMAKE = None  # path, set below


def required_packages():
    """The packages that CMakeLists.txt names."""
    return set(REQUIRED.findall((ROOT / "CMakeLists.txt").read_text(encoding="utf-8")))


def installed_packages():
    """Those that .ci/setup always installs."""
    script = (ROOT / ".ci/setup").read_text(encoding="utf-8")
    listed = re.search(r"^packages=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL).group(1)
    return set(re.sub("#.*", "", listed).split())


class Missing(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="moejit-missing-")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def configure(self, *options, **environment):
        """(status, what is told on stderr, in one line)."""
        done = subprocess.run([CMAKE, "-S", ROOT, "-B", self.folder, "-DMOEJIT_BUILD_TESTS=OFF", *options], text=True,
                              capture_output=True, check=False, env={**os.environ, **environment})
        return done.returncode, " ".join(done.stderr.split())

    def check_sentence(self, told, packages):
        """One error names these packages."""
        status, text = told
        self.assertNotEqual(status, 0)
        self.assertEqual(text.count("CMake Error"), 1, text)
        self.assertIn("The build needs these and did not find them: ", text)
        self.assertIn("Run .ci/setup in the checkout", text)
        found = re.search("or install these packages by hand: ([^:]*?) Call Stack", text)
        self.assertEqual(set(found.group(1).split()) if found else set(), packages, text)

    def test_the_build_names_what_setup_installs(self):
        self.assertEqual(required_packages(), installed_packages() - TOLD_BY_OTHERS)

    def test_all_that_is_missing_is_told_at_once(self):
        nothing = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "nlohmann_json", "CLI11", "tl-expected")]
        nothing += ["-DCMAKE_IGNORE_PATH=/usr/include;/usr/lib;/usr/lib/x86_64-linux-gnu", "-DMOEJIT_CUDA_INCLUDE=NO"]
        told = self.configure(*nothing, CC="no-such-compiler", CXX="no-such-compiler")
        self.check_sentence(told, required_packages())
        for what in ("a C++ compiler", "the library fmt", "dlpack/dlpack.h", "cuda.h of CUDA 12.0 or later"):
            self.assertIn(what, told[1])

    def test_what_is_there_is_not_told(self):
        self.check_sentence(self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON"), {"libfmt-dev"})

    def test_a_compiler_that_is_installed_later_is_found(self):
        self.check_sentence(self.configure(CC="no-such-compiler", CXX="no-such-compiler"), {"g++"})
        self.assertEqual(self.configure()[0], 0)


if __name__ == "__main__":
    CMAKE = sys.argv.pop(1)
    unittest.main(verbosity=0)
