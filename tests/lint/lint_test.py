# SPDX-License-Identifier: Apache-2.0
"""The checks find what they are there to find, and leave what is right alone."""
import sys
import unittest

import check_includes
import check_text

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class Includes(unittest.TestCase):
    def findings(self, name, line):
        return check_includes.findings_of(name, line + "\n")

    def test_let_the_arrows_pass(self):
        self.assertEqual(self.findings("runtime/engine.cpp", '#include "compiler/compiler.h"'), [])
        self.assertEqual(self.findings("runtime/engine.cpp", '#include "cache/disk_cache.h"'), [])
        self.assertEqual(self.findings("runtime/driver/api.h", "#include <cuda.h>"), [])
        self.assertEqual(self.findings("cache/entry.cpp", "#include <vector>"), [])

    def test_refuse_an_include_against_the_arrows(self):
        self.assertEqual(len(self.findings("compiler/plan.h", '#include "cache/entry.h"')), 1)
        self.assertEqual(len(self.findings("cache/entry.cpp", '#include "compiler/plan.h"')), 1)
        self.assertEqual(len(self.findings("compiler/support/a.cpp", '#include "compiler/plan.h"')), 1)

    def test_refuse_a_look_into_a_private_folder(self):
        self.assertEqual(len(self.findings("cli/main.cpp", '#include "compiler/planner/fuse.h"')), 1)

    def test_refuse_cuda_headers_outside_runtime(self):
        self.assertEqual(len(self.findings("compiler/nvrtc/a.cpp", "#include <cuda.h>")), 1)

    def test_refuse_host_headers_in_kernels(self):
        kernel = "templates/moejit_device/stage/a.cuh"
        self.assertEqual(len(self.findings(kernel, '#include "compiler/plan.h"')), 1)
        self.assertEqual(len(self.findings(kernel, "#include <vector>")), 1)

    def test_refuse_shared_code_between_the_reference_and_what_it_judges(self):
        name = "tests/support/reference_gemm.cpp"
        self.assertEqual(len(self.findings(name, '#include "compiler/plan.h"')), 1)


class Text(unittest.TestCase):
    def findings(self, name, text):
        return check_text.findings_of(name, LICENCE + text)

    def test_lets_plain_code_pass(self):
        self.assertEqual(self.findings("cache/a.cpp", "int x;  // getenv( is fine in a comment\n"), [])

    def test_wants_the_licence_line(self):
        self.assertEqual(len(check_text.findings_of("cache/a.cpp", "int x;\n")), 1)

    def test_wants_short_files(self):
        self.assertEqual(len(self.findings("cache/a.cpp", "int x;\n" * 400)), 1)

    def test_refuses_getenv_and_prints_in_the_library(self):
        self.assertEqual(len(self.findings("cache/a.cpp", 'std::getenv("HOME");\n')), 1)
        self.assertEqual(len(self.findings("runtime/a.cpp", 'fmt::print("x");\n')), 1)
        self.assertEqual(self.findings("cli/a.cpp", 'fmt::print("x");\n'), [])

    def test_refuses_hardware_access_outside_ptx(self):
        self.assertEqual(len(self.findings("templates/moejit_device/stage/a.cuh", 'asm volatile("");\n')), 1)
        self.assertEqual(len(self.findings("templates/moejit_device/stage/a.cuh", "__syncthreads();\n")), 1)
        self.assertEqual(self.findings("templates/moejit_device/ptx/a.cuh", 'asm volatile("");\n'), [])

    def test_refuses_a_todo_without_an_issue(self):
        self.assertEqual(len(self.findings("cache/a.cpp", "// TODO: later\n")), 1)
        self.assertEqual(self.findings("cache/a.cpp", "// TODO(12): later\n"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
