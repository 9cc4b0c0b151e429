# SPDX-License-Identifier: Apache-2.0
"""Argument: a folder with torch's package. Makes PyPI's build of torch importable without the nvidia wheels.

That build needs shared libraries of CUDA, 2 GB of wheels, to be loaded at all. On a machine without a GPU nothing of
them runs, so libraries take their place that have the names, symbols and symbol versions which torch's own libraries
ask for. Each function returns 100, cudaErrorNoDevice; those that return text return one.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# In what every system has.
SYSTEM_LIBRARY = re.compile(r"^(libc|libm|librt|libdl|libpthread|libstdc\+\+|libgcc_s|ld-linux-x86-64|libgomp)\.")
SYSTEM_VERSION = re.compile(r"^(GLIBC|GCC|CXXABI|GLIBCXX|GOMP|OMP)")
# Functions of CUDA's libraries that have no symbol version.
CUDA_FUNCTION = re.compile(r"_*(cu|nv|nccl)")
RETURNS_TEXT = re.compile(r"(GetErrorString|GetErrorName|StatusString|StatusName|ncclGetLastError|ErrorString)$")
NO_DEVICE = 100


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_symbols(library, kind):
    """[(name, version)] of a library's dynamic symbols; kind is "defined" or "undefined"."""
    listed = output_of("nm", "--dynamic", f"--{kind}-only", library)
    names = (line.split()[-1].replace("@@", "@") for line in listed.splitlines())
    return [(name, version) for name, _, version in (name.partition("@") for name in names)]


def read_needs(folder):
    """What torch's libraries need of others: ({soname}, {version: {function}})."""
    libraries = sorted(folder.glob("lib/*.so")) + sorted(folder.glob("_C*.so"))
    own = {path.name for path in (folder / "lib").iterdir()}
    sonames, functions, defined = set(), collections.defaultdict(set), set()
    for library in libraries:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", library))
        sonames |= {name for name in needed if name not in own and not SYSTEM_LIBRARY.match(name)}
        defined |= {name for name, _ in read_symbols(library, "defined")}
        for name, version in read_symbols(library, "undefined"):
            if not SYSTEM_VERSION.match(version):
                functions[version].add(name)
    plain = {name for name in functions.pop("", set()) - defined if CUDA_FUNCTION.match(name)}
    return sonames, functions, plain


def assembler_function(name):
    body = " lea text(%rip), %rax" if RETURNS_TEXT.search(name) else f" mov ${NO_DEVICE}, %eax"
    return f".globl {name}\n.type {name}, @function\n{name}:\n{body}\n ret"


def make_library(path, versions, plain):
    """Links a library with functions of these versions: {version: {name}}, and of none."""
    names = sorted(set().union(plain, *versions.values()))
    source = [".text", *map(assembler_function, names), ".section .rodata", 'text: .asciz "there is no CUDA here"',
              '.section .note.GNU-stack, "", @progbits']
    script = [f'{version} {{ global: {"; ".join(sorted(listed))}; }};' for version, listed in versions.items()]
    with tempfile.TemporaryDirectory() as folder:
        assembler, map_file = pathlib.Path(folder, "stub.s"), pathlib.Path(folder, "stub.map")
        assembler.write_text("\n".join(source) + "\n", encoding="utf-8")
        map_file.write_text("\n".join(script) + "\n", encoding="utf-8")
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", "-o", path, assembler]
        subprocess.run(command + ([f"-Wl,--version-script={map_file}"] if script else []), check=True)
    return len(names)


def main(folder):
    site = pathlib.Path(folder)
    sonames, functions, plain = read_needs(site / "torch")
    libraries = site / "torch" / "lib"  # where torch's libraries look, of whichever version of CUDA
    count = 0
    for soname in sorted(sonames):
        versions = {version: names for version, names in functions.items()
                    if version == soname or (version == "NVSHMEM" and "nvshmem" in soname)}
        count += make_library(libraries / soname, versions, plain if soname.startswith("libcudart") else set())
    print(f"cuda_stubs: {len(sonames)} libraries with {count} functions")


if __name__ == "__main__":
    main(*sys.argv[1:])
