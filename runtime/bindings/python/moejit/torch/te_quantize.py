# SPDX-License-Identifier: Apache-2.0
"""Casts a list of tensors to FP8 in both orientations, in one launch."""
from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from moejit.torch import ops
from moejit.torch.devices import no_elements, on_device_of, target_of
from moejit.torch.plans import operation_text

_INPUTS = {torch.bfloat16: "bf16", torch.float32: "f32"}
_OUTPUTS = {torch.float8_e4m3fn: "f8_e4m3", torch.float8_e5m2: "f8_e5m2"}


class Fp8Quantizer(NamedTuple):
    """How a tensor is cast. Any object with these attributes will do."""
    scale: torch.Tensor  # float32 [1]: what values are multiplied by
    amax: torch.Tensor | None = None  # float32 [1], is raised to the largest magnitude; None: not wanted
    dtype: torch.dtype = torch.float8_e4m3fn  # or float8_e5m2


class Fp8Tensor(NamedTuple):
    """A matrix in FP8."""
    data: torch.Tensor  # [rows, columns]
    transpose: torch.Tensor  # [columns, rows], the same bytes
    scale_inv: torch.Tensor  # float32 [1]: 1 / scale


def multi_tensor_quantize(tensor_list: Sequence[torch.Tensor], quantizers: Sequence[Any],
                          outputs: Sequence[Fp8Tensor] | None = None) -> list[Fp8Tensor]:
    """Casts matrices to FP8 with known scales, and transposes them, in one launch. It has no gradient.

    Args:
        tensor_list: bf16 or float32 [rows, columns], all of one dtype and device; or one tensor [E, rows, columns].
        quantizers: One for each tensor, with `scale`, `amax` and `dtype` of Fp8Quantizer; `dtype` is the same for all.
        outputs: What an earlier call has returned, to be written again. Calls with the same memory copy nothing to the
            device.

    Returns:
        The casts, in the order of the tensors: `outputs`, if there are any.
    """
    tensors = [tensor.detach() for tensor in tensor_list]
    _check(tensors, quantizers, outputs)
    if not tensors:
        return []
    with torch.no_grad():
        if outputs is None:
            outputs = [_new(tensor, quantizer) for tensor, quantizer in zip(tensors, quantizers)]
        scales = [quantizer.scale.detach() for quantizer in quantizers]
        _cast(tensors, scales, [output.data.view(torch.uint8) for output in outputs],
              [output.transpose.view(torch.uint8) for output in outputs], [output.scale_inv for output in outputs],
              [quantizer.amax.detach() for quantizer in quantizers if quantizer.amax is not None],
              [quantizer.amax is not None for quantizer in quantizers], _OUTPUTS[quantizers[0].dtype])
    return list(outputs)


def _new(tensor: torch.Tensor, quantizer: Any) -> Fp8Tensor:
    rows, columns = tensor.shape
    data = torch.empty(rows, columns, dtype=quantizer.dtype, device=tensor.device)
    return Fp8Tensor(data, data.new_empty(columns, rows), torch.empty(1, dtype=torch.float32, device=tensor.device))


# An operator of its own tells torch.compile what is read and written. The operation gets addresses alone.
@torch.library.custom_op("moejit::multi_cast_transpose", mutates_args=("data", "transpose", "scale_inv", "amax"))
def _cast(tensors: list[torch.Tensor], scales: list[torch.Tensor], data: list[torch.Tensor],
          transpose: list[torch.Tensor], scale_inv: list[torch.Tensor], amax: list[torch.Tensor], has_amax: list[bool],
          dtype: str) -> None:
    amaxes = iter(amax)
    table = tuple((*(tensor.data_ptr() for tensor in each), next(amaxes).data_ptr() if has else 0, inverse.data_ptr(),
                   *each[0].shape)
                  for *each, inverse, has in zip(tensors, data, transpose, scales, scale_inv, has_amax))
    first = tensors[0]
    text = _text(tuple(tuple(tensor.shape) for tensor in tensors), _INPUTS[first.dtype], dtype, target_of(first.device))
    ops.call([*_list_of(table, first), no_elements(first.device)], "run", text)


