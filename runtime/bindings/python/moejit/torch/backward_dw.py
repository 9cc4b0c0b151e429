# SPDX-License-Identifier: Apache-2.0
"""What pipeline schedules of Megatron and Transformer Engine call on modules that delay gradients of weights."""
from __future__ import annotations

from typing import Callable

import torch

from moejit.torch.state import ExpertsCall


class BackwardDw(torch.nn.Module):
    """A module that may leave gradients of weights and biases to backward_dw()."""

    _call: ExpertsCall

    def need_backward_dw(self) -> bool:
        """Returns whether backward leaves the gradients of weights and biases to backward_dw()."""
        return self._call.delayed is not None

    def backward_dw(self) -> None:
        """Computes the gradients of weights and biases for the oldest backward pass that left them for later.

        Adds them to `.grad` as backward would, with the hooks of the parameters, or to `main_grad`. Then runs the hooks
        of register_wgrad_accumulation_and_reduce_hooks() and frees the memory of that pass. Call it once for each
        backward pass, on any stream that waits for that pass. Without delay_wgrad_compute, or if all parameters are
        frozen, it does nothing.

        Raises:
            RuntimeError: No backward pass has left gradients; or a parameter has no main_grad.
        """
        delayed = self._call.delayed
        if delayed is None:
            return
        if delayed.queue:
            delayed.run_oldest()
        elif any(parameter.requires_grad for parameter in self.parameters()):
            raise RuntimeError("moejit: invalid_value: backward_dw() has nothing to do: each backward pass of the module "
                               "was followed by one already, or there was none\nhint: call it once for each backward "
                               "pass, behind it")

    def register_wgrad_accumulation_and_reduce_hooks(self, hook: Callable[[], None]) -> None:
        """Makes backward_dw() call `hook` when the gradients of a pass are done, for Megatron's DDP.

        Raises:
            RuntimeError: The module was made without delay_wgrad_compute.
        """
        if self._call.delayed is None:
            raise RuntimeError("moejit: invalid_value: hooks of backward_dw() on a module without delay_wgrad_compute"
                               "\nhint: register the hook on the parameters")
        self._call.delayed.hooks.append(hook)
