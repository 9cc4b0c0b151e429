# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-Experts layers as operators, a function and a module of PyTorch, and their single steps."""
from moejit.frameworks import require_torch as _require_torch

_require_torch()

from moejit.torch.activation import activation
from moejit.torch.ahead import build
from moejit.torch.convert import convert, explain
from moejit.torch.dispatch import fp8_dispatched_experts
from moejit.torch.experts import Experts
from moejit.torch.fp8_weights import FP8Weights, fp8_weights
from moejit.torch.four_bit_weights import int4_weights, nvfp4_weights
from moejit.torch.functional import experts, grouped_experts
from moejit.torch.grouped_gemm import grouped_gemm, grouped_mm
from moejit.torch.hf import register_hf
from moejit.torch.hosted import HostedExperts
from moejit.torch.moe import MoE, moe
from moejit.torch.mxfp4_weights import mxfp4_weights
from moejit.torch.operations import operation
from moejit.torch.ops import run
from moejit.torch.permute import Routing, permute_pad, route, unpermute
from moejit.torch.plans import layer_text, operation_text
from moejit.torch.routed import routed_experts
from moejit.torch.router import router
from moejit.torch.router_losses import attach_loss, router_of_sequences, update_router_bias
from moejit.torch.update import update_scales, update_weights

__all__ = ["Experts", "FP8Weights", "HostedExperts", "MoE", "Routing", "activation", "attach_loss", "build",
           "convert", "experts", "explain", "fp8_dispatched_experts", "fp8_weights", "grouped_experts",
           "grouped_gemm", "grouped_mm", "int4_weights", "layer_text", "moe", "mxfp4_weights", "nvfp4_weights",
           "operation", "operation_text", "permute_pad", "register_hf", "route", "routed_experts", "router",
           "router_of_sequences", "run", "unpermute", "update_router_bias", "update_scales", "update_weights"]
