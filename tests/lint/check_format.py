# SPDX-License-Identifier: Apache-2.0
"""clang-format 14 over all tracked sources; skipped where that version is not installed."""
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import source_tree


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path and " 14." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def main():
    tool = clang_format()
    if tool is None:
        print("skipped: clang-format 14 is not installed")
        sys.exit(77)
    names = [name for name in source_tree.tracked(".h", ".hpp", ".c", ".cpp", ".cuh")
             if not name.startswith("tests/golden/")]

    def is_wrong(name):
        ran = subprocess.run([tool, "--dry-run", "--Werror", name], cwd=source_tree.ROOT,
                             capture_output=True, text=True)
        return ran.returncode != 0

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [name for name, is_bad in zip(names, pool.map(is_wrong, names)) if is_bad]
    source_tree.finish("format", [f"{name}: run `make format`" for name in wrong], len(names))


if __name__ == "__main__":
    main()
