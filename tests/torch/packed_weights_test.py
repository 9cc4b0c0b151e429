# SPDX-License-Identifier: Apache-2.0
"""Packed MXFP4 weights: 4.25 bits a weight in memory, and the bits of FP8 weights of the same values."""
import importlib
import types
import unittest
import unittest.mock

import torch

from moejit.torch import FP8Weights, HostedExperts, experts, grouped_experts, mxfp4_weights, serving
from moejit.torch.flashinfer import cutlass_fused_moe
from moejit.torch.sglang import fused_experts
from support import DEVICE, assert_same_bits, told

E, K, I, H, TOKENS = 4, 2, 160, 288, 9  # widths that end within tiles
CLAMPED = {"preset": "clamped_swiglu", "limit": 7.0, "alpha": 1.702, "offset": 1.0}  # of gpt-oss
LAYER = {"experts": E, "top_k": K, "hidden": H, "intermediate": I, "recipe": "fp8_flow", "max_tokens": 16,
         "dispatch": "none"}


def random_blocks(generator, rows, columns):
    """Blocks and scales as gpt-oss has them."""
    blocks = torch.randint(0, 256, (E, rows, columns // 32, 16), generator=generator).to(torch.uint8)
    scales = torch.randint(108, 123, blocks.shape[:3], generator=generator).to(torch.uint8)
    return blocks.to(DEVICE), scales.to(DEVICE)


class Inputs:

    def __init__(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.blocks = (*random_blocks(generator, 2 * I, H), *random_blocks(generator, H, I))
        self.x = torch.randn(TOKENS, H, generator=generator).bfloat16().to(DEVICE)
        self.ids = torch.stack([torch.randperm(E, generator=generator)[:K] for _ in range(TOKENS)]).to(DEVICE)
        self.probs = torch.rand(TOKENS, K, generator=generator).to(DEVICE)
        self.b1, self.b2 = (torch.randn(E, width, generator=generator).bfloat16().to(DEVICE) for width in (2 * I, H))

    def both(self, **options):
        """Packed and FP8 weights."""
        return mxfp4_weights(*self.blocks, packed=True, **options), mxfp4_weights(*self.blocks, **options)


def sorted_rows(bias):
    return torch.cat((bias[:, ::2], bias[:, 1::2]), 1)


class Packed(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.inputs = Inputs()
        cls.packed, cls.codes = cls.inputs.both(gate_up_layout="interleaved")

    def assert_equal(self, run):
        """`run` gives the same bits for packed weights, also when it repeats a call."""
        with torch.no_grad():
            want, got, again = run(self.codes), run(self.packed), run(self.packed)
        assert_same_bits(self, [got, again], [want, want])
        self.assertGreater(want.float().abs().max().item(), 0.1)

    def test_a_weight_takes_a_little_over_4_bits(self):
        w = self.packed
        self.assertEqual([list(tensor.shape) for tensor in w.tensors.values()],
                         [[E, 4, 3, 8704], [E, 4, 3], [E, 3, 2, 8704], [E, 3, 2]])
        self.assertEqual(8 * w.w1_q.nbytes / (E * 4 * 3 * 128 * 128), 4.25)
        self.assertEqual((w.kind, w.recipe, w.hidden, w.intermediate, w.device.type),
                         ("tile", "fp8_flow", H, I, DEVICE.type))
        w.check_values()

    def test_functions_have_the_bits_of_fp8_weights(self):
        x, ids, probs = self.inputs.x, self.inputs.ids, self.inputs.probs
        self.assert_equal(lambda w: experts(x, ids, probs, w, layer=LAYER))
        self.assert_equal(lambda w: experts(x, ids, probs, w, layer={**LAYER, "recipe": "fp8_blockwise"}))
        hosted = HostedExperts({**LAYER, "activation": CLAMPED, "biases": True}, device=DEVICE)
        bias = sorted_rows(self.inputs.b1)
        self.assert_equal(lambda w: hosted(x, ids, probs, w, None, bias, self.inputs.b2))
        counts = torch.tensor([3, 0, 5, 1], device=DEVICE)
        grouped = {key: value for key, value in LAYER.items() if key != "top_k"}
        self.assert_equal(lambda w: grouped_experts(x, counts, w, layer=grouped))

    def test_serving_functions_have_the_bits_of_fp8_weights(self):
        x, ids, probs, b1, b2 = (getattr(self.inputs, name) for name in ("x", "ids", "probs", "b1", "b2"))
        bias = sorted_rows(b1)
        self.assert_equal(lambda w: serving.run(x, ids, probs, w, None, bias, b2, activation=CLAMPED))
        self.assert_equal(lambda w: cutlass_fused_moe(x, ids, probs, w, None, torch.bfloat16, None)[0])
        config = types.SimpleNamespace(activation="silu", gemm1_alpha=1.702, gemm1_clamp_limit=7.0,
                                       gate_up_interleaved=False)
        self.assert_equal(lambda w: fused_experts(x, w, None, (probs, ids), config, bias, b2))
        # The bias of packed weights may be as it was published.
        with torch.no_grad():
            want = serving.run(x, ids, probs, self.codes, None, bias, b2, activation=CLAMPED)
            config.gate_up_interleaved = True
            assert_same_bits(self, [serving.run(x, ids, probs, self.packed, None, b1, b2, activation=CLAMPED,
                                                layout="interleaved"),
                                    fused_experts(x, self.packed, None, (probs, ids), config, b1, b2)], [want, want])

    def test_what_is_written_to_the_tiles_counts(self):
        packed, x, ids, probs = self.inputs.both()[0], self.inputs.x, self.inputs.ids, self.inputs.probs
        hosted = HostedExperts(LAYER, device=DEVICE)
        with torch.no_grad():
            hosted(x, ids, probs, packed, None)
            for tensor, other in zip(packed.tensors.values(), self.packed.tensors.values()):
                tensor.copy_(other)
            assert_same_bits(self, [hosted(x, ids, probs, packed, None)], [experts(x, ids, probs, self.codes, layer=LAYER)])

    def test_many_rows_may_read_fp8_weights(self):
        x, ids, probs = self.inputs.x, self.inputs.ids, self.inputs.probs
        both = mxfp4_weights(*self.inputs.blocks, gate_up_layout="interleaved", packed=True, prefill="fp8")
        assert_same_bits(self, [*both.tensors.values(), *both.prefill.tensors.values()],
                         [*self.packed.tensors.values(), *self.codes.tensors.values()])
        hosted, read, of_call = HostedExperts(LAYER, device=DEVICE), [], FP8Weights.of_call

        def told_of_call(*arguments):
            read.append(of_call(*arguments).kind)
            return of_call(*arguments)
        module = importlib.import_module("moejit.torch.fp8_weights")  # the package has the function under its name
        with torch.no_grad(), unittest.mock.patch.object(module, "PREFILL_ROWS", 3), \
                unittest.mock.patch.object(FP8Weights, "of_call", told_of_call):
            want = hosted(x, ids, probs, self.codes, None)
            for tokens in (5, 6, 9, 5):  # 6 tokens have 3 rows an expert in the mean
                assert_same_bits(self, [hosted(x[:tokens], ids[:tokens], probs[:tokens], both, None)], [want[:tokens]])
        self.assertEqual(read, ["tile", "block", "block", "tile"])
        y = experts(x.clone().requires_grad_(), ids, probs, both, layer=LAYER)  # which only FP8 weights can do
        self.assertTrue(y.requires_grad)
        assert_same_bits(self, [y.detach()], [want])
        self.assertIn('gate_up_layout "interleaved", wanted "concat"',
                      told(lambda: experts(x, ids, probs, both, layer={**LAYER, "gate_up_layout": "interleaved"})))
        for options in ({"packed": True, "prefill": "bf16"}, {"prefill": "fp8"}):
            self.assertIn("moejit: unknown_value: mxfp4_weights(): prefill: got",
                          told(lambda: mxfp4_weights(*self.inputs.blocks, **options)))

    def test_a_compiled_call(self):
        x, ids, probs = self.inputs.x, self.inputs.ids, self.inputs.probs
        compiled = torch.compile(lambda w: experts(x, ids, probs, w, layer=LAYER), backend="aot_eager", fullgraph=True)
        self.assert_equal(lambda w: compiled(w))


class Errors(unittest.TestCase):

    def test_tiles_that_no_codes_express_are_told_as_of_fp8_weights(self):
        inputs = Inputs()
        inputs.blocks[1][:] = 114
        inputs.blocks[1][1, 290, 5], inputs.blocks[0][1, 290, 5] = 99, 0x11
        for options in ({}, {"gate_up_layout": "interleaved"}):
            want = told(lambda: mxfp4_weights(*inputs.blocks, **options))
            self.assertIn("w1 of expert 1: row", want)
            self.assertEqual(told(lambda: mxfp4_weights(*inputs.blocks, packed=True, **options)), want)
        inputs.blocks[1][1, 290, 5] = 100
        inputs.blocks[3][2, 3, 4] = 255
        self.assertIn("w2 of expert 2: row 3, group 4: a scale that is NaN",
                      told(lambda: mxfp4_weights(*inputs.blocks, packed=True)))

    def test_what_packed_weights_cannot_do(self):
        inputs = Inputs()
        packed, _ = inputs.both()
        x, ids, probs = inputs.x, inputs.ids, inputs.probs
        self.assertIn("moejit: unsupported: backward of packed MXFP4 weights, which only forward reads",
                      told(lambda: experts(x.clone().requires_grad_(), ids, probs, packed, layer=LAYER)))
        for others in (mxfp4_weights(*inputs.blocks), torch.zeros(E, 2 * I, H, dtype=torch.bfloat16, device=DEVICE)):
            second = None if isinstance(others, FP8Weights) else torch.zeros(E, H, I, dtype=torch.bfloat16, device=DEVICE)
            self.assertIn('weight_format "mxfp4": got weights that are not packed, wanted mxfp4_weights(..., packed=True)',
                          told(lambda: experts(x, ids, probs, others, second, layer={**LAYER, "weight_format": "mxfp4"})))
        with torch.no_grad():
            experts(x, ids, probs, packed, layer={**LAYER, "weight_format": "mxfp4"})
            self.assertIn("fp8_rowwise", told(lambda: serving.run(x, ids, probs, packed, activation="swiglu",
                                                                  recipe="fp8_rowwise")))
            wide = torch.zeros(TOKENS, H + 32, dtype=torch.bfloat16, device=DEVICE)  # the tiles would fit
            self.assertIn("packed weights of hidden 288 and intermediate 160, wanted 320 and 160",
                          told(lambda: serving.run(wide, ids, probs, packed, activation="swiglu")))


if __name__ == "__main__":
    unittest.main()
