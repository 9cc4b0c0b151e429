# SPDX-License-Identifier: Apache-2.0
"""Single steps of a layer on torch tensors: any operation, by its description."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch import ops
from moejit.torch._operation import call_text, constant_text, names_of
from moejit.torch.devices import no_elements, target_of, tell_of_simulator
from moejit.torch.layers import as_json

_FEWEST = 256
_MOST_INPUTS = 8


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
    text = constant_text(description if isinstance(description, str) else as_json(description),
                         target_of(_first(inputs).device))
    return _run(text, inputs)


def run(fields: dict[str, Any], inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Runs an operation whose description has these fields, with constants as values. Later calls plan nothing."""
    return _run(call_text(target_of(_first(inputs).device), tuple(fields.items())), inputs)


def _run(text: str, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    wanted, outputs = names_of(text)
    if inputs.keys() != set(wanted) or len(wanted) > _MOST_INPUTS or not outputs:
        _refuse(wanted, inputs)
    first = inputs[wanted[0]]
    is_plain = type(first) is torch.Tensor and not torch.compiler.is_compiling()
    if is_plain:
        tell_of_simulator(first.device, 4)
    none = no_elements(first.device) if is_plain else first.new_empty(0)
    given = [inputs[name].contiguous() for name in wanted]
    results = ops.operation[len(outputs)](*given, *[none] * (_MOST_INPUTS - len(given)), text)
    return {outputs[0]: results} if len(outputs) == 1 else dict(zip(outputs, results))


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
                       "hint: run it with moejit.Operation, whose calls get the outputs' memory too")


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
