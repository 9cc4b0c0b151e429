# SPDX-License-Identifier: Apache-2.0
"""The checks find what they are there to find, and leave what is right alone."""
import json
import pathlib
import sys
import tempfile
import unittest

import check_includes
import check_names
import check_performance
import check_promises
import check_sentences
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

    def test_refuse_a_way_between_the_simulator_and_what_runs_on_it(self):
        self.assertEqual(self.findings("runtime/simulator/a.cpp", '#include "runtime/device.h"'), [])
        self.assertEqual(len(self.findings("runtime/simulator/a.cpp", '#include "runtime/engine.h"')), 1)
        self.assertEqual(len(self.findings("runtime/engine.cpp", '#include "runtime/simulator/cta.h"')), 1)
        self.assertEqual(len(self.findings("runtime/bindings/c/device.cpp", '#include "runtime/simulator/cta.h"')), 1)

    def test_refuse_a_way_up_from_what_measures(self):
        self.assertEqual(self.findings("runtime/measure/a.cpp", '#include "runtime/engine.h"'), [])
        self.assertEqual(self.findings("cli/commands/a.cpp", '#include "runtime/measure/timed_launches.h"'), [])
        self.assertEqual(len(self.findings("runtime/measure/a.cpp", '#include "cli/terminal/terminal.h"')), 1)
        self.assertEqual(len(self.findings("runtime/engine.cpp", '#include "runtime/measure/timed_launches.h"')), 1)

    def test_refuse_a_way_from_decisions_to_what_measures(self):
        self.assertEqual(self.findings("runtime/tune/decision/a.cpp", '#include "compiler/choices.h"'), [])
        for header in ("runtime/engine.h", "runtime/measure/timed_launches.h", "runtime/tune/sweep.h", "cuda.h"):
            self.assertEqual(len(self.findings("runtime/tune/decision/a.cpp", f'#include "{header}"')), 1)

    def test_refuse_a_way_up_from_what_tries_checks_and_tunes(self):
        includes = {"checkpoint": ("checkpoint",), "trial": ("checkpoint", "trial"),
                    "check": ("checkpoint", "trial", "check"),
                    "tune": ("trial", "tune")}
        for room, allowed in includes.items():
            name = f"runtime/{room}/a.cpp"
            for other in includes:
                found = self.findings(name, f'#include "runtime/{other}/a.h"')
                self.assertEqual(len(found), 0 if other in allowed else 1, (room, other))
            self.assertEqual(len(self.findings(name, '#include "cli/terminal/terminal.h"')), 1)
            self.assertEqual(len(self.findings("runtime/engine.cpp", f'#include "runtime/{room}/a.h"')), 1)

    def test_refuse_shared_code_between_the_reference_and_what_it_judges(self):
        name = "runtime/reference/gemm.cpp"
        self.assertEqual(len(self.findings(name, '#include "compiler/plan.h"')), 1)


