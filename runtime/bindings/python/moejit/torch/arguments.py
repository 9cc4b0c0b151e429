# SPDX-License-Identifier: Apache-2.0
"""The arguments of operators: rows, casts, routing and biases."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from moejit.torch.checks import name_of
from moejit.torch.devices import no_elements
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.gathered import GatheredWeight
from moejit.torch.layers import has_biases

# Names in descriptions of a routing's dtypes.
ID_DTYPES = {torch.int32: "i32", torch.int64: "i64"}
PROB_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def as_rows(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in which all dimensions but the last are merged into one."""
    if tensor.dim() == 0:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: it has 0 dimensions, wanted 2, or more in front "
                           "of the last one")
    return tensor.reshape(-1, tensor.shape[-1])


def routing_of(ids: torch.Tensor, probs: torch.Tensor, ids_name: str = "topk_ids",
               probs_name: str = "topk_probs") -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the routing in dtypes that layers accept: its own, or int64 and float32."""
    if ids.dtype not in ID_DTYPES:
        if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {ids_name}: its dtype is {name_of(ids.dtype)}, wanted int32 "
                               "or int64\nhint: torch.topk() returns the probabilities first, experts take the ids first")
        ids = ids.to(torch.int64)
    if probs.dtype not in PROB_DTYPES:
        if not probs.dtype.is_floating_point:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {probs_name}: its dtype is {name_of(probs.dtype)}, wanted "
                               "float32 or bfloat16\nhint: the ids come before the probabilities")
        probs = probs.to(torch.float32)
    return ids if ids.is_contiguous() else ids.contiguous(), probs if probs.is_contiguous() else probs.contiguous()


def cast_to_bf16(*tensors: torch.Tensor | FP8Weights | None) -> list[torch.Tensor | FP8Weights | None]:
    """Casts to bf16, as autocast does."""
    return [tensor if tensor is None or isinstance(tensor, (FP8Weights, GatheredWeight)) else tensor.to(torch.bfloat16)
            for tensor in tensors]


def biases_of(x: torch.Tensor, cast: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the biases as operators take them: absent ones are tensors without elements."""
    b1, b2 = cast[2:]
    if b1 is not None and b2 is not None:
        return b1, b2
    if type(x) is torch.Tensor and not torch.compiler.is_compiling():
        none = no_elements(x.device)
        return none if b1 is None else b1, none if b2 is None else b2
    # From torch 2.15 on Dynamo takes no tensor twice in one call of an autograd.Function.
    return x.new_empty(0) if b1 is None else b1, x.new_empty(0) if b2 is None else b2


def check_biases(layer: str, b1: torch.Tensor | None, b2: torch.Tensor | None) -> None:
    """Refuses biases of a layer that has none: they would be left out in silence."""
    if (b1 is not None or b2 is not None) and not has_biases(layer):
        raise RuntimeError("moejit: missing_tensor: tensor b1: the layer has no caller's tensor of this name, it is "
                           'described without biases\nhint: add "biases": true to its description')


def gradient_dtype(weight: torch.Tensor) -> torch.dtype:
    """Returns the dtype of a weight's gradient. From torch 2.11 on, the gradient's dtype of a leaf may differ from the
    leaf's own.

    torch.compile ignores this; autograd casts the gradients of a compiled graph.
    """
    if torch.compiler.is_compiling() or not weight.is_leaf:
        return weight.dtype
    return getattr(weight, "grad_dtype", None) or weight.dtype


def is_exporting() -> bool:
    """Returns whether torch.export traces the call. In torch.compile, Dynamo replaces is_exporting() by True."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
