# SPDX-License-Identifier: Apache-2.0
"""Arguments: the build folder, how many tests may run at a time, and a folder with torch. Runs the tests of this folder.

Kernels are kept where the other tests keep theirs (TEST_CACHE), and so is what Inductor compiles.
"""
import gc
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

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


def start(path, output):
    """The id of a process that runs a test, as a copy of this one. It writes to the file `output`."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        unittest.main(module=None, argv=["unittest", path.stem])  # exits
    return process


def run_all(paths, jobs):
    """Yields (a test's name, whether it passed, its output, its CPU seconds) as each ends."""
    pending, running = list(paths), {}
    while pending or running:
        while pending and len(running) < jobs:
            path, output = pending.pop(0), tempfile.TemporaryFile("w+", errors="replace")
            running[start(path, output)] = path, output
        process, status, usage = os.wait4(-1, 0)
        path, output = running.pop(process)
        with output:
            output.seek(0)
            yield path.name, status == 0, output.read(), usage.ru_utime + usage.ru_stime


def last_line(output):
    return (output.strip().splitlines() or ["no output"])[-1]


def count(output, is_passed):
    """How many tests of a program passed, failed, and were skipped, by what unittest wrote at its end."""
    ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    told = {kind: int(number) for kind, number in re.findall(r"(failures|errors|skipped)=(\d+)", last_line(output))}
    failed, skipped = told.get("failures", 0) + told.get("errors", 0), told.get("skipped", 0)
    if not is_passed:
        failed = max(failed, 1)  # a crash tells of none
    return max(int(ran.group(1)) - failed - skipped, 0) if ran else 0, failed, skipped


def run_tests(jobs):
    """Runs all tests and tells how they went. Each is a process that has torch from this one: to import it takes longer
    than many a test. torch is the only state that they share, since nothing has run yet."""
    sys.path.insert(0, str(FOLDER))
    import support  # noqa: F401
    import torch._dynamo  # noqa: F401
    gc.freeze()  # so that collecting garbage copies no memory of the imports
    tests = sorted(FOLDER.glob("*_test.py"), key=lambda path: (path.name not in FIRST, path.name))
    passed, counts, cpu, begin = True, [], {"imports": time.process_time()}, time.monotonic()
    for name, is_passed, output, seconds in run_all(tests, jobs):
        passed = passed and is_passed
        counts.append(count(output, is_passed))
        cpu[name] = seconds
        print(f"{name}: {'passed' if is_passed else 'FAILED'}, {last_line(output)}, {seconds:.0f} CPU s", flush=True)
        if not is_passed:
            print(output, flush=True)
    print(f"CPU seconds: {sum(cpu.values()):.1f}")
    for name in sorted(cpu, key=cpu.get, reverse=True)[:10]:
        print(f"{cpu[name]:9.1f}  {name}")
    print(f"tests of moejit.torch took {time.monotonic() - begin:.0f} s")
    print("{} passed, {} failed, {} skipped".format(*map(sum, zip(*counts))))
    return 0 if passed else 1


def main(build, jobs, torch_folder):
    with tempfile.TemporaryDirectory() as scratch:
        variables = environment(pathlib.Path(build).resolve(), torch_folder, scratch)
        command = [sys.executable, "-W", "ignore::UserWarning", __file__, jobs]
        return subprocess.run(command, cwd=FOLDER, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(run_tests(int(sys.argv[1])) if len(sys.argv) == 2 else main(*sys.argv[1:]))