class Names(unittest.TestCase):
    def findings(self, *texts):
        return check_names.findings_of({f"{number}.h": text for number, text in enumerate(texts)})

    def test_refuse_two_types_of_one_name_in_one_namespace(self):
        one = "namespace moejit::runtime {\nstruct State {\n  int a;\n};\n}\n"
        for other in (one, "namespace moejit { namespace runtime { enum class State : int { kA }; } }",
                      "namespace moejit::runtime { template <typename T> class State final : Base<T> {}; }"):
            self.assertEqual(len(self.findings(one, other)), 1, other)

    def test_let_all_others_pass(self):
        one = "namespace moejit::runtime {\nstruct State {\n  int a;\n};\n}\n"
        for other in ("namespace moejit::cache { struct State {}; }", "namespace moejit::runtime { struct State; }",
                      "namespace moejit::runtime { namespace { struct State {}; } }",
                      "namespace moejit::runtime { struct Other { struct State {}; }; }",
                      "namespace moejit::runtime { struct State::Impl {}; }",
                      "namespace moejit::runtime { template <> struct State<int> {}; }",
                      "// namespace moejit::runtime { struct State {}; }",
                      'namespace moejit::runtime { auto a = R"(} { struct State {)"; char b = \'{\'; }'):
            self.assertEqual(self.findings(one, other), [], other)


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

    def test_refuses_a_target_that_nobody_named_where_plans_are_made(self):
        for line in ("const Target target;", "plan(Target{});", "plan(compiler::Target {});", "Target other{};",
                     'target.arch == "sm_90a"'):
            self.assertEqual(len(self.findings("compiler/planner/a.cpp", line + "\n")), 1, line)
            self.assertEqual(self.findings("compiler/a.cpp", line + "\n"), [], line)
        for line in ("const Target& target = context.target;", "Target target = parsed;", "bool is_hopper(const Target& target);"):
            self.assertEqual(self.findings("compiler/planner/a.cpp", line + "\n"), [], line)

    def test_refuses_what_follows_a_locale(self):
        for line in ('value = std::strtod(text, &end);', 'std::stod(text);', 'std::toupper(c);', 'setlocale(LC_ALL, "");',
                     'snprintf(text, 9, "%g", x);'):
            self.assertEqual(len(self.findings("compiler/a.cpp", line + "\n")), 1, line)
        for line in ("std::from_chars(first, last, value);", "strtoul(text, &end, 10);", "uselocale(plain());",
                     "is_digit(c);", "tokens.isspace(c);", "std::to_string(count);"):
            self.assertEqual(self.findings("compiler/a.cpp", line + "\n"), [], line)

    def test_refuses_shells(self):
        for line in ('std::system(text);', 'popen("c++", "r");', '::execvp(file, words);',
                     'run({"sh", "-c", x}, "bash -c");'):
            self.assertEqual(len(self.findings("cli/a.cpp", line + "\n")), 1, line)
        for line in ("std::error_code system_error;", "file_system(path);", "target.system();",
                     "posix_spawn(&child, path, nullptr, nullptr, words, environ);"):
            self.assertEqual(self.findings("cli/a.cpp", line + "\n"), [], line)

    def test_refuses_hardware_access_outside_ptx(self):
        self.assertEqual(len(self.findings("templates/moejit_device/stage/a.cuh", 'asm volatile("");\n')), 1)
        self.assertEqual(len(self.findings("templates/moejit_device/stage/a.cuh", "__syncthreads();\n")), 1)
        self.assertEqual(self.findings("templates/moejit_device/ptx/a.cuh", 'asm volatile("");\n'), [])

    def test_refuses_kernels_in_strings(self):
        for line in ('"MOEJIT_KERNEL(1, 1, moejit_probe, Params) {\\n"', '"extern \\"C\\" __global__ void k() {}"',
                     '"MOEJIT_DEVICE int32_t f();\\n"'):
            for name in ("cli/a.cpp", "runtime/measure/a.cpp", "compiler/planner/a.cpp"):
                self.assertEqual(len(self.findings(name, line + "\n")), 1, name + line)
        self.assertEqual(self.findings("compiler/emitter/a.cpp", '"MOEJIT_KERNEL("\n'), [])
        self.assertEqual(self.findings("cli/a.cpp", 'measuring_kernel("clock_probe", target);\n'), [])

    def test_refuses_a_todo_without_an_issue(self):
        self.assertEqual(len(self.findings("cache/a.cpp", "// TODO: later\n")), 1)
        self.assertEqual(self.findings("cache/a.cpp", "// TODO(12): later\n"), [])

    def test_refuses_comments_of_headers_that_begin_as_no_sentence_does(self):
        for opener in ("Of a row.", "Those of a row.", "Who asks often.", "Likewise.", "The same for rows.", "And back."):
            found = check_text.openers_of("cache/a.h", f"// Returns a row.\nint a();\n// {opener}\nint b();\n")
            self.assertEqual(len(found), 1, opener)
            self.assertIn("cache/a.h:3:", found[0])
            self.assertEqual(check_text.openers_of("cache/a.cpp", f"// {opener}\n"), [])

    def test_lets_sentences_in_comments_pass(self):
        for text in ("// Returns a row\n// Of a second line.\n", "// Officers\n", "// Whole rows.\n", "int a;  // of a row\n"):
            self.assertEqual(check_text.openers_of("cache/a.h", text), [], text)


