# SPDX-License-Identifier: Apache-2.0
"""Calls with numpy's arrays. Skipped where there is no numpy."""
import sys
import unittest

try:
    import numpy
except ImportError:
    print("SKIPPED: this Python has no numpy")
    sys.exit(77)

import small_layer
from package_case import SMALL, PackageTest
from small_layer import TOKENS, Inputs

import moejit

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


class Numpy(PackageTest):
    def setUp(self):
        super().setUp()
        self.inputs = Inputs()
        self.layer = small_layer.prepared_layer()
        self.arrays = {name: numpy.array(view) for name, view in self.inputs.tensors().items()}

    def check(self, names=("y",)):
        views = {name: memoryview(self.arrays[name].view("uint16" if name in ("y", "dx") else "float32"))
                 for name in names}
        small_layer.check(self, views, self.inputs.expected(), names)

    def test_bf16_as_uint16_serves(self):
        self.assertEqual(self.arrays["x"].dtype, numpy.uint16)
        saved = self.layer.forward(self.arrays)
        self.layer.backward(self.arrays, saved=saved)
        self.check(("y", "dx", "dprobs", "dw1", "dw2"))

    @unittest.skipIf(ml_dtypes is None, "there is no ml_dtypes")
    def test_bf16_of_ml_dtypes_serves(self):
        for name in ("x", "w1", "w2", "y"):
            self.arrays[name] = self.arrays[name].view(ml_dtypes.bfloat16)
        self.layer.forward(self.arrays)
        self.check()

    def test_blocks_may_be_arrays(self):
        sizes = self.layer.sizes(TOKENS)

        def aligned(size):
            memory = numpy.zeros(size + 256, numpy.uint8)
            start = -memory.ctypes.data % 256
            return memory[start:start + size]

        self.layer.forward(self.arrays, workspace=aligned(sizes.workspace_bytes), saved=aligned(sizes.saved_bytes))
        self.check()

    def test_wrong_arrays_are_refused(self):
        x = self.arrays["x"]
        with self.raises("tensor_mismatch", "strides"):
            self.layer.forward({**self.arrays, "x": numpy.asfortranarray(x)})
        with self.raises("tensor_mismatch", "float16"):
            self.layer.forward({**self.arrays, "x": x.view(numpy.float16)})
        read_only = self.arrays["y"].copy()
        read_only.flags.writeable = False
        with self.raises("tensor_mismatch", "tensor y: it is read-only"):
            self.layer.forward({**self.arrays, "y": read_only})
        self.layer.forward({**self.arrays, "x": numpy.frombuffer(x.tobytes(), numpy.uint16).reshape(x.shape)})
        self.check()

    def test_tensors_are_arrays_over_the_same_memory(self):
        tensors = self.layer.allocate(TOKENS)
        y, ids = numpy.asarray(tensors["y"]), numpy.asarray(tensors["topk_ids"])
        self.assertEqual((y.dtype, y.shape, ids.dtype), (numpy.uint16, (TOKENS, SMALL["hidden"]), numpy.int32))
        ids[:] = 3
        self.assertEqual(tensors["topk_ids"].read(), numpy.full((TOKENS, 2), 3, numpy.int32).tobytes())


if __name__ == "__main__":
    unittest.main(verbosity=0)
