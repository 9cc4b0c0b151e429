# SPDX-License-Identifier: Apache-2.0
"""Argument: libmoejit_torch.so or libmoejit_jax.so. What it needs and exports, so that one binary serves every version of
the framework."""
import pathlib
import re
import subprocess
import sys

NEEDED = re.compile(r"^(libmoejit\.so\.\d+|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6"
                    r"|ld-linux-x86-64\.so\.2)$")  # glibc's own, which has the addresses of thread_local variables
# Functions of the C interface, and versioned ones, which libc, libgcc and libstdc++ have.
UNDEFINED = re.compile(r"^moejit_\w+(@.*)?$|@(GLIBC|GLIBCXX|GCC|CXXABI)_")
# Each binding uses the engine and the devices of the process.
OWN = re.compile(r"^moejit_(engine_create|device_open_\w+)$")
WEAK = re.compile(r"^(_ITM_|__gmon_start__)")  # which any library asks for and none needs
# By the framework: the library that it needs, the functions that it asks for, and what it exports.
FRAMEWORKS = {
    "torch": ("libtorch_cpu.so", re.compile(r"^(torch_|aoti_torch_)\w+$"),
              {"moejit_torch_load_error", "moejit_torch_fill_blocks", "moejit_torch_open_meeting",
               "moejit_torch_close_meeting", "moejit_torch_abort_meeting", "moejit_torch_add_group_layer",
               "moejit_torch_remove_group_layer"}),
    # XLA hands its functions to the handlers.
    "jax": (None, re.compile(r"^$"),
            {"moejit_jax_instantiate", "moejit_jax_initialize", "moejit_jax_execute_on_cpu", "moejit_jax_execute_on_gpu"}),
}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(library, kind):
    listed = output_of("nm", "--dynamic", f"--{kind}-only", "--format=posix", library)
    return [line.split()[0] for line in listed.splitlines()]


def main(library):
    of_framework, functions, wanted = FRAMEWORKS[pathlib.Path(library).stem.removeprefix("libmoejit_")]
    dynamic = output_of("readelf", "--dynamic", "--wide", library)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    wrong = [name for name in needed if not NEEDED.match(name) and name != of_framework]
    if wrong or (of_framework and of_framework not in needed):
        sys.exit(f"{library} needs {needed}, wanted {of_framework} among them; not allowed: {wrong}")
    undefined = [name for name in symbols(library, "undefined")
                 if not UNDEFINED.search(name) and not functions.match(name) and not WEAK.match(name)]
    if undefined:
        sys.exit(f"{library} wants functions that are neither the framework's stable ones nor those of the C interface: "
                 f"{undefined}")
    own = [name for name in symbols(library, "undefined") if OWN.match(name)]
    if own:
        sys.exit(f"{library} calls {own}, wanted moejit_engine_shared and moejit_device_shared: a process has one engine")
    exported = {name.split("@")[0] for name in symbols(library, "defined")}
    if exported != wanted:
        sys.exit(f"{library} exports {sorted(exported)}, wanted {sorted(wanted)}")
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    if any("stub" in path for path in paths):
        sys.exit(f"{library} would find the empty library in the framework's place: {paths}")


if __name__ == "__main__":
    main(*sys.argv[1:])
