# SPDX-License-Identifier: Apache-2.0
"""Every error of the library becomes an exception, with its code, sentence and hint."""
import os
import pickle
import re
import subprocess
import sys
import unittest
import unittest.mock

import small_layer
from package_case import LIBRARY, PACKAGE, ROOT, SMALL, PackageTest

import moejit
from moejit import frameworks, library, records
from moejit.errors import error_of


def run_python(code, **environment):
    """Runs a program in a new interpreter with the package on its path."""
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment},
                          capture_output=True, text=True, check=False)


class Switches(unittest.TestCase):
    def test_are_on_off_or_refused(self):
        wanted = {"1": True, "true": True, "Yes": True, "on": True, "0": False, "false": False, "no": False, "OFF": False,
                  "": False}
        for value, is_on in wanted.items():
            with unittest.mock.patch.dict(os.environ, MOEJIT_TORCH_FILL=value):
                self.assertEqual(frameworks.is_switched_on("MOEJIT_TORCH_FILL"), is_on, value)
        for value in ("2", "1 ", "enabled"):
            with unittest.mock.patch.dict(os.environ, MOEJIT_TORCH_FILL=value):
                self.assertRaisesRegex(ValueError, "MOEJIT_TORCH_FILL is '.*', wanted 1 or 0",
                                       frameworks.is_switched_on, "MOEJIT_TORCH_FILL")


