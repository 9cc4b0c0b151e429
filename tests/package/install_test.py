# SPDX-License-Identifier: Apache-2.0
"""Arguments: cmake, a build folder, the C and C++ compilers, and the folder of dlpack/dlpack.h.
What is installed can be moved, and programs build against it with CMake and with pkg-config."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs/examples"


def run(command, **options):
    """The standard output of a command that has to succeed."""
    command = [str(part) for part in command]
    ran = subprocess.run(command, capture_output=True, text=True, **options)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def check_no_paths(prefix, folder):
    """Package files name no folder outside of what is installed."""
    for path in prefix.rglob("*"):
        if path.suffix in (".cmake", ".pc") and str(folder) in path.read_text(encoding="utf-8"):
            sys.exit(f"{path} names {folder}")


def check_program(program, build, environment):
    told = run([program, "sim"], env=environment)
    if "3 tokens forward and backward" not in told:
        sys.exit(f"{program} said: {told}")
    linked = run(["ldd", program], env=environment)
    if str(build) in linked:
        sys.exit(f"{program} runs with the library of the build folder:\n{linked}")


def with_cmake(cmake, prefix, compilers, dlpack, folder):
    run([cmake, "-S", ROOT / "tests/package/project", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}",
         f"-DEXAMPLES={EXAMPLES}", f"-DMOEJIT_DLPACK_INCLUDE={dlpack}", "-DCMAKE_BUILD_TYPE=Debug",
         f"-DCMAKE_C_COMPILER={compilers[0]}", f"-DCMAKE_CXX_COMPILER={compilers[1]}"])
    run([cmake, "--build", folder])
    return [folder / "embed_c", folder / "embed_wrapper"]


def with_pkg_config(prefix, libraries, compilers, dlpack, folder):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(libraries / "pkgconfig"))
    flags = run(["pkg-config", "--cflags", "--libs", "moejit"], env=environment).split()
    flags += [f"-I{dlpack}", f"-Wl,-rpath,{libraries}", "-lm"]
    run([compilers[0], "-std=c11", EXAMPLES / "embed_c.c", "-o", folder / "embed_c", *flags])
    run([compilers[1], "-std=c++17", EXAMPLES / "embed_wrapper.cpp", "-o", folder / "embed_wrapper", *flags])
    return [folder / "embed_c", folder / "embed_wrapper"]


def check_half_built(cmake, build, folder):
    """Of a build without the library nothing is installed, and a sentence says what to do."""
    half = folder / "half"
    for script in pathlib.Path(build).rglob("cmake_install.cmake"):
        copy = half / script.relative_to(build)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(script.read_text(encoding="utf-8").replace(str(build), str(half)), encoding="utf-8")
    shutil.copy(pathlib.Path(build) / "moejit", half / "moejit")
    done = subprocess.run([cmake, "--install", half, "--prefix", folder / "nothing"], capture_output=True, text=True,
                          check=False)
    if done.returncode == 0 or "nothing was installed" not in done.stderr or "libmoejit.so" not in done.stderr:
        sys.exit(f"an installation without the library: status {done.returncode}\n{done.stderr}")
    if (folder / "nothing").exists():
        sys.exit("an installation without the library left files")


def check_demo_builds_all():
    """README's line for installing works after `make demo` as well."""
    told = run(["make", "--dry-run", "demo"], cwd=ROOT)
    if "--target moejit moejit_shared" not in told:
        sys.exit(f"make demo does not build what is installed:\n{told}")


def main(cmake, build, c_compiler, cpp_compiler, dlpack):
    compilers = (c_compiler, cpp_compiler)
    with tempfile.TemporaryDirectory(prefix="moejit-install-") as name:
        folder = pathlib.Path(name)
        check_half_built(cmake, build, folder)
        check_demo_builds_all()
        run([cmake, "--install", build, "--prefix", folder / "first"])
        check_no_paths(folder / "first", folder)
        check_no_paths(folder / "first", build)
        prefix = folder / "moved"
        (folder / "first").rename(prefix)
        libraries = next(prefix.rglob("libmoejit.so")).parent
        version = run([prefix / "bin/moejit", "--version"])
        if "moejit" not in version:
            sys.exit(f"moejit --version said: {version}")
        # The kernels come from the folder in which tests keep theirs.
        environment = dict(os.environ, MOEJIT_CACHE_DIR=str(pathlib.Path(build) / "test-kernels"),
                           MOEJIT_CACHE_MAX_BYTES="none", MOEJIT_CACHE_MAX_FILES="none")
        (folder / "pkg").mkdir()
        programs = with_cmake(cmake, prefix, compilers, dlpack, folder / "cmake")
        if shutil.which("pkg-config"):
            programs += with_pkg_config(prefix, libraries, compilers, dlpack, folder / "pkg")
        else:
            print("without pkg-config, which is not installed")
        for program in programs:
            check_program(program, build, environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
