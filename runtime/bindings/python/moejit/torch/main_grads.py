# SPDX-License-Identifier: Apache-2.0
"""Main gradients: tensors of parameters that backward adds to, as in Megatron and Transformer Engine."""
from __future__ import annotations

from typing import Mapping, Sequence

import torch

from moejit.torch import ops
from moejit.torch.layers import WEIGHT_GRADIENTS


_OF_BIASES = ("db1", "db2")


class MainGradError(RuntimeError):
    """Backward cannot add to a parameter's main gradient.

    Attributes:
        index: The parameter's place among those of take_main_grads().
        dtype: The main gradient's dtype; None: there is none.
    """

    def __init__(self, sentence: str, index: int, dtype: torch.dtype | None) -> None:
        super().__init__(sentence)
        self.index, self.dtype = index, dtype


def moves_main_grads(parameters: Sequence[torch.Tensor | None]) -> bool:
    """Returns whether main gradients are to be asked for when they are written, as Megatron-FSDP does."""
    return any(hasattr(parameter, "get_main_grad") for parameter in parameters if parameter is not None)


def main_grad_dtype(parameters: Sequence[torch.Tensor | None]) -> torch.dtype:
    """Returns the dtype of main gradients: bfloat16 if the first one has it, else float32.

    Main gradients that are made when they are written are float32.
    """
    for parameter in parameters:
        main_grad = getattr(parameter, "main_grad", None)
        if main_grad is not None:
            return torch.bfloat16 if main_grad.dtype == torch.bfloat16 else torch.float32
    return torch.float32


def add_to_main_grads(layer: str, call: str, given: Mapping[str, torch.Tensor], main: Sequence[torch.Tensor],
                      overwrites: bool, order: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Makes a backward call that adds to main gradients, or overwrites them, and returns what it made.

    Gradients of biases are made in float32: a main gradient in bfloat16 gets them in one more kernel.

    Args:
        layer, given, order: As for ops.run(); `given` without main gradients.
        call: The name of the call that overwrites.
        main: The first result of take_main_grads().
        overwrites: The last one.
    """
    targets = dict(zip(WEIGHT_GRADIENTS, main))
    sums = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in targets.items()
            if name in _OF_BIASES and tensor.dtype == torch.bfloat16}
    made = ops.run(layer, call if overwrites else f"{call}+add", {**given, **targets, **sums}, order)
    for name, tensor in sums.items():
        targets[name].copy_(tensor) if overwrites else targets[name].add_(tensor)
    return made


def take_main_grads(parameters: Sequence[torch.Tensor | None],
                    like: torch.Tensor) -> tuple[list[torch.Tensor], tuple[str, ...], bool]:
    """Returns a call's main gradients and the kinds of gradients for autograd; sets `grad_added_to_main_grad`.

    Args:
        parameters: gate_up_proj, down_proj and their biases; None: absent.
        like: A tensor on the device of the call.

    Returns:
        The main gradients, empty if no gradient is wanted; the kinds of the dummies, "none", "zero" or "empty"; and
        whether the call overwrites the main gradients instead of adding to them.

    Raises:
        MainGradError: A parameter has no main_grad, one that is neither float32 nor bfloat16, or they differ in this.
        RuntimeError: Some are to be overwritten and others added to.
    """
    wanted = main_grad_dtype(parameters)
    main, dummies, overwrites = [], [], set()
    names = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")
    for index, (name, parameter) in enumerate(zip(names, parameters)):
        if parameter is None or not parameter.requires_grad:
            main.append(like.new_empty(0, dtype=torch.float32))
            dummies.append("none")
            continue
        asked = getattr(parameter, "get_main_grad", None)
        main_grad = getattr(parameter, "main_grad", None) if asked is None else asked()
        if main_grad is None:
            raise MainGradError(f"moejit: missing_tensor: {name} has no main_grad\nhint: fuse_wgrad_accumulation adds "
                                "the gradients to it: a float32 or bfloat16 tensor of the parameter's shape",
                                index, None)
        if main_grad.dtype != wanted:
            raise MainGradError(f"moejit: tensor_mismatch: {name}.main_grad is {str(main_grad.dtype)[6:]}, wanted "
                                f"{str(wanted)[6:]}\nhint: make all of a module in float32, or all in bfloat16, or "
                                "leave fuse_wgrad_accumulation out", index, main_grad.dtype)
        main.append(main_grad)
        overwrites.add(bool(getattr(parameter, "overwrite_main_grad", False)))
        if not hasattr(parameter, "grad_added_to_main_grad"):
            dummies.append("none")
            continue
        parameter.grad_added_to_main_grad = True
        dummies.append("zero" if getattr(parameter, "zero_out_wgrad", False) else "empty")
    if len(overwrites) > 1:
        raise RuntimeError("moejit: invalid_value: overwrite_main_grad is True for some parameters and False for others"
                           "\nhint: one call writes all of them: set the same for each")
    return main, tuple(dummies), True in overwrites


def dummies_of(weights: Sequence[torch.Tensor | None], kinds: Sequence[str]) -> list[torch.Tensor | None]:
    """Returns gradients for autograd that stand for the gradients in main_grad, so that hooks run; None for "none".

    The kind "zero" means zeros. The values of "empty" ones mean nothing, so they share memory.

    Args:
        weights: What autograd knows; None: absent, of kind "none".
        kinds: The second result of take_main_grads().
    """
    sharers = [weight for weight, kind in zip(weights, kinds) if kind == "empty"]
    shares = not torch.compiler.is_compiling() and all(weight.is_contiguous() for weight in sharers)
    memory = sharers[0].new_empty(max(weight.nbytes for weight in sharers), dtype=torch.uint8) if sharers and shares else None

    def dummy_of(weight: torch.Tensor | None, kind: str) -> torch.Tensor | None:
        if kind == "none":
            return None
        if kind == "zero":
            return torch.zeros_like(weight)
        if memory is None:
            return torch.empty_like(weight)
        return memory[:weight.nbytes].view(weight.dtype).view(weight.shape).detach()

    return list(map(dummy_of, weights, kinds))
