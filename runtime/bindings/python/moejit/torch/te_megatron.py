# SPDX-License-Identifier: Apache-2.0
"""Puts the functions of moejit.torch.te where Megatron-Core takes Transformer Engine's from."""
from __future__ import annotations

import functools
import sys
import types
from typing import Any

from moejit.torch import te_chunks, te_permute, te_router

_ABSENT = object()
# What moe_utils asks for, if it has found no Transformer Engine and so lacks the names.
_OTHERS = ("te_general_gemm",)
_replaced: list[tuple[types.ModuleType, str, Any]] = []


def patch(enable: bool = True, *, top_k: int | None = None) -> None:
    """Lets Megatron-Core permute with moejit where a configuration says moe_permute_fusion, and choose experts where it
    says moe_router_fusion.

    Call it before configurations and models are made.

    Args:
        enable: False: puts back what was there.
        top_k: The most experts of a token on a rank, which makes the functions faster: moe_router_topk. Leave it out
            with moe_pad_expert_input_to_capacity and moe_router_padding_for_quantization, which add experts to tokens.

    Raises:
        ImportError: There is no megatron-core.
    """
    _take_back()
    if not enable:
        return
    try:
        from megatron.core.transformer.moe import moe_utils
    except ImportError as error:
        raise ImportError(f"moejit.torch.te.patch() needs megatron-core 0.16 or newer: {error}") from error
    functions = _functions(top_k)
    for name, function in functions.items():
        if name != "fused_permute_and_pad_with_probs" or hasattr(moe_utils, name):
            _replace(moe_utils, name, function)
    if not getattr(moe_utils, "HAVE_TE", False):
        _replace(moe_utils, "HAVE_TE", True)
        for name in _OTHERS:
            if not hasattr(moe_utils, name):
                _replace(moe_utils, name, None)
    for module in list(sys.modules.values()):
        if module is moe_utils or not getattr(module, "__name__", "").startswith("megatron."):
            continue
        for name in functions.keys() & vars(module).keys():
            _replace(module, name, functions[name])


def _functions(top_k: int | None) -> dict[str, Any]:
    options = {} if top_k is None else {"top_k": top_k}
    return {"fused_permute": functools.partial(te_permute.moe_permute, **options),
            "fused_permute_with_probs": functools.partial(te_permute.moe_permute_with_probs, **options),
            "fused_permute_and_pad_with_probs": functools.partial(te_permute.moe_permute_and_pad_with_probs, **options),
            "fused_unpermute": te_permute.moe_unpermute,
            "fused_sort_chunks_by_index": te_chunks.moe_sort_chunks_by_index,
            "fused_sort_chunks_by_index_with_probs": te_chunks.moe_sort_chunks_by_index_with_probs,
            "fused_topk_with_score_function": te_router.fused_topk_with_score_function,
            "fused_compute_score_for_moe_aux_loss": te_router.fused_compute_score_for_moe_aux_loss,
            "fused_moe_aux_loss": te_router.fused_moe_aux_loss}


def _replace(module: types.ModuleType, name: str, value: Any) -> None:
    _replaced.append((module, name, vars(module).get(name, _ABSENT)))
    setattr(module, name, value)


def _take_back() -> None:
    while _replaced:
        module, name, value = _replaced.pop()
        if value is _ABSENT:
            delattr(module, name)
        else:
            setattr(module, name, value)
