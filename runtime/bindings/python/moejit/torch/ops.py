# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.moejit.*: loads their library, and tells torch the shapes of their results."""
from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from moejit.frameworks import is_switched_on, torch_library_path
from moejit.info import TensorInfo
from moejit.library import load
from moejit.torch import _plan
from moejit.torch._operation import plan_of as operation_plan_of
from moejit.torch.layers import FORWARD_STATE, GRADIENT_STATE, plan_of

DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I32": torch.int32, "I64": torch.int64, "U32": torch.int32,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
          "F4_E2M1X2": torch.uint8}
_OUTPUTS = range(1, 7)  # the overloads of the operator that runs operations


def _load() -> ctypes.CDLL:
    path = torch_library_path()
    if not path.exists():
        raise ImportError(f"moejit.torch: {path} is missing\nhint: reinstall the package, or give the library's path "
                          "in MOEJIT_TORCH_LIBRARY")
    if hasattr(torch.ops.moejit, "forward"):
        raise ImportError(f"moejit.torch: the operators of moejit are registered already, so {path} was not loaded: "
                          "another copy of libmoejit_torch.so is loaded in this process\n"
                          "hint: load one copy only; importing moejit.torch loads it")
    load()  # makes the operators use this copy of libmoejit.so
    torch.ops.load_library(str(path))
    library = ctypes.CDLL(str(path))
    library.moejit_torch_load_error.restype = ctypes.c_char_p
    error = library.moejit_torch_load_error()
    if error:
        raise ImportError(f"moejit.torch: {path}: {error.decode()}")
    library.moejit_torch_fill_blocks(is_switched_on("MOEJIT_TORCH_FILL"))
    return library


def _check_devices(**tensors: torch.Tensor) -> None:
    """Refuses a mix of devices. A meta tensor among others brings a call here, which must not seem to have run."""
    (first, wanted), *others = ((name, tensor.device) for name, tensor in tensors.items() if tensor.numel() != 0)
    for name, device in others:
        if device != wanted:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: it is on {device}, wanted {wanted}, where "
                               f"{first} is")


def check(planned: _plan.Plan, tokens: int, used_by: str | None, **tensors: torch.Tensor) -> None:
    """Checks what the library would refuse when the call runs, except sizes that are symbols.

    `used_by` is the call's name; None: each tensor is one that the call takes.
    """
    _check_devices(**tensors)
    for name, tensor in tensors.items():
        wanted = planned.tensors.get(name)
        if wanted is None or wanted.dtype not in DTYPES or used_by not in (None, *wanted.used_by):
            continue
        _check_type(tensor, wanted, {"T": tokens})
    if isinstance(tokens, int) and tokens > planned.max_tokens:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {next(iter(tensors))}: it has {tokens} tokens, wanted at "
                           f"most {planned.max_tokens}, which is max_tokens of the layer")


def _check_type(tensor: torch.Tensor, wanted: TensorInfo, of_call: dict[str, int]) -> None:
    if tensor.dtype != DTYPES[wanted.dtype]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {wanted.name}: its dtype is {tensor.dtype}, wanted "
                           f"{DTYPES[wanted.dtype]}")
    sizes = _shape(wanted, of_call)
    if len(sizes) != tensor.dim() or any(isinstance(got, int) and isinstance(size, int) and got != size
                                         for got, size in zip(tensor.shape, sizes)):
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {wanted.name}: its shape is {list(tensor.shape)}, wanted "
                           f"{sizes}")


def _shape(tensor: TensorInfo, of_call: dict[str, int]) -> list[int]:
    return [of_call.get(symbol, size) for symbol, size in zip(tensor.symbols, tensor.shape)]


def output(planned: _plan.Plan, name: str, tokens: int, like: torch.Tensor) -> torch.Tensor:
    """Returns an output of the layer for so many tokens; a tensor without elements if the plan has none."""
    tensor = planned.tensors.get(name)
    if tensor is None:
        return like.new_empty(0, dtype=torch.float32)
    return like.new_empty(_shape(tensor, {"T": tokens}), dtype=DTYPES[tensor.dtype])


