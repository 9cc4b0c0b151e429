# SPDX-License-Identifier: Apache-2.0
"""Arguments: a binary of ours, and ON or OFF for a portable build; for libmoejit.so also its soname.
Which shared libraries it needs."""
import re
import subprocess
import sys

# Opened at run time, linked statically so that no other copy can meet them, or not at all.
NEVER = re.compile(r"^lib(cuda|cudart|nvrtc|LLVM|cryptopp|crypto\+\+|boost|pugixml|xxhash)")
PORTABLE = re.compile(r"^(lib(c|m|dl|pthread)\.so|ld-linux)")


def main(binary, portable, soname=None):
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", binary],
                             capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    wrong = [name for name in needed if NEVER.match(name)]
    if portable == "ON":
        wrong += [name for name in needed if not PORTABLE.match(name)]
    if not needed or wrong:
        sys.exit(f"{binary} needs {needed}; not allowed: {wrong}")
    named = re.findall(r"\(SONAME\).*\[(.+)\]", dynamic)
    if soname is not None and named != [soname]:
        sys.exit(f"{binary} has the sonames {named}, wanted {soname}")


if __name__ == "__main__":
    main(*sys.argv[1:])
