# SPDX-License-Identifier: Apache-2.0
"""Argument: a wheel of moejit. It has what it should and nothing else, its tags are true, and it runs where it lies.

`make wheel` runs it; building a wheel takes too long for `make test`."""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "runtime/bindings/python"
HEADERS = {path.name for path in (ROOT / "runtime/bindings/c").glob("moejit*.h*")}
NAME = re.compile(r"moejit-([\d.]+)-py3-none-manylinux_(\d+)_(\d+)_x86_64\.whl")
# Libraries that every Linux of the tag has. The wheel has libmoejit.so, and libraries for frameworks use the
# C++ library of Python's process; torch is in memory when ours is loaded: auditwheel has to be told of that one alone.
SYSTEM = re.compile(r"(lib(c|m|dl|pthread|rt|gcc_s)\.so|ld-linux)")
OF_FRAMEWORKS = re.compile(r"lib(torch_cpu\.so|moejit\.so\.1|stdc\+\+\.so\.6)$")
# The newest symbol versions of libstdc++ and libgcc on systems of manylinux_2_34, which are GCC 11's, by auditwheel's
# policy. Those of glibc are in the tag itself.
NEWEST = {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
WHEEL = None  # path, set below


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, **options).stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="moejit-wheel-")
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.archive = zipfile.ZipFile(WHEEL)
        cls.archive.extractall(cls.folder)
        for entry in cls.archive.infolist():  # zipfile leaves modes out
            if not entry.is_dir():
                os.chmod(cls.folder / entry.filename, stat.S_IMODE(entry.external_attr >> 16))
        matched = NAME.fullmatch(WHEEL.name)
        assert matched, f"{WHEEL.name} is no name of a wheel of moejit for manylinux"
        cls.version, cls.glibc = matched.group(1), tuple(map(int, matched.groups()[1:]))
        cls.info = cls.folder / f"moejit-{cls.version}.dist-info"
        cls.binaries = [cls.folder / "moejit/bin/moejit", *(cls.folder / "moejit/lib").glob("*.so*")]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_has_these_files_and_no_others(self):
        wanted = {str(path.relative_to(PACKAGE)) for path in (PACKAGE / "moejit").rglob("*.py")}
        wanted |= {f"moejit/include/moejit/{name}" for name in HEADERS}
        wanted |= {f"moejit/lib/cmake/moejit/moejit{name}.cmake"
                   for name in ("Config", "ConfigVersion", "Targets", "Targets-release")}
        wanted |= {"moejit/bin/moejit", "moejit/lib/libmoejit.so.1"}
        if (ROOT / "runtime/bindings/torch").exists():
            wanted |= {"moejit/lib/libmoejit_torch.so", "moejit/lib/libmoejit_jax.so"}
        got = {name for name in self.archive.namelist() if not name.endswith("/")}
        self.assertEqual({name for name in got if not name.startswith(self.info.name)}, wanted)
        self.assertLessEqual({f"{self.info.name}/{name}" for name in
                              ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}, got)
        self.assertTrue(os.access(self.folder / "moejit/bin/moejit", os.X_OK))

    def test_metadata_says_what_it_needs(self):
        metadata = (self.info / "METADATA").read_text(encoding="utf-8").splitlines()
        self.assertIn(f"Version: {self.version}", metadata)
        self.assertIn("Requires-Python: >=3.9", metadata)
        needs = [re.sub(r"\s|'|\"", "", line) for line in metadata if line.startswith("Requires-Dist")]
        self.assertIn("Requires-Dist:nvidia-cuda-nvrtc<14,>=13;extra==cuda", needs)
        # Whoever installs no extra installs nothing else.
        self.assertEqual({line.partition(";extra==")[2] for line in needs}, {"torch", "jax", "cuda"})
        entries = (self.info / "entry_points.txt").read_text(encoding="utf-8")
        self.assertIn("moejit = moejit.tool:main", entries)
        self.assertIn("[vllm.general_plugins]\nmoejit = moejit.vllm_plugin:register", entries)
        tags = re.findall(r"^Tag: (.+)$", (self.info / "WHEEL").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual([f"moejit-{self.version}-{tag}.whl" for tag in tags], [WHEEL.name])

    def test_binaries_run_on_the_systems_of_the_tag(self):
        for binary in self.binaries:
            needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "--dynamic", "--wide", binary))
            allowed = (SYSTEM, OF_FRAMEWORKS) if "_" in binary.name else (SYSTEM,)
            self.assertEqual([name for name in needed if not any(known.match(name) for known in allowed)], [],
                             f"{binary.name} needs these")
            versions = run("readelf", "--version-info", "--wide", binary)
            newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", versions))
            self.assertLessEqual(newest[:2], self.glibc, f"{binary.name} needs that glibc: make wheel "
                                                         f"MANYLINUX=manylinux_{newest[0]}_{newest[1]}_x86_64")
            for name, limit in NEWEST.items():
                for version in re.findall(rf"\b{name}_([\d.]+)", versions):
                    needed = tuple(map(int, version.split(".")))
                    self.assertLessEqual(needed, limit, f"{binary.name} needs {name}_{version}")

    def test_libraries_for_frameworks_serve_every_version(self):
        for name in ("torch", "jax"):
            run(sys.executable, ROOT / "tests/package/framework_library_test.py",
                self.folder / f"moejit/lib/libmoejit_{name}.so")

    def test_binaries_name_no_folder_of_the_build(self):
        for binary in self.binaries:
            self.assertFalse(str(ROOT).encode() in binary.read_bytes(), f"{binary.name} names the checkout")

    def test_runs_where_it_lies(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOEJIT_")}
        environment.update(PYTHONPATH=str(self.folder), MOEJIT_CACHE_DIR=str(self.folder / "cache"))
        program = ("import moejit; layer = moejit.Layer('docs/examples/layers/tiny.json', 'sim'); "
                   "print(moejit.__file__, moejit.__version__, layer.info.name)")
        told = run(sys.executable, "-c", program, cwd=ROOT, env=environment)
        self.assertEqual(told.split(), [str(self.folder / "moejit/__init__.py"), self.version, "tiny"])
        told = run(sys.executable, "-m", "moejit", "--version", cwd=self.folder, env=environment)
        self.assertEqual(told.split(), ["moejit", self.version])

    def test_torch_is_asked_for_in_a_sentence(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOEJIT_")}
        environment["PYTHONPATH"] = str(self.folder)
        told = subprocess.run([sys.executable, "-S", "-c", "import moejit; import moejit.torch"], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 1)
        self.assertIn("ImportError: moejit.torch needs torch, which is not installed\nhint: pip install torch",
                      told.stderr)

    def test_is_found_by_cmake(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(program C)\nfind_package(moejit REQUIRED)\n"
            f"add_executable(program {ROOT}/docs/examples/embed_c.c)\n"
            "target_link_libraries(program PRIVATE moejit::moejit m)\n")
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.folder / 'moejit'}")
        run("cmake", "--build", project / "build")
        self.assertIn(str(self.folder / "moejit/lib/libmoejit.so.1"), run("ldd", project / "build/program"))


if __name__ == "__main__":
    WHEEL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
