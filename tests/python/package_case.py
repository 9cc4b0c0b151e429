# SPDX-License-Identifier: Apache-2.0
"""What tests of the Python package share. Arguments of each: libmoejit.so, the tool, and the build folder.

It is imported first: it puts the package on the path, and has it load the library of the build."""
import array
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "runtime/bindings/python"
TINY = ROOT / "docs/examples/layers/tiny.json"
LIBRARY, TOOL, BUILD = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:4])
del sys.argv[1:4]

for name in [name for name in os.environ if name.startswith("MOEJIT_")]:
    del os.environ[name]
os.environ.update(MOEJIT_LIBRARY=LIBRARY, MOEJIT_TOOL=TOOL)
sys.path.insert(0, str(PACKAGE))

import moejit  # noqa: E402 - of the path that was just set

# A layer that plans and compiles quickly.
SMALL = {"name": "small", "experts": 4, "top_k": 2, "hidden": 32, "intermediate": 16, "recipe": "bf16",
         "splits_alignment": 64, "max_tokens": 32, "passes": ["forward", "backward"]}


def kernel_cache():
    """The folder of kernels that tests compile, kept from run to run (docs/testing.md); None: none is kept."""
    chosen = os.environ.get("TEST_CACHE")
    if chosen == "off":
        return None
    return os.path.abspath(chosen) if chosen else os.path.join(BUILD, "test-kernels")


def test_engine():
    folder = kernel_cache()
    if folder is None:
        return moejit.Engine(memory_only=True)
    return moejit.Engine(cache_dir=folder, cache_max_bytes=moejit.ANY_AMOUNT, cache_max_files=moejit.ANY_AMOUNT)


class PackageTest(unittest.TestCase):
    """Each case has a folder of its own."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moejit-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def raises(self, code, *words):
        """A context in which an error of this code is raised whose text has these words."""
        return _Raises(self, code, words)


class _Raises:
    def __init__(self, case, code, words):
        self._case, self._code, self._words = case, code, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _traceback):
        self._case.assertIs(kind, moejit.Error, error)
        self._case.assertEqual(error.code, self._code, error)
        for word in self._words:
            self._case.assertIn(word, str(error))
        self.error = error
        return True


def bf16_bits(values):
    """The bits of numbers rounded to BF16, to nearest, ties to even, as an array of uint16."""
    bits = array.array("H")
    for value in values:
        wide, = struct.unpack("<I", struct.pack("<f", value))
        bits.append((wide + 0x7FFF + (wide >> 16 & 1)) >> 16)
    return bits


def bf16_values(data):
    """The numbers whose BF16 bits are in these bytes."""
    bits = array.array("H", bytes(data))
    return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in bits]


def shaped(values, shape):
    """A memoryview of an array, with this shape."""
    return memoryview(values).cast("B").cast(values.typecode, shape=list(shape))
