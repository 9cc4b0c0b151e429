# SPDX-License-Identifier: Apache-2.0
"""Rules about the text of source files that a compiler does not check; docs/style.md has the reasons."""
import re

import source_tree

LONGEST_FILE = 400
CODE = (".h", ".hpp", ".c", ".cpp", ".cuh", ".inc")
SCRIPTS = (".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile")

SPDX = "SPDX-License-Identifier: Apache-2.0"
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
ASSEMBLER = re.compile(r"\basm\b\s*(?:volatile\b\s*)?\(|\b__asm__\b")
CUDA_INTRINSIC = re.compile(r"\b(?:__syncthreads|__syncwarp|__shfl\w*_sync|__ldg|__cvta_\w+|threadIdx|blockIdx)\b")
PRINTS = re.compile(r"std::(?:cout|cerr)\b|\bfmt::print\s*\(|(?<![\w:.])f?printf\s*\(|\bstd::abort\s*\(")
# What a host's setlocale() changes: the decimal point of numbers, letters, the order of words.
LOCALE = re.compile(r"(?<![\w.>])(?:strto[dfl]d?|sto(?:d|f|ld)|atof|v?sn?printf|sscanf|to(?:upper|lower)|strcoll|"
                    r"is(?:alpha|alnum|upper|lower|space|digit|print|punct))\s*\(|\bset_?locale\b|\blocaleconv\b")
# A program is started by posix_spawn() with a list of words, so that no path is ever read as text.
SHELL = re.compile(r"(?<![\w.>])(?:system|popen|exec[lv]p?e?|execvpe|wordexp)\(|\b(?:ba)?sh -c\b")
# The device code of a kernel is a file below templates/; the emitter writes what differs between layers.
KERNEL = re.compile(r"\b__(?:global|device)__\b|\bMOEJIT_(?:KERNEL|DEVICE)\b")
# A target that nobody named is Hopper.
USUAL_TARGET = re.compile(r"\bTarget\s*(?:\w+\s*)?\{\s*\}|\bTarget\s+\w+;|\"(?:cuda:)?sm_90a\"")
BARE_TODO = re.compile(r"\bTODO\b(?!\(#?\d+\))|\bFIXME\b|\bXXX\b")
COMMENT = re.compile(r"//.*$")
# Openers of sentences without a verb, which docs/style.md lists under "Plain English".
OPENER = re.compile(r"//+ (?:Of|Those|Who|Whom|Whose|Likewise|And|That,|The same)\b")
HEADER = (".h", ".hpp", ".cuh")

# (files the rule is about, pattern, sentence)
LINE_RULES = [
    (lambda name: name != "compiler/support/env.cpp" and not name.startswith("tests/"),
     GETENV, "reads the environment: only compiler/support/env.cpp does"),
    (lambda name: not name.startswith(("templates/moejit_device/ptx/", "templates/moejit_sm80/ptx/", "templates/moejit_ampere/ptx/", "tests/")),
     ASSEMBLER, "assembler outside templates/moejit_device/ptx and what stands in for it"),
    (lambda name: name.startswith("templates/moejit_device/")
     and not name.startswith("templates/moejit_device/ptx/"),
     CUDA_INTRINSIC, "touches the hardware outside templates/moejit_device/ptx"),
    (lambda name: not name.startswith("tests/"),
     SHELL, "starts a shell or a program from text: compiler/host/process.h takes words"),
    (lambda name: not name.startswith(("templates/", "compiler/emitter/", "tests/")),
     KERNEL, "device code in a C++ file: kernels are .cuh files below templates/moejit_device"),
    (lambda name: name.startswith(("compiler/planner/", "compiler/operation/", "compiler/emitter/")),
     USUAL_TARGET, "plans for Hopper whatever was asked for: take the caller's target"),
    (lambda name: name.startswith(("compiler/", "cache/", "runtime/")) and name.endswith((".h", ".hpp", ".cpp")),
     PRINTS, "prints or aborts: the library returns an Error instead"),
    (lambda name: name.startswith(("compiler/", "cache/", "runtime/", "cli/")),
     LOCALE, "follows the host's locale: take std::from_chars() and fmt::format()"),
]


def findings_of(name, text):
    """Sentences about one source file."""
    lines = text.splitlines()
    found = []
    if not any(SPDX in line for line in lines[:3]):
        found.append(f"{name}:1: first line is not the licence: {SPDX}")
    if name.endswith(CODE) and len(lines) > LONGEST_FILE:
        found.append(f"{name}: {len(lines)} lines, at most {LONGEST_FILE}: split it by idea")
    if name.endswith((".h", ".hpp")) and "#pragma once" not in text:
        found.append(f"{name}: a header without #pragma once")
    for number, line in enumerate(lines, start=1):
        if name.endswith(CODE):
            code = COMMENT.sub("", line)
            for is_about, pattern, sentence in LINE_RULES:
                if is_about(name) and pattern.search(code):
                    found.append(f"{name}:{number}: {sentence}")
            if BARE_TODO.search(line):
                found.append(f"{name}:{number}: a TODO names its issue: TODO(number)")
        if line != line.rstrip():
            found.append(f"{name}:{number}: blanks at the end of the line")
    return found


def openers_of(name, text):
    """Sentences about comment blocks of a header that begin as no sentence does."""
    if not name.endswith(HEADER):
        return []
    found = []
    before = ""
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if OPENER.match(line) and not before.startswith("//"):
            found.append(f'{name}:{number}: "{line[:40]}": begin with a verb (docs/style.md, Plain English)')
        before = line
    return found


def main():
    names = [name for name in source_tree.tracked(*CODE, *SCRIPTS)
             if not name.startswith("tests/golden/")]
    found = []
    for name in names:
        text = source_tree.read(name)
        found += findings_of(name, text) + openers_of(name, text)
    source_tree.finish("text rules", found, len(names))


if __name__ == "__main__":
    main()
