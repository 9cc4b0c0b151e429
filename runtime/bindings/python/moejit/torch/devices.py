# SPDX-License-Identifier: Apache-2.0
"""Facts about devices that calls need."""
from __future__ import annotations

import functools
import warnings

import torch

from moejit.device import target_of_capability


def target_of(device: torch.device) -> str:
    """Returns the target for tensors on a device: the one of their GPU, or the simulator for the CPU."""
    return "sim" if device.type == "cpu" else _target_of_gpu(device.index)


@torch.compiler.assume_constant_result
def _target_of_gpu(index: int | None) -> str:
    return _known_target_of_gpu(index)


@functools.lru_cache(maxsize=None)
def _known_target_of_gpu(index: int | None) -> str:
    if not torch.cuda.is_available():
        return "cuda:sm_90a"  # of tensors without memory, as in fake mode
    return target_of_capability(*torch.cuda.get_device_capability(index))


_has_told_of_simulator = False


def tell_of_simulator(device: torch.device, stacklevel: int) -> None:
    """Warns once per process that CPU tensors are simulated; the warning names the caller `stacklevel` functions up."""
    global _has_told_of_simulator
    if device.type == "cpu" and not _has_told_of_simulator:
        _has_told_of_simulator = True
        warnings.warn("moejit: CPU tensors run in the simulator, which is for tests and not for speed",
                      stacklevel=stacklevel + 1)


@functools.lru_cache(maxsize=None)
def no_elements(device: torch.device) -> torch.Tensor:
    """Returns a tensor without elements, which stands for an absent argument of an operator."""
    with torch.inference_mode(False):  # tensors of inference mode cannot be saved for backward
        return torch.empty(0, dtype=torch.bfloat16, device=device)


def on_device_of(x: torch.Tensor, tokens_per_expert: torch.Tensor) -> torch.Tensor:
    """Returns the numbers of rows on the device of x. The host does not wait: copies go through pinned memory."""
    if x.is_cuda and not tokens_per_expert.is_cuda:
        tokens_per_expert = tokens_per_expert.pin_memory()
    return tokens_per_expert.to(x.device, non_blocking=True)
