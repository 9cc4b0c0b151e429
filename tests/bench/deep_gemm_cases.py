# SPDX-License-Identifier: Apache-2.0
"""Cases of deep_gemm_bench.py: grouped GEMMs that moejit and DeepGEMM both compute, their operands, and the calls."""
import dataclasses
import json
import math

import torch

import moejit

# Of docs/examples/gemms/hopper.json those that DeepGEMM has, too: bf16 results, a scale for each 1x128 values of rows
# and for each 128x128 tile of weights.
NAMES = ("dsv3_fc1", "dsv3_fc2", "dsv3_fc1_1024", "dsv3_fc2_1024", "dsv3_fc1_ragged", "dsv3_fc2_ragged",
         "dsv3_dgrad_fc1", "dsv3_dgrad_fc2", "qwen30b_fc1", "qwen30b_fc2", "qwen30b_fc1_ragged", "qwen30b_fc2_ragged",
         "qwen235b_fc1", "qwen235b_fc2", "mixtral_fc1", "mixtral_fc2")
DEEP_GEMM_ALIGNMENT = 128  # of its contiguous layout

_ALL_BITS = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_RAGGED_SHARE, _RAGGED_SEED = 0.3, 1
_ROWS_AT_ONCE = 8192


def _mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _ALL_BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _ALL_BITS
    return value ^ value >> 31


def _uniform(seed, index):
    """Returns what RandomStream(seed, 0).uniform(index) of runtime/reference/random_inputs.h does."""
    key = _mix((_mix((seed + _GOLDEN_GAMMA) & _ALL_BITS) + _GOLDEN_GAMMA) & _ALL_BITS)
    return (_mix((key + _GOLDEN_GAMMA * (index + 1)) & _ALL_BITS) >> 11) * 2.0 ** -53


