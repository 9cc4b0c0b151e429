# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMMs by moejit and by PyTorch on the same FP8 data and scales.

PyTorch's are torch._scaled_mm for each expert, of cuBLASLt, and with scales of rows and columns
torch._scaled_grouped_mm, of CUTLASS, which multiplies sums by the scales of A first. (torch._scaled_mm multiplies by
those of B first.)
"""
import dataclasses
import itertools

import torch

import moejit.torch

# Rows of the experts, multiples of 128, one without rows. Where there are few, cuBLASLt seems to cut long contractions
# into parts, and to multiply the scales of a contraction of 128 first: last bits differ.
COUNTS = (512, 0, 256, 2048, 1024)
ROWS = sum(COUNTS)
BLOCK = 128


@dataclasses.dataclass(frozen=True)
class Case:
    """A GEMM whose result is bf16.

    Attributes:
        kind: "fprop" for D = A * B[e]^T, whose contraction is over k, or "wgrad" for D[e] = A * B^T, over the rows of an
            expert.
        scales: As the operation's field: "row_block", "tensor", "row_column"; of wgrad "row", "tensor", "row_column".
        is_fast: Whether tensor cores alone add up all products, without sums in float32 between.
        k: Of fprop the length of the contraction, of wgrad the columns of D.
        a_dtype: The format of A; B is e4m3.
        positive: Whether all data are positive, so that sums grow and rounding errors do not cancel.
        powers: Whether scales are powers of two.
    """
    kind: str
    scales: str
    is_fast: bool
    k: int
    a_dtype: torch.dtype
    positive: bool
    powers: bool

    def __str__(self):
        return (f"{self.kind} {self.scales}{' fast' if self.is_fast else ''} k {self.k} "
                f"{'e5m2' if self.a_dtype == torch.float8_e5m2 else 'e4m3'} x e4m3, "
                f"{'positive' if self.positive else 'signed'}, scales {'powers of two' if self.powers else 'of any kind'}")


def cases(kind, scales, is_fast, dtypes, lengths):
    """Returns the cases over lengths, formats, signs and scales."""
    return [Case(kind, scales, is_fast, k, dtype, positive, powers)
            for k, dtype, positive, powers in itertools.product(lengths, dtypes, (False, True), (False, True))]


class Random:
    """A source of data and scales."""

    def __init__(self, case, device):
        self.case, self.device = case, device
        self.generator = torch.Generator(device).manual_seed(7)

    def data(self, *shape, dtype):
        values = torch.randn(*shape, device=self.device, generator=self.generator)
        return (values.abs() if self.case.positive else values).mul(8).to(dtype)

    def scales(self, *shape):
        values = torch.rand(*shape, device=self.device, generator=self.generator) * 0.02 + 0.001
        return torch.exp2(values.log2().floor()) if self.case.powers else values


def spans():
    """Yields the number, the first row and the end of each expert."""
    begin = 0
    for expert, count in enumerate(COUNTS):
        yield expert, begin, begin + count
        begin += count


def by_expert(is_other):
    """Returns how many elements of each expert's result are marked, of fprop's [P, n] or of wgrad's [E, rows, n]."""
    if is_other.dim() == 3:
        return is_other.sum(dim=(1, 2)).tolist()
    return [int(is_other[begin:end].sum()) for _, begin, end in spans()]


def splits(device):
    """Returns the tensors `counts` and `offs` of an operation."""
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    offs = torch.zeros(len(COUNTS) + 1, dtype=torch.int32, device=device)
    offs[1:] = counts.cumsum(0)
    return {"counts": counts, "offs": offs}


def format_name(dtype):
    return "f8_e5m2" if dtype == torch.float8_e5m2 else "f8_e4m3"


def scaled_mm(a, b, scale_a, scale_b, is_fast):
    """Returns A * B^T of one expert."""
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16,
                            use_fast_accum=is_fast)


def scaled_grouped_mm(a, b, scale_a, scale_b, ends, is_fast):
    """Returns the products of all experts, whose rows, or columns of a contraction, end at `ends`."""
    return torch._scaled_grouped_mm(a, b.transpose(-2, -1), scale_a.flatten(),
                                    scale_b if b.dim() == 3 else scale_b.flatten(), offs=ends[1:],
                                    out_dtype=torch.bfloat16, use_fast_accum=is_fast)


