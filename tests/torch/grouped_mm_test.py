# SPDX-License-Identifier: Apache-2.0
"""grouped_mm(), beside torch's own function and float32: groups of any size, rows of nobody, compiled, refusals."""
import unittest
from unittest import mock

import torch
from torch.nn import functional as F

from support import DEVICE, E, H, I, Recorder, assert_same_bits, relative_error
from moejit.torch import grouped_mm, ops

run = ops.run

SIZES = (0, 1, 15, 16, 17, 129, 0, 3)  # of E experts
USED, REST = sum(SIZES), 6  # rows behind the last group
# A result is rounded to bf16 once, which changes it by at most 2^-9 of it; references are not rounded. Twice that
# leaves room for sums in another order. In FP8 both operands have 3 bits behind the first one: a value changes by at
# most 2^-4 of it, evenly spread, so 2^-4 / sqrt(3) in the mean of squares. Two independent changes are sqrt(2) of it.
BOUNDS = {"bf16": 2 ** -8} | dict.fromkeys(("fp8", "fp8_rowwise", "mxfp8"), 2 ** -4 * (2 / 3) ** 0.5 + 2 ** -8)


class Inputs:
    """Rows [P, H], weights [E, n, H] and the gradient of the result, [P, n]."""

    def __init__(self, n=H, sizes=SIZES, rest=REST, fill=0.0):
        generator = torch.Generator().manual_seed(0)
        rows = sum(sizes) + rest
        self.a, self.w, self.dd = ((torch.randn(*shape, generator=generator) * scale).bfloat16().to(DEVICE)
                                   for shape, scale in (((rows, H), 1), ((E, n, H), H ** -0.5), ((rows, n), 1)))
        self.a[sum(sizes):], self.dd[sum(sizes):] = fill, fill
        self.offs = torch.tensor(sizes, device=DEVICE).cumsum(0, dtype=torch.int32)

    def results(self, function, is_contiguous=False, dtype=torch.bfloat16):
        """[result, gradients of rows and weights] of a function, given a view of the weights or a copy."""
        a, w = (tensor.to(dtype, copy=True).requires_grad_() for tensor in (self.a, self.w))
        b_t = w.transpose(-2, -1)
        d = function(a, b_t.contiguous() if is_contiguous else b_t, offs=self.offs)
        d.backward(self.dd.to(dtype))
        return [d.detach(), a.grad, w.grad]


def run_over_nan(plan, call, given):
    """Runs an operation whose outputs hold NaN before."""
    outputs = {name: torch.empty_like(made) for name, made in run(plan, call, given).items()}
    for output in outputs.values():
        output.view(torch.uint8).fill_(0xff)
    run(plan, call, {**given, **outputs})
    return outputs


def mx_values(x, dim):
    """What OCP MXFP8 leaves of bf16 values: 32 along `dim` have the least scale 2^E that brings them within E4M3."""
    x = x.movedim(dim, -1)
    blocks = F.pad(x, (0, -x.shape[-1] % 32)).unflatten(-1, (-1, 32)).double()
    mantissa, exponent = torch.frexp(blocks.abs().amax(-1, keepdim=True) / 448)
    scale = torch.where(mantissa > 0, 2.0 ** torch.where(mantissa > 0.5, exponent, exponent - 1), 1)
    values = (blocks / scale).to(torch.float8_e4m3fn).double() * scale
    return values.flatten(-2)[..., :x.shape[-1]].movedim(-1, dim).bfloat16().contiguous()


def float32(a, b_t, offs):
    starts = [0, *offs.tolist()]
    parts = [a[start:end] @ b_t[e] for e, (start, end) in enumerate(zip(starts, starts[1:]))]
    return torch.cat([*parts, a[starts[-1]:] @ torch.zeros_like(b_t[0])])