class Promises(unittest.TestCase):
    """A page with one row."""

    TESTS = {"Engine.CompilesOnce", "tests/torch/a_test.py::Kept.test_once", "tests/package/install_test.py"}
    PAGES = {"cache.md": "# Kernel cache\n\n## One compile per node\n\n```\n# no heading\n```\n", "moejit.h": ""}

    def findings(self, *rows):
        page = "\n".join(["| promise | test |", "|---|---|", *rows])
        return check_promises.findings_of(page, self.TESTS, self.PAGES.get)

    def test_let_rows_pass_that_name_tests_and_pages(self):
        self.assertEqual(self.findings(
            "| a is once ([cache](cache.md#one-compile-per-node)) | `Engine.CompilesOnce` |",
            "| b is once ([header](moejit.h)) | `tests/torch/a_test.py::Kept.test_once`, `tests/package/install_test.py` |",
            "| c is once ([cache](cache.md)) | needs a GPU: `Engine.CompilesOnce` |"), [])

    def test_refuse_tests_that_do_not_exist(self):
        found, = self.findings("| a is once ([cache](cache.md)) | `Engine.CompileOnce` |")
        self.assertEqual(found, "docs/promises.md:3: no test is called Engine.CompileOnce; did you mean Engine.CompilesOnce?")

    def test_refuse_rows_without_test_or_page(self):
        self.assertIn("no test is named", *self.findings("| a is once ([cache](cache.md)) | needs two GPUs |"))
        self.assertIn("no link", *self.findings("| a is once | `Engine.CompilesOnce` |"))

    def test_refuse_links_that_lead_nowhere(self):
        for link, words in (("stash.md", "leads nowhere"), ("cache.md#no-heading", "has no heading #no-heading")):
            self.assertIn(words, *self.findings(f"| a is once ([cache]({link})) | `Engine.CompilesOnce` |"))

    def test_refuse_a_promise_that_is_there_twice(self):
        row = "| a is once ([cache](cache.md)) | `Engine.CompilesOnce` |"
        self.assertEqual(self.findings(row, row), ["docs/promises.md:4: the promise of line 3 again"])

    def test_know_the_tests_of_a_file(self):
        text = "TEST_P(Engine, CompilesOnce) {\n}\nTEST(Engine,\n     MakesOne) {\n// TEST(Engine, Is) \n"
        self.assertEqual(check_promises.tests_of("tests/a_test.cpp", text),
                         {"tests/a_test.cpp", "Engine.CompilesOnce", "Engine.MakesOne"})
        text = "class Kept(Case):\n    def test_once(self):\n        pass\n\n    def helper(self):\n        pass\n"
        self.assertEqual(check_promises.tests_of("tests/a.py", text), {"tests/a.py", "tests/a.py::Kept.test_once"})


