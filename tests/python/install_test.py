# SPDX-License-Identifier: Apache-2.0
"""The package as an installation lays it out: library, tool, what `env` tells, NVRTC of wheels, pyproject.toml."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from package_case import BUILD, PACKAGE, ROOT, TINY, PackageTest

import moejit
from moejit import frameworks, nvrtc

# What `env` is to say of the distributions of a machine: each as it is installed here, by a folder of metadata alone.
TORCH_CASES = {None: "missing: not installed: moejit.torch cannot be imported; pip install torch",
               "2.9.1+cu128": "missing: 2.9.1+cu128: moejit.torch cannot be imported; wanted 2.10 or newer",
               "2.10.0": "2.10.0"}
TRANSFORMERS_CASES = {None: "missing: not installed: moejit.torch.register_hf() fails",
                      "4.57.0": "missing: 4.57.0: moejit.torch.register_hf() fails; wanted 5.0 or newer",
                      "5.1.0": "5.1.0"}


def install_distribution(folder, name, version):
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


class Installed(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.site = pathlib.Path(BUILD) / "tests/python/site"
        shutil.rmtree(cls.site, ignore_errors=True)
        shutil.copytree(PACKAGE / "moejit", cls.site / "moejit", ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.site / "moejit"], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stderr
        if not (cls.site / "moejit/lib").exists():  # some systems call it lib64
            next((cls.site / "moejit").glob("lib*")).rename(cls.site / "moejit/lib")

    def python(self, *arguments, **environment):
        # Without the site's own folder, whose torch and numpy would be found.
        env = {name: value for name, value in os.environ.items() if not name.startswith("MOEJIT_")}
        env.update({"PYTHONPATH": f"{self.site}:{self.folder}", "PYTHONDONTWRITEBYTECODE": "1",
                    "MOEJIT_CACHE_DIR": str(self.folder / "cache")}, **environment)
        return subprocess.run([sys.executable, "-S", *map(str, arguments)], env=env, capture_output=True, text=True,
                              check=False)

    def test_library_and_tool_are_found_beside_the_package(self):
        told = self.python("-c", f"import moejit; print(moejit.Layer({str(TINY)!r}, 'sim').info.name, "
                                 "moejit.tool_path())")
        self.assertEqual(told.stdout.split(), ["tiny", str(self.site / "moejit/bin/moejit")], told.stderr)

    def test_the_tool_runs_with_its_statuses(self):
        told = self.python("-m", "moejit", "--version")
        self.assertEqual((told.returncode, told.stdout.strip()), (0, f"moejit {moejit.__version__}"), told.stderr)
        told = self.python("-m", "moejit", "plan", "no-such-layer.json")
        self.assertEqual((told.returncode, told.stdout), (3, ""))
        self.assertIn("moejit: cannot open no-such-layer.json", told.stderr)
        told = self.python("-m", "moejit", "env", "--no-such-option")
        self.assertEqual(told.returncode, 2)

    def test_a_missing_tool_is_a_sentence(self):
        told = self.python("-m", "moejit", "--version", MOEJIT_TOOL="/nowhere/moejit")
        self.assertEqual(told.returncode, 1)
        self.assertIn("the program moejit is missing: there is no file /nowhere/moejit\nhint: ", told.stderr)

    def env(self, *arguments, **environment):
        told = self.python("-m", "moejit", "env", *arguments, **environment)
        self.assertEqual(told.returncode, 0, told.stderr)
        return told.stdout

    def test_env_tells_what_is_installed_and_what_would_fail(self):
        for (torch, of_torch), (transformers, of_transformers) in zip(TORCH_CASES.items(), TRANSFORMERS_CASES.items()):
            for name, version in (("torch", torch), ("transformers", transformers)):
                if version:
                    install_distribution(self.folder, name, version)
            lines = self.env().splitlines()
            self.assertTrue(any(line.startswith(f"{'torch':<25}{of_torch}") for line in lines), lines)
            self.assertTrue(any(line.startswith(f"{'transformers':<25}{of_transformers}") for line in lines), lines)
            for folder in self.folder.glob("*.dist-info"):
                shutil.rmtree(folder)

    def test_env_is_json_with_the_tool_s_findings(self):
        report = json.loads(self.env("--json", MOEJIT_NVRTC="/nowhere/libnvrtc.so"))
        self.assertTrue(report["moejit"]["found"])
        self.assertEqual(report["python"]["Python package"],
                         {"found": True, "text": f"moejit {moejit.__version__}, {self.site / 'moejit'}"})
        self.assertFalse(report["python"]["NVRTC"]["found"])
        self.assertIn("pip install 'moejit[cuda]'", report["python"]["NVRTC"]["text"])

    def test_env_tells_of_a_library_that_is_missing(self):
        lines = self.env(MOEJIT_LIBRARY="/nowhere/libmoejit.so").splitlines()
        found = [line for line in lines if line.startswith("Python package")]
        self.assertIn("missing: moejit: the library libmoejit.so.1 is missing", found[0])


class Nvrtc(PackageTest):
    """Which NVRTC of installed wheels is taken, by the names of their files."""

    def found(self, *files, **environment):
        for file in files:
            path = self.folder / "nvidia" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        program = ("from moejit import nvrtc; import os; nvrtc._TOOLKIT = '/nowhere'; nvrtc.choose(); "
                   "print(os.environ.get('MOEJIT_NVRTC'))")
        env = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")}
        env.update({"PYTHONPATH": f"{PACKAGE}:{self.folder}"}, **environment)
        told = subprocess.run([sys.executable, "-S", "-c", program], env=env, capture_output=True, text=True,
                              check=True)
        return told.stdout.strip().removeprefix(f"{self.folder}/nvidia/")

    CUDA_13 = ("cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.0")
    CUDA_12 = ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.8")

    def test_that_of_cuda_13_comes_first(self):
        self.assertEqual(self.found(*self.CUDA_12, *self.CUDA_13), self.CUDA_13[0])
        self.assertEqual(self.found(CUDA_HOME="/some/toolkit"), self.CUDA_13[0])

    def test_that_of_cuda_12_serves_where_there_is_no_toolkit(self):
        self.assertEqual(self.found(*self.CUDA_12), self.CUDA_12[0])
        self.assertEqual(self.found(CUDA_HOME="/some/toolkit"), "None")

    def test_one_that_is_too_old_does_not(self):
        old = "cuda_nvrtc/lib/libnvrtc-builtins.so.12.3"
        self.assertEqual(self.found(self.CUDA_12[0], old), "None")

    def test_the_environment_goes_before(self):
        self.assertEqual(self.found(*self.CUDA_13, MOEJIT_NVRTC="/mine/libnvrtc.so"), "/mine/libnvrtc.so")

    def test_none_is_none(self):
        self.assertEqual(self.found(), "None")


class Frameworks(PackageTest):
    def test_versions_are_compared_as_numbers(self):
        for version, wanted in (("2.10.0", True), ("2.9.1+cu128", False), ("2.11.0a0+git", True), ("3.0", True)):
            self.assertEqual(frameworks.is_new_enough(version, (2, 10)), wanted, version)

    def test_torch_is_asked_for_in_a_sentence(self):
        program = "import moejit.torch"
        for version, sentence in ((None, "needs torch, which is not installed\nhint: pip install torch"),
                                  ("2.9.1", "needs torch 2.10 or newer, this is 2.9.1\nhint: ")):
            if version:
                install_distribution(self.folder, "torch", version)
            told = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{self.folder}"})
            self.assertIn(f"ImportError: moejit.torch {sentence}", told.stderr)


class Project(PackageTest):
    """What pip reads. (The wheel itself is looked at by `make wheel`.)"""

    def test_says_what_the_package_has(self):
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        pattern = re.search(r"^regex = '(.+)'$", text, re.MULTILINE).group(1)
        version = re.search(pattern, (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertEqual(version.group("value"), moejit.__version__)
        self.assertRegex(text, r'(?m)^wheel\.py-api = "py3"$')
        self.assertRegex(text, r"(?m)^dependencies = \[\]$")
        self.assertRegex(text, r'(?m)^cuda = \["nvidia-cuda-nvrtc>=13,<14"\]')
        self.assertRegex(text, r'(?m)^moejit = "moejit\.tool:main"$')
        self.assertTrue(callable(moejit.tool.main))

    def test_wheels_of_nvrtc_are_not_asked_for_by_the_build(self):
        self.assertRegex((ROOT / "pyproject.toml").read_text(encoding="utf-8"), r'(?m)^MOEJIT_DEFAULT_NVRTC_DIRS = ""$')
        self.assertTrue(callable(nvrtc.find))


if __name__ == "__main__":
    unittest.main(verbosity=0)
