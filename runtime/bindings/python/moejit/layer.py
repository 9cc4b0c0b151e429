# SPDX-License-Identifier: Apache-2.0
"""Layers, which are described, planned, prepared and called."""
from __future__ import annotations

import array
import os
from ctypes import byref
from typing import Any, Mapping

from moejit import records
from moejit.calls import NO_BLOCK, CallRecord, read_block
from moejit.device import Memory
from moejit.errors import Error
from moejit.info import LayerInfo, Sizes, TensorPlace, info_of
from moejit.library import get_info
from moejit.planned import Planned
from moejit.sources import Paths
from moejit.streams import address_of
from moejit.tensors import Tensor


class Layer(Planned):
    """A Mixture-of-Experts layer: planned when it is made, ready for calls after prepare().

    Calls take a mapping of tensors by the names in the plan, and write into its outputs. A tensor is anything with
    `__dlpack__` (torch, jax, cupy), a numpy array, a moejit.Tensor, or an object with a buffer of the right shape. It
    is on the layer's device, row-major without gaps and 16-byte aligned, and has the dtype that `tensors` names. In
    place of BF16 also uint16 is accepted, with the same bits; in place of F8_E4M3 uint8; in place of U32 int32. For
    torch tensors that require a gradient, the values are used.

    Any number of threads may call at the same time, each with its own outputs and blocks.

    Attributes:
        description: The layer description with every field, a dict.
        target: "cuda:sm_90a" or "sim".
        info: LayerInfo, sizes of the plan.
        tensors: TensorInfo of all tensors of the plan, by name.

    Example:
        >>> layer = moejit.Layer("docs/examples/layers/tiny.json", target="sim").prepare()
        >>> tensors = layer.allocate(tokens=3)
        >>> layer.update_weights(tensors); layer.forward(tensors)
    """

    _kind = "layer"
    _options = records.LayerOptions
    _info_record = records.LayerInfo
    _info_class = LayerInfo
    info: LayerInfo

    def __init__(self, description: Mapping[str, Any] | str | os.PathLike, target: str = "auto", *,
                 name: str | None = None, keep_intermediates: bool = False, tuning: Paths = None) -> None:
        """Reads a layer description and plans it. Compiles nothing.

        Args:
            description: A dict, JSON, or the path of a file (docs/layer-description.md).
            target: "cuda:sm_90a", "sim", or "auto": the target of this machine's GPU, or "sim" with a warning if there
                is none.
            name: The description's name in errors; by default its path, or "layer".
            keep_intermediates: Whether tensors between kernels stay readable in the workspace after a call.
            tuning: Tuning records to plan with: a path or several (docs/tuning.md). None: those of MOEJIT_TUNING; an
                empty list: none.

        Raises:
            Error: The description or a record is wrong ("unknown_key", ...), or the target cannot run the layer
                ("unsupported").
            OSError: There is no such file.
            ImportError: libmoejit.so is missing.
        """
        self._plan(description, target, name, tuning, keep_intermediates=keep_intermediates)

    def sizes(self, tokens: int | None = None) -> Sizes:
        """Returns the bytes of the blocks that a call needs.

        Args:
            tokens: T of the call; None: max_tokens, which serves every call.

        Raises:
            Error: "invalid_value": T is less than 0 or more than max_tokens.
        """
        with self._handle.use() as layer:
            return info_of(Sizes, get_info(records.LayerSizes, "moejit_layer_get_sizes", layer,
                                           self.info.max_tokens if tokens is None else tokens))

    def place(self, name: str, tokens: int | None = None) -> TensorPlace:
        """Returns the place of a tensor in a call. With `keep_intermediates` tensors between kernels have places too.

        Args:
            name: A name in `tensors`.
            tokens: T of the call; None: max_tokens.

        Raises:
            KeyError: There is no such tensor.
            Error: "invalid_value": T is less than 0 or more than max_tokens.
        """
        info = self.tensors[name]
        with self._handle.use() as layer:
            place = get_info(records.TensorPlace, "moejit_layer_get_tensor_place", layer,
                             list(self.tensors).index(name), self.info.max_tokens if tokens is None else tokens)
        return TensorPlace(place.offset, place.bytes, tuple(place.shape[:len(info.shape)]))

    def allocate(self, tokens: int) -> dict[str, Tensor]:
        """Returns memory for all of the caller's tensors, on the layer's device.

        It is filled with zeros. Only scales of role "state" start as ones.

        Args:
            tokens: T of the calls that will use the memory.

        Raises:
            Error: "out_of_memory", ...; "invalid_value": T is less than 0 or more than max_tokens.
        """
        self.sizes(tokens)
        device = self._default_device()
        tensors = {tensor.name: Tensor(device.allocate(tensor.bytes), tensor.dtype, tensor.shape_of(tokens))
                   for tensor in self.tensors.values() if tensor.is_callers}
        fill_first_scales(self.tensors, tensors)
        return tensors

    def update_weights(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes w1 and w2 into the tensors of role "quantized". Call it after each change of the weights.

        Does nothing if the recipe has no such tensors, as bf16. Layers with "weight_checks" leave weights alone that
        have not changed; fill "weights_digest" with zeros before the first call.

        Args:
            tensors: "w1" BF16 [E, 2I, H], "w2" BF16 [E, H, I], the quantized tensors, and optionally "skip_update" U32
                [1].
            stream: As for forward().

        Raises:
            Error: "missing_tensor", "tensor_mismatch", ...: raised before anything is launched.
        """
        self._run("update_weights", tensors, None, None, stream)

    def update_scales(self, tensors: Mapping[str, Any], pass_: str = "forward", *, stream: object = None) -> None:
        """Finds the scales of the next step from what the calls of a pass have recorded, for recipes with a history.

        Call it once a step, behind the last call of the pass. Before it, `amax_history[0]` of each history may be
        reduced over ranks, with max. With other recipes nothing happens.

        Args:
            tensors: The tensors of role "state" of that pass, as `tensors` lists them; they are written in place.
            pass_: "forward" or "backward".
            stream: As for forward().

        Raises:
            Error: As for forward(); "unsupported": "backward" of a layer without a backward pass.
        """
        self._run("update_scales", tensors, None, None, stream, number_of_pass(pass_))

    def forward(self, tensors: Mapping[str, Any], *, workspace: object = None, saved: object = None,
                stream: object = None) -> Any:
        """Computes "y" from "x", "topk_ids", "topk_probs" and the weights.

        On a GPU the call starts the kernels and returns: tensors and blocks must stay until the kernels are done.

        Args:
            tensors: "x" BF16 [T, H], "topk_ids" I32 [T, K], "topk_probs" F32 [T, K], the weights that `tensors` lists,
                "y" BF16 [T, H] and "status" U32 [1]. Tensors that the call does not use are ignored, and so is None.
            workspace: A block of sizes(T).workspace_bytes, a Memory or a tensor of bytes. None: one that the layer
                keeps.
            saved: A block of sizes(T).saved_bytes in the same forms, kept for backward(). None: a new Memory, if the
                layer has a backward pass.
            stream: None for the default stream; the number of a CUstream; an object with `__cuda_stream__()`; a
                torch.cuda.Stream. The simulator has none.

        Returns:
            The saved block, for backward(); None if the layer has no backward pass.

        Raises:
            Error: "missing_tensor", "tensor_mismatch", "workspace_too_small", "invalid_value": raised before anything
                is launched; "driver", "stream_capture", "simulator_fault": raised by launching.
        """
        self._check_prepared("forward")
        if saved is None and self.info.has_backward:
            saved = Memory(self._device, self.sizes(self._tokens_of(tensors)).saved_bytes, is_zeroed=False)
        self._run("forward", tensors, workspace, saved, stream)
        return saved

    def backward(self, tensors: Mapping[str, Any], *, saved: object, mode: str = "overwrite", workspace: object = None,
                 deferred: object = None, stream: object = None) -> None:
        """Computes the gradients of the forward call that filled `saved`, from "dy".

        Args:
            tensors: "dy" BF16 [T, H], the outputs "dx", "dprobs", "dw1", "dw2", ..., and the others that `tensors`
                lists, unchanged since the forward call. T is that of the forward call.
            saved: The block that forward() returned.
            mode: "overwrite", or "add" to the old values of the weights' gradients.
            deferred: A block of sizes(T).deferred_bytes, for layers with "backward_halves". None: a new Memory.
            workspace, stream: As for forward().

        Raises:
            Error: As for forward(); "unsupported": the layer has no backward pass, or its gradients are bf16 and cannot
                be added to.
        """
        self._run("backward", tensors, workspace, saved, stream, number_of_mode(mode),
                  deferred=self._deferred(tensors, deferred))

    def backward_data(self, tensors: Mapping[str, Any], *, saved: object, workspace: object = None,
                      deferred: object = None, stream: object = None) -> object:
        """Computes only "dx" and "dprobs", for layers with "backward_halves"; backward_weights() computes the rest.

        Args:
            tensors, saved, workspace, stream: As for backward().
            deferred: A block of sizes(T).deferred_bytes, kept for backward_weights(). None: a new Memory.

        Returns:
            The deferred block, for backward_weights().

        Raises:
            Error: As for backward(); "unsupported": the layer has no halves.
        """
        deferred = self._deferred(tensors, deferred)
        self._run("backward_data", tensors, workspace, saved, stream, deferred=deferred)
        return deferred

    def backward_weights(self, tensors: Mapping[str, Any], *, saved: object, deferred: object, mode: str = "overwrite",
                         workspace: object = None, stream: object = None) -> None:
        """Computes gradients of weights and biases for the backward_data() call that filled `deferred`.

        They are bit for bit the gradients of backward().

        Args:
            tensors: "dy" BF16 [T, H], whose shape gives T, the gradients, and the others that `tensors` lists.
            saved: The block that forward() returned.
            deferred: The block that backward_data() returned.
            mode, workspace, stream: As for backward().

        Raises:
            Error: As for backward(); "unsupported": the layer has no halves.
        """
        self._run("backward_weights", tensors, workspace, saved, stream, number_of_mode(mode), deferred=deferred)

    def quantize(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes a rank's own tokens for a dispatch by the host, for layers with "dispatch_calls".

        Args:
            tensors: "x" BF16 [T, H], and the outputs "x_q" F8_E4M3 [T, H] and "x_scale_inv" F32 [T, ceil(H/128)].
            stream: As for forward().

        Raises:
            Error: As for forward(); "unsupported": the layer has no such calls.
        """
        self._run("quantize", tensors, None, None, stream)

    def experts(self, tensors: Mapping[str, Any], *, workspace: object = None, saved: object = None,
                stream: object = None) -> Any:
        """Does the rest of forward() for T rows that ranks have sent, for layers with "dispatch_calls".

        Args:
            tensors: As for forward(), with the rows "x_q" and "x_scale_inv" in place of "x". "y" has a row for each of
                them.
            workspace, saved, stream: As for forward().

        Returns:
            The saved block, for experts_grad(); None if the layer has no backward pass.

        Raises:
            Error: As for quantize().
        """
        self._check_prepared("experts")
        if saved is None and self.info.has_backward:
            saved = Memory(self._device, self.sizes(self._tokens_of(tensors, "x_q")).saved_bytes, is_zeroed=False)
        self._run("experts", tensors, workspace, saved, stream)
        return saved

    def quantize_grad(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes "dy" of a rank's own tokens into "dy_q" and "dy_scale_inv", as quantize() does with "x"."""
        self._run("quantize_grad", tensors, None, None, stream)

    def experts_grad(self, tensors: Mapping[str, Any], *, saved: object, mode: str = "overwrite",
                     workspace: object = None, deferred: object = None, stream: object = None) -> None:
        """Does the rest of backward() for the rows of an experts() call, for layers with "dispatch_calls".

        Args:
            tensors: As for backward(), with the rows "dy_q" and "dy_scale_inv" in place of "dy". They are in the order
                of the rows of x in experts(), which are given again.
            saved: The block that experts() returned.
            mode, workspace, deferred, stream: As for backward().

        Raises:
            Error: As for backward() and quantize().
        """
        self._run("experts_grad", tensors, workspace, saved, stream, number_of_mode(mode),
                  deferred=self._deferred(tensors, deferred, "dy_q"))

    def _deferred(self, tensors: Mapping[str, Any], given: object, dy: str = "dy") -> object:
        """Returns the deferred block of a call: the given one, or a new one if the layer has halves."""
        if given is not None or not self.info.deferred_bytes or not self._is_prepared:
            return given
        return Memory(self._device, self.sizes(self._tokens_of(tensors, dy)).deferred_bytes, is_zeroed=False)

    def _tokens_of(self, tensors: Mapping[str, Any], name: str = "x") -> int:
        """Returns T of a call from a tensor; max_tokens if the library will refuse that tensor."""
        x = tensors.get(name)
        try:
            shape = x.shape if hasattr(x, "shape") else memoryview(x).shape
        except TypeError:
            shape = ()
        return min(int(shape[0]), self.info.max_tokens) if len(shape) == 2 else self.info.max_tokens

    def _run(self, function: str, tensors: Mapping[str, Any], workspace: object, saved: object, stream: object,
             *arguments: int, deferred: object = None) -> None:
        self._check_prepared(function)
        address = address_of(stream)
        blocks = [NO_BLOCK if value is None else read_block(name, value, self._device, address)
                  for name, value in (("saved", saved), ("deferred", deferred))]
        with self._handle.use() as layer, self._blocks.workspace(workspace, address) as space:
            call = CallRecord(function, self.tensors, tensors, space, *blocks, address)
            self._function(function)(layer, *arguments, byref(call.record))


def number_of_mode(mode: str) -> int:
    """Returns the number of a gradient mode, "overwrite" or "add".

    Raises:
        Error: "invalid_value": it is neither.
    """
    return _number_in(records.GRADIENT_MODES, "mode", mode)


def number_of_pass(pass_: str) -> int:
    """Returns the number of a pass, "forward" or "backward".

    Raises:
        Error: "invalid_value": it is neither.
    """
    return _number_in(records.PASSES, "pass_", pass_)


def fill_first_scales(infos: Mapping[str, TensorInfo], tensors: Mapping[str, Tensor]) -> None:
    """Fills the scales of a first state with ones."""
    for info in infos.values():
        if info.is_first_one:
            tensors[info.name].memory.write(array.array("f", [1.0]) * (info.bytes // 4))


def _number_in(numbers: Mapping[str, int], what: str, name: str) -> int:
    if name not in numbers:
        raise Error("invalid_value", "launch", f'{what} is "{name}", wanted one of {", ".join(numbers)}')
    return numbers[name]
