# SPDX-License-Identifier: Apache-2.0
"""Experts that a layer's own router chooses: tokens and logits in, results, ids, probabilities and losses out."""
from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from moejit.torch import ops
from moejit.torch.arguments import ID_DTYPES, as_rows, biases_of, cast_to_bf16, check_biases, gradient_dtype
from moejit.torch.devices import tell_of_simulator
from moejit.torch.first_order import first_order
from moejit.torch.function import as_gradient
from moejit.torch.gathered import dense
from moejit.torch.layers import BLOCKS, WEIGHT_GRADIENTS, as_json, reads_of
from moejit.torch.plans import row_of
from moejit.torch.router import LOGIT_DTYPES, SCORE_UNIT, Z_UNIT, of_experts
from moejit.torch.shared import check_shared_probs
from moejit.torch.state import ExpertsCall

_OPERANDS = ("x", "logits", "expert_scale", "shared_probs", "w1", "w2", "b1", "b2", "router_bias", "topk_ids", *BLOCKS)
_MADE = ("y", "aux_loss", "z_loss", "topk_ids", "topk_probs", "status", "counts", "unbiased_counts", "score_sums", "z_sum")
_DIFFERENTIABLE = _MADE[:3]


def routed_experts(hidden_states: torch.Tensor, logits: torch.Tensor, gate_up_proj: torch.Tensor,
                   down_proj: torch.Tensor, *, layer: dict[str, Any] | str, bias: torch.Tensor | None = None,
                   expert_scale: torch.Tensor | None = None, topk_ids: torch.Tensor | None = None,
                   topk_ids_dtype: torch.dtype = torch.int32, counts: torch.Tensor | None = None,
                   gate_up_proj_bias: torch.Tensor | None = None, down_proj_bias: torch.Tensor | None = None,
                   shared_probs: torch.Tensor | None = None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Chooses the experts of tokens and computes them, in one call of a layer.

    Tokens, logits, factors, weights and biases have gradients. Results have the bits of router() and experts().

    Args:
        hidden_states: [T, H] bf16, T at most `max_tokens` of the layer; more leading dimensions are allowed.
        logits: float32 or bf16, [T, A] with the same leading dimensions. A is `experts` of the layer.
        gate_up_proj: [E, 2I, H] bf16. Shared experts are the last of E.
        down_proj: [E, H, I] bf16.
        layer: A layer description with "router", as a dict or as JSON. The call itself chooses what experts() chooses,
            and `bias`, `expert_scale`, `ids` and `logits_dtype` of the router.
        bias: float32 [A], added to what orders the choice, never to the probabilities.
        expert_scale: float32 [A], factors of the probabilities.
        topk_ids: int32 or int64 [T, K], the choice if the caller brings it; -1: none.
        topk_ids_dtype: The dtype of the ids that are returned.
        counts: int32 [A], to which the choices of each expert are added. None: nobody asks; a loss has its own.
        gate_up_proj_bias: [E, 2I] bf16, if the description says `biases`.
        down_proj_bias: [E, H] bf16, if the description says `biases`.
        shared_probs: float32 or bf16 [T], the factors of the shared experts' results, if these have a gate.

    Returns:
        The result, as the tokens, and a dict with "topk_ids" and "topk_probs" [T, K], both without gradients, "status"
        int32 [1], and what router() returns of losses: "aux_loss", "z_loss", which have gradients, and their sums.

    Raises:
        RuntimeError: As experts() and router().
    """
    call = ExpertsCall(description=layer if isinstance(layer, str) else as_json(layer))
    return call_routed(call, hidden_states, logits, (gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias),
                       bias=bias, expert_scale=expert_scale, topk_ids=topk_ids, topk_ids_dtype=topk_ids_dtype,
                       counts=counts, shared_probs=shared_probs)


class _Options(NamedTuple):
    """The part of a call that is no tensor.

    Attributes:
        layer: The text of the layer.
        gradient_dtypes: Dtypes of the gradients of w1, w2, b1 and b2.
        has_aux: Whether there is a load-balancing loss.
        has_z: Whether there is a z loss.
        counted: The tensor that has what the load-balancing loss counts.
        experts: A.
        top_k: K.
    """
    layer: str
    gradient_dtypes: tuple[torch.dtype, ...]
    has_aux: bool
    has_z: bool
    counted: str
    experts: int
    top_k: int


def call_routed(call: ExpertsCall, hidden_states: torch.Tensor, logits: torch.Tensor, parameters: tuple, *,
                bias: torch.Tensor | None = None, expert_scale: torch.Tensor | None = None,
                topk_ids: torch.Tensor | None = None, topk_ids_dtype: torch.dtype = torch.int32,
                counts: torch.Tensor | None = None,
                shared_probs: torch.Tensor | None = None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Makes a call of routed_experts(). `parameters` are w1, w2, b1 and b2; quantized ones may be kept by call.state."""
    if call.group is not None:
        raise RuntimeError("moejit: unsupported: a router within experts with process_group\nhint: run router() before "
                           "them")
    x = as_rows("x", hidden_states)
    logits = as_rows("logits", logits).contiguous()
    if logits.dtype not in LOGIT_DTYPES or logits.shape[0] != x.shape[0]:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor logits: it is {logits.dtype} {list(logits.shape)}, wanted "
                           "float32 or bfloat16 [T, A], a row for each token")
    check_shared_probs(call.description, shared_probs, x.shape[0])
    if shared_probs is not None:
        shared_probs = shared_probs.reshape(-1).float().contiguous()
    ids_dtype = topk_ids_dtype if topk_ids is None else topk_ids.dtype
    if ids_dtype not in ID_DTYPES:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_ids: its dtype is {ids_dtype}, wanted int32 or int64")
    cast = parameters
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
        x, *cast = cast_to_bf16(x, *parameters)
    x = x.contiguous()
    gradients = ()
    if torch.is_grad_enabled():
        of_choice = logits, expert_scale, shared_probs
        wants_logits = any(tensor is not None and tensor.requires_grad for tensor in of_choice)
        wanted = (x.requires_grad, wants_logits,
                  *(tensor is not None and tensor.requires_grad for tensor in cast))
        gradients = tuple(name for name, is_wanted in zip(("dx", "dlogits", *WEIGHT_GRADIENTS), wanted) if is_wanted)
    description, *facts = _described(
        call.description, LOGIT_DTYPES[logits.dtype], bias is not None, expert_scale is not None, topk_ids is not None)
    has_checks = call.checks_weights(bool(gradients), None, None)
    of_call = (description, x.device, gradients, call.wgrad_dtype(parameters), ID_DTYPES[ids_dtype], has_checks)
    layer = _layer_of(call, *of_call)
    if not torch.compiler.is_compiling():
        tell_of_simulator(x.device, 4)
    check_biases(layer, *cast[2:])
    w1, w2 = dense(*cast[:2], call.is_transposed)
    blocks = call.quantized_weights(parameters, (w1, w2), layer, bool(gradients), None, None)
    options = _Options(layer, tuple(torch.float32 if each is None else gradient_dtype(each) for each in cast), *facts)
    ids = None if topk_ids is None else as_rows("topk_ids", topk_ids).contiguous()
    operands = (x, logits, expert_scale, shared_probs, w1, w2, *biases_of(x, cast), bias, ids, *blocks)
    made = _RoutedExperts.apply(options, counts, *operands) if gradients else _forward(options, counts, operands)
    made = {name: tensor for name, tensor in zip(_MADE, made) if tensor is not None}
    made.setdefault("topk_ids", ids)
    if call.state is not None:
        call.state.keep_status(made["status"])
    return made.pop("y").view(hidden_states.shape), made


