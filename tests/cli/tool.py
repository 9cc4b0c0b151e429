# SPDX-License-Identifier: Apache-2.0
"""Runs the command line tool as a user would, and reads and writes the files that it takes."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "docs/examples/layers/tiny.json"
GEMMS = ROOT / "docs/examples/gemms/hopper.json"
BITS = {"BF16": 16, "F32": 32, "F16": 16, "F8_E4M3": 8, "F8_E8M0": 8, "I32": 32, "I64": 64, "U8": 8, "F64": 64}
moejit = None  # path of the binary, set by main()


def kept_kernels():
    """The folder of kernels that all tests keep (docs/testing.md); None: none are kept."""
    chosen = os.environ.get("TEST_CACHE")
    if chosen == "off":
        return None
    return pathlib.Path(chosen).resolve() if chosen else pathlib.Path(moejit).resolve().parent / "test-kernels"


class ToolTest(unittest.TestCase):
    """Each case has a folder of its own; cases of a class share a kernel cache. Where none of them tests the cache,
    `keeps_kernels` makes it the one that all tests share."""

    keeps_kernels = False

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="moejit-cli-"))
        cls.cache = (kept_kernels() if cls.keeps_kernels else None) or cls.shared / "cache"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared, ignore_errors=True)

    stdin = None  # text of standard input; None: there is none

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))

    def run_tool(self, *arguments, **environment):
        """Runs `moejit ARGUMENTS`; keyword arguments change the environment."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("MOEJIT_")}
        env.update({"MOEJIT_CACHE_DIR": str(self.cache), "HOME": str(self.shared)}, **environment)
        if self.keeps_kernels:
            env.update(MOEJIT_CACHE_MAX_BYTES="none", MOEJIT_CACHE_MAX_FILES="none")
        given = {"stdin": subprocess.DEVNULL} if self.stdin is None else {"input": self.stdin}
        return subprocess.run([moejit, *map(str, arguments)], cwd=self.folder, env=env, text=True, **given,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def succeed(self, *arguments, **environment):
        done = self.run_tool(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done

    def succeed_json(self, *arguments, **environment):
        return json.loads(self.succeed(*arguments, "--json", **environment).stdout)

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def layer(self, **changes):
        """The tiny layer with some fields changed; None leaves a field out."""
        layer = json.loads(TINY.read_text())
        layer.update(changes)
        return self.write("layer.json", {k: v for k, v in layer.items() if v is not None})


def tensor(dtype, shape, fill=0):
    """(dtype, shape, bytes), all bytes equal."""
    return dtype, list(shape), bytes([fill]) * (math.prod(shape) * BITS[dtype] // 8)


def safetensors(tensors):
    """The bytes of a file with {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return with_header(header, data)


def with_header(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} of a file."""
    content = pathlib.Path(path).read_bytes()
    length, = struct.unpack_from("<Q", content)
    assert length % 8 == 0, "the data are not aligned"
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def main():
    global moejit
    moejit = sys.argv.pop(1)
    unittest.main(verbosity=0)
