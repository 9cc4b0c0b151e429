# SPDX-License-Identifier: Apache-2.0
"""MXFP4 weights as FP8 weights: every value is exact, or an error says where it is not."""
import unittest

import torch

from moejit.torch import experts, mxfp4_weights
from support import DEVICE, Inputs, assert_same_bits, describe, told

try:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
except ImportError:
    convert_moe_packed_tensors = None

E, I, H = 3, 160, 288  # widths that end within blocks


def random_weights(rows, columns, spread=14, seed=0, base=100, experts_=E):
    """Random codes, two a byte, and scales that lie up to `spread` powers of two apart."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (experts_, rows, columns // 2), generator=generator).to(torch.uint8)
    scales = torch.randint(base, base + spread + 1, (experts_, rows, columns // 32), generator=generator)
    return codes.to(DEVICE), scales.to(torch.uint8).to(DEVICE)


def values_of(codes, scales):
    """The values in float32, by transformers' own conversion, which gives [E, columns, rows]."""
    return convert_moe_packed_tensors(codes.unflatten(2, (-1, 16)), scales, dtype=torch.float32).transpose(1, 2)


def values_of_blocks(codes, scales, sections):
    parts = [part.float() * half.repeat_interleave(128, 1)[:, :part.shape[1]].repeat_interleave(128, 2)[..., :part.shape[2]]
             for part, half in zip(codes.chunk(sections, 1), scales.chunk(sections, 1))]
    return torch.cat(parts, 1)


@unittest.skipIf(convert_moe_packed_tensors is None, "needs transformers")
class Values(unittest.TestCase):

    def assert_exact(self, w1, w2, sections=2):
        made = mxfp4_weights(*w1, *w2)
        assert_same_bits(self, [values_of_blocks(made.w1_q, made.w1_scale_inv, sections),
                                values_of_blocks(made.w2_q, made.w2_scale_inv, 1)], [values_of(*w1), values_of(*w2)])

    def test_all_are_exact_within_14_powers_of_two(self):
        for base in (1, 100, 230):
            self.assert_exact(random_weights(2 * I, H, base=base), random_weights(H, I, seed=1, base=base))
        self.assert_exact(random_weights(I, H), random_weights(H, I, seed=1), sections=1)

    def test_groups_of_zeros_may_have_any_scale(self):
        w1, w2 = random_weights(2 * I, H), random_weights(H, I)
        w1[0][0, 5, 16:32], w1[1][0, 5, 1] = 0x80, 254
        w1[0][0, 6, :16], w1[1][0, 6, 0] = 0x08, 0
        w2[0][1] = 0
        self.assert_exact(w1, w2)

    def test_gpt_oss_has_rows_of_gate_and_up_by_turns_and_groups_of_bytes(self):
        (codes, scales), w2 = random_weights(2 * I, H), random_weights(H, I)
        made = mxfp4_weights(codes.unflatten(2, (-1, 16)), scales.view(torch.float8_e8m0fnu), w2[0].view(torch.int8), w2[1],
                             gate_up_layout="interleaved")
        want = values_of(codes, scales)
        assert_same_bits(self, [values_of_blocks(made.w1_q, made.w1_scale_inv, 2)],
                         [torch.cat((want[:, ::2], want[:, 1::2]), 1)])

    def test_experts_have_the_bits_of_bf16_weights_of_the_same_values(self):
        inputs = Inputs()
        (e, rows, h), i = inputs.w1.shape, inputs.w2.shape[2]
        w1 = random_weights(rows, h, spread=4, base=120, experts_=e)
        w2 = random_weights(h, i, spread=4, base=120, seed=1, experts_=e)
        layer = describe("fp8_flow")
        with torch.no_grad():
            got = experts(inputs.x, inputs.ids, inputs.probs, mxfp4_weights(*w1, *w2), layer=layer)
            want = experts(inputs.x, inputs.ids, inputs.probs, *(values_of(*each).bfloat16().contiguous() for each in (w1, w2)),
                           layer=layer)
        assert_same_bits(self, [got], [want])


class Errors(unittest.TestCase):

    def test_values_that_no_fp8_code_has(self):
        w1, w2 = random_weights(2 * I, H), random_weights(H, I)
        w1[1][:] = 114
        w1[1][1, I + 130, 5], w1[0][1, I + 130, 80:96] = 99, 0x11  # the second block of rows of up
        self.assertIn("w1 of expert 1: row 290, columns 160 to 191: a group with a scale below 2^-14",
                      told(lambda: mxfp4_weights(*w1, *w2)))
        w2[1][2, 3, 4] = 255
        w1[1][1, I + 130, 5] = 100
        self.assertIn("w2 of expert 2: row 3, group 4: a scale that is NaN", told(lambda: mxfp4_weights(*w1, *w2)))

    def test_wrong_tensors(self):
        (codes, scales), w2 = random_weights(2 * I, H), random_weights(H, I)
        for arguments, sentence in (
                ((codes.float(), scales, *w2), "tensor w1_q: its dtype is float32, wanted uint8 or int8"),
                ((codes, scales.float(), *w2), "tensor w1_scales: its dtype is float32"),
                ((codes, scales[:, :-1], *w2), "tensor w1_scales: its shape is"),
                ((codes[:, :I // 2], scales[:, :I // 2], *w2), "tensor w1_q: it has 80 rows, wanted 320 or 160"),
                ((codes[..., :-1], scales, *w2), "tensor w1_q: its shape is")):
            self.assertIn(sentence, told(lambda: mxfp4_weights(*arguments)))
        self.assertIn("gate_up_layout: got 'gate_first'", told(lambda: mxfp4_weights(codes, scales, *w2,
                                                                                      gate_up_layout="gate_first")))


if __name__ == "__main__":
    unittest.main()