@torch.compiler.assume_constant_result
def _described(description: str, logits_dtype: str, *tensors: bool) -> tuple[str, bool, bool, str, int, int]:
    """Returns the description for calls with bias, expert_scale and topk_ids as told, and the facts of _Options."""
    return _described_once(description, logits_dtype, tensors)


@functools.lru_cache(maxsize=None)
def _described_once(description: str, logits_dtype: str,
                    tensors: tuple[bool, ...]) -> tuple[str, bool, bool, str, int, int]:
    fields = json.loads(description)
    if not isinstance(fields.get("router"), dict):
        raise RuntimeError('moejit: missing_key: argument layer: it has no "router", which routed_experts() runs\n'
                           "hint: add it, or give experts() ids and probabilities")
    router = {**fields["router"], "logits_dtype": logits_dtype}
    for key, value, otherwise, given in zip(("bias", "expert_scale", "ids"), (True, True, "given"),
                                            (False, False, "chosen"), tensors):
        if router.get(key, otherwise) != otherwise and not given:
            raise RuntimeError(f"moejit: missing_tensor: the router has \"{key}\", and got no tensor for it\n"
                               f"hint: give it as an argument, or leave \"{key}\" out")
        router[key] = value if given else otherwise
    fields["router"] = router
    aux = router.get("aux", "none")
    return (json.dumps(fields), aux != "none", bool(router.get("z", False)),
            "unbiased_counts" if aux == "unbiased" else "counts", fields["experts"], fields["top_k"])