def by_columns(scales):
    """Returns scales [rows, blocks] with the strides (1, rows), which cuBLASLt wants of 1x128 blocks."""
    return scales.t().contiguous().t()


def fprop(case, device, n=512):
    """Returns the results of moejit and of PyTorch, [P, n]."""
    random = Random(case, device)
    a = random.data(ROWS, case.k, dtype=case.a_dtype)
    b = random.data(len(COUNTS), n, case.k, dtype=torch.float8_e4m3fn)
    blocks = -(-case.k // BLOCK)
    shapes = {"row_block": ((ROWS, blocks), (len(COUNTS), n // BLOCK, blocks)),
              "tensor": ((len(COUNTS),), (len(COUNTS),)), "row_column": ((ROWS,), (len(COUNTS), n))}[case.scales]
    sa, sb = random.scales(*shapes[0]), random.scales(*shapes[1])
    fields = {"operation": "grouped_gemm", "local_experts": len(COUNTS), "max_permuted_rows": ROWS, "n": n, "k": case.k,
              "scales": case.scales, "accumulation": "fast" if case.is_fast else "fp32"}
    if case.a_dtype == torch.float8_e5m2:
        fields["a_dtype"] = format_name(case.a_dtype)
    groups = splits(device)
    own = moejit.torch.operation(fields, a=a, b=b, a_scale_inv=sa, b_scale_inv=sb, **groups)["d"]
    if case.scales == "row_column":
        return own, scaled_grouped_mm(a, b, sa, sb, groups["offs"], case.is_fast)
    peer = torch.empty_like(own)
    for expert, begin, end in spans():
        if begin == end:
            continue
        given = {"row_block": lambda: (by_columns(sa[begin:end]), sb[expert].contiguous().t()),
                 "tensor": lambda: (sa[expert].clone(), sb[expert].clone())}[case.scales]()
        peer[begin:end] = scaled_mm(a[begin:end].contiguous(), b[expert], *given, case.is_fast)
    return own, peer


def in_blocks(rows):
    """Returns columns [rows, C] as an operand of the operation, [C/128, rows, 128]."""
    return rows.view(rows.shape[0], -1, BLOCK).transpose(0, 1).contiguous()


def wgrad(case, device, rows=384):
    """Returns the results of moejit and of PyTorch, [E, rows, k]."""
    random = Random(case, device)
    a = random.data(rows, ROWS, dtype=case.a_dtype)
    b = random.data(case.k, ROWS, dtype=torch.float8_e4m3fn)
    shapes = {"row": ((ROWS // BLOCK, rows), (ROWS // BLOCK, case.k)), "tensor": ((len(COUNTS),), (len(COUNTS),)),
              "row_column": ((len(COUNTS), rows), (len(COUNTS), case.k))}[case.scales]
    sa, sb = random.scales(*shapes[0]), random.scales(*shapes[1])
    fields = {"operation": "contraction_grouped_gemm", "local_experts": len(COUNTS), "max_columns": ROWS, "rows": rows,
              "n": case.k, "scales": case.scales, "output": "bf16"}
    if case.scales != "row":
        fields["accumulation"] = "fast" if case.is_fast else "fp32"
    if case.a_dtype == torch.float8_e5m2:
        fields["a_dtype"] = format_name(case.a_dtype)
    groups = splits(device)
    own = moejit.torch.operation(fields, a=in_blocks(a), b=in_blocks(b), a_scale_inv=sa, b_scale_inv=sb, **groups)["d"]
    if case.scales == "row_column":
        return own, scaled_grouped_mm(a, b, sa, sb, groups["offs"], case.is_fast)
    peer = torch.zeros_like(own)
    for expert, begin, end in spans():
        if begin == end:
            continue
        blocks = slice(begin // BLOCK, end // BLOCK)
        given = {"row": lambda: (sa[blocks].t(), sb[blocks].contiguous()),
                 "tensor": lambda: (sa[expert].clone(), sb[expert].clone())}[case.scales]()
        peer[expert] = scaled_mm(a[:, begin:end].contiguous(), b[:, begin:end].contiguous(), *given, case.is_fast)
    return own, peer
