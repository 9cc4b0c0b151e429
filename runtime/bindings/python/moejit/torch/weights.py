# SPDX-License-Identifier: Apache-2.0
"""Quantised weights that a module keeps from call to call."""
from __future__ import annotations

import torch

from moejit.torch import ops
from moejit.torch.layers import plan_of


@torch.compiler.assume_constant_result
def block_layout(layer: str) -> str:
    """Returns what two layers have in common whose quantised blocks are the same bytes."""
    return plan_of(layer).quantized_key


def quantize(w1: torch.Tensor, w2: torch.Tensor, layer: str) -> torch.Tensor:
    """Returns a new block of quantised weights.

    Args:
        w1: [E, 2I, H] bf16.
        w2: [E, H, I] bf16, on the same device.
        layer: The text of the layer.

    Returns:
        uint8; without elements where the layer's recipe quantises no weights.
    """
    return ops.quantize(w1.detach(), w2.detach(), layer)


class QuantizedWeights:
    """The block of quantised weights of one module, with what it was made of.

    It is no buffer: state dicts, `module.to()` and copies of the module leave it alone, and it is made anew where the
    weights are others.
    """

    def __init__(self) -> None:
        self.block: torch.Tensor | None = None
        self.layout: str | None = None
        self.made_of: tuple | None = None

    def __deepcopy__(self, memo: dict) -> QuantizedWeights:
        return QuantizedWeights()

    def __reduce__(self) -> tuple:
        return QuantizedWeights, ()

    def forget(self) -> None:
        """Lets the next inference call quantise anew. The memory stays, since graphs may use it."""
        self.made_of = None

    def fits(self, w1: torch.Tensor, layer: str) -> bool:
        """Tells whether the block has the layout and device that a call of this layer needs."""
        return self.block is not None and self.block.device == w1.device and self.layout == block_layout(layer)

    def current(self, weights: tuple[torch.Tensor, torch.Tensor], dense: tuple[torch.Tensor, torch.Tensor],
                layer: str) -> torch.Tensor:
        """Returns the block, made anew where a weight was replaced or changed in place since.

        Args:
            weights: The parameters, whose memory and version are looked at.
            dense: The same as the layer takes them: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
        """
        made_of = tuple((weight.data_ptr(), weight._version) for weight in weights)
        if self.made_of != made_of or not self.fits(dense[0], layer):
            self.renew(dense, layer)
            self.made_of = made_of
        return self.block

    def renew(self, dense: tuple[torch.Tensor, torch.Tensor], layer: str,
              skip_update: torch.Tensor | None = None) -> torch.Tensor:
        """Quantises into the block that is there, or a new one, and returns it.

        Args:
            dense: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
            skip_update: [1] int32 on the weights' device: where it is not 0 when the kernels run, they leave the block
                as it is.
        """
        w1, w2 = (weight.detach() for weight in dense)
        if self.fits(w1, layer):
            if self.block.numel() > 0:
                skip = w1.new_empty(0, dtype=torch.int32) if skip_update is None else skip_update
                ops.quantize_(w1, w2, self.block, skip, layer)
        else:
            self.block = ops.quantize(w1, w2, layer)
            self.layout = block_layout(layer)
        return self.block
