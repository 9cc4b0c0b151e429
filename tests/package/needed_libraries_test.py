# SPDX-License-Identifier: Apache-2.0
"""Arguments: a binary of ours, and ON or OFF for a portable build. Which shared libraries it needs."""
import re
import subprocess
import sys

NEVER = re.compile(r"^lib(cuda|cudart|nvrtc|LLVM)")  # opened at run time, or not at all
PORTABLE = re.compile(r"^(lib(c|m|dl|pthread)\.so|ld-linux)")


def main(binary, portable):
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", binary],
                             capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    wrong = [name for name in needed if NEVER.match(name)]
    if portable == "ON":
        wrong += [name for name in needed if not PORTABLE.match(name)]
    if not needed or wrong:
        sys.exit(f"{binary} needs {needed}; not allowed: {wrong}")


if __name__ == "__main__":
    main(*sys.argv[1:])
