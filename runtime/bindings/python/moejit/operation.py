# SPDX-License-Identifier: Apache-2.0
"""Operations: single steps of a layer, which are described, planned, prepared and run."""
from __future__ import annotations

import os
from typing import Any, Mapping

from moejit.planned import Planned
from moejit.sources import Paths
from moejit.tensors import Tensor


class Operation(Planned):
    """A single step of a layer: planned when it is made, ready for run() after prepare().

    Calls take tensors as moejit.Layer takes them, by the names in docs/operations-api.md.

    Attributes:
        description: The description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        info: PlanInfo, figures of the plan.
        tensors: TensorInfo of all tensors of the plan, by name.

    Example:
        >>> quantize = moejit.Operation({"operation": "quantize", "max_tokens": 64, "columns": 256}, target="sim")
        >>> tensors = quantize.prepare().allocate(tokens=3)
        >>> quantize.run(tensors)
    """

    _kind = "operation"

    def __init__(self, description: Mapping[str, Any] | str | os.PathLike, target: str = "auto", *,
                 name: str | None = None, tuning: Paths = None) -> None:
        """Reads the description of an operation and plans it. Compiles nothing.

        Args:
            description: A dict, JSON, or the path of a file (docs/operations-api.md).
            target: "cuda:sm_90a", "sim", or "auto": the target of this machine's GPU, or "sim" with a warning if there
                is none.
            name: The description's name in errors; by default its path, or "operation".
            tuning: Tuning records to plan with, as for Layer.

        Raises:
            Error: The description is wrong ("unknown_key", ...), or its parts do not go together ("unsupported").
            OSError: There is no such file.
            ImportError: libmoejit.so is missing.
        """
        self._plan(description, target, name, tuning)

    def allocate(self, tokens: int | None = None, *, rows: int | None = None,
                 columns: int | None = None) -> dict[str, Tensor]:
        """Returns memory for all tensors, filled with zeros, on the operation's device.

        Args:
            tokens, rows, columns: T, P and C of the calls that will use the memory; None: the bound.

        Raises:
            Error: "out_of_memory", ...
        """
        device = self._default_device()
        made = {}
        for info in self.tensors.values():
            shape = info.shape_of(tokens, rows, columns)
            size = info.bytes
            for bound, given in zip(info.shape, shape):
                size = size // bound * given
            made[info.name] = Tensor(device.allocate(size), info.dtype, shape)
        return made

    def run(self, tensors: Mapping[str, Any], *, workspace: object = None, stream: object = None) -> None:
        """Runs the operation on tensors, and writes into its outputs.

        On a GPU the call starts the kernel and returns: tensors must stay until the kernel is done.

        Args:
            tensors: The tensors that `tensors` lists; optional ones may be left out. A value of None is ignored.
            workspace: A block of info.workspace_bytes, a Memory or a tensor of bytes. None: one that the operation
                keeps.
            stream: As for Layer.forward().

        Raises:
            Error: "missing_tensor", "tensor_mismatch", "workspace_too_small", "invalid_value": raised before anything
                is launched; "driver", "stream_capture", "simulator_fault": raised by launching.
        """
        self.call("run", tensors, workspace=workspace, stream=stream)
