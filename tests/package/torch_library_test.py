# SPDX-License-Identifier: Apache-2.0
"""Argument: libmoejit_torch.so. What it needs and exports, so that one binary serves every torch from 2.10 on."""
import re
import subprocess
import sys

NEEDED = re.compile(r"^(libtorch_cpu\.so|libmoejit\.so\.\d+|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6"
                    r"|ld-linux-x86-64\.so\.2)$")  # glibc's own, which has the addresses of thread_local variables
# Of versions: libc, libgcc and libstdc++.
UNDEFINED = re.compile(r"^(torch_|aoti_torch_|moejit_)\w+(@.*)?$|@(GLIBC|GLIBCXX|GCC|CXXABI)_")
WEAK = re.compile(r"^(_ITM_|__gmon_start__)")  # which any library asks for and none needs
EXPORTED = {"moejit_torch_load_error", "moejit_torch_fill_blocks", "moejit_torch_open_meeting",
            "moejit_torch_close_meeting", "moejit_torch_abort_meeting", "moejit_torch_add_group_layer",
            "moejit_torch_remove_group_layer"}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(library, kind):
    listed = output_of("nm", "--dynamic", f"--{kind}-only", "--format=posix", library)
    return [line.split()[0] for line in listed.splitlines()]


def main(library):
    dynamic = output_of("readelf", "--dynamic", "--wide", library)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    wrong = [name for name in needed if not NEEDED.match(name)]
    if wrong or "libtorch_cpu.so" not in needed:
        sys.exit(f"{library} needs {needed}, wanted libtorch_cpu.so among them; not allowed: {wrong}")
    undefined = [name for name in symbols(library, "undefined") if not UNDEFINED.search(name) and not WEAK.match(name)]
    if undefined:
        sys.exit(f"{library} wants functions that are neither torch's stable ones nor those of the C interface: "
                 f"{undefined}")
    exported = {name.split("@")[0] for name in symbols(library, "defined")}
    if exported != EXPORTED:
        sys.exit(f"{library} exports {sorted(exported)}, wanted {sorted(EXPORTED)}")
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    if any("stub" in path for path in paths):
        sys.exit(f"{library} would find the empty library in torch's place: {paths}")


if __name__ == "__main__":
    main(*sys.argv[1:])
