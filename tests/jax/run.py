# SPDX-License-Identifier: Apache-2.0
"""Arguments: the build folder, how many tests may run at a time, and a folder with jax. Runs the tests of this folder.

Kernels are kept where the other tests keep theirs (TEST_CACHE).
"""
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from run_folder import run_folder

# The longest first, so that none is left alone at the end.
FIRST = ("docs_test.py", "transforms_test.py", "bits_test.py")


def main(build, jobs, jax_folder):
    kept = os.environ.get("TEST_CACHE") or str(build / "test-kernels")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"MOEJIT_LIBRARY": str(build / "runtime/bindings/c/libmoejit.so"),
                       "MOEJIT_JAX_LIBRARY": str(build / "runtime/bindings/jax/libmoejit_jax.so"),
                       "MOEJIT_CACHE_DIR": scratch if kept == "off" else kept, "JAX_PLATFORMS": "cpu",
                       "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # of XLA's CPU code, whose making takes longer than it runs
        packages = [str(ROOT / "runtime" / "bindings" / "python"), jax_folder]
        os.environ["PYTHONPATH"] = os.pathsep.join(packages)  # of processes that tests start
        sys.path[:0] = packages
        import flax.nnx, moejit.jax  # noqa: E401  # once for all tests; neither starts threads
        return run_folder(pathlib.Path(__file__).resolve().parent, jobs, "moejit.jax", FIRST)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3]))
