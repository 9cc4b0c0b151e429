# SPDX-License-Identifier: Apache-2.0
"""Quantized weights that a module keeps between calls, and how calls learn that the weights have changed.

Some changes PyTorch reports, and the host looks at these: another tensor, another address, another version. A kernel
sees everything else, such as fused optimizers, writes through `.data`, collectives and replayed graphs. It compares the
weights with a digest beside the quantized ones, and the casts behind it end at once if nothing differs. docs/weights.md
has the rules.
"""
from __future__ import annotations

import sys

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from moejit.torch import ops
from moejit.torch.layers import BLOCKS, FORWARD_STATE, block_keys, place_of_digest

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
    made = ops.run(layer, "update_weights", _given((w1, w2), state))
    return tuple(made[name] if name in made else w1.new_empty(0, dtype=torch.uint8) for name in BLOCKS)


def _given(dense: Blocks, state: tuple[torch.Tensor, ...], **others: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Returns tensors for a call of update_weights, by name."""
    given = dict(zip(("w1", "w2"), (weight.detach() for weight in dense)))
    given.update(zip(FORWARD_STATE, state))
    given.update((name, tensor) for name, tensor in others.items() if tensor is not None)
    return given


def _quantize_into(blocks: Blocks, dense: Blocks, layer: str, state: tuple[torch.Tensor, ...],
                   skip_update: torch.Tensor | None = None) -> None:
    if blocks[0].numel() == 0:
        return
    if skip_update is None:
        place = place_of_digest(layer)
        if place is not None:  # without its digest all is quantized, whatever the weights are
            blocks[0].narrow(0, *place).zero_()
    ops.run(layer, "update_weights", _given(dense, state, skip_update=skip_update, **dict(zip(BLOCKS, blocks))))


def _is_captured(weight: torch.Tensor) -> bool:
    return weight.is_cuda and torch.cuda.is_current_stream_capturing()


def version_of(weight: torch.Tensor) -> int:
    """Returns how often PyTorch has seen the tensor written. Tensors of inference mode count no writes: -1."""
    return -1 if weight.is_inference() else weight._version


def _identity(weight: torch.Tensor) -> tuple:
    """Returns what changes when a weight becomes another tensor, or is written to in a way that PyTorch counts."""
    return id(weight), weight.untyped_storage()._cdata, weight.data_ptr(), version_of(weight)


class KeptBlocks:
    """The blocks of one layout on one device.

    Attributes:
        blocks: As of quantize(); None: they are freed, and no call may use this any more.
        made_of: The identities of both weights, None: unknown; and weak references to their storages, so that no other
            one gets their place. Weak references to the tensors would keep torch.utils.swap_tensors() from swapping.
        is_promised: Whether weights change only before an update_weights(), so that calls need not look.
        is_pinned: Whether graphs may use the memory, which then stays.
        stream: The raw stream of the last eager call; 0 on the CPU.
    """
    __slots__ = ("blocks", "is_pinned", "is_promised", "last_stream", "made_of", "stream")

    def __init__(self, blocks: Blocks) -> None:
        self.blocks: Blocks | None = blocks
        self.made_of: tuple | None = None
        self.is_promised = False
        self.is_pinned = False
        self.last_stream: torch.cuda.Stream | None = None
        self.stream = 0

    def is_made_of(self, w1: torch.Tensor, w2: torch.Tensor) -> bool:
        """Returns whether the weights are as they were, as far as PyTorch reports."""
        made = self.made_of
        return made is not None and made[0] == _identity(w1) and made[1] == _identity(w2)

    def note(self, w1: torch.Tensor, w2: torch.Tensor) -> None:
        """Notes the weights from which the blocks are made now."""
        self.made_of = (_identity(w1), _identity(w2), StorageWeakRef(w1.untyped_storage()),
                        StorageWeakRef(w2.untyped_storage()))

    def doubt(self) -> None:
        """Forgets from which weights the blocks are made, and the promise."""
        self.made_of = None
        self.is_promised = False

    def renew(self, dense: Blocks, layer: str, state: tuple[torch.Tensor, ...]) -> Blocks:
        """Returns the blocks; unless they are promised, the device quantizes again if it finds that weights changed.

        The host does not wait for the answer.
        """
        if not self.is_promised and self.blocks[0].numel() > 0:
            ops.run(layer, "update_weights", _given(dense, state, **dict(zip(BLOCKS, self.blocks))))
        return self.blocks

    def wait_for_last(self) -> None:
        """Makes this stream wait for calls on the last one, which may still renew the blocks."""
        if not self.blocks[0].is_cuda:
            return
        stream = torch.cuda.current_stream(self.blocks[0].device)
        if self.last_stream is not None and self.last_stream != stream:
            stream.wait_stream(self.last_stream)
        self.last_stream = stream
        self.stream = stream.cuda_stream


class QuantizedWeights:
    """The quantized weights of one module: blocks for each device and layout that its calls need.

    They are no buffers: state dicts, `module.to()` and copies of the module ignore them.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple, KeptBlocks] = {}
        self.promises = False  # whether blocks that are made from now on are promised

    def __deepcopy__(self, memo: dict) -> QuantizedWeights:
        return QuantizedWeights()

    def __reduce__(self) -> tuple:
        return QuantizedWeights, ()

    @property
    def blocks(self) -> tuple[torch.Tensor, ...]:
        """Everything that is kept, for counting memory."""
        return tuple(block for kept in self.kept.values() for block in kept.blocks)

    def find(self, device: torch.device, layer: str) -> KeptBlocks | None:
        """Returns the blocks of the layout and device that a call of this layer needs; None: there are none."""
        return self.kept.get((*block_keys(layer), device.type, device.index))

    def forget(self) -> None:
        """Frees what no graph uses, and makes the next inference call quantize again. Calls with gradients call it."""
        if not self.kept:
            return
        self.take_back()
        kept, self.kept = self.kept, {key: each for key, each in self.kept.items() if each.is_pinned}
        for each in kept.values():
            if not each.is_pinned:
                each.blocks = None

    def promise(self) -> None:
        """Makes the next call quantize again, and later ones not look, until the next promise()."""
        self.take_back()
        self.promises = True

    def take_back(self) -> None:
        """Takes promises back, and makes the next call quantize again."""
        self.promises = False
        for each in self.kept.values():
            each.doubt()

    def current(self, weights: tuple[torch.Tensor, torch.Tensor], dense: Blocks, layer: str,
                state: tuple[torch.Tensor, ...] = ()) -> Blocks:
        """Returns blocks of the weights as they are when the kernels run.

        Blocks that are made while a CUDA graph is captured belong to the graph. Calls below an autograd.Function, such
        as a reentrant checkpoint's, are training, and keep nothing.

        Args:
            weights: The parameters.
            dense: The same weights as the layer takes them: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
            state: As for quantize().
        """
        kept = self.find(dense[0].device, layer)
        if _is_captured(dense[0]):
            if kept is None or not kept.is_made_of(*weights):
                return quantize(*dense, layer, state)  # replays of the graph fill these; none has run yet
            kept.is_pinned = True
            return kept.renew(dense, layer, state)
        if kept is None:
            if _is_below_function() or hasattr(weights[0], "ds_id"):  # ZeRO-3 frees the weights
                return quantize(*dense, layer, state)
            kept = self._add(dense, layer, state)
        else:
            kept.wait_for_last()
            if kept.is_made_of(*weights):
                return kept.renew(dense, layer, state)
            _quantize_into(kept.blocks, dense, layer, state)
        kept.is_promised = self.promises
        kept.note(*weights)
        return kept.blocks

    def in_graph(self, dense: Blocks, layer: str, state: tuple[torch.Tensor, ...] = ()) -> Blocks:
        """Returns current() for a call that torch.compile traces: its graph cannot ask for versions."""
        kept = self.find(dense[0].device, layer)
        return quantize(*dense, layer, state) if kept is None else kept.renew(dense, layer, state)

    def of_step(self, dense: Blocks, layer: str, is_first_microbatch: bool | None, skip_update: torch.Tensor | None,
                state: tuple[torch.Tensor, ...] = ()) -> Blocks:
        """Returns blocks that the caller has renewed once a step.

        Args:
            dense: w1 [E, 2I, H] and w2 [E, H, I], bf16.
            layer: The text of the layer.
            is_first_microbatch: False: they are as the step's first call left them, if there was one.
            skip_update: [1] int32 on the weights' device: if it is not 0 when the kernels run, they do not change the
                blocks.
            state: As for quantize().
        """
        kept = self.find(dense[0].device, layer)
        if kept is None:
            kept = self._add(dense, layer, state)
        elif skip_update is not None or is_first_microbatch:
            _quantize_into(kept.blocks, dense, layer, state, skip_update)
        kept.doubt()
        kept.is_pinned = True
        if not torch.compiler.is_compiling():
            self.take_back()
        return kept.blocks

    def keep(self, weights: tuple[torch.Tensor, torch.Tensor], dense: Blocks, layer: str,
             state: tuple[torch.Tensor, ...] = ()) -> None:
        """Quantizes now, into the same memory as before, and promises that weights stay until the next call of this
        function."""
        self.promise()
        kept = self.find(dense[0].device, layer)
        is_captured = _is_captured(dense[0])
        if kept is None:
            kept = self._add(dense, layer, state)
        else:
            if not is_captured:
                kept.wait_for_last()
            _quantize_into(kept.blocks, dense, layer, state)
        kept.is_promised = kept.is_pinned = True
        if not is_captured:
            kept.note(*weights)

    def _add(self, dense: Blocks, layer: str, state: tuple[torch.Tensor, ...]) -> KeptBlocks:
        with torch.inference_mode(False):  # calls outside of that mode write to the blocks, too
            kept = KeptBlocks(quantize(*dense, layer, state))
        device = dense[0].device
        self.kept[(*block_keys(layer), device.type, device.index)] = kept
        if not _is_captured(dense[0]):
            kept.wait_for_last()
        return kept


def _is_below_function() -> bool:
    """Returns whether an autograd.Function runs this call in its forward."""
    frame = sys._getframe(1)
    while frame is not None:
        if (frame.f_code.co_varnames[:1] == ("ctx",)
                and isinstance(frame.f_locals.get("ctx"), torch.autograd.function.FunctionCtx)):
            return True
        frame = frame.f_back
    return False
