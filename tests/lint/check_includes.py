# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the arrows of docs/architecture.md, read off the #include lines."""
import source_tree

# folder -> what its files may include; the longest folder that fits a file decides. An entry is a
# folder with everything below it ("cache/"), or only the headers on a folder's top level
# ("compiler/*").
SUPPORT = "compiler/support/"
RULES = {
    "templates/moejit_device/": ["moejit_device/"],
    "templates/moejit_sim/": ["moejit_sim/", "moejit_device/"],
    "templates/moejit_mma/": ["moejit_device/"],
    "templates/moejit_sm80/": ["moejit_device/"],
    "templates/moejit_sm120/": ["moejit_device/"],
    "templates/moejit_ampere/": ["moejit_device/"],
    "templates/moejit_cp_async/": ["moejit_device/"],
    "compiler/support/": [SUPPORT],
    "templates/": ["templates/*", SUPPORT],
    "compiler/": ["compiler/", "templates/*", "moejit_device/params/"],
    "cache/": ["cache/", SUPPORT],
    "runtime/": ["runtime/*", "runtime/driver/", "runtime/group/", "runtime/launch/", "runtime/nccl/",
                 "runtime/obtain/", "compiler/*", "cache/*", SUPPORT, "templates/*", "moejit_device/params/", "moejit_device/core/",
                 "templates/moejit_device/params/"],
    "runtime/simulator/": ["runtime/simulator/", "runtime/device.h", "runtime/plain_tensor_map.h", "runtime/simulator_group.h", "runtime/transport.h",
                           "compiler/*", SUPPORT, "moejit_device/core/", "templates/moejit_sim/"],
    "runtime/measure/": ["runtime/measure/", "runtime/*", "runtime/reference/", "compiler/*", SUPPORT,
                         "templates/moejit_device/params/"],
    "runtime/checkpoint/": ["runtime/checkpoint/", "runtime/*", "runtime/reference/", "compiler/*", SUPPORT],
    "runtime/trial/": ["runtime/trial/", "runtime/checkpoint/", "runtime/measure/", "runtime/*", "runtime/reference/",
                       "compiler/*", SUPPORT, "templates/moejit_device/params/"],
    "runtime/check/": ["runtime/check/", "runtime/trial/", "runtime/checkpoint/", "runtime/measure/", "runtime/*", "runtime/reference/",
                       "compiler/*", SUPPORT, "templates/moejit_device/params/"],
    "runtime/tune/": ["runtime/tune/", "runtime/trial/", "runtime/measure/", "runtime/*", "compiler/*", SUPPORT],
    "runtime/tune/decision/": ["runtime/tune/decision/", "compiler/*", SUPPORT],
    "runtime/bindings/graph/": ["runtime/bindings/graph/", "runtime/bindings/c/moejit.h"],
    "runtime/bindings/torch/": ["runtime/bindings/torch/", "runtime/bindings/graph/", "runtime/bindings/c/moejit.h"],
    "runtime/bindings/jax/": ["runtime/bindings/jax/", "runtime/bindings/graph/", "runtime/bindings/c/moejit.h", "xla/ffi/"],
    "cli/": ["cli/", "runtime/*", "compiler/*", "cache/*", SUPPORT, "runtime/check/",
             "runtime/checkpoint/", "runtime/measure/", "runtime/trial/", "runtime/tune/",
             "templates/moejit_device/params/"],
    # A program of its own, which has LLVM.
    "cli/formula/": ["compiler/*", "compiler/ir/", SUPPORT],
    # What commands print and draw; commands lie above it.
    "cli/report/": ["cli/report/", "cli/terminal/", "runtime/*", "runtime/measure/", "runtime/trial/", "runtime/tune/",
                    "compiler/*", SUPPORT],
    "cli/terminal/": ["cli/terminal/", SUPPORT],
    "tests/": ["tests/", "compiler/", "templates/", "cache/", "runtime/", "cli/",
               "moejit_device/", "moejit_sim/"],
    "docs/": ["docs/examples/", "runtime/*", "compiler/*", "cache/*", SUPPORT],
}
# Installed headers lie beside each other.
RULES["runtime/bindings/c/"] = [*RULES["runtime/"], "runtime/bindings/c/", "moejit_errors.h", "moejit_calls.h", "moejit.h"]
# The CPU reference must not share code with what it judges.
RULES["runtime/reference/"] = ["runtime/reference/"]
CUDA_FOLDERS = ("runtime/", "tests/fakes/")
CUDA_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cuda_fp8.h", "cuda_bf16.h", "nvrtc.h")


def fits(included, entry):
    if entry.endswith("*"):
        folder = entry[:-1]
        return included.startswith(folder) and "/" not in included[len(folder):]
    return included.startswith(entry)


def rule_of(name):
    folders = [folder for folder in RULES if name.startswith(folder)]
    return RULES[max(folders, key=len)] if folders else None


def findings_of(name, text):
    """Sentences about the includes of one file."""
    allowed = rule_of(name)
    if allowed is None:
        return [f"{name}: no include rule for this folder; add one to tests/lint/check_includes.py"]
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = source_tree.INCLUDE.match(line)
        if not match:
            continue
        quote, included = match.groups()
        if included in CUDA_HEADERS and not name.startswith(CUDA_FOLDERS):
            found.append(f"{name}:{number}: <{included}>: only runtime/ and tests/fakes/ include CUDA headers")
        elif quote == '"' and not any(fits(included, entry) for entry in allowed):
            found.append(f'{name}:{number}: "{included}": may include only {", ".join(allowed)}')
        elif quote == "<" and name.startswith("templates/moejit_device/") and included != "cstdint":
            found.append(f"{name}:{number}: <{included}>: kernels are compiled without a standard library")
    return found


def main():
    names = source_tree.tracked(".h", ".hpp", ".c", ".cpp", ".cuh", ".inc")
    found = [finding for name in names for finding in findings_of(name, source_tree.read(name))]
    source_tree.finish("include rules", found, len(names))


if __name__ == "__main__":
    main()
