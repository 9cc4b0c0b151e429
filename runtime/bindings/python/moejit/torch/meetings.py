# SPDX-License-Identifier: Apache-2.0
"""Layers of groups that the operators find by their texts, and where simulated ranks wait for each other."""
from __future__ import annotations

import weakref
from ctypes import c_char_p, c_int32, c_int64, c_void_p

from moejit.torch.ops import library

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
        meeting: Where simulated ranks wait for each other; None with GPUs.
        patience_ms: How long one of them waits there for the others.
    """
    pointer = None if meeting is None else meeting.pointer
    if library.moejit_torch_add_group_layer(text.encode(), layer, device, pointer, patience_ms) != 0:
        raise MemoryError("moejit: out_of_memory: the list of layers of groups cannot grow")


def remove_group_layer(text: str) -> None:
    """Makes operators forget a layer of a group."""
    library.moejit_torch_remove_group_layer(text.encode())
