# SPDX-License-Identifier: Apache-2.0
"""Arguments: a build folder, and the folder of dlpack/dlpack.h.
The commands of the docs do as they are written: each page's in their order, in a folder that has what a reader has."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from page_commands import Command, File, read_page, unprinted

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = ROOT / "docs/examples/layers"
PAGES = ("README.md", "docs/getting-started.md", "docs/c-api.md", "docs/cli.md", "docs/operations.md", "docs/python.md")
# A model's configuration that has only what a description is made of.
CONFIG = {"model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 2, "hidden_size": 256,
          "moe_intermediate_size": 128, "norm_topk_prob": True, "hidden_act": "silu"}


def write_shard(path):
    """The experts of tiny.json as a checkpoint has them, all weights 1."""
    layer = json.loads((LAYERS / "tiny.json").read_text())
    hidden, intermediate = layer["hidden"], layer["intermediate"]
    header, end = {}, 0
    for expert in range(layer["experts"]):
        for name, shape in (("gate_proj", [intermediate, hidden]), ("up_proj", [intermediate, hidden]),
                            ("down_proj", [hidden, intermediate])):
            size = 2 * hidden * intermediate
            header[f"model.layers.3.mlp.experts.{expert}.{name}.weight"] = {
                "dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\x80\x3f" * (end // 2))


def lay_out(folder, build):
    """What the pages take for granted: a checkout that is built, a layer, and a model's files."""
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(build)
    for name in ("layer.json", "tiny.json"):
        shutil.copy(LAYERS / "tiny.json", folder / name)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    # Downloaded models, here and below the home, which is the same folder.
    for name in ("DeepSeek-V3", "Qwen3-30B-A3B", "models/Qwen3-30B-A3B"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(CONFIG))
        write_shard(folder / name / "model.safetensors")


def script_of(steps):
    """A script that says on descriptor 3 which line it is at, and stops where one fails."""
    script = ["set -u"]
    for step in steps:
        script.append(f"echo {step.line} >&3")
        if isinstance(step, File):
            script.append(f"cat > {step.name} <<'END_OF_FILE'\n{step.text}END_OF_FILE")
        elif step.shown:
            script.append(f"{{ {step.text}\n}} > .shown-{step.line} 2>&1; status=$?; cat .shown-{step.line}; (exit $status)")
        else:
            script.append(step.text)
        script.append("status=$?; [ $status = 0 ] || exit $status")
    return "\n".join(script) + "\n"


def run_page(steps, folder, environment):
    """Nothing, or what the command said that failed, and its line."""
    at = folder / ".at"
    with open(at, "w", encoding="utf-8") as where:
        done = subprocess.run(["bash", "-c", f"exec 3>&{where.fileno()}\n{script_of(steps)}"], cwd=folder,
                              env=environment, pass_fds=[where.fileno()], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return None
    line = int(at.read_text().split()[-1])
    command = next(step.text for step in steps if step.line == line)
    return line, f"status {done.returncode}: {command}\n" + "\n".join(done.stdout.splitlines()[-20:])


def sample_findings(page, steps, folder):
    """A sentence for each line of sample output that its command did not print."""
    found = []
    for step in steps:
        if isinstance(step, Command) and step.shown:
            lines = unprinted(step, (folder / f".shown-{step.line}").read_text(encoding="utf-8"))
            found += [f"{page}:{step.line}: `{step.text}` prints no such line: {line}" for line in lines]
    return found


def main(build, dlpack):
    build = pathlib.Path(build).resolve()
    failures = []
    with tempfile.TemporaryDirectory(prefix="moejit-docs-") as name:
        shared = pathlib.Path(name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MOEJIT_")}
        environment.update(PATH=f"{build}:{os.environ['PATH']}", MOEJIT_CACHE_DIR=str(shared / "cache"), CPATH=dlpack)
        # As if the Python package were installed.
        environment.update(PYTHONPATH=str(ROOT / "runtime/bindings/python"), MOEJIT_TOOL=str(build / "moejit"),
                           MOEJIT_LIBRARY=str(build / "runtime/bindings/c/libmoejit.so"), PYTHONDONTWRITEBYTECODE="1")
        for page in PAGES:
            folder = shared / page.replace("/", "-")
            folder.mkdir()
            lay_out(folder, build)
            read = read_page(page, (ROOT / page).read_text(encoding="utf-8"))
            failures += read.problems + ([] if read.steps else [f"{page}: no commands found"])
            # Nothing is run of a page that could write outside of the folder.
            failed = None if read.problems else run_page(read.steps, folder, dict(environment, HOME=str(folder)))
            if failed:
                failures.append(f"{page}:{failed[0]}: {failed[1]}")
            elif not read.problems:
                failures += sample_findings(page, read.steps, folder)
            left_out = ", ".join(f"{count} {reason}" for reason, count in read.not_run.items())
            print(f"{page}: {len(read.steps)} commands{f'; not run: {left_out}' if left_out else ''}")
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
