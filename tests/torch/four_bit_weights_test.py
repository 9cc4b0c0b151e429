# SPDX-License-Identifier: Apache-2.0
"""Packed NVFP4 and INT4 weights: the values of a checkpoint's tensors, in the orders that checkpoints have."""
import unittest

import torch

from moejit.torch import HostedExperts, experts, int4_weights, nvfp4_weights, serving
from support import DEVICE, assert_same_bits, told

E, K, I, H, TOKENS = 3, 2, 144, 208, 9  # widths of NVFP4 that end within tiles
LAYER = {"experts": E, "top_k": K, "hidden": H, "intermediate": I, "recipe": "bf16", "max_tokens": 16, "dispatch": "none"}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def inputs(hidden, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(TOKENS, hidden, generator=generator).bfloat16().to(DEVICE)
    ids = torch.stack([torch.randperm(E, generator=generator)[:K] for _ in range(TOKENS)]).to(DEVICE)
    return x, ids, torch.rand(TOKENS, K, generator=generator).to(DEVICE)


def random_nvfp4(generator, rows, columns):
    """Codes, scales that are mostly near 1, and the products of both in float32."""
    codes = torch.randint(0, 16, (E, rows, columns), generator=generator, dtype=torch.uint8)
    scales = torch.randint(0x28, 0x48, (E, rows, columns // 16), generator=generator).to(torch.uint8)
    scales[0, :8] = torch.arange(8).to(torch.uint8)[:, None]  # 0 and subnormal ones
    scales = scales.view(torch.float8_e4m3fn)
    values = torch.where(codes >= 8, -1.0, 1.0) * E2M1[(codes & 7).int()]
    packed = codes[..., ::2] | codes[..., 1::2] << 4
    return packed.to(DEVICE), scales.to(DEVICE), values * scales.float().repeat_interleave(16, -1)


def words(numbers, places=range(8)):
    """int32 words of eight numbers each of the last dimension, the i-th in nibble places[i]."""
    parts = numbers.long().unflatten(-1, (-1, 8))
    packed = sum(parts[..., i] << (4 * place) for i, place in enumerate(places))
    return torch.where(packed >= 2**31, packed - 2**32, packed).int().contiguous().to(DEVICE)


class Nvfp4(unittest.TestCase):

    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        self.w1, self.w2 = random_nvfp4(generator, 2 * I, H), random_nvfp4(generator, H, I)
        self.factors = torch.tensor([[2.0**-7, 2.0**-8]] * E, device=DEVICE), torch.tensor([2.0**-6] * E, device=DEVICE)

    def weights(self, **options):
        return nvfp4_weights(*self.w1[:2], self.factors[0], *self.w2[:2], self.factors[1], **options)

    def test_factors_that_are_powers_of_two_give_the_bits_of_bf16_weights(self):
        weights = self.weights()
        self.assertEqual([list(tensor.shape) for tensor in weights.tensors.values()],
                         [[E, 4, 4, 4608], [E, 2], [E, 2, 3, 4608], [E, 1]])
        weights.check_values()
        x, ids, probs = inputs(H)
        of_rows = self.factors[0].cpu().repeat_interleave(I, 1)[..., None]
        w1, w2 = ((values * factor).bfloat16().to(DEVICE) for values, factor in (
            (self.w1[2], of_rows), (self.w2[2], self.factors[1].cpu()[:, None, None])))
        hosted = HostedExperts(LAYER, device=DEVICE)
        with torch.no_grad():
            want = experts(x, ids, probs, w1, w2, layer=LAYER)
            self.assertGreater(want.float().abs().max().item(), 0.1)
            got = [experts(x, ids, probs, weights, layer=LAYER), hosted(x, ids, probs, weights, None),
                   serving.run(x, ids, probs, weights, activation="swiglu")]
        assert_same_bits(self, got, [want] * 3)

    def test_gate_and_up_may_alternate(self):
        alternating = [torch.stack((each[:, :I], each[:, I:]), 2).flatten(1, 2) for each in
                       (self.w1[0], self.w1[1].view(torch.uint8))]
        got = nvfp4_weights(alternating[0], alternating[1].view(torch.float8_e4m3fn), self.factors[0], *self.w2[:2],
                            self.factors[1], gate_up_layout="interleaved")
        assert_same_bits(self, list(got.tensors.values()), list(self.weights().tensors.values()))

    def test_errors(self):
        weights = self.weights()
        x, ids, probs = inputs(H)
        self.assertIn("backward of packed NVFP4 weights", told(lambda: experts(x.clone().requires_grad_(), ids, probs, weights,
                                                                              layer=LAYER)))
        self.assertIn('$.weight_format: got "nvfp4" with the recipe fp8_flow, wanted bf16',
                      told(lambda: serving.run(x, ids, probs, weights, activation="swiglu", recipe="fp8_flow")))
        zeros = [torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE) for shape in ((E, 2 * I, H), (E, H, I))]
        self.assertIn('weight_format "nvfp4": got weights that are not packed, wanted nvfp4_weights()',
                      told(lambda: experts(x, ids, probs, *zeros, layer={**LAYER, "weight_format": "nvfp4"})))
        for change, sentence in (((0, lambda t: t.float()), "tensor w2_q: its dtype is float32, wanted uint8 or int8"),
                                 ((1, lambda t: t[:, :, 1:]), f"tensor w2_scales: its shape is [{E}, {H}, 8], wanted [{E}, {H}, 9]")):
            given = list(self.w2[:2])
            given[change[0]] = change[1](given[change[0]])
            self.assertIn(sentence, told(lambda: nvfp4_weights(*self.w1[:2], self.factors[0], *given, self.factors[1])))
        self.w1[1].view(torch.uint8)[1, 200, 3] = 0x7f
        self.assertIn("w1 of expert 1: row 200, group 3: the scale is nan", told(self.weights))


class Int4(unittest.TestCase):
    inner, hidden = 128, 256

    def setUp(self):
        generator = torch.Generator().manual_seed(2)
        self.matrices = []
        for rows, columns in ((2 * self.inner, self.hidden), (self.hidden, self.inner)):
            codes = torch.randint(0, 16, (E, rows, columns), generator=generator)
            scales = (torch.rand(E, rows, columns // 128, generator=generator) * 2**-5).half()
            self.matrices.append((codes, scales, torch.randint(1, 16, scales.shape, generator=generator)))

    def tensors(self, order, has_zeros=True):
        """The tensors of both matrices as a checkpoint has them."""
        made = {"order": order}
        for name, (codes, scales, zeros) in zip(("w1", "w2"), self.matrices):
            if order == "compressed_tensors":
                q, s, z = words(codes), scales, words(zeros.transpose(1, 2)).transpose(1, 2)
            elif order == "awq":
                q, s, z = (words(codes.transpose(1, 2), AWQ_PLACES), scales.transpose(1, 2),
                           words(zeros.transpose(1, 2), AWQ_PLACES))
            else:
                q, s, z = (words(codes).transpose(1, 2), scales.transpose(1, 2),
                           words(zeros.transpose(1, 2) - int(order == "gptq")))
            made |= {f"{name}_q": q.contiguous(), f"{name}_scales": s.contiguous().to(DEVICE)}
            made |= {f"{name}_zeros": z.contiguous()} if has_zeros else {}
        return made

    def test_all_orders_give_the_same_tiles(self):
        want = int4_weights(**self.tensors("compressed_tensors"))
        self.assertEqual([list(tensor.shape) for tensor in want.tensors.values()],
                         [[E, 2, 4, 4608], [E, 2], [E, 2, 2, 4608], [E, 1]])
        for order in ("awq", "gptq", "gptq_v2"):
            got = int4_weights(**self.tensors(order))
            assert_same_bits(self, list(got.tensors.values()), list(want.tensors.values()))

    def test_results_are_near_bf16_weights(self):
        x, ids, probs = inputs(self.hidden)
        for has_zeros in (True, False):
            weights = int4_weights(**self.tensors("compressed_tensors", has_zeros))
            w1, w2 = (((codes - (zeros.repeat_interleave(128, -1) if has_zeros else 8))
                       * scales.float().repeat_interleave(128, -1)).bfloat16().to(DEVICE)
                      for codes, scales, zeros in self.matrices)
            with torch.no_grad():
                got = serving.run(x, ids, probs, weights, activation="swiglu").float()
                want = serving.run(x, ids, probs, w1, w2, activation="swiglu", recipe="bf16").float()
            # bf16 rounds each of w1, w2 and two results by up to 2^-9 of them: a few times that of the largest.
            self.assertLess((got - want).abs().max().item(), 2**-6 * want.abs().max().item())

    def test_errors(self):
        for change, sentence in ((("order", "marlin"), "order: got 'marlin', wanted one of"),
                                 (("w1_scales", lambda t: t.float() * (1 + 2**-20)), "w1 of expert 0: row 0, group 0: the scale is"),
                                 (("w2_q", lambda t: t[:, :, 1:]), "tensor w2_q: its rows have 120 elements, wanted a multiple of 128"),
                                 (("w2_zeros", lambda t: t.float()), "tensor w2_zeros: its dtype is float32, wanted int32")):
            given = self.tensors("compressed_tensors")
            given[change[0]] = change[1](given[change[0]]) if callable(change[1]) else change[1]
            self.assertIn(sentence, told(lambda: int4_weights(**given)))


if __name__ == "__main__":
    unittest.main()
