# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-Experts layers as PyTorch operators, function and module."""
from moejit.frameworks import require_torch as _require_torch

_require_torch()

from moejit.torch.convert import convert, explain
from moejit.torch.experts import Experts, experts
from moejit.torch.hf import register_hf
from moejit.torch.layers import layer_text
from moejit.torch.update import update_weights

__all__ = ["Experts", "convert", "experts", "explain", "layer_text", "register_hf", "update_weights"]
