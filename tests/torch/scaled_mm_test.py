# SPDX-License-Identifier: Apache-2.0
"""Compares the bits of FP8 GEMMs with PyTorch's own, which needs a GPU: MOEJIT_TEST_DEVICE=cuda.

Both add up products as the tensor cores do, in one chain or in chains of 128 that are added in float32, and apply scales
in the same order: no bit may differ. Where cuBLASLt has no kernel for a case, the test says so and goes on.
"""
import unittest

import torch

import scaled_mm_cases
from support import DEVICE

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LENGTHS = (2048, 4096, 7168, 2880)


@unittest.skipUnless(DEVICE.type == "cuda", "torch._scaled_mm takes these scales on a GPU only")
class ScaledMm(unittest.TestCase):

    def compare(self, cases, run):
        compared = elements = 0
        for case in cases:
            with self.subTest(str(case)):
                try:
                    own, peer = run(case, DEVICE)
                except (RuntimeError, ValueError) as error:
                    if "moejit" in str(error):
                        raise
                    print(f"{case}: PyTorch refuses: {str(error).splitlines()[0]}")
                    continue
                is_other = own.view(torch.int16) != peer.view(torch.int16)
                compared, elements = compared + 1, elements + own.numel()
                self.assertEqual(int(is_other.sum()), 0,
                                 f"of {own.numel()} elements; by expert {scaled_mm_cases.by_expert(is_other)}")
        print(f"{self.id()}: {compared} of {len(cases)} cases compared, {elements} elements")
        self.assertGreater(compared, 0)

    def test_fprop_with_block_scales(self):
        lengths = [length for length in LENGTHS if length % 512 == 0]  # PyTorch wants four blocks of k, or eight, ...
        self.compare(scaled_mm_cases.cases("fprop", "row_block", False, [E4M3], lengths), scaled_mm_cases.fprop)

    def test_fprop_with_scales_of_tensors(self):
        for is_fast in (False, True):
            self.compare(scaled_mm_cases.cases("fprop", "tensor", is_fast, [E4M3, E5M2], LENGTHS), scaled_mm_cases.fprop)

    def test_fprop_with_scales_of_rows_and_columns(self):
        for is_fast in (False, True):
            self.compare(scaled_mm_cases.cases("fprop", "row_column", is_fast, [E4M3], LENGTHS), scaled_mm_cases.fprop)

    def test_wgrad_with_block_scales(self):
        self.compare(scaled_mm_cases.cases("wgrad", "row", False, [E4M3], LENGTHS), scaled_mm_cases.wgrad)

    def test_wgrad_with_scales_of_tensors(self):
        for is_fast in (False, True):
            self.compare(scaled_mm_cases.cases("wgrad", "tensor", is_fast, [E4M3, E5M2], LENGTHS), scaled_mm_cases.wgrad)

    def test_wgrad_with_scales_of_rows_and_columns(self):
        for is_fast in (False, True):
            self.compare(scaled_mm_cases.cases("wgrad", "row_column", is_fast, [E4M3], LENGTHS), scaled_mm_cases.wgrad)


if __name__ == "__main__":
    unittest.main()
