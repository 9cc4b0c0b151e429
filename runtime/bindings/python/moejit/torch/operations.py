# SPDX-License-Identifier: Apache-2.0
"""Single steps of a layer on torch tensors: any operation, by its description."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.torch import ops
from moejit.torch.devices import target_of, tell_of_simulator
from moejit.torch.layers import as_json
from moejit.torch.plans import plan, row_of, text_of

_FEWEST = 256


def operation(description: dict[str, Any] | str, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Runs an operation and returns its outputs by name. It has no gradient.

    Optional tensors are left out. Outputs that a call adds to start as zeros.

    Args:
        description: The description of an operation, a dict or JSON (docs/operations-api.md).
        inputs: The operation's inputs by name, all on one device.

    Raises:
        RuntimeError: The description is wrong, an input is missing or has another shape or dtype, or the operation
            makes no outputs (multi_cast_transpose).
    """
    text = _constant_text(description if isinstance(description, str) else as_json(description),
                          target_of(_first(inputs).device))
    return _run(text, inputs)


def run(fields: dict[str, Any], inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Runs an operation whose description has these fields, with constants as values. Later calls plan nothing.

    An activation, or the formula of a router, is given as JSON.
    """
    return _run(_call_text(target_of(_first(inputs).device), tuple(fields.items())), inputs)


def run_into(fields: dict[str, Any], inputs: dict[str, torch.Tensor],
             outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Does what run() does, and writes into these outputs. They set the sizes of the call.

    Outputs that a call adds to are not cleared.
    """
    return _run(_call_text(target_of(_first(inputs).device), tuple(fields.items())), inputs, outputs)


def _run(text: str, inputs: dict[str, torch.Tensor],
         outputs: dict[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
    wanted, makes_any = _names_of(text)
    if inputs.keys() != set(wanted) or not makes_any:
        _refuse(wanted, inputs)
    first = inputs[wanted[0]]
    if type(first) is torch.Tensor and not torch.compiler.is_compiling():
        tell_of_simulator(first.device, 4)
    given = {name: inputs[name].contiguous() for name in wanted}
    if outputs is not None:
        given.update(outputs)
    return ops.run(text, "run", given)


# torch.compile treats the results of these as constants, and does not trace the planning.
@torch.compiler.assume_constant_result
def _constant_text(description: str, target: str) -> str:
    return text_of(description, target)


@torch.compiler.assume_constant_result
def _call_text(target: str, fields: tuple[tuple[str, Any], ...]) -> str:
    return _text_of_fields(target, fields)


@functools.lru_cache(maxsize=None)
def _text_of_fields(target: str, fields: tuple[tuple[str, Any], ...]) -> str:
    description = dict(fields)
    for key in ("activation", "router"):
        if key in description:
            description[key] = json.loads(description[key])
    return text_of(json.dumps(description), target)


@torch.compiler.assume_constant_result
def _names_of(text: str) -> tuple[tuple[str, ...], bool]:
    """Returns the names of the inputs in the operator's order, and whether the operation makes anything."""
    row = row_of(text, "run")
    return tuple(argument.name for argument in row.reads if not argument.is_optional), bool(row.made)


@torch.compiler.assume_constant_result
def has_gate(activation: str) -> bool:
    """Returns whether an activation, given as JSON, uses gate and up."""
    planned = plan(f'{{"operation": "activation", "local_experts": 1, "max_permuted_rows": 128, "intermediate": 128, '
                   f'"activation": {activation}}}', "sim")
    return next(iter(planned.tensors.values())).shape[1] == 256


def _first(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    for tensor in inputs.values():
        return tensor
    raise RuntimeError("moejit: missing_tensor: the operation got no inputs\n"
                       "hint: docs/operations-api.md lists the tensors of each operation")


def _refuse(wanted: tuple[str, ...], inputs: dict[str, torch.Tensor]) -> None:
    for name in wanted:
        if name not in inputs:
            raise RuntimeError(f"moejit: missing_tensor: tensor {name}: it is missing, wanted {', '.join(wanted)}")
    for name in inputs:
        if name not in wanted:
            raise RuntimeError(f"moejit: invalid_value: the operation has no input {name}, it has {', '.join(wanted)}")
    raise RuntimeError("moejit: unsupported: the operation writes into tensors that its inputs point to\n"
                       "hint: moejit.torch.te.multi_tensor_quantize() makes and keeps these tensors; moejit.Operation "
                       "runs the operation on a list of addresses")


class _NoContext:
    """Stands for autograd's context if nothing is differentiated."""
    needs_input_grad = (False,) * 16

    def save_for_backward(self, *_: Any) -> None:
        pass

    mark_non_differentiable = set_materialize_grads = save_for_backward


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Runs a function. Uses autograd, which takes as long as the rest of a call, only if an argument needs it."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() and any(
            isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments):
        return function.apply(*arguments)
    return function.forward(_NoContext(), *arguments)


def constant(size: int) -> int:
    """Returns a size as a constant. Under torch.compile range() makes a symbol a guard, which int() does not."""
    return len(range(size)) if torch.compiler.is_compiling() else size


def bound(size: int, given: int | None) -> int:
    """Returns the bound for a description: the given one, else the next power of two, at least 256.

    Under torch.compile the comparisons become guards.
    """
    if given is not None:
        return given
    result = _FEWEST
    while result < size:
        result *= 2
    return result
