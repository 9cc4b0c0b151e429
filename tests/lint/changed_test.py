# SPDX-License-Identifier: Apache-2.0
"""What `make test CHANGED=1` runs, and when it runs everything."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from source_tree import ROOT

sys.path.insert(0, str(ROOT / "tests"))
import changed  # noqa: E402

TOOL = "/build/moejit"
ROUTE = "moejit_device/map/route.cuh"


def test(name, label, *command):
    return {"name": name, "command": ["cpu_seconds", *command], "properties": [{"name": "LABELS", "value": [label]}]}


TESTS = [
    test("uses_sim_test", "sim", "/build/uses_sim_test"),
    test("other_sim_test", "sim", "/build/other_sim_test"),
    test("unknown_sim_test", "sim", "/build/unknown_sim_test"),
    test("Planner.Pads", "unit", "/build/planner_test"),
    test("Option.IsRead", "unit", "/build/tests/unit/cli/unit_cli"),
    test("cli.runs", "cli", "python3", f"{ROOT}/tests/cli/runs_test.py", TOOL),
    test("cli.docs", "cli", "python3", f"{ROOT}/tests/cli/docs_test.py", TOOL),
    test("fault.tool", "fault", "python3", "tool_test.py", TOOL),
    test("fault.errno", "fault", "python3", "errno_test.py"),
    test("LayerError.Names", "error", "/build/layer_error_test", "--gtest_filter=LayerError.Names"),
    test("images_test", "driver", "/build/images_test"),
    test("package.docs_commands", "package", "python3", "docs_commands_test.py"),
    test("Rendezvous.Meets", "ranks", "/build/rendezvous_test"),
    test("lint.check_text", "lint", "python3", "check_text.py"),
]
RECORDS = {"uses_sim_test": changed.reached([ROUTE]), "other_sim_test": {"moejit_device/gemm/row_scales.cuh"}}


def chosen(*files, records=RECORDS):
    return changed.choose(files, TESTS, records, TOOL)


class Choice(unittest.TestCase):
    def test_a_kernel_runs_suites_that_used_it_and_those_that_recorded_nothing(self):
        self.assertEqual({each["name"] for each in TESTS} - chosen(f"templates/{ROUTE}"),
                         {"other_sim_test", "Rendezvous.Meets", "LayerError.Names", "images_test", "fault.tool",
                          "fault.errno"})

    def test_headers_count_through_others_and_in_the_simulator(self):
        names = changed.reached(["moejit_device/stage/row_chain.cuh"])
        self.assertIn("moejit_device/core/types.cuh", names)
        self.assertIn("moejit_device/ptx/barrier.cuh", names)
        self.assertIn("moejit_sim/ptx/barrier.cuh", names)
        self.assertNotIn(ROUTE, names)

    def test_a_command_runs_what_starts_the_tool(self):
        self.assertEqual(chosen("cli/commands/run_command.cpp"),
                         {"Option.IsRead", "cli.runs", "cli.docs", "fault.tool", "package.docs_commands",
                          "lint.check_text"})

    def test_pages_and_python_tests_run_little(self):
        self.assertEqual(chosen("docs/cache.md"), {"cli.docs", "package.docs_commands", "lint.check_text"})
        self.assertEqual(chosen("tests/cli/runs_test.py"), {"cli.runs", "lint.check_text"})
        self.assertEqual(chosen(), {"lint.check_text"})

    def test_what_cannot_be_decided_is_told(self):
        with unittest.mock.patch.object(changed, "users_of_cli", lambda: {"tests/gpu/layer_test.cpp"}):
            with self.assertRaisesRegex(changed.Undecided, "layer_test.cpp calls cli/"):
                chosen("cli/commands/run_command.cpp")
        for file in ("compiler/planner/planner.cpp", "Makefile", "CMakeLists.txt", "cli/CMakeLists.txt",
                     "tests/cli/tool.py", "templates/moejit_device/params/route_params.h",
                     "templates/moejit_sim/machine.h", "docs/examples/embed.cpp", "tests/sim/wgmma_test.cpp"):
            with self.assertRaises(changed.Undecided, msg=file):
                chosen("docs/cache.md", file)
        with self.assertRaisesRegex(changed.Undecided, "host code"):
            chosen("templates/moejit_device/core/tensor_map.cuh")
        with self.assertRaisesRegex(changed.Undecided, "no whole run"):
            chosen(f"templates/{ROUTE}", records=None)


class Users(unittest.TestCase):
    def test_of_cli_are_tests_other_than_its_units(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(changed, "ROOT", pathlib.Path(name)):
            for file, text in (("tests/unit/cli/a_test.cpp", '#include "cli/a.h"\n'),
                               ("tests/gpu/b.h", '#include "cli/b.h"\n'),
                               ("tests/gpu/c_test.cpp", '#include "runtime/c.h"\n')):
                path = pathlib.Path(name) / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self.assertEqual(changed.users_of_cli(), {"tests/gpu/b.h"})


class Changes(unittest.TestCase):
    def test_committed_uncommitted_removed_and_new_files_count(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(changed, "ROOT", pathlib.Path(name)):
            def git(*arguments):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=name, check=True,
                               capture_output=True)

            def write(file, text):
                (pathlib.Path(name) / file).write_text(text)

            git("init", "-q")
            for file in ("kept", "edited", "removed", "committed"):
                write(file, "1")
            git("add", "."), git("commit", "-qm", "1"), git("tag", "base")
            write("committed", "2")
            git("commit", "-qam", "2")
            write("edited", "2"), write("new file", "1")
            (pathlib.Path(name) / "removed").unlink()
            self.assertEqual(changed.changed_files("base"), ["committed", "edited", "new file", "removed"])
            with self.assertRaises(changed.Undecided):
                changed.changed_files("no-such-commit")


if __name__ == "__main__":
    unittest.main()