class Codes(PackageTest):
    def test_all_have_the_library_s_names_and_are_documented(self):
        documented = set(re.findall(r"^\| `(\w+)` \| \d+ \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE))
        self.assertEqual(set(records.ERROR_CODES) - {"ok"}, documented)
        for name, number in records.ERROR_CODES.items():
            self.assertEqual(library.load().moejit_error_code_name(number).decode(), name)

    def test_each_becomes_an_exception_with_all_texts(self):
        for name, number in records.ERROR_CODES.items():
            record = records.Error(code=number, stage=b"launch", message=f"a {name}".encode(), hint=b"do this",
                                   detail=b"a log")
            error = error_of(record, name)
            self.assertEqual((error.code, error.stage, error.message, error.hint, error.detail),
                             (name, "launch", f"a {name}", "do this", "a log"))
            self.assertEqual(str(error), f"launch error [{name}]: a {name}\nhint: do this")

    def test_an_error_without_a_hint_is_one_line(self):
        self.assertEqual(str(moejit.Error("driver", "launch", "it failed")), "launch error [driver]: it failed")

    def test_errors_go_to_other_processes(self):
        error = pickle.loads(pickle.dumps(moejit.Error("driver", "launch", "it failed", "hint", "log")))
        self.assertEqual((type(error), error.code, error.detail), (moejit.Error, "driver", "log"))


class Provoked(PackageTest):
    """Errors that a program can bring about without a GPU."""

    def test_descriptions(self):
        cases = {"invalid_json": "{", "unknown_key": {"hiden": 1}, "missing_key": {"experts": 4},
                 "wrong_type": {**SMALL, "hidden": "32"}, "invalid_value": {**SMALL, "hidden": 33}}
        for code, description in cases.items():
            with self.raises(code, "my.json"):
                moejit.Layer(description, "sim", name="my.json")
        with self.raises("unsupported", "recipe nvfp4 with biases", "hint: it can run: biases false"):
            moejit.Layer({**SMALL, "recipe": "nvfp4", "biases": True}, "sim")
        with self.raises("unknown_key", "hint: did you mean hidden?"):
            moejit.Layer({**SMALL, "hiden": 1}, "sim")
        with self.assertRaises(FileNotFoundError):
            moejit.Layer("no/such/layer.json", "sim")
        with self.assertRaisesRegex(TypeError, "layer is a list"):
            moejit.Layer([], "sim")

    def test_calls(self):
        layer, tensors = small_layer.prepared_layer(), small_layer.Inputs().tensors()
        with self.raises("missing_tensor", "topk_ids"):
            layer.forward({"x": tensors["x"]})
        with self.raises("tensor_mismatch", "dtype"):
            layer.forward({**tensors, "topk_ids": tensors["topk_probs"]})
        with self.raises("tensor_mismatch", "shape"):
            layer.forward({**tensors, "w1": tensors["w2"]})
        with self.raises("tensor_mismatch", "nonsense"):
            layer.forward({**tensors, "nonsense": tensors["x"]})
        with self.raises("tensor_mismatch", "tensor y: it is read-only, and forward() writes it"):
            layer.forward({**tensors, "y": tensors["y"].toreadonly()})
        with self.raises("workspace_too_small"):
            layer.forward(tensors, workspace=layer.device.allocate(256))
        with self.raises("invalid_value", 'mode is "sum"', "overwrite, add"):
            layer.backward(tensors, saved=layer.device.allocate(256), mode="sum")

    def test_engines_and_devices(self):
        with self.raises("cache_unusable", "file"):
            (self.folder / "file").write_text("")
            moejit.Engine(cache_dir=self.folder / "file")
        with self.raises("cache_miss", "hint: "):
            moejit.Layer(SMALL, "sim").prepare(moejit.Engine(cache_dir=self.folder, frozen=True, packs=[]))
        with self.raises("unsupported", "cuda:sm_90a"):
            moejit.Layer(SMALL, "cuda:sm_90a").prepare(small_layer.test_engine(), moejit.Device.simulator())
        with self.raises("invalid_value", "workers"):
            moejit.Device.simulator(workers=-1)
        self.assertEqual(moejit.target_of_capability(12, 0), "cuda:sm_120f")
        with self.assertRaisesRegex(moejit.Error, "no target is for the compute capability 7.5"):
            moejit.target_of_capability(7, 5)
        with self.assertRaisesRegex(ValueError, "cache_network"):
            moejit.Engine(cache_network="never")

    def test_missing_compilers_and_drivers(self):
        told = run_python("import moejit\n"
                          "try: moejit.Layer('docs/examples/layers/tiny.json', 'sim').prepare(moejit.Engine("
                          "memory_only=True, packs=[]))\n"
                          "except moejit.Error as error: print(error.code)\n"
                          "try: moejit.Device.cuda()\n"
                          "except moejit.Error as error: print(error.code)\n"
                          "print(moejit.Layer('docs/examples/layers/tiny.json').target)",
                          MOEJIT_CXX="/nowhere/g++", MOEJIT_CUDA_DRIVER="/nowhere/libcuda.so.1")
        self.assertEqual(told.stdout.split(), ["compiler_missing", "driver_missing", "sim"], told.stderr)
        self.assertIn("target sim, the simulator", told.stderr)

    def test_warnings_go_to_the_caller_or_to_the_log(self):
        # /dev/null is no folder: without one that was asked for by name, kernels stay in memory.
        told = run_python("import moejit\n"
                          "told = []\n"
                          "moejit.Engine(warn=told.append)\n"
                          "moejit.Engine(warn=lambda text: 1 / 0)\n"
                          "print(len(told), told[0])\n"
                          "moejit.Engine()", XDG_CACHE_HOME="/dev/null")
        self.assertRegex(told.stdout, "^1 .*/dev/null/moejit")
        self.assertIn("ZeroDivisionError", told.stderr)
        self.assertEqual(told.stderr.splitlines()[-1], told.stdout[2:-1])
        self.assertEqual(told.returncode, 0)


class Library(PackageTest):
    def test_a_missing_library_is_a_sentence_of_the_first_use(self):
        told = run_python("import moejit; print('imported'); moejit.Layer({}, 'sim')", MOEJIT_LIBRARY="/nowhere/lib.so")
        self.assertEqual(told.stdout, "imported\n")
        for word in ("ImportError", "is missing: there is no file /nowhere/lib.so", "hint: install the package"):
            self.assertIn(word, told.stderr)

    def test_a_library_of_something_else_is_refused(self):
        other = self.folder / "other.so"
        other.write_bytes(b"\x7fELF, but no library")
        told = run_python("import moejit; moejit.Layer({}, 'sim')", MOEJIT_LIBRARY=str(other))
        self.assertIn(f"ImportError: moejit: {other} cannot be used", told.stderr)

    def test_the_version_is_the_library_s(self):
        project = (ROOT / "CMakeLists.txt").read_text()
        self.assertIn(f"project(moejit VERSION {moejit.__version__} ", project)
        self.assertEqual(library.path().name, os.path.basename(LIBRARY))


if __name__ == "__main__":
    unittest.main(verbosity=0)
