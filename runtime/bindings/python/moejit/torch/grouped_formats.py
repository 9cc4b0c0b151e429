# SPDX-License-Identifier: Apache-2.0
"""Number formats of grouped GEMMs: how each makes operands, and which GEMMs take them.

An operand is (values, None), or (codes, scales). What forward keeps for backward is such a pair, too.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from moejit.torch.operations import bound, constant, run

Operand = tuple[torch.Tensor | None, torch.Tensor | None]


class Groups(NamedTuple):
    """The rows of each expert. `colwise_offs` None: it follows from `counts`."""
    counts: torch.Tensor  # int32 [E]
    offs: torch.Tensor  # int32 [E + 1]
    colwise_offs: torch.Tensor | None
    splits_alignment: int  # starts of groups are multiples of it
    zeros_rest: bool  # whether rows of results behind the last group become zeros

    def fields(self, rows: torch.Tensor) -> dict[str, int]:
        """Returns the fields of operations on these rows."""
        return {"local_experts": constant(self.counts.shape[0]), "max_permuted_rows": bound(rows.shape[0], None)}

    def columns(self) -> torch.Tensor:
        """Returns where groups of columns start, multiples of 128."""
        if self.colwise_offs is not None:
            return self.colwise_offs
        return starts_of(((self.counts + 127) // 128 * 128).cumsum(0, dtype=torch.int32))


def starts_of(ends: torch.Tensor) -> torch.Tensor:
    """Returns where groups start, with the end of the last one, given where each ends."""
    return torch.cat((ends.new_zeros(1), ends))


class Bf16:
    """Nothing is cast."""
    gemm: dict[str, Any] = {"scales": "none"}
    wgrad: dict[str, Any] = {"scales": "none"}

    @staticmethod
    def keep(x: torch.Tensor) -> Operand:
        """Returns what rows() and columns() take of rows."""
        return x, None

    @staticmethod
    def rows(kept: Operand) -> Operand:
        """Returns rows as operand of forward or dgrad."""
        return kept

    @staticmethod
    def weights(b: torch.Tensor, b_major: str, has_dgrad: bool) -> tuple[Operand, Operand]:
        """Returns weights as operand of forward, and what weights_of_dgrad() takes later."""
        return (b, None), (b, None)

    @staticmethod
    def weights_of_dgrad(kept: Operand, b_major: str) -> Operand:
        """Returns weights as operand of dgrad."""
        return kept

    @staticmethod
    def columns(kept: Operand, groups: Groups) -> Operand:
        """Returns rows as operand of wgrad, whose contraction runs along them."""
        return kept


class Fp8Rowwise(Bf16):
    """Each row or column of an operand has one scale over its contraction. All casts are from bf16."""
    gemm = {"scales": "row_column", "accumulation": "fast"}
    wgrad = {"scales": "row_column", "accumulation": "fast"}

    @staticmethod
    def rows(kept):
        return _quantize(kept[0], "fp8_rowwise")

    @staticmethod
    def weights(b, b_major, has_dgrad):
        return (_weight_rows(b) if b_major == "k" else _weight_columns(b)), (b, None)

    @staticmethod
    def weights_of_dgrad(kept, b_major):
        return _weight_columns(kept[0]) if b_major == "k" else _weight_rows(kept[0])

    @staticmethod
    def columns(kept, groups):
        x = kept[0]
        fields = {**groups.fields(x), "columns": constant(x.shape[1])}
        tensors = {"input": x, "counts": groups.counts, "offs": groups.offs}
        scales = run({"operation": "scale_columns", **fields}, tensors)["output_scale_inv"]
        made = run({"operation": "quantize_columns", **fields, "recipe": "fp8_rowwise"},
                   {**tensors, "output_offs": groups.columns(), "input_scale_inv": scales})
        return made["output"], scales


class Mxfp8(Bf16):
    """32 values along the contraction have one E8M0 scale. All casts are from bf16, and GEMMs multiply their values."""

    @staticmethod
    def rows(kept):
        x = kept[0]
        return run({**_rows(x), "recipe": "mxfp8", "result": "values"}, {"input": x})["output"], None

    @staticmethod
    def weights(b, b_major, has_dgrad):
        return _weight_values(b, along_rows=b_major == "k"), (b, None)

    @staticmethod
    def weights_of_dgrad(kept, b_major):
        return _weight_values(kept[0], along_rows=b_major == "mn")

    @staticmethod
    def columns(kept, groups):
        x = kept[0]
        return run({"operation": "quantize_columns", **groups.fields(x), "columns": constant(x.shape[1]),
                    "recipe": "mxfp8", "result": "values"},
                   {"input": x, "counts": groups.counts, "offs": groups.offs})["output_colwise"], None


class Fp8(Bf16):
    """Rows have a scale for each 128 values, weights for each 128x128. wgrad transposes the codes of rows."""
    gemm = {"scales": "row_block"}
    wgrad = {"scales": "tile"}

    @staticmethod
    def keep(x):
        return _quantize(x, "fp8_flow")

    @staticmethod
    def weights(b, b_major, has_dgrad):
        made = run({"operation": "quantize_weights", **_matrices(b), "colwise": has_dgrad or b_major == "mn"},
                   {"input": b})
        by_rows = made["output"], made["output_scale_inv"]
        by_columns = made.get("output_colwise"), made.get("output_colwise_scale_inv")
        return (by_rows, by_columns) if b_major == "k" else (by_columns, by_rows)

    @staticmethod
    def columns(kept, groups):
        codes, scales = kept
        made = run({"operation": "transpose", **groups.fields(codes), "columns": constant(codes.shape[1])},
                   {"input": codes, "input_scale_inv": scales, "counts": groups.counts, "offs": groups.offs,
                    "output_offs": groups.columns()})
        return made["output"], made["output_scale_inv"]


FORMATS = {"bf16": Bf16, "fp8": Fp8, "fp8_rowwise": Fp8Rowwise, "mxfp8": Mxfp8}


def multiply(kind: type[Bf16], a: Operand, b: Operand, groups: Groups, n: int, b_major: str) -> torch.Tensor:
    """Returns each group's rows times its matrix, bf16 [P, n]."""
    fields = {"operation": "grouped_gemm", **groups.fields(a[0]), "n": constant(n), "k": constant(a[0].shape[1]),
              **kind.gemm, "zeros_rest": groups.zeros_rest}
    if kind.gemm is Bf16.gemm:
        fields["b_major"] = b_major
    return run(fields, {**_operands(a, b), "counts": groups.counts, "offs": groups.offs})["d"]