def _saved_bytes(planned: _plan.Plan, tokens: int) -> int:
    return torch.sym_min(planned.saved_bytes, planned.saved_fixed_bytes + tokens * planned.saved_bytes_per_token)


def _deferred_bytes(planned: _plan.Plan, tokens: int) -> int:
    return torch.sym_min(planned.deferred_bytes,
                         planned.deferred_fixed_bytes + tokens * planned.deferred_bytes_per_token)


def _quantize(w1, w2, layer):
    planned = plan_of(layer)
    check(planned, 0, "update_weights", w1=w1, w2=w2)
    return tuple(w1.new_empty(block.bytes, dtype=torch.uint8) for block in (planned.quantized, planned.quantized_colwise))


def _quantize_in_place(w1, w2, quantized, quantized_colwise, skip_update, layer):
    check(plan_of(layer), 0, "update_weights", w1=w1, w2=w2, quantized=quantized, quantized_colwise=quantized_colwise)


def _renew_in_place(w1, w2, quantized, quantized_colwise, layer):
    _quantize_in_place(w1, w2, quantized, quantized_colwise, None, layer)


def _forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer):
    planned = plan_of(layer)
    tokens = x.shape[0]
    check(planned, tokens, "forward", x=x, topk_ids=topk_ids, topk_probs=topk_probs, w1=w1, w2=w2,
          b1=b1, b2=b2, quantized=quantized)
    saved = x.new_empty(_saved_bytes(planned, tokens), dtype=torch.uint8)
    return output(planned, "y", tokens, x), saved, output(planned, "status", tokens, x)


def _infer(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer):
    y, _, status = _forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
    return y, status


def _quantize_forward(x, topk_ids, topk_probs, w1, w2, b1, b2, layer):
    planned = plan_of(layer)
    quantized, quantized_colwise = _quantize(w1, w2, layer)
    y, saved, status = _forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
    kept = quantized if planned.backward_reads_quantized else w1.new_empty(0, dtype=torch.uint8)
    return y, saved, status, kept, quantized_colwise


def _backward(dy, saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, layer):
    planned = plan_of(layer)
    tokens = dy.shape[0]
    check(planned, tokens, "backward", dy=dy, saved=saved, x=x, topk_probs=topk_probs, w1=w1, w2=w2,
          quantized=quantized, quantized_colwise=quantized_colwise)
    return tuple(output(planned, name, tokens, dy) for name in ("dx", "dprobs", "dw1", "dw2", "db1", "db2"))


def _backward_add(dy, saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, main_dw1, main_dw2, main_db1,
                  main_db2, overwrite, layer):
    planned = plan_of(layer)
    tokens = dy.shape[0]
    check(planned, tokens, "backward", dy=dy, saved=saved, x=x, topk_probs=topk_probs, w1=w1, w2=w2,
          quantized=quantized, quantized_colwise=quantized_colwise, dw1=main_dw1, dw2=main_dw2)
    return output(planned, "dx", tokens, dy), output(planned, "dprobs", tokens, dy)


def _backward_data(dy, saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, layer):
    planned = plan_of(layer)
    tokens = dy.shape[0]
    check(planned, tokens, "backward_data", dy=dy, saved=saved, x=x, topk_probs=topk_probs, w1=w1, w2=w2,
          quantized=quantized, quantized_colwise=quantized_colwise)
    deferred = dy.new_empty(_deferred_bytes(planned, tokens), dtype=torch.uint8)
    return output(planned, "dx", tokens, dy), output(planned, "dprobs", tokens, dy), deferred


def _backward_weights(dy, saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, deferred, layer):
    planned = plan_of(layer)
    _check_devices(saved=saved, deferred=deferred)
    return tuple(output(planned, name, dy.shape[0], dy) for name in ("dw1", "dw2", "db1", "db2"))


def _backward_weights_add(dy, saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, deferred, main_dw1,
                          main_dw2, main_db1, main_db2, overwrite, layer):
    check(plan_of(layer), 0, "backward_weights", saved=saved, deferred=deferred, dw1=main_dw1, dw2=main_dw2)


