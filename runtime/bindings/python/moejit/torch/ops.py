# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.moejit.call and call_: loads their library, tells torch what calls make, and calls by name."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import torch

from moejit.frameworks import is_switched_on, torch_library_path
from moejit.library import load
from moejit.torch.devices import no_elements
from moejit.torch.plan_facts import Argument, BlockSize, Plan
from moejit.torch.plans import constant_row, plan_of, row_of
from moejit.torch.shared import with_parts

Tensors = Mapping[str, torch.Tensor]
_BLOCKS = ("quantized", "quantized_colwise")


def _load() -> ctypes.CDLL:
    path = torch_library_path()
    if not path.exists():
        raise ImportError(f"moejit.torch: {path} is missing\nhint: reinstall the package, or give the library's path "
                          "in MOEJIT_TORCH_LIBRARY")
    if hasattr(torch.ops.moejit, "call"):
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
    library.moejit_torch_fill_blocks(0 if is_switched_on("MOEJIT_TORCH_FILL") else -1)
    return library


library = _load()
# The overloads themselves: a call through torch.ops.moejit.call would resolve them every time.
call = torch.ops.moejit.call.default
call_ = torch.ops.moejit.call_.default


def run(plan: str, name: str, given: Tensors, order: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Makes a call of a plan, and returns by name what it has made.

    Args:
        plan: The text of the plan.
        name: The call: "forward", "backward+add", "run", ...
        given: Tensors that the call reads, by name; others are ignored. What the call writes is written in place if it
            is among them; "quantized" and "quantized_colwise" are the blocks of quantized weights, "saved" is what
            forward leaves for backward. In place of all blocks that the call only reads it may have their tensors, "w1_q",
            "w1_scale_inv", ..., which then are read where they are.
        order: Of a group, a tensor that all its calls seem to write, so that no compiled graph reorders them.

    Raises:
        RuntimeError: The plan has no such call; a tensor is missing, or has another dtype, shape or device.
    """
    is_compiled = torch.compiler.is_compiling()
    row = constant_row(plan, name) if is_compiled else row_of(plan, name)
    if row.has_gate and "shared_probs" not in given:
        given = with_parts(given)
    if not row.writes:  # such as update_weights of recipes that quantize none
        return {}
    reads = row.named_reads if row.code in given and not (_BLOCKS[0] in given or _BLOCKS[1] in given) else row.reads
    try:
        tensors = [given[argument.name] if argument.name in given or not argument.is_optional else
                   _none(given, reads[0].name) for argument in reads]
    except KeyError as error:
        raise RuntimeError(f"moejit: missing_tensor: tensor {error.args[0]}: the call {name} reads it, and got none\n"
                           f"hint: it reads {', '.join(argument.name for argument in reads)}") from None
    is_ordered = order is not None and is_compiled and row.is_of_all_ranks
    if not is_ordered and not any(argument.name in given for argument in row.writes):
        return dict(zip(row.made, call(tensors, name, plan)))
    made = {}
    sizes = {} if row.tokens is None else {"T": given[row.tokens[0]].shape[row.tokens[1]]}
    for argument in row.writes:
        if argument.name not in given and not argument.is_optional:
            made[argument.name] = _make(argument, sizes, tensors[0])
    written = [given[argument.name] if argument.name in given else
               made[argument.name] if argument.name in made else _none(given, argument.name)
               for argument in row.writes]
    call_(tensors, written + [order] if is_ordered else written, name, plan)
    return made


def _none(given: Tensors, like: str) -> torch.Tensor:
    """Returns a tensor that stands for one that the call leaves out."""
    like = given[like] if like in given else next(iter(given.values()))
    is_plain = type(like) is torch.Tensor and not torch.compiler.is_compiling()
    return no_elements(like.device) if is_plain else like.new_empty(0)


def _make(argument: Argument, sizes: Mapping[str, int], like: torch.Tensor) -> torch.Tensor:
    """Returns a new tensor that a call is to write."""
    shape = shape_of(argument, sizes, min)
    if argument.is_read:
        return like.new_zeros(shape, dtype=argument.dtype)
    made = like.new_empty(shape, dtype=argument.dtype)
    if argument.digest is not None:
        made.narrow(0, *argument.digest).zero_()
    return made


def shape_of(argument: Argument, sizes: Mapping[str, int],
             smaller: Callable[[int, int], int] = torch.sym_min) -> list[int]:
    """Returns the shape of an argument in a call of these sizes, by symbol.

    Args:
        smaller: The smaller one of two numbers. Dynamo traces `min` alone.
    """
    return [smaller(size.most, size.fixed + sizes["T"] * size.per_token) if isinstance(size, BlockSize)
            else sizes[size] if isinstance(size, str) else size for size in argument.shape]


def _check(planned: Plan, arguments: Sequence[Argument], tensors: Sequence[torch.Tensor],
           sizes: Mapping[str, int]) -> None:
    """Checks what the library would refuse when the call runs, except sizes that are symbols."""
    for argument, tensor in zip(arguments, tensors):
        if argument.is_optional and tensor.numel() == 0 or argument.is_shape_only:
            continue
        if tensor.dtype != argument.dtype:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {argument.name}: its dtype is {tensor.dtype}, wanted "
                               f"{argument.dtype}")
        wanted = shape_of(argument, sizes)
        if len(wanted) != tensor.dim() or any(isinstance(got, int) and isinstance(size, int) and got != size
                                              for got, size in zip(tensor.shape, wanted)):
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {argument.name}: its shape is {list(tensor.shape)}, "
                               f"wanted {wanted}")
    tokens = sizes.get("T")
    if isinstance(tokens, int) and tokens > planned.max_tokens:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor {arguments[0].name}: it has {tokens} tokens, wanted at "
                           f"most {planned.max_tokens}, which is max_tokens of the description")


def _check_devices(arguments: Sequence[Argument], tensors: Sequence[torch.Tensor]) -> None:
    """Refuses a mix of devices. A meta tensor among others brings a call here, which must not seem to have run."""
    devices = [(argument.name, tensor.device) for argument, tensor in zip(arguments, tensors) if tensor.numel() != 0]
    first, wanted = devices[0] if devices else ("", None)  # calls over no tokens may have no elements at all
    for name, device in devices[1:]:
        if device != wanted:
            raise RuntimeError(f"moejit: tensor_mismatch: tensor {name}: it is on {device}, wanted {wanted}, where "
                               f"{first} is")


@torch.library.register_fake("moejit::call")
def _fake(tensors, call, plan):
    planned, row = plan_of(plan), row_of(plan, call)
    reads = row.reads_of(len(tensors))
    _check_devices(reads, tensors)
    sizes = planned.sizes(zip(reads, tensors))
    _check(planned, reads, tensors, sizes)
    return [tensors[0].new_empty(shape_of(argument, sizes), dtype=argument.dtype)
            for argument in row.writes if not argument.is_optional]


@torch.library.register_fake("moejit::call_")
def _fake_in_place(tensors, written, call, plan):
    planned, row = plan_of(plan), row_of(plan, call)
    arguments = (*row.reads_of(len(tensors)), *row.writes)
    _check_devices(arguments, (*tensors, *written))
    sizes = planned.sizes(zip(arguments, (*tensors, *written)))
    _check(planned, arguments, (*tensors, *written), sizes)
