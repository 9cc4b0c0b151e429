# SPDX-License-Identifier: Apache-2.0
"""Layers, which are described, planned, prepared and called."""
from __future__ import annotations

import os
from typing import Any, Mapping

from moejit.errors import Error
from moejit.planned import Planned
from moejit.sources import Paths


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
        info: PlanInfo, figures of the plan.
        tensors: TensorInfo of all tensors of the plan, by name.
        calls: CallInfo of all calls of the plan, by name.

    Example:
        >>> layer = moejit.Layer("docs/examples/layers/tiny.json", target="sim").prepare()
        >>> tensors = layer.allocate(tokens=3)
        >>> layer.update_weights(tensors); layer.forward(tensors)
    """

    _kind = "layer"

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
        self.call("update_weights", tensors, stream=stream)

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
        self.call(f"update_{_one_of('pass_', pass_, _PASSES)}_scales", tensors, stream=stream)

    def forward(self, tensors: Mapping[str, Any], *, workspace: object = None, saved: object = None,
                stream: object = None) -> Any:
        """Computes "y" from "x", "topk_ids", "topk_probs" and the weights.

        A layer with "router" reads "logits" F32 or BF16 [T, A], and what its formula needs, and writes "topk_ids" and
        "topk_probs".

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
        return self.call("forward", tensors, workspace=workspace, saved=saved, stream=stream).saved

    def backward(self, tensors: Mapping[str, Any], *, saved: object, mode: str = "overwrite", workspace: object = None,
                 deferred: object = None, stream: object = None) -> None:
        """Computes the gradients of the forward call that filled `saved`, from "dy".

        A layer with "router" also reads "logits" and "topk_ids" of the forward call, and makes "dlogits" in the place of
        "dprobs".

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
        self.call(_in_mode("backward", mode), tensors, workspace=workspace, saved=saved, deferred=deferred,
                  stream=stream)

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
        return self.call("backward_data", tensors, workspace=workspace, saved=saved, deferred=deferred,
                         stream=stream).deferred

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
        self.call(_in_mode("backward_weights", mode), tensors, workspace=workspace, saved=saved, deferred=deferred,
                  stream=stream)

    def quantize(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes a rank's own tokens for a dispatch by the host, for layers with "dispatch_calls".

        Args:
            tensors: "x" BF16 [T, H], and the outputs "x_q" F8_E4M3 [T, H] and "x_scale_inv" F32 [T, ceil(H/128)].
            stream: As for forward().

        Raises:
            Error: As for forward(); "unsupported": the layer has no such calls.
        """
        self.call("quantize", tensors, stream=stream)

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
        return self.call("experts", tensors, workspace=workspace, saved=saved, stream=stream).saved

    def quantize_grad(self, tensors: Mapping[str, Any], *, stream: object = None) -> None:
        """Quantizes "dy" of a rank's own tokens into "dy_q" and "dy_scale_inv", as quantize() does with "x"."""
        self.call("quantize_grad", tensors, stream=stream)

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
        self.call(_in_mode("experts_grad", mode), tensors, workspace=workspace, saved=saved, deferred=deferred,
                  stream=stream)


_MODES, _PASSES = {"overwrite": "", "add": "+add"}, {"forward": "forward", "backward": "backward"}


def _in_mode(call: str, mode: str) -> str:
    """Returns the name of a call that overwrites gradients, or adds to them."""
    return call + _one_of("mode", mode, _MODES)


def _one_of(what: str, name: str, values: Mapping[str, str]) -> str:
    if name not in values:
        raise Error("invalid_value", "launch", f'{what} is "{name}", wanted one of {", ".join(values)}')
    return values[name]
