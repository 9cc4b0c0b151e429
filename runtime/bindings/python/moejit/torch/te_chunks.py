# SPDX-License-Identifier: Apache-2.0
"""Transformer Engine's functions that put chunks of rows into another order, and its modules that pad rows."""
from __future__ import annotations

import torch

from moejit.torch.devices import on_device_of
from moejit.torch.first_order import first_order
from moejit.torch.operations import apply
from moejit.torch.te_permute import move
from moejit.torch.te_routing import Rows


def moe_sort_chunks_by_index(inp: torch.Tensor, split_sizes: torch.Tensor, sorted_index: torch.Tensor) -> torch.Tensor:
    """Puts chunks of rows into another order. The input has a gradient.

    Args:
        inp: [T, H] of any dtype with rows of a multiple of 32 bytes.
        split_sizes: The rows of each chunk, in the order of `inp`. Rows behind the last chunk stay where they are.
        sorted_index: Numbers of chunks in the wanted order.
    """
    return _sort(inp, None, split_sizes, sorted_index)[0]


def moe_sort_chunks_by_index_with_probs(inp: torch.Tensor, probs: torch.Tensor, split_sizes: torch.Tensor,
                                        sorted_index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Does what moe_sort_chunks_by_index() does, also with the probabilities [T] of the rows."""
    return _sort(inp, probs, split_sizes, sorted_index)


def _sort(inp: torch.Tensor, probs: torch.Tensor | None, split_sizes: torch.Tensor,
          sorted_index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    places = _places(on_device_of(inp, split_sizes).long(), on_device_of(inp, sorted_index).long(), inp.shape[0])
    return apply(_Sort, inp, probs, places)


def _places(sizes: torch.Tensor, order: torch.Tensor, rows: int) -> torch.Tensor:
    """Returns where each row goes, int64 [rows]."""
    row = torch.arange(rows, device=sizes.device)
    if sizes.shape[0] == 0:
        return row
    ends, sorted_sizes = sizes.cumsum(0), sizes[order]
    starts = torch.empty_like(sizes).scatter(0, order, sorted_sizes.cumsum(0) - sorted_sizes)
    chunk = torch.searchsorted(ends, row, right=True).clamp(max=sizes.shape[0] - 1)
    return torch.where(row < ends[-1], row + (starts - ends + sizes)[chunk], row)


def _inverse(places: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(places).scatter(0, places, torch.arange(places.shape[0], device=places.device))


class _Sort(torch.autograd.Function):

    @staticmethod
    def forward(ctx, inp, probs, places):
        ctx.save_for_backward(places)
        ctx.set_materialize_grads(False)
        if probs is None:
            return _moved(inp, places), None
        made = _moved(inp, places), probs.gather(0, _inverse(places))
        frozen = zip(made, ctx.needs_input_grad)
        ctx.mark_non_differentiable(*[tensor for tensor, needs_gradient in frozen if not needs_gradient])
        return made

    @staticmethod
    @first_order
    def backward(ctx, drows, drow_probs):
        places, = ctx.saved_tensors
        dinp = dprobs = None
        if ctx.needs_input_grad[0] and drows is not None:
            dinp = _moved(drows, _inverse(places))
        if ctx.needs_input_grad[1] and drow_probs is not None:
            dprobs = drow_probs.gather(0, places)
        return dinp, dprobs, None


def _moved(inp: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(inp, memory_format=torch.contiguous_format)
    move(inp, Rows(places.int()[:, None], None), output)
    return output


class _Padding(torch.nn.Module):
    """Takes what Transformer Engine's modules take. Experts of moejit need no pad rows, so there are none."""

    def __init__(self, num_gemms: int, align_size: int | None = None) -> None:
        super().__init__()
        self.num_gemms, self.align_size = num_gemms, align_size

    def _check(self, m_splits: list[int]) -> None:
        if len(m_splits) != self.num_gemms:
            raise RuntimeError(f"moejit: invalid_value: {type(self).__name__}: got {len(m_splits)} m_splits, wanted "
                               f"{self.num_gemms}, which is num_gemms")


class Fp8Padding(_Padding):
    """Returns rows and their numbers as they are."""

    def forward(self, inp: torch.Tensor, m_splits: list[int]) -> tuple[torch.Tensor, list[int]]:
        self._check(m_splits)
        return inp, m_splits


class Fp8Unpadding(_Padding):
    """Returns rows as they are."""

    def forward(self, inp: torch.Tensor, m_splits: list[int]) -> torch.Tensor:
        self._check(m_splits)
        return inp
