# SPDX-License-Identifier: Apache-2.0
"""Arguments: the build folder, how many tests may run at a time, and a folder with torch. Runs the tests of this folder.

Kernels are kept where the other tests keep theirs (TEST_CACHE), and so is what Inductor compiles.
"""
import gc
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from run_folder import run_folder

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# The longest first, so that none is left alone at the end.
FIRST = ("staleness_test.py", "staleness_doors_test.py", "scales_test.py", "trainer_test.py", "fsdp_test.py",
         "examples_test.py", "compile_test.py", "hugging_face_test.py")


def environment(build, torch_folder, scratch):
    kept = os.environ.get("TEST_CACHE") or str(build / "test-kernels")
    variables = {"PYTHONPATH": os.pathsep.join([torch_folder, str(ROOT / "runtime" / "bindings" / "python")]),
                 "MOEJIT_LIBRARY": str(build / "runtime/bindings/c/libmoejit.so"),
                 "MOEJIT_TORCH_LIBRARY": str(build / "runtime/bindings/torch/libmoejit_torch.so"),
                 "MOEJIT_TORCH_FLOOR": str(build / "tests/bench/libmoejit_torch_floor.so"),
                 "MOEJIT_TOOL": str(build / "moejit"),
                 "MOEJIT_CACHE_DIR": scratch if kept == "off" else kept,
                 "TORCHINDUCTOR_CACHE_DIR": str(build / "torch-inductor"),
                 # Each would start interpreters that import torch: to compile, and to see which vectors there are.
                 "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
    return {**os.environ, **variables}


def run_tests(jobs):
    """Each test is a process that has torch from this one: to import it takes longer than many a test. torch is the only
    state that they share, since nothing has run yet."""
    sys.path.insert(0, str(FOLDER))
    import support  # noqa: F401
    import torch._dynamo  # noqa: F401
    gc.freeze()  # so that collecting garbage copies no memory of the imports
    return run_folder(FOLDER, jobs, "moejit.torch", FIRST)


def main(build, jobs, torch_folder):
    with tempfile.TemporaryDirectory() as scratch:
        variables = environment(pathlib.Path(build).resolve(), torch_folder, scratch)
        command = [sys.executable, "-W", "ignore::UserWarning", __file__, jobs]
        return subprocess.run(command, cwd=FOLDER, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(run_tests(int(sys.argv[1])) if len(sys.argv) == 2 else main(*sys.argv[1:]))