class Sentences(unittest.TestCase):
    LONG = "Each word of it is one of " + "very " * 17 + "many words."

    def findings(self, name, text):
        return check_sentences.findings_of(name, text)

    def test_count_words_and_not_what_is_code(self):
        self.assertEqual(self.findings("docs/a.md", self.LONG[:-6] + ".\n"), [])
        self.assertEqual(len(self.findings("docs/a.md", f"{self.LONG}\n")), 1)
        self.assertEqual(len(self.findings("docs/a.md", f"| a | b |\n|---|---|\n| `x` | {self.LONG} |\n")), 1)
        self.assertEqual(len(self.findings("docs/a.md", "- " + self.LONG.replace(" very very", "\n  very very", 1))), 1)
        for left_out in (f"```\n{self.LONG}\n```\n", f"# {self.LONG}\n", f"    {self.LONG}\n",
                         f"`{self.LONG}`\n", ", ".join(["`a.b`"] * 40) + " and `c` are names.\n",
                         f"[Here]({'very-' * 30}) it is.\n"):
            self.assertEqual(self.findings("docs/a.md", left_out), [], left_out)

    def test_end_sentences_where_they_end(self):
        half = "It says half of a sentence that is not long"
        self.assertEqual(self.findings("docs/a.md", f"{half}. {half}! {half} (that is all.) {half}: `a. b`. {half}.\n"), [])
        self.assertEqual(len(self.findings("docs/a.md", f"{half}, e.g. {half}, `a. b`, {half}.\n")), 1)
        self.assertEqual(self.findings("docs/a.md", f"{half}\n\n{half}\n\n- {half}\n- {half}\n"), [])

    def test_read_comments_of_all_languages(self):
        folded = self.LONG.replace(" very very very", " very\nvery very", 1)
        for name, mark in (("a.h", "//"), ("a.cuh", "//"), ("a.cpp", "  //"), ("a.py", "#")):
            text = "".join(f"{mark} {line}\n" for line in folded.split("\n"))
            self.assertEqual(len(self.findings(name, text)), 1, name)
        self.assertEqual(len(self.findings("a.py", f'def f():\n    """{self.LONG}"""\n')), 1)
        self.assertEqual(len(self.findings("a.h", f"int a;  // {self.LONG}\n")), 1)
        self.assertEqual(self.findings("a.cpp", f'const char* kText = "// {self.LONG}";\n'), [])
        self.assertEqual(self.findings("a.py", f'TEXT = "# {self.LONG}"\n'), [])
        self.assertEqual(self.findings("a.h", f"//   {self.LONG}\n"), [])

    def test_end_a_list_in_a_comment_where_the_indentation_ends(self):
        half = "half of a sentence that goes on and on and on"
        self.assertEqual(self.findings("a.h", f"// - {half}\n// {half}\n"), [])
        self.assertEqual(len(self.findings("a.h", f"// - {half}, {half},\n//   {half}\n")), 1)

    def test_want_sentences_to_name_things(self):
        for phrase in ("Those of the rows.", "The sum, and that of the columns.", "Does the same for rows.",
                       "Fails if a row does so."):
            self.findings_everywhere(phrase, 1)
        self.findings_everywhere("Says `those of the rows` in code.", 0)

    def test_want_sentences_to_begin_with_the_subject(self):
        for phrase in ("Of two entries the newer one stays.", "Returns one. Of `a` it takes all.", "Ignored are old times.",
                       "It runs. Also dropped are old times.", "Left out is the last row."):
            self.findings_everywhere(phrase, 1)
        for phrase in ("Of course it is.", "Speed is what counts.", "Returns one of two.", "Red is a color.",
                       "What is ignored is old.", "The bytes\nof a row."):
            self.findings_everywhere(phrase, 0)
        self.assertEqual(self.findings("a.h", "int a;  // of a row\n"), [])

    def test_let_the_style_guide_quote_what_it_forbids(self):
        self.assertEqual(self.findings("docs/style.md", "Those of the rows. Of two one.\n"), [])
        self.assertEqual(len(self.findings("docs/style.md", f"{self.LONG}\n")), 1)

    def findings_everywhere(self, text, count):
        """Asserts that a page, comments and a docstring with the text have so many findings."""
        lines = text.split("\n")
        for name, code in (("docs/a.md", text + "\n"), ("a.h", "".join(f"// {line}\n" for line in lines)),
                           ("a.cpp", "".join(f"// {line}\n" for line in lines)),
                           ("a.py", 'def a():\n    """' + text.replace("\n", "\n    ") + '"""\n')):
            self.assertEqual(len(self.findings(name, code)), count, f"{name}: {text}")

    def test_want_the_list_of_what_is_left_to_shrink(self):
        wrong = ["cli/a.h:1: ..."]
        self.assertEqual(check_sentences.shrunk(("cli/",), wrong), [])
        self.assertEqual(len(check_sentences.shrunk(("cli/", "cache/"), wrong)), 1)


