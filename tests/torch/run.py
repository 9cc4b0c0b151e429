# SPDX-License-Identifier: Apache-2.0
"""Arguments: the build folder, how many tests may run at a time, and a folder with torch. Runs the tests of this folder.

Kernels are kept where the other tests keep theirs (TEST_CACHE), and so is what Inductor compiles.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The longest first, so that none is left alone at the end.
FIRST = ("staleness_test.py", "staleness_doors_test.py", "compile_test.py", "fsdp_test.py", "hugging_face_test.py")


def environment(build, torch_folder, scratch):
    kept = os.environ.get("TEST_CACHE") or str(build / "test-kernels")
    variables = {"PYTHONPATH": os.pathsep.join([torch_folder, str(ROOT / "runtime" / "bindings" / "python")]),
                 "MOEJIT_LIBRARY": str(build / "runtime/bindings/c/libmoejit.so"),
                 "MOEJIT_TORCH_LIBRARY": str(build / "runtime/bindings/torch/libmoejit_torch.so"),
                 "MOEJIT_TORCH_FLOOR": str(build / "tests/bench/libmoejit_torch_floor.so"),
                 "MOEJIT_TOOL": str(build / "moejit"),
                 "MOEJIT_CACHE_DIR": scratch if kept == "off" else kept,
                 "TORCHINDUCTOR_CACHE_DIR": str(build / "torch-inductor")}
    return {**os.environ, **variables}


def run(path, variables):
    """(the test's name, whether it passed, its output, its CPU seconds)."""
    with subprocess.Popen([sys.executable, "-W", "ignore::UserWarning", "-m", "unittest", path.stem],
                          cwd=path.parent, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return path.name, process.returncode == 0, output, usage.ru_utime + usage.ru_stime


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


def main(build, jobs, torch_folder):
    tests = sorted(pathlib.Path(__file__).parent.glob("*_test.py"), key=lambda path: (path.name not in FIRST, path.name))
    passed, counts, cpu, begin = True, [], {}, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        variables = environment(pathlib.Path(build).resolve(), torch_folder, scratch)
        for future in concurrent.futures.as_completed([pool.submit(run, path, variables) for path in tests]):
            name, is_passed, output, seconds = future.result()
            passed = passed and is_passed
            counts.append(count(output, is_passed))
            cpu[name] = seconds
            print(f"{name}: {'passed' if is_passed else 'FAILED'}, {last_line(output)}, {seconds:.0f} CPU s",
                  flush=True)
            if not is_passed:
                print(output, flush=True)
    print(f"CPU seconds: {sum(cpu.values()):.1f}")
    for name in sorted(cpu, key=cpu.get, reverse=True)[:10]:
        print(f"{cpu[name]:9.1f}  {name}")
    print(f"tests of moejit.torch took {time.monotonic() - begin:.0f} s")
    print("{} passed, {} failed, {} skipped".format(*map(sum, zip(*counts))))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