@dataclasses.dataclass(frozen=True)
class Case:
    """A grouped GEMM of a list of `moejit bench --gemms`; docs/cli.md describes the fields."""
    name: str
    groups: int
    rows_per_group: int
    n: int
    k: int
    sections: int = 1
    ragged: bool = False
    splits_alignment: int = 128

    def __post_init__(self):
        # Then tiles of scales are the same for both, and none is cut.
        if self.n % (128 * self.sections) or self.k % 128:
            raise ValueError(f"{self.name}: wanted a k and an n of each section that are multiples of 128")

    def counts(self):
        """Returns the real rows of each group, the same as `moejit bench --gemms` has."""
        share = _RAGGED_SHARE if self.ragged else 0.0
        return [math.floor(self.rows_per_group * (1 + share * (2 * _uniform(_RAGGED_SEED, group) - 1)) + 0.5)
                for group in range(self.groups)]

    def starts(self, alignment):
        """Returns the first row of each group, and the number of all rows."""
        starts = [0]
        for count in self.counts():
            starts.append(starts[-1] + -(-count // alignment) * alignment)
        return starts

    @property
    def flops(self):
        """FLOPs of the real rows."""
        return 2.0 * sum(self.counts()) * self.n * self.k

    def operation(self, target, tuning):
        """Returns moejit's operation for the case, not prepared."""
        return moejit.Operation({"operation": "grouped_gemm", "local_experts": self.groups, "n": self.n, "k": self.k,
                                 "max_permuted_rows": self.starts(self.splits_alignment)[-1],
                                 "sections": self.sections}, target, tuning=tuning)


def read_cases(path, names):
    """Returns the cases of a list with these names, in the list's order."""
    with open(path, encoding="utf-8") as file:
        listed = {gemm["name"]: gemm for gemm in json.load(file)["gemms"]}
    cases = []
    for name, gemm in listed.items():
        if name in names:
            fields = {key: value for key, value in gemm.items() if key != "operation"}
            if gemm["operation"] != "grouped_gemm" or set(fields) - {field.name for field in dataclasses.fields(Case)}:
                raise ValueError(f"{name}: DeepGEMM has nothing like it")
            cases.append(Case(**fields))
    if missing := set(names) - set(listed):
        raise ValueError(f"{path} lacks {', '.join(sorted(missing))}")
    return cases


def _scale_of(largest):
    """Returns the least powers of two by which values are divided so that none is beyond E4M3's 448."""
    bits = (largest.clamp(min=1e-4) / 448.0).view(torch.int32)
    return ((bits >> 23) + ((bits & 0x7FFFFF) != 0).int() << 23).view(torch.float32)


def _quantize(values, scaled_rows):
    """Returns E4M3 codes of float32 [rows, columns], and a scale for each `scaled_rows` x 128 of them."""
    rows, columns = values.shape
    tiles = values.view(rows // scaled_rows, scaled_rows, columns // 128, 128)
    scales = _scale_of(tiles.abs().amax(dim=(1, 3)))
    codes = (tiles / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.view(rows, columns), scales


class Data:
    """Operands of a case on a device: the same values for both, each in its own layout.

    Rows are normal numbers. Pad rows are zeros.
    """

    def __init__(self, case, device, is_random=True):
        """If not `is_random`, values stay undefined: enough to compile kernels."""
        self.case, self.device = case, device
        self.starts = case.starts(DEEP_GEMM_ALIGNMENT)
        rows, blocks = self.starts[-1], case.k // 128
        self.a = torch.empty(rows, case.k, dtype=torch.float8_e4m3fn, device=device)
        self.a_scales = torch.ones(rows, blocks, device=device)
        self.b = torch.empty(case.groups, case.n, case.k, dtype=torch.float8_e4m3fn, device=device)
        self.b_scales = torch.ones(case.groups, case.n // 128, blocks, device=device)
        group_of_row = torch.full((rows,), -1, dtype=torch.int32)
        for group, (start, count) in enumerate(zip(self.starts, case.counts())):
            group_of_row[start:start + count] = group
        self.group_of_row = group_of_row.to(device)
        self._results = None
        if is_random:
            self._fill()

    def _fill(self):
        generator = torch.Generator(self.device).manual_seed(1)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, device=self.device)

        for first in range(0, len(self.a), _ROWS_AT_ONCE):
            part = slice(first, min(first + _ROWS_AT_ONCE, len(self.a)))
            self.a[part], self.a_scales[part] = _quantize(normal(*self.a[part].shape), 1)
        pad = self.group_of_row < 0
        self.a.view(torch.uint8).masked_fill_(pad[:, None], 0)
        for group in range(self.case.groups):
            self.b[group], self.b_scales[group] = _quantize(normal(*self.b[group].shape), 128)

    def tensors(self):
        """Returns the operands of moejit's operation, with a result of NaN."""
        starts = self.case.starts(self.case.splits_alignment)
        a, scales = self.a, self.a_scales
        if starts != self.starts:
            a = torch.zeros(starts[-1], self.case.k, dtype=torch.uint8, device=self.device)
            scales = torch.ones(starts[-1], self.case.k // 128, device=self.device)
            for count, start, wide in zip(self.case.counts(), starts, self.starts):
                a[start:start + count] = self.a.view(torch.uint8)[wide:wide + count]
                scales[start:start + count] = self.a_scales[wide:wide + count]
            a = a.view(torch.float8_e4m3fn)
        return {"a": a, "b": self.b, "a_scale_inv": scales, "b_scale_inv": self.b_scales,
                "counts": torch.tensor(self.case.counts(), dtype=torch.int32, device=self.device),
                "offs": torch.tensor(starts, dtype=torch.int32, device=self.device), "d": self.result(starts[-1])}

    def result(self, rows):
        """Returns the first rows of the one result that all calls write."""
        if self._results is None:
            most = max(self.starts[-1], self.case.starts(self.case.splits_alignment)[-1])
            self._results = torch.full((most, self.case.n), torch.nan, dtype=torch.bfloat16, device=self.device)
        return self._results[:rows]

    def call_of_deep_gemm(self, deep_gemm):
        """Returns a call of DeepGEMM, and the tensor that it writes. The scales of rows are in the layout it wants."""
        scales = self.a_scales.t().contiguous().t()
        result = self.result(self.starts[-1])
        a, b = (self.a, scales), (self.b, self.b_scales)
        return lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, result, self.group_of_row), result

    def relative_error(self, got, wanted):
        """Returns the relative Frobenius norm of the difference in real rows: of moejit's result, and DeepGEMM's."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        starts = self.case.starts(self.case.splits_alignment)
        for count, start, wide in zip(self.case.counts(), starts, self.starts):
            one, other = got[start:start + count].float(), wanted[wide:wide + count].float()
            sums += torch.stack([(one - other).square().sum(), other.square().sum()]).double()
        return math.sqrt(sums[0].item() / sums[1].item())
