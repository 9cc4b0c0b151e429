# SPDX-License-Identifier: Apache-2.0
"""Quantized weights that a module keeps between calls."""
from __future__ import annotations

import torch

from moejit.torch import ops
from moejit.torch.layers import block_keys

Blocks = tuple[torch.Tensor, torch.Tensor]


def quantize(w1: torch.Tensor, w2: torch.Tensor, layer: str, state: tuple[torch.Tensor, ...] = ()) -> Blocks:
    """Returns two new blocks of quantized weights: the row-wise ones and the column-wise ones.

    Args:
        w1: [E, 2I, H] bf16.
        w2: [E, H, I] bf16, on the same device.
        layer: The text of the layer.
        state: The tensors of FORWARD_STATE if the layer has a state.

    Returns:
        Two tensors of uint8; they are empty if the layer has no such weights.
    """
    if state:
        return ops.quantize_with_state(w1.detach(), w2.detach(), *state, layer)
    return ops.quantize(w1.detach(), w2.detach(), layer)


def made_of(w1: torch.Tensor, w2: torch.Tensor) -> tuple[int, int, int, int]:
    """Returns a value that changes when a weight is replaced or written to."""
    return w1.data_ptr(), w1._version, w2.data_ptr(), w2._version


class QuantizedWeights:
    """The blocks of quantized weights of one module, with the versions of weights that they were made from.

    They are no buffers: state dicts, `module.to()` and copies of the module ignore them. They are made again when the
    weights change.
    """

    def __init__(self) -> None:
        self.blocks: Blocks | None = None
        self.keys: tuple[str, str] | None = None
        self.made_of: tuple | None = None

    def __deepcopy__(self, memo: dict) -> QuantizedWeights:
        return QuantizedWeights()

    def __reduce__(self) -> tuple:
        return QuantizedWeights, ()

    def forget(self) -> None:
        """Makes the next inference call quantize again. The memory stays, since graphs may use it."""
        self.made_of = None

    def fits(self, w1: torch.Tensor, layer: str) -> bool:
        """Returns whether the blocks have the layout and device that a call of this layer needs."""
        return self.blocks is not None and self.blocks[0].device == w1.device and self.keys == block_keys(layer)

    def current(self, weights: tuple[torch.Tensor, torch.Tensor], dense: tuple[torch.Tensor, torch.Tensor],
                layer: str, state: tuple[torch.Tensor, ...] = ()) -> Blocks:
        """Returns the blocks; makes them again if a weight was replaced or changed in place.

        While a CUDA graph is captured, new blocks belong to the graph, and nothing new is kept.

        Args:
            weights: The parameters, whose memory and versions are compared.
            dense: The same weights as the layer takes them: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
            state: As for quantize().
        """
        now = made_of(*weights)
        if self.made_of != now or not self.fits(dense[0], layer):
            if dense[0].is_cuda and torch.cuda.is_current_stream_capturing():
                return quantize(*dense, layer, state)  # replays of the graph fill these; none has run yet
            self.renew(dense, layer, state=state)
            self.made_of = now
        return self.blocks

    def renew(self, dense: tuple[torch.Tensor, torch.Tensor], layer: str,
              skip_update: torch.Tensor | None = None, state: tuple[torch.Tensor, ...] = ()) -> Blocks:
        """Quantizes into the existing blocks, or into new ones, and returns them.

        Args:
            dense: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
            skip_update: [1] int32 on the weights' device: if it is not 0 when the kernels run, they do not change the
                blocks.
            state: As for quantize().
        """
        w1, w2 = (weight.detach() for weight in dense)
        if self.fits(w1, layer):
            quantized, quantized_colwise = self.blocks
            if quantized.numel() > 0:
                skip = w1.new_empty(0, dtype=torch.int32) if skip_update is None else skip_update
                if state:
                    ops.quantize_with_state_(w1, w2, quantized, quantized_colwise, skip, *state, layer)
                else:
                    ops.quantize_(w1, w2, quantized, quantized_colwise, skip, layer)
        else:
            self.blocks = quantize(w1, w2, layer, state)
            self.keys = block_keys(layer)
        return self.blocks
