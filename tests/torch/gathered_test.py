# SPDX-License-Identifier: Apache-2.0
"""Quantized weights that are put together of the codes of several ranks, and transposed here."""
import unittest

import torch

from support import DEVICE, assert_same_bits
from moejit.torch import Experts, fsdp
from moejit.torch.gathered import ROWS, GatheredWeight, columns_of, parts_of_block
from moejit.torch.devices import target_of
from moejit.torch.layers import call_text
from moejit.torch.weights import quantize

RANKS, EXPERTS = 2, 4
# Shapes of tests/gpu/gradient_cases.h and tests/support/edge_cases.cpp, so that most kernels are kept already.
LAYERS = [{},
          {"intermediate_size": 80},  # halves that are filled up with zeros
          {"intermediate_size": 80, "gate_up_layout": "interleaved"},
          {"intermediate_size": 80, "activation": "relu_squared"},  # no halves
          # several scales, the last ones of fewer elements
          {"hidden_size": 272, "intermediate_size": 144, "max_tokens": 40}]


def make(fields):
    sizes = {"hidden_size": 144, "intermediate_size": 128, "max_tokens": 24, **fields}
    module = Experts(EXPERTS, top_k=2, device=DEVICE, **sizes)
    with torch.no_grad():  # scales that differ from tile to tile
        for weight in module.parameters():
            weight.mul_(torch.exp2(torch.randint(-4, 5, weight.shape[:2] + (1,), device=DEVICE)))
    return module, call_text(module.description, target_of(DEVICE), ("dx", "dw1", "dw2"), "bf16")


def gather(module):
    """{weight: (codes, scales)} of all experts, quantized rank by rank."""
    count = EXPERTS // RANKS
    parts = [fsdp._quantize(module, *(weight.detach()[rank * count:(rank + 1) * count]
                                      for weight in (module.gate_up_proj, module.down_proj)))
             for rank in range(RANKS)]
    return {name: tuple(torch.cat([part[name][i] for part in parts]) for i in (0, 1)) for name in ("w1", "w2")}


class Gathered(unittest.TestCase):

    def test_blocks_are_those_of_weights_that_are_quantized_together(self):
        torch.manual_seed(0)
        for fields in LAYERS:
            module, layer = make(fields)
            blocks = quantize(module.gate_up_proj.detach(), module.down_proj.detach(), layer)
            codes = gather(module)
            compared = []
            for name, block in zip(("quantized", "quantized_colwise"), blocks):
                want = parts_of_block(block, layer, name)
                rows = dict(zip(ROWS, (codes["w1"][0].view(torch.float8_e4m3fn), codes["w1"][1],
                                       codes["w2"][0].view(torch.float8_e4m3fn), codes["w2"][1])))
                made = rows if name == "quantized" else columns_of(rows, layer)
                got = {name: part.view(torch.uint8) if name.endswith("_q") else part for name, part in made.items()}
                self.assertEqual(got.keys(), want.keys())
                for tensor in want:
                    compared.append(tensor)
                    with self.subTest(fields=fields, block=name, tensor=tensor):
                        assert_same_bits(self, [got[tensor]], [want[tensor]])
            self.assertEqual(len(compared), 8)

    def test_gathered_weights_have_no_values(self):
        module, _ = make({})
        codes, scales = gather(module)["w2"]
        weight = torch.nn.Parameter(GatheredWeight(codes, scales, module.down_proj.shape, torch.bfloat16))
        self.assertEqual((weight.shape, weight.dtype, weight.device), (module.down_proj.shape, torch.bfloat16,
                                                                      module.down_proj.device))
        with self.assertRaisesRegex(NotImplementedError, "gathered as FP8 codes"):
            weight + 1


if __name__ == "__main__":
    unittest.main()
