# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-Experts layers as PyTorch operators, function and module."""
import torch as _torch

_OLDEST = (2, 10)
if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"moejit.torch needs torch {_OLDEST[0]}.{_OLDEST[1]} or newer, this is {_torch.__version__}")

from moejit.torch.experts import Experts, experts
from moejit.torch.hf import register_hf
from moejit.torch.layers import layer_text

__all__ = ["Experts", "experts", "layer_text", "register_hf"]
