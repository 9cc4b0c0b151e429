# SPDX-License-Identifier: Apache-2.0
"""The records and numbers of the package are those of the C headers, which a C program tells."""
import ctypes
import os
import pathlib
import re
import subprocess
import unittest

from package_case import BUILD, ROOT, PackageTest

from moejit import library, records

HEADERS = sorted(path for path in (ROOT / "runtime/bindings/c").glob("moejit*.h"))
DECLARED = re.compile(r"^MOEJIT_API\s([^;]*?)(\w+)\(([^;]*?)\);", re.MULTILINE)
PROGRAM = """#include <moejit/moejit_describe.h>
#include <moejit/moejit_group.h>
#include <stdio.h>
int main(void) {
%s
  return 0;
}
"""


def numbers():
    """What the package says of the enumerations and macros, by their names in C."""
    by_name = {"MOEJIT_ABI_VERSION": records.ABI_VERSION, "MOEJIT_CURRENT_GPU": records.CURRENT_GPU}
    by_name.update({f"MOEJIT_ERROR_{name.upper()}" if number else "MOEJIT_OK": number
                    for name, number in records.ERROR_CODES.items()})
    by_name.update({f"MOEJIT_ROLE_{name.upper()}": number for number, name in enumerate(records.ROLES)})
    by_name.update({f"MOEJIT_KIND_{name.upper()}": number for name, number in {"any": 0, **records.KINDS}.items()})
    by_name.update({"MOEJIT_ACCESS_NONE": 0, "MOEJIT_ACCESS_READ": records.READ, "MOEJIT_ACCESS_WRITE": records.WRITE})
    by_name.update({f"MOEJIT_CACHE_NETWORK_{(name or 'default').upper()}": number
                    for name, number in records.CACHE_NETWORKS.items()})
    return by_name


def layout(record):
    """Offset and size of each field of a ctypes structure, and its size."""
    fields = {name: (getattr(record, name).offset, getattr(record, name).size) for name, *_ in record._fields_}
    return {"size": (0, ctypes.sizeof(record)), **fields}


class Records(PackageTest):
    def told_by_c(self, lines):
        """The words that the lines of a program print, a list for each line."""
        source, program = self.folder / "told.c", self.folder / "told"
        source.write_text(PROGRAM % "\n".join(f"  {line}" for line in lines))
        include = next(pathlib.Path(BUILD).glob("runtime/bindings/c/include"))
        compiler = os.environ.get("CC", "cc")
        made = subprocess.run([compiler, "-std=c11", "-Werror", f"-I{include}", *self.dlpack(), "-o", program, source],
                              capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        return [line.split() for line in told.splitlines()]

    @staticmethod
    def dlpack():
        cache = (pathlib.Path(BUILD) / "CMakeCache.txt").read_text(encoding="utf-8")
        return ["-I" + path for path in re.findall(r"^MOEJIT_DLPACK_INCLUDE:\w+=(.+)$", cache, re.MULTILINE)]

    def test_have_the_fields_of_the_headers(self):
        lines = []
        for name, record in records.RECORDS.items():
            lines.append(f'printf("{name} size 0 %zu\\n", sizeof({name}));')
            lines += [f'printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
                      for field, *_ in record._fields_]
        in_c = {name: {} for name in records.RECORDS}
        for name, field, offset, size in self.told_by_c(lines):
            in_c[name][field] = int(offset), int(size)
        for name, record in records.RECORDS.items():
            self.assertEqual(layout(record), in_c[name], f"{name}: the header has another layout")

    def test_are_all_that_the_headers_have(self):
        declared = {name for header in HEADERS
                    for name in re.findall(r"^typedef struct (\w+) \{", header.read_text(), re.MULTILINE)}
        self.assertEqual(declared, {name for name in records.RECORDS if name.startswith("moejit_")})

    def test_have_the_numbers_of_the_headers(self):
        wanted = numbers()
        told = self.told_by_c([f'printf("{name} %d\\n", (int){name});' for name in wanted])
        self.assertEqual({name: int(number) for name, number in told}, wanted)

    def test_have_all_numbers_of_the_headers(self):
        declared = {name for header in HEADERS
                    for name in re.findall(r"\b(MOEJIT_(?:ERROR|ROLE|KIND|ACCESS|CACHE_NETWORK)_\w+) = \d",
                                           header.read_text())}
        self.assertEqual(declared - set(numbers()), set())

    def test_functions_are_those_of_the_headers(self):
        declared = {}
        for header in HEADERS:
            for _, name, arguments in DECLARED.findall(header.read_text()):
                declared[name] = 0 if arguments == "void" else arguments.count(",") + 1
        self.assertEqual(declared, {name: len(arguments) for name, (_, arguments) in library.FUNCTIONS.items()})

    def test_functions_that_can_fail_are_checked(self):
        declared = {name: result.strip() for header in HEADERS
                    for result, name, _ in DECLARED.findall(header.read_text())}
        checked = {name for name, (result, _) in library.FUNCTIONS.items() if result is library._Code}
        self.assertEqual({name for name, result in declared.items() if result == "moejit_error_code"}, checked)


if __name__ == "__main__":
    unittest.main(verbosity=0)
