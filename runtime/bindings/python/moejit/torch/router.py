# SPDX-License-Identifier: Apache-2.0
"""The choice of experts: ids and probabilities of logits in one kernel, and the gradient of the logits in one more."""
from __future__ import annotations

import json
from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.layers import as_json
from moejit.torch.operations import apply, bound, constant, run, run_into
from moejit.torch.permute import ID_DTYPES

LOGIT_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
SCORE_UNIT, Z_UNIT = 2.0 ** -32, 2.0 ** -24


def router(logits: torch.Tensor, top_k: int, *, bias: torch.Tensor | None = None,
           expert_scale: torch.Tensor | None = None, topk_ids: torch.Tensor | None = None,
           topk_ids_dtype: torch.dtype = torch.int32, counts: torch.Tensor | None = None,
           loss_counts: torch.Tensor | None = None, max_tokens: int | None = None,
           **formula: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Chooses the experts of tokens. `logits` and `expert_scale` have gradients.

    docs/router.md has the formula and each rounding. If scores are equal, the lower expert wins.

    Args:
        logits: float32 or bf16 [T, A], with the logits of zero experts at the end.
        top_k: K, the experts of a token.
        bias: float32 [A], added to what orders the choice, never to the probabilities.
        expert_scale: float32 [A], factors of the probabilities.
        topk_ids: int32 or int64 [T, K], the choice if the caller brings it; -1: none.
        topk_ids_dtype: The dtype of the ids that are returned.
        counts: int32 [A], to which the choices of each expert are added. None: nobody asks; a loss has its own.
        loss_counts: int32 [A], counts of the load-balancing loss over several calls: this call adds its own first. The
            loss is over all of these choices then, and over the scores of this call: Megatron's `global_aux_loss`, with
            a tensor that each step clears. None: the loss counts this call alone.
        max_tokens: The largest T of a call. None: the next power of two, at least 256.
        formula: Fields of the formula as keywords: score, groups, groups_kept, normalize, epsilon, scale, ...

    Returns:
        The probabilities, float32 [T, K]; the ids, [T, K], in descending order of scores; and a dict. It has "status"
        int32 [1] (docs/embedding.md), with zero experts "chosen_ids" and "zero_probs", with `aux` "counts", "score_sums"
        and "aux_loss", and with `z` "z_sum" and "z_loss". Both losses have gradients, and are without coefficients:
        aux_loss = E / (K T N) * sum(counts * score_sums) over the experts, with T tokens of this call and N that are
        counted, and z_loss is the mean of lse^2.

    Raises:
        RuntimeError: A tensor has another dtype or shape, or fields of the formula contradict each other.
    """
    if logits.dtype not in LOGIT_DTYPES or logits.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor logits: it is {logits.dtype} {list(logits.shape)}, wanted "
                           "float32 or bfloat16 [T, A]")
    ids_dtype = topk_ids_dtype if topk_ids is None else topk_ids.dtype
    if ids_dtype not in ID_DTYPES:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor topk_ids: its dtype is {ids_dtype}, wanted int32 or int64")
    formula = {**formula, "logits_dtype": LOGIT_DTYPES[logits.dtype]}
    for key, value, given in (("bias", True, bias), ("expert_scale", True, expert_scale), ("ids", "given", topk_ids)):
        if given is not None:
            formula[key] = value
    made = apply(_Router, logits, expert_scale, bias, topk_ids, counts, loss_counts, constant(top_k), ids_dtype,
                 as_json(formula), max_tokens)
    extras = {name: tensor for name, tensor in zip(_NAMES, made) if tensor is not None}
    ids = topk_ids if topk_ids is not None else extras.pop("topk_ids")
    return extras.pop("topk_probs"), ids, extras


# What the function makes, in this order; None for what the formula does not have. The first ones have gradients.
_NAMES = ("topk_probs", "zero_probs", "aux_loss", "z_loss", "topk_ids", "chosen_ids", "status", "counts",
          "unbiased_counts", "score_sums", "z_sum")
_DIFFERENTIABLE = _NAMES[:4]


class _Router(torch.autograd.Function):

    @staticmethod
    def forward(ctx, logits, expert_scale, bias, topk_ids, counts, loss_counts, top_k, ids_dtype, formula, max_tokens):
        zero_experts, has_aux, has_z, is_unbiased = _facts(formula)
        experts = constant(logits.shape[1]) - zero_experts
        fields = {"max_tokens": bound(logits.shape[0], max_tokens), "experts": experts, "top_k": top_k,
                  "topk_ids_dtype": ID_DTYPES[ids_dtype], "router": formula}
        outputs = {"status": logits.new_zeros(1, dtype=torch.int32)}
        if has_aux:  # the loss counts this call alone
            outputs["counts"] = logits.new_zeros(logits.shape[1], dtype=torch.int32)
        elif counts is not None:
            outputs["counts"] = counts
        inputs = {"logits": logits, "router_bias": bias, "expert_scale": expert_scale, "topk_ids": topk_ids}
        made = run_into({"operation": "router", **fields},
                        {name: tensor for name, tensor in inputs.items() if tensor is not None}, outputs)
        made.update(status=outputs["status"])
        if has_aux and counts is not None:
            counts.add_(outputs["counts"])
        tokens = max(logits.shape[0], 1)
        if has_aux:
            made["counts"] = outputs["counts"]
            of_loss = made["unbiased_counts"] if is_unbiased else outputs["counts"]
            ctx.of_aux = experts / (top_k * tokens * tokens)
            if loss_counts is not None:
                loss_counts.add_(of_loss)
                of_loss = loss_counts.clone()  # later calls add to it before backward
                # A token has K choices: these are the tokens that are counted, and stay on the device.
                ctx.of_aux = experts / (tokens * of_loss.sum().double().clamp(min=1))
            made["aux_loss"] = (made["score_sums"].double() * of_loss).sum().mul(SCORE_UNIT * ctx.of_aux).float()
        if has_z:
            ctx.of_z = 1.0 / tokens
            made["z_loss"] = made["z_sum"].double().sum().mul(Z_UNIT * ctx.of_z).float()
        ctx.fields = fields
        ids = topk_ids if topk_ids is not None else made["chosen_ids" if zero_experts else "topk_ids"]
        ctx.save_for_backward(logits, expert_scale, ids, of_loss if has_aux else None)
        ctx.mark_non_differentiable(*[made[name] for name in _NAMES if name in made and name not in _DIFFERENTIABLE])
        return tuple(made.get(name) for name in _NAMES)

    @staticmethod
    @first_order
    def backward(ctx, dprobs, dzero_probs, daux, dz, *_):
        logits, expert_scale, ids, counts = ctx.saved_tensors
        zero_experts, has_aux, has_z, _ = _facts(ctx.fields["router"])
        inputs = {"logits": logits, "chosen_ids" if zero_experts else "topk_ids": ids, "dprobs": dprobs}
        if expert_scale is not None:
            inputs["expert_scale"] = expert_scale
        if zero_experts:
            inputs["dzero_probs"] = dzero_probs
        if has_aux:
            inputs.update(counts=counts, aux_coefficient=(daux * ctx.of_aux).float().view(1))
        if has_z:
            inputs["z_coefficient"] = (dz * ctx.of_z).float().view(1)
        made = run({"operation": "router_backward", **ctx.fields}, inputs)
        dscale = None
        if expert_scale is not None:
            dscale = of_experts(made["dexpert_scale"], ids, expert_scale)
        return made["dlogits"], dscale, *[None] * 8


def of_experts(dexpert_scale: torch.Tensor, ids: torch.Tensor, expert_scale: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of `expert_scale` [A] from the gradients of each choice's factor [T, K]."""
    of_choices = torch.where(ids < 0, 0, dexpert_scale).flatten()
    return torch.zeros_like(expert_scale).index_put_((ids.clamp(min=0).flatten().long(),), of_choices, accumulate=True)


@torch.compiler.assume_constant_result
def _facts(formula: str) -> tuple[int, bool, bool, bool]:
    """Returns the number of zero experts, and whether a formula has a load-balancing loss and a z loss.

    The last one tells whether the first loss counts another choice than the one that is routed.
    """
    fields = json.loads(formula)
    aux = fields.get("aux", "none")
    return int(fields.get("zero_experts", 0)), aux != "none", bool(fields.get("z", False)), aux == "unbiased"