class GroupedMm(unittest.TestCase):

    def assert_near(self, got, want, limit):
        for index, (one, other) in enumerate(zip(got, want)):
            self.assertLessEqual(relative_error(one, other), limit, f"result {index}")

    def test_bf16_is_as_near_as_torch(self):
        inputs = Inputs(n=I, rest=0)  # behind the last group torch's rows hold anything
        want = inputs.results(float32, dtype=torch.float32)
        self.assert_near(inputs.results(F.grouped_mm), want, BOUNDS["bf16"])
        for is_contiguous in False, True:
            self.assert_near(inputs.results(grouped_mm, is_contiguous), want, BOUNDS["bf16"])

    def test_formats_are_near_float32(self):
        inputs = Inputs()
        want = inputs.results(float32, dtype=torch.float32)
        for format, limit in BOUNDS.items():
            for is_contiguous in False, True:
                with self.subTest(format, is_contiguous=is_contiguous):
                    got = inputs.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs, format=format), is_contiguous)
                    self.assert_near(got, want, limit)

    def test_mxfp8_has_the_bits_of_bf16_over_values_of_blocks(self):
        inputs = Inputs(n=I)
        ends = (0, *inputs.offs.tolist())

        def along_rows(x):  # blocks restart at each group
            return torch.cat([*(mx_values(x[start:end], 0) for start, end in zip(ends, ends[1:])), x[USED:]])

        def product(a, w, dd):
            a, w = a.requires_grad_(), w.requires_grad_()
            d = grouped_mm(a, w.transpose(-2, -1), inputs.offs)
            d.backward(dd)
            return d.detach(), a.grad, w.grad

        a, w, dd = inputs.a, inputs.w, inputs.dd
        want = (product(mx_values(a, 1), mx_values(w, 2), dd)[0],
                product(a.clone(), mx_values(w, 1), mx_values(dd, 1))[1],
                product(along_rows(a), w.clone(), along_rows(dd))[2])
        for is_contiguous in False, True:
            got = inputs.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs, format="mxfp8"), is_contiguous)
            assert_same_bits(self, got, want)

    def test_rows_of_nobody_may_be_anything_and_are_zero(self):
        clean, dirty = Inputs(), Inputs(fill=float("nan"))
        for format in BOUNDS:
            with self.subTest(format):
                want = clean.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs=offs, format=format))
                with mock.patch.object(ops, "run", run_over_nan):
                    got = dirty.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs=offs, format=format))
                assert_same_bits(self, got, want)
                for rows in got[:2]:
                    self.assertTrue((rows[USED:] == 0).all() and rows[:USED].any())

    def test_no_rows(self):
        inputs = Inputs(sizes=(0,) * E, rest=0)
        for format in BOUNDS:
            d, da, db = inputs.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs, format=format))
            self.assertEqual((d.shape, da.shape, db.count_nonzero()), ((0, H), (0, H), 0))

    def test_compiles_whole_for_any_number_of_rows(self):
        for format in BOUNDS:
            torch._dynamo.reset()
            compiled = torch.compile(lambda a, b_t, offs: grouped_mm(a, b_t, offs, format=format), fullgraph=True,
                                     dynamic=True, backend="aot_eager")
            for inputs in Inputs(), Inputs(rest=20):
                want = inputs.results(lambda a, b_t, offs: grouped_mm(a, b_t, offs, format=format))
                assert_same_bits(self, inputs.results(compiled), want)

    def test_what_is_frozen_gets_no_gradient_and_costs_no_call(self):
        inputs = Inputs()
        for format, calls in (("bf16", 1), ("fp8", 2), ("fp8_rowwise", 4), ("mxfp8", 3)):  # the GEMM, and casts of rows and weights
            a = inputs.a.clone().requires_grad_()
            d = grouped_mm(a, inputs.w.transpose(-2, -1), inputs.offs, format=format)
            with Recorder() as recorder:
                d.backward(inputs.dd)
            self.assertEqual(len(recorder.calls), calls, format)
            with torch.no_grad(), Recorder() as recorder:
                assert_same_bits(self, [grouped_mm(a, inputs.w.transpose(-2, -1), inputs.offs, format=format)], [d])
            self.assertEqual(len(recorder.calls), 1 if format == "bf16" else 3, format)

    def test_says_what_is_wrong(self):
        of = Inputs()
        b_t = of.w.transpose(-2, -1)
        for words, arguments, format in (
                (r"a and b_t: they are \[187, 64\] and \[8, 32, 64\], wanted \[P, k\] and \[E, k, n\]",
                 (of.a, of.w[:, :I], of.offs), "bf16"),
                ("wanted .P, k. and .E, k, n.", (of.a[None], b_t, of.offs), "bf16"),
                ("tensor a: its dtype is float32, wanted bfloat16", (of.a.float(), b_t, of.offs), "fp8"),
                ("tensor b_t: its dtype is float16", (of.a, b_t.half(), of.offs), "fp8_rowwise"),
                (r"offs: it is int64 \[8\], wanted int32 \[8\]: where", (of.a, b_t, of.offs.long()), "bf16"),
                (r"offs: it is int32 \[9\], wanted int32 \[8\]", (of.a, b_t, F.pad(of.offs, (1, 0))), "bf16"),
                ("format: it is 'mx', wanted one of bf16, fp8, fp8_rowwise, mxfp8", (of.a, b_t, of.offs), "mx"),
                (r"format 'mxfp8' of matrices \[48, 64\], wanted multiples of 32, the values that share a scale\n"
                 "hint: fill them up with zeros", (of.a[:, :48], b_t[:, :48], of.offs), "mxfp8"),
                (r"format 'mxfp8' of matrices \[64, 48\]", (of.a, b_t[..., :48], of.offs), "mxfp8")):
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                grouped_mm(*arguments, format=format)


if __name__ == "__main__":
    unittest.main()
