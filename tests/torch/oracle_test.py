# SPDX-License-Identifier: Apache-2.0
"""Casts and whole layers beside other libraries, which were run once: the CRC-32 of what they gave for the same inputs.

The numbers are those of functions in plain PyTorch: of torchao (36027d82d) tensor_to_scale() and to_fp8_saturated() for
fp8_rowwise, to_mx() with RCEIL for mxfp8; of Transformer Engine (d0067d0da) BlockwiseQuantizerReference,
CurrentScalingQuantizerRef and NVFP4QuantizerRef, and for fp8_delayed _amax_and_scale_update() with its division written
as one operation, which its kernel has too: in torch, number / tensor is number * (1 / tensor).

Layers have torchao's autograd functions for grouped Linears, _to_fp8_rowwise_then_scaled_grouped_mm() and the emulated
mode of _to_mxfp8_then_scaled_grouped_mm(), between moejit's steps of bf16. Their GEMMs were computed as docs/recipes.md
says that tensor cores add; y and the gradients of x and of both weights are bf16.
"""
import unittest

import oracle_case

ORACLES = {
    "fp8_rowwise rows": 0x384a5e78,
    "fp8_rowwise w1": 0x584e77b7,
    "fp8_rowwise w1_colwise": 0x1ef1e4e0,
    "fp8_rowwise w2": 0xc4aea5c9,
    "fp8_rowwise w2_colwise": 0x68899b10,
    "fp8_rowwise columns": 0xb05dad62,
    "mxfp8 rows": 0x1a53198a,
    "mxfp8 w1": 0x3ecf963a,
    "mxfp8 w1_colwise": 0x47e5e2c2,
    "mxfp8 columns": 0x35b40f86,
    "fp8_blockwise rows": 0xe22ace26,
    "fp8_blockwise w1": 0x536d8e62,
    "fp8_blockwise w2": 0x217e2aeb,
    "fp8_blockwise columns": 0x56b986bf,
    "fp8_current w1": 0xfdc9877e,
    "fp8_current w2": 0x4d358f8b,
    "fp8_current w1 powers": 0x2d835fa9,
    "fp8_current w2 powers": 0x68f0f89e,
    "nvfp4 rows": 0x598e6374,
    "nvfp4 w1": 0x6d1d6ae7,
    "nvfp4 w1_colwise": 0xff420bc4,
    "fp8_delayed max": 0x6f39d95d,
    "fp8_delayed most_recent": 0xab2ff9cf,
}
LAYERS = {
    "fp8_rowwise layer": 0x18b7e1ad,
    "mxfp8 layer": 0x33d0bcb5,
}
INPUTS = 0x0d5e054b
LAYER_INPUTS = 0x2741453c


class Oracles(unittest.TestCase):

    def test_casts_have_the_bits_of_torchao_and_transformer_engine(self):
        made = oracle_case.casts()
        self.assertEqual(set(made), set(ORACLES))
        for name, tensors in made.items():
            with self.subTest(name):
                self.assertEqual(f"0x{oracle_case.crc(*tensors):08x}", f"0x{ORACLES[name]:08x}")

    def test_layers_have_the_bits_of_torchaos_grouped_linears(self):
        made = oracle_case.layers()
        self.assertEqual(set(made), set(LAYERS))
        for name, tensors in made.items():
            with self.subTest(name):
                self.assertTrue(all(each.isfinite().all() and each.any() for each in tensors))
                self.assertEqual(f"0x{oracle_case.crc(*tensors):08x}", f"0x{LAYERS[name]:08x}")

    def test_the_inputs_are_what_the_oracles_got(self):
        x, w1, w2, rows, routing = oracle_case.inputs()
        end = oracle_case.groups(routing)[-1][2]
        self.assertEqual(oracle_case.crc(x, w1, w2, rows[:end]), INPUTS)
        self.assertEqual(oracle_case.crc(*oracle_case.layer_inputs()), LAYER_INPUTS)


if __name__ == "__main__":
    unittest.main()