def _layer_of(call: ExpertsCall, description: str, device: torch.device, gradients: tuple[str, ...], wgrad: str,
              ids: str, has_checks: bool) -> str:
    """Returns the text of the layer of a call; later calls look it up."""
    key = (description, device, gradients, wgrad, ids, has_checks)
    layer = None if torch.compiler.is_compiling() else call.layers.get(key)
    if layer is None:
        layer = call.text_of(device, gradients, wgrad, ids, "f32", False, has_checks, description=description)
        if not torch.compiler.is_compiling():
            call.layers[key] = layer
    return layer


def _factors(options: _Options, tokens: int) -> tuple[float, float]:
    """Returns the factors of the load-balancing loss and of the z loss of so many tokens."""
    tokens = max(tokens, 1)
    return options.experts / (options.top_k * tokens * tokens), 1.0 / tokens


def _forward(options: _Options, counts: torch.Tensor | None, operands: tuple) -> tuple[torch.Tensor | None, ...]:
    """Returns the tensors of _MADE; None for what the formula does not have."""
    given = {name: tensor for name, tensor in zip(_OPERANDS, operands) if tensor is not None}
    made = _run_forward(options, counts, given)
    return tuple(made.get(name) for name in _MADE)


def _run_forward(options: _Options, counts: torch.Tensor | None, given: Mapping[str, torch.Tensor]) -> dict:
    logits = given["logits"]
    of_aux, of_z = _factors(options, logits.shape[0])
    own = {"status": logits.new_zeros(1, dtype=torch.int32)}
    if options.has_aux:  # the loss counts this call alone
        own["counts"] = logits.new_zeros(logits.shape[1], dtype=torch.int32)
    elif counts is not None:
        own["counts"] = counts
    call = "forward" if BLOCKS[0] in given else "update_weights+forward"
    made = {**ops.run(options.layer, call, {**given, **own}), "status": own["status"]}
    if options.has_aux:
        made["counts"] = own["counts"]
        if counts is not None:
            counts.add_(own["counts"])
        sum_of_experts = (made["score_sums"].double() * made[options.counted]).sum()
        made["aux_loss"] = sum_of_experts.mul(SCORE_UNIT * of_aux).float()
    if options.has_z:
        made["z_loss"] = made["z_sum"].double().sum().mul(Z_UNIT * of_z).float()
    return made


class _RoutedExperts(torch.autograd.Function):

    @staticmethod
    def forward(ctx, options, counts, *operands):
        given = {name: tensor for name, tensor in zip(_OPERANDS, operands) if tensor is not None}
        made = _run_forward(options, counts, given)
        tensors = {**given, **made}
        ctx.options = options
        ctx.names = tuple(name for name in reads_of(options.layer, "backward") if name in tensors)
        ctx.save_for_backward(*[tensors[name] for name in ctx.names])
        ctx.mark_non_differentiable(*[made[name] for name in _MADE if name in made and name not in _DIFFERENTIABLE])
        return tuple(made.get(name) for name in _MADE)

    @staticmethod
    @first_order
    def backward(ctx, dy, daux, dz, *_):
        options = ctx.options
        given = dict(zip(ctx.names, ctx.saved_tensors))
        given["dy"] = dy.contiguous()
        of_aux, of_z = _factors(options, dy.shape[0])
        if options.has_aux:
            given["aux_coefficient"] = (daux * of_aux).float().view(1)
        if options.has_z:
            given["z_coefficient"] = (dz * of_z).float().view(1)
        made = ops.run(options.layer, "backward", given)
        wanted = ctx.needs_input_grad[2:]
        dscale = None
        if wanted[2]:
            dscale = of_experts(made["dexpert_scale"], given["topk_ids"], given["expert_scale"])
        of_weights = [as_gradient(made.get(name), is_wanted, dtype)
                      for name, is_wanted, dtype in zip(WEIGHT_GRADIENTS, wanted[4:8], options.gradient_dtypes)]
        return (None, None, made.get("dx") if wanted[0] else None, made.get("dlogits") if wanted[1] else None, dscale,
                made.get("dshared_probs") if wanted[3] else None, *of_weights, *[None] * 4)
