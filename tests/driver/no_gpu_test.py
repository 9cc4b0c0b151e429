# SPDX-License-Identifier: Apache-2.0
"""The tool without a driver, with one that finds no GPU, and with a GPU that is no Hopper."""
import os
import struct
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


def check_other_gpu(folder):
    """A GPU of compute capability 12.0: the tool names its target and what is known of it, and takes it for no other."""
    environment = dict(os.environ, MOEJIT_CUDA_DRIVER=FAKE_CUDA, MOEJIT_CACHE_DIR=folder + "/cache",
                       MOEJIT_RUN_DIR=folder + "/run", FAKE_CUDA_CONTROL=folder + "/control")
    with open(folder + "/control", "wb") as control:
        control.write(struct.pack("<iii", 0, 0, 120))  # GPUs, version of the driver, compute capability
    wrong = []
    for arguments, wanted in (
            (["env"], "; target cuda:sm_120f (compiled and simulated, never run)"),
            (["plan", "docs/examples/layers/tiny-ep2.json", "--target", "cuda:sm_89"], "does not run on target cuda:sm_89"),
            (["bench", LAYER, "--tokens", "8", "--target", "cuda:sm_90a"], "runs cuda:sm_120f, wanted cuda:sm_90a")):
        done = subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True, timeout=200,
                              check=False)
        if wanted not in done.stdout + done.stderr:
            wrong.append(f"{arguments}: wanted '{wanted}' in: {done.stdout}{done.stderr}")
    return wrong


def main():
    with tempfile.TemporaryDirectory(prefix="moejit-no-gpu-") as folder:
        wrong = check("/nowhere/libcuda.so.1", "no CUDA driver library found", folder)
        # The first number of the control record: how many GPUs there are.
        with open(folder + "/control", "wb") as control:
            control.write((-1).to_bytes(4, "little", signed=True))
        wrong += check(FAKE_CUDA, "finds no GPU", folder)
    with tempfile.TemporaryDirectory(prefix="moejit-other-gpu-") as folder:
        wrong += check_other_gpu(folder)
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
