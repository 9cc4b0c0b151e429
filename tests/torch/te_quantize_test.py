# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.te.multi_tensor_quantize(): many matrices in one launch, beside torch's own casts."""
import unittest

import torch
from support import DEVICE, told
from te_case import lines_of_docs
from moejit.torch import te, te_quantize
from moejit.torch.te import Fp8Quantizer, multi_tensor_quantize

SIZES = ((48, 80), (128, 200), (0, 16))


def quantizers_of(scales, dtype=torch.float8_e4m3fn, amax=0.0):
    return [Fp8Quantizer(torch.tensor([scale], device=DEVICE), torch.tensor([amax], device=DEVICE), dtype)
            for scale in scales]


def tensors_of(dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).to(dtype).to(DEVICE) for size in SIZES]


class Quantize(unittest.TestCase):

    def assert_casts(self, outputs, tensors, quantizers):
        for output, tensor, quantizer in zip(outputs, tensors, quantizers, strict=True):
            want = (tensor.float() * quantizer.scale).to(quantizer.dtype).view(torch.uint8)
            self.assertEqual(output.data.dtype, quantizer.dtype)
            self.assertTrue(torch.equal(output.data.view(torch.uint8), want))
            self.assertTrue(torch.equal(output.transpose.view(torch.uint8), want.T))
            if tensor.numel():
                self.assertEqual(output.scale_inv, 1 / quantizer.scale)
                self.assertEqual(quantizer.amax, tensor.float().abs().max())

    def test_casts_transposes_and_magnitudes(self):
        for dtype in (torch.bfloat16, torch.float32):
            for format_of_casts in (torch.float8_e4m3fn, torch.float8_e5m2):
                tensors, quantizers = tensors_of(dtype), quantizers_of((4.0, 0.5, 1.0), format_of_casts)
                self.assert_casts(multi_tensor_quantize(tensors, quantizers), tensors, quantizers)

    def test_outputs_are_written_again(self):
        tensors, quantizers = tensors_of(), quantizers_of((4.0, 0.5, 1.0))
        first = multi_tensor_quantize(tensors, quantizers)
        places = [[part.data_ptr() for part in output] for output in first]
        kept = te_quantize._lists[next(reversed(te_quantize._lists))]
        for tensor in tensors:
            tensor.mul_(1.5)
        again = multi_tensor_quantize(tensors, quantizers, outputs=first)
        self.assertEqual([[part.data_ptr() for part in output] for output in again], places)
        self.assertIs(te_quantize._lists[next(reversed(te_quantize._lists))], kept)  # on the device already
        self.assert_casts(again, tensors, quantizers)

    def test_magnitudes_are_raised(self):
        quantizers = quantizers_of((1.0, 1.0, 1.0), amax=100.0)
        multi_tensor_quantize(tensors_of(), quantizers)
        self.assertEqual([float(quantizer.amax) for quantizer in quantizers], [100.0] * 3)

    def test_stacked_weights_without_magnitudes(self):
        weights = torch.nn.Parameter(torch.randn(3, 48, 80, device=DEVICE).bfloat16())
        quantizers = [Fp8Quantizer(torch.ones(1, device=DEVICE))] * 3
        for output, weight in zip(multi_tensor_quantize(weights, quantizers), weights):
            self.assertTrue(torch.equal(output.data.float(), weight.float().to(torch.float8_e4m3fn).float()))
        self.assertEqual(multi_tensor_quantize([], []), [])

    def test_the_lines_of_the_docs_cast(self):
        tensors, quantizers = tensors_of(), quantizers_of((4.0, 0.5, 1.0))
        names = lines_of_docs(2, {"weights": tensors, "scales": [each.scale for each in quantizers],
                                  "amaxes": [each.amax for each in quantizers]})
        self.assert_casts(names["casts"], tensors, quantizers)

    def test_a_graph_keeps_what_is_written(self):
        tensors, quantizers = tensors_of(), quantizers_of((4.0, 0.5, 1.0))
        outputs = multi_tensor_quantize(tensors, quantizers)

        def step(factor):
            scaled = [tensor * factor for tensor in tensors]
            te_quantize._cast(scaled, [quantizer.scale for quantizer in quantizers],
                              [output.data.view(torch.uint8) for output in outputs],
                              [output.transpose.view(torch.uint8) for output in outputs],
                              [output.scale_inv for output in outputs], [], [False] * 3, "f8_e4m3")
            return [output.data.float() for output in outputs]

        got = torch.compile(step, fullgraph=True, backend="aot_eager")(2.0)
        for each, tensor, quantizer in zip(got, tensors, quantizers):
            self.assertTrue(torch.equal(each, (tensor.float() * 2 * quantizer.scale).to(torch.float8_e4m3fn).float()))

    def test_errors_name_the_tensor(self):
        tensors, quantizers = tensors_of(), quantizers_of((1.0, 1.0, 1.0))
        outputs = multi_tensor_quantize(tensors, quantizers)
        narrow = [tensors[0][:, :16], *tensors[1:]]
        for words, call in (
                ("quantizers: got 2, wanted 3", lambda: multi_tensor_quantize(tensors, quantizers[:2])),
                ("outputs: got 1, wanted 3", lambda: multi_tensor_quantize(tensors, quantizers, outputs[:1])),
                ("tensor_list[0]: it has gaps", lambda: multi_tensor_quantize(narrow, quantizers)),
                ("tensor_list[1]: it is torch.float32", lambda: multi_tensor_quantize(
                    [tensors[0], tensors[1].float(), tensors[2]], quantizers)),
                ("wanted bfloat16 or float32 [rows, columns]", lambda: multi_tensor_quantize(
                    [tensors[0].half()], quantizers[:1])),
                ("quantizers[1].dtype: got torch.float8_e5m2", lambda: multi_tensor_quantize(
                    tensors[:2], [quantizers[0], quantizers[1]._replace(dtype=torch.float8_e5m2)])),
                ("quantizers[0].scale: it is torch.float32 [2]", lambda: multi_tensor_quantize(
                    tensors[:1], [quantizers[0]._replace(scale=torch.ones(2, device=DEVICE))])),
                ("outputs[0].data: it is torch.float8_e4m3fn [128, 200]", lambda: multi_tensor_quantize(
                    tensors[:2], quantizers[:2], outputs[1::-1]))):
            with self.subTest(words):
                self.assertIn(words, told(call) or "nothing")
        self.assertIs(te.multi_tensor_quantize, multi_tensor_quantize)


if __name__ == "__main__":
    unittest.main()
