# SPDX-License-Identifier: Apache-2.0
"""Kernels of a model's experts ahead of time, for processes that compile nothing."""
from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from moejit import nvrtc
from moejit.tool import tool_path
from moejit.torch import hf, hf_gates
from moejit.torch.arguments import PROB_DTYPES
from moejit.torch.experts import Experts
from moejit.torch.hf_fp8 import has_codes, packed_format
from moejit.torch.hf_layers import first_weights, make_call, top_k_of
from moejit.torch.layers import call_fields, max_tokens_of, with_format_of

# The gradients of tokens and probabilities that autograd may want. It wants none of either where nothing below is
# trained, and none of probabilities where the router is frozen too. Gradients of weights and biases are wanted as these
# are trained; lists with some of the biases have no other kernels.
_OF_INPUTS = ((), ("dx",), ("dprobs",), ("dx", "dprobs"))
_OF_WEIGHTS = ((), ("dw1",), ("dw2",), ("dw1", "dw2"))
_OF_BIASES = (("dw1", "dw2", "db1", "db2"),)


def build(model: torch.nn.Module, tokens: int | Sequence[int], *, target: str = "cuda:sm_90a",
          pack: str | os.PathLike | None = None, cache_dir: str | os.PathLike | None = None) -> list[dict[str, Any]]:
    """Makes the kernels that calls of a model's experts will ask for, ahead of time. Needs no GPU.

    They serve training and evaluation, eager, compiled and captured calls, and update_weights(). They serve any choice
    of trained and frozen parameters, with bfloat16 weights or float32 ones under autocast. Kernels that the cache
    folder has are not compiled again.

    Args:
        model: A model whose experts run on moejit: by register_hf() and set_experts_implementation(), by convert(), or
            as moejit.torch.Experts without a process_group. Its parameters may be on any device, "meta" too.
        tokens: The largest number of tokens of a call, batch size times length, or several numbers. Smaller calls have
            their kernels too.
        target: "cuda:sm_90a", or "sim" for CPU tensors.
        pack: A file that gets the kernels, for MOEJIT_PACKS (docs/cache.md). None: only the cache folder gets them.
        cache_dir: The cache folder; None: that of MOEJIT_CACHE_DIR, or the usual one.

    Returns:
        The descriptions of the layers whose kernels were made. Those of routers that convert() has converted are made
        too.

    Raises:
        RuntimeError: No experts of the model run on moejit, those of a module cannot, or a kernel cannot be made.
        FileNotFoundError: The program moejit is missing.

    Example:
        >>> moejit.torch.build(model, tokens=8192, pack="kernels.moejitpack")
    """
    numbers = (tokens,) if isinstance(tokens, int) else tuple(tokens)
    if not numbers or not all(isinstance(number, int) and number > 0 for number in numbers):
        raise RuntimeError(f"moejit: invalid_value: build(): tokens: got {tokens!r}, wanted the largest number of tokens "
                           "of a call, or several numbers")
    layers = list(_layers_of_calls(model, max(numbers)))
    routers = hf_gates.descriptions_of_calls(model, max(numbers))
    if pack is not None and routers:
        raise RuntimeError("moejit: unsupported: build() of converted routers into a pack, which has layers alone\nhint: "
                           "leave pack out, and ship the cache folder; or convert with gates=False")
    command = [str(tool_path()), "build", "-", "--target", target, "--variants", "described"]
    for option, path in (("--pack", pack), ("--cache-dir", cache_dir)):
        if path is not None:
            command += [option, os.fspath(path)]
    nvrtc.choose()
    # The caller wants kernels to be made, even if the rest of the process may compile nothing.
    environment = {name: value for name, value in os.environ.items() if name != "MOEJIT_FROZEN"}
    for described in (json.dumps(layers), *routers):
        done = subprocess.run(command, input=described, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"moejit: build(): {done.stderr.strip().removeprefix('moejit: ')}")
    return layers


def _layers_of_calls(model: torch.nn.Module, tokens: int) -> Iterator[dict[str, Any]]:
    """Yields the different layers that calls of so many tokens and fewer may ask for."""
    seen = set()
    for name, module in hf.experts_of(model).items():
        is_frozen = has_codes(module)
        for description, has_halves in _descriptions(name, module, tokens):
            if (description, has_halves, is_frozen) not in seen:
                seen.add((description, has_halves, is_frozen))
                yield from _calls(description, has_halves, is_frozen)


def _descriptions(name: str, module: torch.nn.Module, tokens: int) -> Iterator[tuple[str, bool]]:
    """Yields the descriptions of a module's layers, and whether backward may be called in halves."""
    if isinstance(module, Experts):
        if module._call.group is not None:
            raise RuntimeError(f"moejit: unsupported: build() of {name}, whose experts a process group shares\nhint: their "
                               "kernels are made in the first call, and kept in the cache folder")
        yield module.description, module._call.delayed is not None
        return
    hf.refuse_quantized(module)
    fields, max_tokens, _ = hf.options_of_calls(module)
    top_k = top_k_of(module)
    if top_k is None:
        raise RuntimeError(f"moejit: unsupported: the configuration of {name or type(module).__name__} does not tell how "
                           "many experts a token has\nhint: save the description that a cache_miss tells, and build that")
    size = 1
    while True:
        bound = max_tokens_of(size, max_tokens)
        described = json.loads(make_call(module, fields, bound, top_k, first_weights(module), None, None).description)
        # The version of transformers that runs the model decides which of them its calls ask for.
        for foreign in ("report", "ignore"):
            yield with_format_of(json.dumps({**described, "foreign_experts": foreign}), packed_format(module)), False
        if bound >= tokens or max_tokens is not None:
            return
        size = bound + 1


def _calls(description: str, has_halves: bool, is_frozen: bool) -> Iterator[dict[str, Any]]:
    """Yields the layers that calls make from a description. moejit layer --for torch has the same list.

    FP8 weights of the caller are frozen: they have no gradients, and nothing looks whether they have changed.
    """
    of_weights = _OF_WEIGHTS + (_OF_BIASES if json.loads(description).get("biases") else ())
    if is_frozen:
        of_weights = _OF_WEIGHTS[:1]
    of_inputs = _OF_INPUTS if json.loads(description).get("weight_format", "bf16") == "bf16" else ((),)  # forward alone
    for probs, weights, inputs in itertools.product(PROB_DTYPES.values(), of_weights, of_inputs):
        checks = (False,) if is_frozen else (False, True)
        for wgrad, has_checks in itertools.product(("f32", "bf16") if weights else ("f32",), checks):
            yield call_fields(description, inputs + weights, wgrad, "i64", probs, has_halves and bool(weights), has_checks)