def with_state(fake: Callable, names: tuple[str, ...]) -> Callable:
    """Returns the fake of an operator's overload with a state, whose tensors are the last ones."""
    def fake_with_state(*arguments):
        first = sum(isinstance(argument, torch.Tensor) for argument in arguments) - len(names)
        end = first + len(names)
        check(plan_of(arguments[-1]), 0, None, **dict(zip(names, arguments[first:end])))
        return fake(*arguments[:first], *arguments[end:])
    return fake_with_state


def _update_scales(fc1_amax_history, fc2_amax_history, fc1_scale, fc2_scale, is_backward, layer):
    state = fc1_amax_history, fc2_amax_history, fc1_scale, fc2_scale
    check(plan_of(layer), 0, None, **dict(zip(GRADIENT_STATE if is_backward else FORWARD_STATE, state)))


def _operation(in0, in1, in2, in3, in4, in5, in6, in7, operation):
    planned = operation_plan_of(operation)
    given = dict(zip([info.name for info in planned.inputs], (in0, in1, in2, in3, in4, in5, in6, in7)))
    _check_devices(**given)
    sizes = planned.sizes(tuple(given.values()))
    for info, tensor in zip(planned.inputs, given.values()):
        _check_type(tensor, info, sizes)
    outputs = [in0.new_empty(_shape(info, sizes), dtype=DTYPES[info.dtype]) for info in planned.outputs]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


library = _load()
for _name, _fake in (("quantize", _quantize), ("quantize_", _quantize_in_place), ("renew_", _renew_in_place),
                     ("forward", _forward), ("infer", _infer), ("renew_infer", _infer),
                     ("quantize_forward", _quantize_forward),
                     ("backward", _backward), ("backward_add", _backward_add), ("backward_data", _backward_data),
                     ("backward_weights", _backward_weights), ("backward_weights_add", _backward_weights_add),
                     ("update_scales", _update_scales),
                     *((f"{name}.with_state", with_state(fake, FORWARD_STATE)) for name, fake in
                       (("quantize", _quantize), ("quantize_", _quantize_in_place), ("renew_", _renew_in_place),
                        ("forward", _forward))),
                     *((f"{name}.with_state", with_state(fake, GRADIENT_STATE)) for name, fake in
                       (("backward", _backward), ("backward_add", _backward_add), ("backward_data", _backward_data))),
                     *((f"operation.outputs{count}", _operation) for count in _OUTPUTS)):
    torch.library.register_fake(f"moejit::{_name}", _fake)

# Holds the overloads themselves: a call through torch.ops.moejit.forward would resolve them every time.
quantize = torch.ops.moejit.quantize.default
quantize_ = torch.ops.moejit.quantize_.default
forward = torch.ops.moejit.forward.default
infer = torch.ops.moejit.infer.default
renew_ = torch.ops.moejit.renew_.default
renew_infer = torch.ops.moejit.renew_infer.default
quantize_forward = torch.ops.moejit.quantize_forward.default
backward = torch.ops.moejit.backward.default
backward_add = torch.ops.moejit.backward_add.default
backward_data = torch.ops.moejit.backward_data.default
backward_weights = torch.ops.moejit.backward_weights.default
backward_weights_add = torch.ops.moejit.backward_weights_add.default
quantize_with_state = torch.ops.moejit.quantize.with_state
quantize_with_state_ = torch.ops.moejit.quantize_.with_state
renew_with_state_ = torch.ops.moejit.renew_.with_state
forward_with_state = torch.ops.moejit.forward.with_state
backward_with_state = torch.ops.moejit.backward.with_state
backward_add_with_state = torch.ops.moejit.backward_add.with_state
backward_data_with_state = torch.ops.moejit.backward_data.with_state
update_scales = torch.ops.moejit.update_scales.default
operation = {count: getattr(torch.ops.moejit.operation, f"outputs{count}") for count in _OUTPUTS}
