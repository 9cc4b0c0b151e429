# SPDX-License-Identifier: Apache-2.0
"""Calls whose weights exist only while they run, as FSDP gathers them: in bf16, or as FP8 codes and scales."""
from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from moejit.torch import ops
from moejit.torch.first_order import first_order
from moejit.torch.function import gradients, kept_names, rows_of
from moejit.torch.layers import BLOCKS, inputs_of, reads_of
from moejit.torch.plans import plan_of


ROWS = ("w1_q", "w1_scale_inv", "w2_q", "w2_scale_inv")  # row-wise weights in FP8


class GatheredWeight(torch.Tensor):
    """A weight of all experts as FSDP gathered it: FP8 codes with their scales, which look like one bf16 parameter.

    Layers compute with it, and autograd gives it a gradient of its shape and dtype. It has no other operation, since no
    rank has the bf16 values.

    Args:
        codes: [E, 2I, H] or [E, H, I] uint8: `w1_q` or `w2_q` of the glossary.
        scales: float32: `w1_scale_inv` or `w2_scale_inv`.
        shape: Shape of the parameter; that of the codes differs if the parameter is transposed.
        dtype: Dtype of the parameter.
    """
    codes: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scales: torch.Tensor, shape: torch.Size, dtype: torch.dtype):
        weight = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=codes.device)
        weight.codes = codes
        weight.scales = scales
        return weight

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        weight = args[0]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default) or (
                func == torch.ops.aten.as_strided.default and tuple(args[1]) == weight.shape
                and tuple(args[2]) == weight.stride()):
            return cls(weight.codes, weight.scales, weight.shape, weight.dtype)
        if func in (torch.ops.aten.zeros_like.default, torch.ops.aten.empty_like.default):
            dtype = (kwargs or {}).get("dtype") or weight.dtype
            make = torch.zeros if func == torch.ops.aten.zeros_like.default else torch.empty
            return make(weight.shape, dtype=dtype, device=weight.device)
        raise NotImplementedError(f"moejit: {func} of a weight that was gathered as FP8 codes: there are no values in "
                                  f"{weight.dtype}\nhint: use the sharded parameter, outside of forward and backward")

    def __tensor_flatten__(self):
        return ["codes", "scales"], self.dtype

    @staticmethod
    def __tensor_unflatten__(inner, dtype, outer_size, outer_stride):
        return GatheredWeight(inner["codes"], inner["scales"], outer_size, dtype)

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"GatheredWeight(codes={list(self.codes.shape)}, scales={list(self.scales.shape)})"


def is_sharded(module: torch.nn.Module) -> bool:
    """Returns whether FSDP shards the parameters of a module."""
    return module.__dict__.get("_is_fsdp_managed_module", False)


