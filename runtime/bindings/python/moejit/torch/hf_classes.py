# SPDX-License-Identifier: Apache-2.0
"""Classes of modules of transformers that are converted in place: each is derived from the class that a module had."""
from __future__ import annotations

import functools

import torch


class Converted(torch.nn.Module):
    """A module whose forward is moejit's; `original` is the class it had. Copies and pickles are converted, too."""
    original: type

    def __reduce__(self) -> tuple:
        return _blank, (type(self).__bases__[0], self.original), self.__dict__


@functools.cache
def converted(kind: type[Converted], original: type) -> type:
    """Returns the class that modules of a class get: `kind` computes, and all else is the original's."""
    return type(original.__name__, (kind, original), {"original": original, "__module__": kind.__module__})


def _blank(kind: type[Converted], original: type) -> torch.nn.Module:
    """Returns a converted module without its state, for copies and unpickling."""
    made = converted(kind, original)
    return made.__new__(made)


def original_class(module: torch.nn.Module) -> type:
    """Returns the class that a module had before it was converted."""
    return type(module).original if isinstance(module, Converted) else type(module)
