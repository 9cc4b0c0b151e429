# SPDX-License-Identifier: Apache-2.0
"""clang-format 14 over all tracked sources; skipped where that version is not installed."""
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import source_tree

BATCH = 40  # files


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

    def wrong_of(batch):
        """Those of a batch that differ from what the tool makes, from lines like a.cpp:3:5: error: code should be ..."""
        ran = subprocess.run([tool, "--dry-run", "--Werror", *batch], cwd=source_tree.ROOT,
                             capture_output=True, text=True)
        found = {line.split(":")[0] for line in ran.stderr.splitlines() if ": error: " in line}
        return [name for name in batch if name in found] if found or ran.returncode == 0 else batch

    # Starting the tool takes longer than reading a file.
    batches = [names[i:i + BATCH] for i in range(0, len(names), BATCH)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [name for found in pool.map(wrong_of, batches) for name in found]
    source_tree.finish("format", [f"{name}: run `make format`" for name in wrong], len(names))


if __name__ == "__main__":
    main()
