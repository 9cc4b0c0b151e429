# SPDX-License-Identifier: Apache-2.0
"""Arguments: libmoejit.so and its headers. The library exports their functions and nothing else."""
import pathlib
import re
import subprocess
import sys

DECLARED = re.compile(r"^MOEJIT_API[^;(]*?(\w+)\(", re.MULTILINE)
VERSION_NODE = re.compile(r"^MOEJIT_\d+\.\d+$")


def main(library, *headers):
    listed = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", library],
                            capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[0] for line in listed.splitlines()}
    exported = {re.sub(r"@.*", "", symbol) for symbol in symbols if not VERSION_NODE.match(symbol)}
    unversioned = sorted(symbol for symbol in symbols if symbol.startswith("moejit_") and "@@" not in symbol)
    declared = set()
    for header in headers:
        found = DECLARED.findall(pathlib.Path(header).read_text(encoding="utf-8"))
        if not found:
            sys.exit(f"{header}: the pattern of this check is out of date")
        declared.update(found)
    if exported != declared or unversioned:
        sys.exit(f"exported but not declared: {sorted(exported - declared)}\n"
                 f"declared but not exported: {sorted(declared - exported)}\n"
                 f"without a version: {unversioned}")


if __name__ == "__main__":
    main(*sys.argv[1:])
