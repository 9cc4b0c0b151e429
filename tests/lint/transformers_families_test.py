# SPDX-License-Identifier: Apache-2.0
"""Are the configurations of all models with experts that transformers has among the fixtures?

Reads the source of the library's configuration classes and imports nothing: from the installed
library, or from the newest wheel, which pip fetches into the folder given, once a week. Where the
wheel cannot be had the test is skipped. So it is where a version newer than the fixtures has models
that they lack, unless NEWEST_TRANSFORMERS=1 asks for a failure: nobody's change brought them.
"""
import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time
import zipfile

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures/hugging_face"
FIXTURES = FOLDER / "configurations.txt"
EXPERT_KEYS = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}
SKIPPED = 77
WEEK_SECONDS = 7 * 24 * 3600
DOWNLOAD_SECONDS = 8

# Classes with such a key that are no family of their own, and why.
EXCLUDED = {
    "Ernie4_5_VL_MoeTextConfig": "an older name of Ernie4_5_VLMoeTextConfig",
}


class Unavailable(Exception):
    """There is nothing to compare with."""


def installed_sources():
    """(version, texts of configuration files) of an installed library; None without one."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = pathlib.Path(spec.submodule_search_locations[0])
    found = re.search(r'^__version__ = "([^"]+)"', (root / "__init__.py").read_text(), re.M)
    texts = [path.read_text() for path in sorted(root.glob("models/*/configuration_*.py"))]
    return (found.group(1), texts) if found else None


def newest_wheel(folder):
    """The wheel in the folder, fetched where there is none of the last week."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = sorted(folder.glob("transformers-*.whl"), key=lambda path: path.stat().st_mtime)
    if wheels and time.time() - wheels[-1].stat().st_mtime < WEEK_SECONDS:
        return wheels[-1]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "0",
               "--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(folder),
               "transformers"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=DOWNLOAD_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"transformers cannot be fetched: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"]
        raise Unavailable(f"transformers cannot be fetched: {lines[-1]}")
    newest = max(folder.glob("transformers-*.whl"), key=lambda path: path.stat().st_mtime)
    newest.touch()
    return newest


def wheel_sources(wheel):
    pattern = re.compile(r"transformers/models/[^/]+/configuration_[^/]+\.py")
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if pattern.fullmatch(name))
        return wheel.name.split("-")[1], [archive.read(name).decode() for name in names]


def names_in(statement):
    """The fields that a statement of a class declares, and what attribute_map calls them."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    is_map = (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict)
              and getattr(statement.targets[0], "id", "") == "attribute_map")
    if is_map:
        pairs = [*statement.value.keys, *statement.value.values]
        return {node.value for node in pairs if isinstance(node, ast.Constant)}
    return set()


def classes_with_experts(texts):
    bases, fields = {}, {}
    for text in texts:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                fields[node.name] = set().union(*map(names_in, node.body))

    def has_experts(name):
        return bool(fields.get(name, set()) & EXPERT_KEYS) or any(map(has_experts,
                                                                      bases.get(name, [])))

    return {name for name in bases if has_experts(name)}


def main():
    with FIXTURES.open() as lines:
        fixture_version = next(lines).split()[1]
        covered = {line.split(" ", 1)[0] for line in lines}
    try:
        version, texts = installed_sources() or wheel_sources(newest_wheel(
            pathlib.Path(sys.argv[1])))
    except (Unavailable, zipfile.BadZipFile) as error:
        print(f"skipped: {error}")
        return SKIPPED
    found = classes_with_experts(texts)
    if len(found) < 50:
        print(f"transformers {version}: only {len(found)} classes with experts found, wanted at "
              "least 50: is the way that it declares them another one?")
        return 1
    missing = sorted(found - covered - set(EXCLUDED))
    if not missing:
        return 0
    print(f"transformers {version} has configurations with experts that the fixtures (of "
          f"{fixture_version}) lack: {', '.join(missing)}\n"
          "run make_configs.py in tests/fixtures/hugging_face with that version, and add the "
          "families to compiler/parser/hugging_face_families.cpp")
    is_newer = version != fixture_version and "NEWEST_TRANSFORMERS" not in os.environ
    return SKIPPED if is_newer else 1


if __name__ == "__main__":
    sys.exit(main())
