# SPDX-License-Identifier: Apache-2.0
"""The weights of a block's shared expert in one memory, behind the weights of the routed experts.

A dense MLP that is n times as wide as an expert is n slices of experts. If n is 1, its parameters become views of that
memory. Rows of more slices cannot be a view of a matrix: they are copied behind the experts in each call.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.hf_layers import first_weights

SHARED = "_moejit_shared"  # the attribute of modules of experts with a SharedExpert


class SharedExpert:
    """The dense MLP beside a module of experts, and what calls with both need.

    Attributes:
        name: Its name in the model.
        mlp: The model's own module; None: calls never need it.
        slices: n, the experts that it is worth.
        options: Of calls: fields of the description as JSON, max_tokens, cache_weights.
        reason: Why it stays the model's own, in words; empty: it runs with the experts.
        is_joined: Whether the weights lie in one memory.
    """

    def __init__(self, name: str, mlp: torch.nn.Module | None = None, slices: int = 0,
                 options: tuple[str, int | None, bool | None] = ("", None, None), reason: str = "") -> None:
        self.name, self.mlp, self.slices, self.options, self.reason = name, mlp, slices, options, reason
        self.release()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, or for pickle: the copies' parameters lie apart."""
        return {**self.__dict__, "is_joined": False, "_wholes": (), "_order": None}

    def release(self) -> None:
        """Lets go of the memory, in which the parameters do not lie any more."""
        self.is_joined, self._wholes, self._order = False, (), None

    def lies_behind(self, experts: torch.nn.Module) -> bool:
        """Returns whether the weights of a module of experts still lie at the front of this memory."""
        return self.is_joined and all(map(_starts_with, self._wholes, _routed(experts)))

    def join(self, experts: torch.nn.Module) -> None:
        """Moves the weights into one memory, unless they are in one. Parameters stay the same objects."""
        if self.lies_behind(experts):
            return
        self.release()
        wholes = []
        for routed, parts in zip(_routed(experts), _parts(self.mlp)):
            count = routed.shape[0]
            whole = routed.new_empty(count + self.slices, *routed.shape[1:], requires_grad=False)
            whole[:count].copy_(routed.detach())
            _fill(whole[count:], [part.detach() for part in parts])
            routed.data = whole[:count]
            if self.slices == 1:
                for part, place in zip(parts, _places(whole[count:], len(parts))):
                    part.data = place.view(part.shape)
            torch._dynamo.mark_static_address(whole, guard=False)  # as parameters: CUDA graphs copy other inputs
            wholes.append(whole)
        self._wholes, self.is_joined = tuple(wholes), True
        self._order = torch.zeros(1, dtype=torch.int32, device=wholes[0].device)

    def weights(self, experts: torch.nn.Module) -> tuple[torch.Tensor, ...]:
        """Returns w1 and w2 of both kinds of experts, differentiably."""
        of_both = []
        for whole, routed, parts in zip(self._wholes, _routed(experts), _parts(self.mlp)):
            detached = [part.detach() for part in parts]
            if torch.compiler.is_compiling():
                check_places(self._order, whole, routed.detach(), detached)
            else:  # an earlier call may have saved this memory, with the same values: its version has to stay
                _fill(whole.data[routed.shape[0]:], detached)
            of_both.append(_Whole.apply(whole, routed, *parts) if torch.is_grad_enabled() else whole)
        return tuple(of_both)


def _routed(experts: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    return first_weights(experts), experts.down_proj


def _starts_with(whole: torch.Tensor, routed: torch.Tensor) -> bool:
    return (routed.data_ptr() == whole.data_ptr() and routed.untyped_storage()._cdata == whole.untyped_storage()._cdata
            and routed.dtype == whole.dtype and routed.is_contiguous())


def linears_of(mlp: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns the products of a dense MLP in the order of an expert's weights."""
    return {name: mlp._modules[name] for name in ("gate_proj", "up_proj", "down_proj") if name in mlp._modules}


def _parts(mlp: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the matrices that w1 consists of, [n I, H], and the one of w2, [H, n I]."""
    *first, last = [linear.weight for linear in linears_of(mlp).values()]
    return first, [last]


def _places(tail: torch.Tensor, parts: int) -> Sequence[torch.Tensor]:
    """Returns the places of parts in the tail [n, 2I, H] or [n, H, I]: [n, I, H] each, or the tail itself."""
    return tail.chunk(parts, 1)


def _slices(part: torch.Tensor, tail: torch.Tensor, parts: int) -> torch.Tensor:
    """Returns a part as it lies in its place: its rows cut into n slices, or its columns."""
    count, rows = tail.shape[0], tail.shape[1] // parts
    if part.shape[0] == count * rows and part.shape[1] == tail.shape[2]:
        return part.reshape(count, rows, -1)
    return part.reshape(rows, count, -1).transpose(0, 1)


def _fill(tail: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Copies parts into the tail, except what lies there."""
    for part, place in zip(parts, _places(tail, len(parts))):
        if part.data_ptr() != place.data_ptr():
            place.copy_(_slices(part, tail, len(parts)))


class _Whole(torch.autograd.Function):
    """The memory as a function of the parameters that lie there, or were copied there."""

    @staticmethod
    def forward(ctx, whole, routed, *parts):
        ctx.experts, ctx.shapes = routed.shape[0], [part.shape for part in parts]
        return whole.view_as(whole)

    @staticmethod
    @first_order
    def backward(ctx, gradient):
        tail = gradient[ctx.experts:]
        is_of_rows = tail.shape[2] == ctx.shapes[0][1]  # else its columns are cut
        parts = [(place if is_of_rows else place.transpose(0, 1)).reshape(shape)
                 for place, shape in zip(_places(tail, len(ctx.shapes)), ctx.shapes)]
        return None, gradient[:ctx.experts], *parts


@torch.library.custom_op("moejit::check_places", mutates_args=("order",))
def check_places(order: torch.Tensor, whole: torch.Tensor, routed: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Raises an error unless parameters still lie where a graph was made for them; `order` keeps the call in the graph."""
    places = _places(whole[routed.shape[0]:], len(parts))
    if not _starts_with(whole, routed) or any(part.data_ptr() != place.data_ptr() for part, place in zip(parts, places)):
        raise RuntimeError("moejit: invalid_value: weights of a shared expert lie no longer behind the experts' weights, for "
                           "which a graph was made\nhint: call moejit.torch.convert(..., shared=True) again")


@check_places.register_fake
def _(order, whole, routed, parts):
    return None