class Performance(unittest.TestCase):
    """The page of a folder with a result as `moejit bench --json` prints it."""

    GEMM = {"operation": "gemm_fc1", "multiply_adds": 1000, "cool_us": 812.34, "cool_mhz": 1755.0,
            "hot_us": 1043.2, "hot_mhz": 1410.4, "min_bytes": 3 << 30, "share_of_copy": 0.954,
            "flops_cool": 1.5014e15, "flops_hot": 1.1e15, "util_cool": 0.7654, "util_hot": 0.81}
    ROUTE = {"operation": "route", "multiply_adds": 0, "cool_us": 11.2, "cool_mhz": 1980.0,
             "hot_us": 10.8, "hot_mhz": 1980.0, "min_bytes": 1000, "share_of_copy": 0.01}

    @staticmethod
    def result(name, *kernels, **gpu):
        layer = {"experts": 256, "local_experts": 32, "top_k": 8, "hidden": 7168, "intermediate": 2048,
                 "splits_alignment": 128, "recipe": "fp8_flow"}
        return {"layer": name, "description": layer, "tokens": 4096, "routed_rows": 32210,
                "padded_rows": 51840, "date": "2026-11-21T12:00:00Z",
                "gpu": {"name": "NVIDIA H200", "sm_count": 132, **gpu},
                "command_line": "moejit bench dsv3.json --json", "copy_bytes_per_second": 4.154e12,
                "forward_hot_us": 3456.7, "forward_hot_mhz": 1600.0, "kernels": list(kernels)}

    def page(self, *kernels, **gpu):
        result = self.result("dsv3", *kernels, **gpu)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "page.md").write_text("# P\n\n{{results}}\n\nas it | is {{results}}, [more](more.md)\n")
            if kernels:
                (folder / "a.json").write_text(json.dumps(result))
            return check_performance.generate_performance.page(folder)

    def test_wants_the_layers_of_its_commands(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "docs/performance/layers").mkdir(parents=True)
            (root / "docs/performance.md").write_text("$ moejit bench docs/other.json --json\nmoejit bench LAYER\n")
            (root / "docs/performance/a.json").write_text(json.dumps(self.result("dsv3")))
            self.assertEqual(len(check_performance.layer_findings(root)), 2)
            for layer in ("docs/other.json", "docs/performance/layers/dsv3.json"):
                (root / layer).write_text("{}")
            self.assertEqual(check_performance.layer_findings(root), [])

    def test_has_a_table_per_result(self):
        page = self.page(self.GEMM, self.ROUTE, power_limit_watts=700.0, driver="580.1")
        self.assertIn("## dsv3, 4096 tokens\n\nNVIDIA H200, 132 SMs, 700 W, driver 580.1, 2026-11-21.", page)
        self.assertIn("Copy bandwidth 4.15 TB/s. A forward pass, hot: 3.46 ms at 1600 MHz.", page)
        self.assertIn("```sh\nmoejit bench docs/performance/layers/dsv3.json --json\n```", page)
        self.assertIn("| gemm_fc1 | 812.3 us | 1755 | 1.04 ms | 1410 | 3.0 GiB | 0.95 | 0.74 | 1501 | 0.765 | "
                      "1100 | 0.810 |\n", page)
        self.assertIn("| route | 11.2 us | 1980 | 10.8 us | 1980 | 1000 B | 0.01 | 0.00 | | | | |\n", page)

    def test_leaves_out_what_the_driver_did_not_tell(self):
        self.assertNotIn("W, hot", self.page(self.GEMM))
        watched = dict(self.GEMM, hot_watts=698.7, hot_throttle_reasons=["sw_power_cap"])
        page = self.page(watched, self.ROUTE)
        self.assertIn("| 1410 | 699 | 3.0 GiB |", page)
        self.assertIn("| 1980 | | 1000 B |", page)
        self.assertIn("\n\n`sw_power_cap` held down the clock of gemm_fc1.\n", page)

    def test_has_a_section_for_each_operation_on_gemms(self):
        measured = {"ragged": True, "n": 7168, "cool_us": 1500.0, "flops_cool": 1.28e15, "util_cool": 0.8,
                    "hot_us": 1700.0, "hot_mhz": 1300.0, "flops_hot": 1.13e15, "util_hot": 0.79, "min_bytes": 1.7e9}
        gradient = dict(measured, name="dsv3_fc1_f32", operation="contraction_grouped_gemm", groups=8,
                        columns_per_group=4096, rows=4096, scales="tile", output="f32")
        forward = dict(measured, name="dsv3_fc1", operation="grouped_gemm", groups=8, rows_per_group=512, k=2048)
        result = {"gpu": {"name": "NVIDIA H200", "sm_count": 132}, "date": "2026-11-21T12:00:00Z",
                  "command_line": "moejit bench --gemms some.json --json", "gemms": [gradient, forward]}
        sections = check_performance.generate_performance.sections_of(result)
        self.assertEqual([section.split("\n")[0] for section in sections], ["### Grouped GEMMs", "### Weight gradients"])
        self.assertIn("| dsv3_fc1 | 8 x 512 +- 30 % | 7168, 2048 | 1.50 ms |", sections[0])
        self.assertIn("| dsv3_fc1_f32 | 8 x 4096 +- 30 % | 4096, 7168 | tile, f32 | 1.50 ms | 1280 | 0.800 | 1.70 ms | 1300 | "
                      "1130 | 0.790 | 1.00 |", sections[1])

    def test_has_a_section_for_each_gpu(self):
        results = [self.result("b", self.GEMM), self.result("a", self.GEMM), self.result("c", self.GEMM)]
        results[1]["gpu"]["name"] = "NVIDIA H100"
        headings = [text.split("\n")[0] for text in check_performance.generate_performance.gpu_sections(results)]
        self.assertEqual(headings, ["## NVIDIA H200", "### b, 4096 tokens", "### c, 4096 tokens",
                                    "## NVIDIA H100", "### a, 4096 tokens"])

    def test_takes_texts_as_they_are(self):
        self.assertTrue(self.page(self.GEMM).endswith("\n\nas it | is {{results}}, [more](performance/more.md)\n"))
        self.assertIn("None with the present bench yet", self.page())

    def test_sums_up_training_steps_beside_what_they_were_compared_with(self):
        layer = dict(self.result("a")["description"], max_tokens=4096)
        steps = [dict(self.result(name), step_hot_us=us, description=dict(layer, recipe=recipe), command_line=command)
                 for name, us, recipe, command in (("a", 8470.0, "fp8_flow", "moejit bench a.json --json"),
                                                   ("b", 14720.0, "bf16", "moejit bench docs/b.json --json"))]
        row = {"implementation": "eager", "mode": "eager", "step_hot_ms": 10.0}
        torch = {"kind": "hf_experts", "gpu": {"name": "NVIDIA H100 80GB HBM3"}, "command_line": "python3 b.py",
                 "cases": [{"name": "Q", "tokens": 8192, "results": [
                     row, dict(row, implementation="grouped_mm", mode="compiled", step_hot_ms=6.13),
                     dict(row, implementation="moejit fp8_flow", step_hot_ms=3.55), {"implementation": "moejit nvfp4", "error": "x"}]}]}
        self.assertEqual(check_performance.generate_performance.summary([*steps, torch]).splitlines()[2:], [
            "| Q | H100 | 8192 | **3.55 ms** (fp8_flow) | 6.13 ms: transformers, grouped_mm, compiled | `python3 b.py` |",
            "| a | H200 | 4096 | **8.47 ms** (fp8_flow) | 14.72 ms: moejit in bf16 | "
            "`moejit bench docs/performance/layers/a.json --json` |"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
