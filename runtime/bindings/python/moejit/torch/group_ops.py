# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.moejit.group_*: their layers, and the shapes of their results."""
from __future__ import annotations

import weakref
from ctypes import c_char_p, c_int32, c_int64, c_void_p

import torch

from moejit.torch.layers import FORWARD_STATE, GRADIENT_STATE, plan_of
from moejit.torch.ops import check, library, output, with_state


def _forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, order, layer):
    planned = plan_of(layer)
    tokens = x.shape[0]
    check(planned, tokens, "forward", x=x, topk_ids=topk_ids, topk_probs=topk_probs, w1=w1, w2=w2, b1=b1, b2=b2,
          quantized=quantized, order=order)
    return output(planned, "y", tokens, x), x.new_empty(planned.saved_bytes, dtype=torch.uint8)


def _backward(dy, saved, x, topk_ids, w1, w2, b1, b2, quantized, quantized_colwise, order, layer):
    planned = plan_of(layer)
    tokens = dy.shape[0]
    check(planned, tokens, "backward", dy=dy, saved=saved, x=x, topk_ids=topk_ids, w1=w1, w2=w2, quantized=quantized,
          quantized_colwise=quantized_colwise, order=order)
    return tuple(output(planned, name, tokens, dy) for name in ("dx", "dprobs", "dw1", "dw2", "db1", "db2"))


def _backward_add(dy, saved, x, topk_ids, w1, w2, b1, b2, quantized, quantized_colwise, order, main_dw1, main_dw2,
                  main_db1, main_db2, overwrite, layer):
    planned = plan_of(layer)
    tokens = dy.shape[0]
    check(planned, tokens, "backward", dy=dy, saved=saved, x=x, topk_ids=topk_ids, w1=w1, w2=w2, quantized=quantized,
          quantized_colwise=quantized_colwise, order=order, dw1=main_dw1, dw2=main_dw2)
    return output(planned, "dx", tokens, dy), output(planned, "dprobs", tokens, dy)


for _name, _fake in (("group_forward", _forward), ("group_backward", _backward),
                     ("group_backward_add", _backward_add),
                     ("group_forward.with_state", with_state(_forward, FORWARD_STATE)),
                     ("group_backward.with_state", with_state(_backward, GRADIENT_STATE)),
                     ("group_backward_add.with_state", with_state(_backward_add, GRADIENT_STATE))):
    torch.library.register_fake(f"moejit::{_name}", _fake)

group_forward = torch.ops.moejit.group_forward.default
group_backward = torch.ops.moejit.group_backward.default
group_backward_add = torch.ops.moejit.group_backward_add.default
group_forward_with_state = torch.ops.moejit.group_forward.with_state
group_backward_with_state = torch.ops.moejit.group_backward.with_state
group_backward_add_with_state = torch.ops.moejit.group_backward_add.with_state

library.moejit_torch_open_meeting.restype = c_void_p
library.moejit_torch_open_meeting.argtypes = (c_int32,)
library.moejit_torch_abort_meeting.argtypes = (c_void_p,)
library.moejit_torch_close_meeting.argtypes = (c_void_p,)
library.moejit_torch_add_group_layer.argtypes = (c_char_p, c_void_p, c_void_p, c_void_p, c_int64)
library.moejit_torch_remove_group_layer.argtypes = (c_char_p,)


class Meeting:
    """A place where the threads of simulated ranks wait for each other in the operators of a group."""

    def __init__(self, ranks: int) -> None:
        self.pointer = library.moejit_torch_open_meeting(ranks)
        weakref.finalize(self, library.moejit_torch_close_meeting, self.pointer)

    def abort(self) -> None:
        """Lets the threads that wait go on, and later ones too."""
        library.moejit_torch_abort_meeting(self.pointer)


def add_group_layer(text: str, layer: int, device: int, meeting: Meeting | None, patience_ms: int) -> None:
    """Makes operators find a prepared layer of a group, until remove_group_layer().

    Args:
        text: The operators' last argument.
        layer, device: Pointers of the library, which have to stay until then.
        meeting: That of simulated ranks; None with GPUs.
        patience_ms: How long one of them waits there for the others.
    """
    pointer = None if meeting is None else meeting.pointer
    if library.moejit_torch_add_group_layer(text.encode(), layer, device, pointer, patience_ms) != 0:
        raise MemoryError("moejit: out_of_memory: the list of layers of groups cannot grow")


def remove_group_layer(text: str) -> None:
    """Makes operators forget a layer of a group."""
    library.moejit_torch_remove_group_layer(text.encode())
