# SPDX-License-Identifier: Apache-2.0
"""What the lint tests share: the tracked files of the repository and a way to report."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def tracked(*suffixes, root=ROOT):
    """Paths below the root, sorted, with one of these suffixes (all files without suffixes)."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive: everything but what .gitignore names
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith(("build", ".git/", ".deps/"))]
    return sorted(name for name in names
                  if (root / name).is_file() and (not suffixes or name.endswith(suffixes)))


def read(name, root=ROOT):
    return (root / name).read_text(encoding="utf-8")


def finish(what, findings, checked):
    """Print the findings and end with the matching status."""
    for finding in findings:
        print(finding)
    print(f"{what}: {checked} checked, {len(findings)} wrong")
    sys.exit(1 if findings else 0)