def dense(w1: torch.Tensor, w2: torch.Tensor, is_transposed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights row-major as w1 [E, 2I, H] and w2 [E, H, I]."""
    if is_transposed:
        w1, w2 = w1.transpose(1, 2), w2.transpose(1, 2)
    return w1 if w1.is_contiguous() else w1.contiguous(), w2 if w2.is_contiguous() else w2.contiguous()


def operands(w1: torch.Tensor, w2: torch.Tensor, is_transposed: bool, layer: str, call: str) -> dict[str, torch.Tensor]:
    """Returns w1 and w2 and the quantized weights that a call reads, by name. Gathered codes are read where they are.

    Args:
        w1: [E, 2I, H], or [E, H, 2I] if transposed: bf16 or a GatheredWeight.
        w2: [E, H, I], or [E, I, H] if transposed: bf16 or a GatheredWeight.
        is_transposed: Whether the weights are transposed.
        layer: The text of the layer.
        call: "forward" or "backward".
    """
    if not isinstance(w1, GatheredWeight):
        w1, w2 = dense(w1, w2, is_transposed)
        return {"w1": w1, "w2": w2, **ops.run(layer, "update_weights", {"w1": w1, "w2": w2})}
    codes = (weight.view(torch.float8_e4m3fn) for weight in (w1.codes, w2.codes))
    rows = dict(zip(ROWS, (next(codes), w1.scales, next(codes), w2.scales)))
    return {**rows, **columns_of(rows, layer)} if call == "backward" else rows


def columns_of(rows: Mapping[str, torch.Tensor], layer: str) -> dict[str, torch.Tensor]:
    """Returns the column-wise weights that backward reads, by name, as update_weights would make them of bf16 weights.

    They are transposed rows, both codes and scales, since a scale belongs to 128x128 elements.

    Args:
        rows: The tensors of ROWS: codes are float8_e4m3fn, scales float32.
        layer: The text of the layer.
    """
    if BLOCKS[1] not in reads_of(layer, "backward"):
        return {}
    bytes_, layout = _layout(layer, BLOCKS[1])
    block, columns = torch.empty(bytes_, dtype=torch.uint8, device=rows[ROWS[0]].device), {}
    for tensor, is_scale, shape, halves, offset in layout:
        source, part = rows[tensor.replace("_colwise", "")], _part(block, is_scale, shape, offset)
        _transpose(source if is_scale else source.view(torch.uint8), part, halves)
        columns[tensor] = part if is_scale else part.view(torch.float8_e4m3fn)
    return columns


def parts_of_block(block: torch.Tensor, layer: str, name: str = "quantized") -> dict[str, torch.Tensor]:
    """Returns the tensors of a block of quantized weights. They share its memory: uint8 for codes, float32 for scales.

    Args:
        block: "quantized" or "quantized_colwise".
        layer: The text of the layer.
        name: The name of the block.
    """
    return {tensor: _part(block, is_scale, shape, offset)
            for tensor, is_scale, shape, _, offset in _layout(layer, name)[1]}


@torch.compiler.assume_constant_result
def _layout(layer: str, name: str) -> tuple[int, tuple[tuple, ...]]:
    """Returns the bytes of a block of quantized weights, and facts of each tensor. These are name, whether it has
    scales, shape, halves (gate and up) of its last dimension, and place in the block.
    """
    block = getattr(plan_of(layer), name)
    return block.bytes, tuple((tensor.name, tensor.dtype == "F32", tensor.shape,
                               2 if tensor.symbols[-1].startswith("2") else 1, tensor.quantized_offset)
                              for tensor in block.tensors)


def _part(block: torch.Tensor, is_scale: bool, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    part = block.narrow(0, offset, math.prod(shape) * (4 if is_scale else 1))
    return (part.view(torch.float32) if is_scale else part).view(shape)


_WORD = 8  # bytes; a row is a whole number of words, since H and I are multiples of 16


def _transpose(rows: torch.Tensor, columns: torch.Tensor, halves: int) -> None:
    """Transposes [E, R, C] into [E, C, R'], in which the rows of gate and of up are each padded with zeros.

    Codes take two steps, first words of eight columns, then the bytes within words. A torch kernel that walks down a
    column byte by byte would fetch a whole memory sector for each byte.
    """
    count, room = rows.shape[1] // halves, columns.shape[2] // halves
    if count != room:
        columns.zero_()
    for half in range(halves):
        part = rows.narrow(1, half * count, count)
        place = columns.narrow(2, half * room, count)
        if part.element_size() == 1:
            words = part.view(torch.int64).transpose(1, 2).contiguous()  # [E, C / 8, R]
            part = words.view(torch.uint8).unflatten(2, (count, _WORD)).transpose(2, 3)
            place.unflatten(1, (-1, _WORD)).copy_(part)
        else:
            place.copy_(part.transpose(1, 2))


class GatheredFunction(torch.autograd.Function):
    """One forward call and its backward call, between which no copy of the weights is kept.

    FSDP frees the memory of gathered weights after forward and refills it before backward. So only the parameters
    themselves are saved, and backward makes the same quantized weights from them again.
    """

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, gradient_dtypes, is_transposed, layer):
        given = dict(zip(inputs_of(layer), (x, topk_ids, topk_probs, w1, w2, b1, b2)))
        made = ops.run(layer, "forward", {**given, **operands(w1, w2, is_transposed, layer, "forward")})
        tensors = {**given, **made}
        ctx.names = (*(name for name in kept_names(layer) if name in tensors and name not in ("w1", "w2")), "w1", "w2")
        ctx.save_for_backward(*(tensors[name] for name in ctx.names))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(made["status"])
        ctx.layer, ctx.is_transposed, ctx.gradient_dtypes = layer, is_transposed, gradient_dtypes
        return made["y"], made["status"]

    @staticmethod
    @first_order
    def backward(ctx, dy, _):
        given = dict(zip(ctx.names, ctx.saved_tensors))
        given.update(operands(given["w1"], given["w2"], ctx.is_transposed, ctx.layer, "backward"), dy=rows_of(dy))
        made = ops.run(ctx.layer, "backward", given)
        if ctx.is_transposed:
            made.update({name: made[name].transpose(1, 2).contiguous() for name in ("dw1", "dw2") if name in made})
        return *gradients(ctx.needs_input_grad, made, ctx.gradient_dtypes), None, None, None