@_cast.register_fake
def _fake(tensors, scales, data, transpose, scale_inv, amax, has_amax, dtype):
    pass


_texts: dict[tuple, str] = {}
_lists: collections.OrderedDict[tuple, tuple[torch.Tensor, torch.Tensor]] = collections.OrderedDict()
_MOST_LISTS = 256


def _text(sizes: tuple, input_dtype: str, output_dtype: str, target: str) -> str:
    key = sizes, input_dtype, output_dtype, target
    if key not in _texts:
        _texts[key] = operation_text({"operation": "multi_cast_transpose", "input_dtype": input_dtype,
                                      "output_dtype": output_dtype, "sizes": [list(size) for size in sizes]}, target)
    return _texts[key]


def _list_of(table: tuple, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the list of tensors, and where their tiles end, in device memory.

    Both are kept, so that calls with the same memory copy nothing.
    """
    key = table, like.device
    if key in _lists:
        _lists.move_to_end(key)
        return _lists[key]
    ends, tiles = [], 0
    for *_, rows, columns in table:
        tiles += -(-rows // 128) * -(-columns // 128)
        ends.append(tiles)
    _lists[key] = tuple(on_device_of(like, torch.tensor(values, dtype=torch.int64)) for values in (table, ends))
    if len(_lists) > _MOST_LISTS:
        _lists.popitem(last=False)
    return _lists[key]


def _check(tensors: Sequence[torch.Tensor], quantizers: Sequence[Any], outputs: Sequence[Fp8Tensor] | None) -> None:
    """Refuses what the kernel, which gets addresses, would not notice."""
    for what, given in (("quantizers", quantizers), ("outputs", outputs)):
        if given is not None and len(given) != len(tensors):
            raise _error(f"{what}: got {len(given)}, wanted {len(tensors)}, one for each tensor")
    for index, (tensor, quantizer) in enumerate(zip(tensors, quantizers)):
        _check_one(f"tensor_list[{index}]", tensor, tensor.shape[:2], (tensors[0].dtype,), tensors[0])
        if tensor.dim() != 2 or tensor.dtype not in _INPUTS:
            raise _error(f"tensor_list[{index}]: it is {tensor.dtype} {list(tensor.shape)}, wanted bfloat16 or float32 "
                         "[rows, columns]")
        if quantizer.dtype not in _OUTPUTS or quantizer.dtype != quantizers[0].dtype:
            raise _error(f"quantizers[{index}].dtype: got {quantizer.dtype}, wanted float8_e4m3fn or float8_e5m2, the "
                         "same for all")
        _check_one(f"quantizers[{index}].scale", quantizer.scale, (1,), (torch.float32,), tensors[0])
        if quantizer.amax is not None:
            _check_one(f"quantizers[{index}].amax", quantizer.amax, (1,), (torch.float32,), tensors[0])
        if outputs is None:
            continue
        rows, columns = tensor.shape
        for name, shape in (("data", (rows, columns)), ("transpose", (columns, rows))):
            _check_one(f"outputs[{index}].{name}", getattr(outputs[index], name), shape, (quantizer.dtype,), tensors[0])
        _check_one(f"outputs[{index}].scale_inv", outputs[index].scale_inv, (1,), (torch.float32,), tensors[0])


def _check_one(name: str, tensor: torch.Tensor, shape: Sequence[int], dtypes: Sequence[torch.dtype],
               like: torch.Tensor) -> None:
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype not in dtypes or tensor.device != like.device:
        raise _error(f"{name}: it is {tensor.dtype} {list(tensor.shape)} on {tensor.device}, wanted {dtypes[0]} "
                     f"{list(shape)} on {like.device}")
    if not tensor.is_contiguous():
        raise _error(f"{name}: it has gaps or is transposed\nhint: call .contiguous()")


def _error(what: str) -> RuntimeError:
    return RuntimeError(f"moejit: tensor_mismatch: multi_tensor_quantize: {what}")
