# SPDX-License-Identifier: Apache-2.0
"""Passes in parts, between which a host dispatches rows: with nothing moved they leave the bits of whole passes."""
import unittest

import small_layer
from package_case import PackageTest
from small_layer import SIZES, TOKENS, Inputs, zeros

FP8 = {"recipe": "fp8_flow", "dispatch": "fp8", "max_tokens": 64}
RESULTS = ("y", "dx", "dprobs", "dw1", "dw2")


class DispatchCalls(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.whole = small_layer.prepared_layer(**FP8)
        cls.layer = small_layer.prepared_layer(**FP8, dispatch_calls=True)

    def tensors(self, layer):
        """Those of all calls: what inputs() has, and memory for what layers quantize and dispatch."""
        tensors = Inputs().tensors()
        for name, info in layer.tensors.items():
            if info.role in ("quantized", "dispatched"):
                shape = tuple(TOKENS if symbol == "T" else size for size, symbol in zip(info.shape, info.symbols))
                tensors[name] = zeros("f" if info.dtype == "F32" else "B", shape)
        layer.update_weights(tensors)
        return tensors

    def test_parts_leave_the_bits_of_whole_passes(self):
        expected = self.tensors(self.whole)
        self.whole.backward(expected, saved=self.whole.forward(expected))
        tensors = self.tensors(self.layer)
        self.layer.quantize({name: tensors[name] for name in ("x", "x_q", "x_scale_inv")})
        saved = self.layer.experts({name: value for name, value in tensors.items() if name != "x"})
        self.layer.quantize_grad({name: tensors[name] for name in ("dy", "dy_q", "dy_scale_inv")})
        self.layer.experts_grad({name: value for name, value in tensors.items() if name != "dy"}, saved=saved)
        for name in RESULTS:
            self.assertEqual(tensors[name].tobytes(), expected[name].tobytes(), name)
        self.assertTrue(any(tensors["dw1"].tobytes()))

    def test_whole_passes_take_the_dispatched_rows_too(self):
        expected = self.tensors(self.whole)
        self.whole.forward(expected)
        tensors = self.tensors(self.layer)
        self.layer.forward(tensors)
        self.assertEqual(tensors["y"].tobytes(), expected["y"].tobytes())
        with self.raises("missing_tensor", "x_q"):
            self.layer.forward({name: value for name, value in tensors.items() if name != "x_q"})

    def test_rows_are_no_part_of_the_saved_block(self):
        rows = TOKENS * SIZES["H"]
        self.assertLessEqual(self.layer.sizes(TOKENS).saved_bytes + rows, self.whole.sizes(TOKENS).saved_bytes)
        self.assertEqual(self.layer.tensors["x_q"].used_by,
                         {"forward", "update_weights+forward", "quantize", "experts", "backward", "backward+add",
                          "experts_grad", "experts_grad+add"})

    def test_other_layers_have_no_such_calls(self):
        tensors = self.tensors(self.whole)
        with self.raises("unsupported", "has no calls before and after a dispatch"):
            self.whole.quantize(tensors)


if __name__ == "__main__":
    unittest.main(verbosity=0)