def multiply_columns(kind: type[Bf16], a: Operand, b: Operand, groups: Groups) -> torch.Tensor:
    """Returns the products of each group's operands of wgrad along its rows, bf16 [E, columns of a, columns of b]."""
    is_bf16 = kind.wgrad is Bf16.wgrad
    fields = {"operation": "contraction_grouped_gemm", "local_experts": constant(groups.counts.shape[0]),
              "max_columns": bound((1 if is_bf16 else 128) * a[0].shape[0], None), "rows": constant(a[0].shape[1]),
              "n": constant(b[0].shape[1]), **kind.wgrad, "output": "bf16"}
    offs = groups.columns()
    if is_bf16:
        fields["splits_alignment"], offs = groups.splits_alignment, groups.offs
    return run(fields, {**_operands(a, b), "counts": groups.counts, "offs": offs})["d"]


def _operands(a: Operand, b: Operand) -> dict[str, torch.Tensor]:
    tensors = {"a": a[0], "b": b[0], "a_scale_inv": a[1], "b_scale_inv": b[1]}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _quantize(rows: torch.Tensor, recipe: str) -> Operand:
    made = run({**_rows(rows), "recipe": recipe}, {"input": rows})
    return made["output"], made["output_scale_inv"]


def _rows(rows: torch.Tensor) -> dict[str, Any]:
    return {"operation": "quantize", "max_tokens": bound(rows.shape[0], None), "columns": constant(rows.shape[1])}


def _weight_values(b: torch.Tensor, along_rows: bool) -> Operand:
    """Returns matrices cast with scales for 32 columns of a row, or for 32 rows of a column."""
    made = run({"operation": "quantize_weights", **_matrices(b), "recipe": "mxfp8", "result": "values",
                "colwise": not along_rows, "rowwise": along_rows}, {"input": b})
    return made["output" if along_rows else "output_colwise"], None


def _matrices(b: torch.Tensor) -> dict[str, int]:
    experts, rows, columns = (constant(size) for size in b.shape)
    return {"local_experts": experts, "rows": rows, "columns": columns}


def _weight_rows(b: torch.Tensor) -> Operand:
    made = run({"operation": "quantize_weights", **_matrices(b), "recipe": "fp8_rowwise"}, {"input": b})
    return made["output"], made["output_scale_inv"]


def _weight_columns(b: torch.Tensor) -> Operand:
    scales = run({"operation": "scale_weight_columns", **_matrices(b)}, {"input": b})["output_scale_inv"]
    made = run({"operation": "quantize_weight_columns", **_matrices(b)}, {"input": b, "input_scale_inv": scales})
    return made["output"], scales
