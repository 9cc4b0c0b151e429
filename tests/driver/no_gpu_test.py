# SPDX-License-Identifier: Apache-2.0
"""The tool without a driver, and with one that finds no GPU: all but launching works."""
import os
import subprocess
import sys
import tempfile

TOOL, FAKE_CUDA = sys.argv[1:3]
LAYER = "docs/examples/layers/tiny.json"
WORKS, WANTS_A_GPU = 0, 5  # exit status
COMMANDS = [
    (WORKS, ["--version"]),
    (WORKS, ["plan", LAYER, "--explain"]),
    (WORKS, ["emit", LAYER, "--output-dir", "{dir}/sources"]),
    (WORKS, ["build", LAYER]),
    (WORKS, ["build", LAYER, "--arch", "sm_90a", "--pack", "{dir}/kernels.moejitpack"]),
    (WORKS, ["pack", "verify", "{dir}/kernels.moejitpack"]),
    (WORKS, ["cache", "ls"]),
    (WORKS, ["cache", "verify"]),
    (WORKS, ["activation", "tanh(gate) * up"]),
    (WORKS, ["env"]),
    (WORKS, ["run", LAYER, "--tokens", "4", "--target", "sim"]),
    (WANTS_A_GPU, ["run", LAYER, "--tokens", "8", "--target", "cuda"]),
    (WANTS_A_GPU, ["bench", LAYER, "--tokens", "8"]),
]


def check(driver, reason, folder):
    environment = dict(os.environ, MOEJIT_CUDA_DRIVER=driver, MOEJIT_CACHE_DIR=folder + "/cache",
                       MOEJIT_RUN_DIR=folder + "/run", FAKE_CUDA_CONTROL=folder + "/control")
    wrong = []
    for status, arguments in COMMANDS:
        arguments = [argument.format(dir=folder) for argument in arguments]
        done = subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True,
                              timeout=200, check=False)
        if done.returncode != status:
            wrong.append(f"{arguments}: status {done.returncode}, wanted {status}: {done.stderr}")
        elif status != 0 and reason not in done.stderr:
            wrong.append(f"{arguments}: wanted '{reason}' in: {done.stderr}")
    return wrong


def main():
    with tempfile.TemporaryDirectory(prefix="moejit-no-gpu-") as folder:
        wrong = check("/nowhere/libcuda.so.1", "no CUDA driver library found", folder)
        # The first number of the control record: how many GPUs there are.
        with open(folder + "/control", "wb") as control:
            control.write((-1).to_bytes(4, "little", signed=True))
        wrong += check(FAKE_CUDA, "finds no GPU", folder)
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
