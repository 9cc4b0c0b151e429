# SPDX-License-Identifier: Apache-2.0
"""Argument: cmake. Where a package is missing the build names it, for every library that .ci/setup installs."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Packages of .ci/setup that hold programs: their absence is told by the shell, pip or CMake itself.
PROGRAMS = {"g++", "cmake", "ninja-build"}
REQUIRED = re.compile(r"moejit_(?:require|find_package)\((?:[^)\\]|\\\n)*?([\w+-]+-dev)\)")


def required_packages():
    texts = [(ROOT / name).read_text(encoding="utf-8")
             for name in ("CMakeLists.txt", "runtime/bindings/c/CMakeLists.txt")]
    return {package for text in texts for package in REQUIRED.findall(text)}


def installed_packages():
    script = (ROOT / ".ci/setup").read_text(encoding="utf-8")
    listed = re.search(r"^packages=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL).group(1)
    return set(listed.split()) - PROGRAMS


def check_sentence(cmake, option, package):
    with tempfile.TemporaryDirectory(prefix="moejit-missing-") as folder:
        done = subprocess.run([cmake, "-S", ROOT, "-B", folder, "-DMOEJIT_BUILD_TESTS=OFF", option], text=True,
                              capture_output=True, check=False)
    told = " ".join(done.stderr.split())
    if done.returncode == 0 or f"was not found: install the package {package} " not in told:
        sys.exit(f"{option}: status {done.returncode}, wanted a sentence with {package}:\n{done.stderr}")


def main(cmake):
    if required_packages() != installed_packages():
        sys.exit(f".ci/setup installs {sorted(installed_packages())}\nCMake names {sorted(required_packages())}")
    check_sentence(cmake, "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON", "libfmt-dev")
    check_sentence(cmake, "-DCMAKE_IGNORE_PATH=/usr/include", "libcrypto++-dev")


if __name__ == "__main__":
    main(*sys.argv[1:])
