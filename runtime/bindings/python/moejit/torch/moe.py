# SPDX-License-Identifier: Apache-2.0
"""A whole Mixture-of-Experts block: router and experts, as a module and as a function."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from moejit.torch.experts import Experts
from moejit.torch.functional import experts
from moejit.torch.gate_logits import float32_logits
from moejit.torch.layers import as_json
from moejit.torch.router import router
from moejit.torch.router_losses import attach_loss, update_router_bias

# Fields of a formula that tensors tell of.
_OF_TENSORS = ("bias", "expert_scale", "logits_dtype", "ids")


def gate_logits(hidden_states: torch.Tensor, weight: torch.Tensor, logits_dtype: str = "f32") -> torch.Tensor:
    """Returns the logits [T, A] of tokens [T, H] by a weight [A, H].

    With "f32" they are the product in float32 (float32_logits()), as models of the DeepSeek kind have it. With "bf16"
    they are the product in the dtypes at hand, rounded to bf16.
    """
    if logits_dtype == "bf16":
        return linear(hidden_states, weight.to(hidden_states.dtype)).to(torch.bfloat16)
    return float32_logits(hidden_states, weight)


def moe(hidden_states: torch.Tensor, gate_weight: torch.Tensor, gate_up_proj: torch.Tensor, down_proj: torch.Tensor, *,
        layer: dict[str, Any], router_formula: dict[str, Any] | None = None, router_bias: torch.Tensor | None = None,
        counts: torch.Tensor | None = None, gate_up_proj_bias: torch.Tensor | None = None,
        down_proj_bias: torch.Tensor | None = None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes a block: logits, choice, experts and their weighted sum, with gradients of all float tensors.

    Args:
        hidden_states: [T, H] bf16; more leading dimensions are allowed.
        gate_weight: [A, H], A experts with zero experts at the end.
        gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias: As of experts().
        layer: A layer description with `top_k`, without "router".
        router_formula: The fields of docs/router.md, such as moejit.describe(config).router. None: the defaults.
        router_bias: float32 [A], added to what orders the choice. It has no gradient.
        counts: int32 [A], to which the choices of each expert are added.

    Returns:
        The result as hidden_states is, and the dict of router(): losses without coefficients, counts, status.

    Raises:
        RuntimeError: As router() and experts().
    """
    flat = hidden_states.reshape(-1, hidden_states.shape[-1])
    probs, ids, extras = _choose(flat, gate_weight, layer["top_k"], router_formula or {}, router_bias, counts)
    y = experts(flat, ids, probs, gate_up_proj, down_proj, layer=as_json(layer), gate_up_proj_bias=gate_up_proj_bias,
                down_proj_bias=down_proj_bias)
    return _with_zero_experts(y, flat, extras).view(hidden_states.shape), extras


class Gate(torch.nn.Module):
    """The parameters of a router by the names of transformers' modules: `weight`, and the bias of the choice.

    Attributes:
        weight: [A, H].
        e_score_correction_bias: float32 [A], a buffer; only if the formula has a bias. It stays float32.
        tokens_per_expert: int32 [A], a buffer outside of the state dict: choices since MoE.update_bias().
    """

    def __init__(self, experts: int, hidden_size: int, has_bias: bool, **options: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(experts, hidden_size, **options))
        zeros = torch.zeros(experts, dtype=torch.float32, device=options.get("device"))
        self.register_buffer("e_score_correction_bias", zeros if has_bias else None)
        self.register_buffer("tokens_per_expert", zeros.to(torch.int32), persistent=False)

    def reset_parameters(self) -> None:
        """Draws the weight from a normal distribution that gives logits the scale of tokens; the bias becomes 0."""
        torch.nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        self.tokens_per_expert.zero_()
        if self.e_score_correction_bias is not None:
            self.e_score_correction_bias.zero_()

    def _apply(self, fn: Any, recurse: bool = True) -> Gate:
        kept = self.e_score_correction_bias
        super()._apply(fn, recurse)
        if kept is not None and self.e_score_correction_bias.dtype != torch.float32:  # `to(bfloat16)` means weights
            self.e_score_correction_bias = kept.to(self.e_score_correction_bias.device)
        return self


class MoE(torch.nn.Module):
    """A block of router and experts: `gate` (Gate) and `experts` (Experts), whose names are those in state dicts.

    In training, with gradients, losses with a coefficient above 0 attach themselves to the probabilities: backward adds
    their gradients, and the training loop adds nothing. `loss_scale` is their own gradient.

    Args:
        num_experts: E, without zero experts.
        hidden_size: H.
        intermediate_size: I.
        top_k: K.
        router: The formula, fields of docs/router.md, such as moejit.describe(config).router. None: the defaults.
        aux_loss_coef: The coefficient of the load-balancing loss. Its counts are the formula's `aux`, "chosen" if that
            says nothing.
        z_loss_coef: The coefficient of the z loss.
        shared_gate: Whether shared experts have a gate, `shared_expert_gate`: their results are multiplied by the
            sigmoid of its product with the token.
        options: Arguments of moejit.torch.Experts: max_tokens, recipe, activation, process_group, num_shared_experts, ...

    Attributes:
        shared_expert_gate: A Linear [1, H] without bias, with `shared_gate`; else None.
        loss_scale: The gradient of attached losses, float32 [], a buffer outside of the state dict. Fill it in place,
            such as with the scale of a GradScaler; graphs that were captured see that too.

    Raises:
        RuntimeError: As moejit.torch.Experts and router().
    """

    def __init__(self, num_experts: int, hidden_size: int, intermediate_size: int, top_k: int, *,
                 router: dict[str, Any] | None = None, aux_loss_coef: float = 0.0, z_loss_coef: float = 0.0,
                 shared_gate: bool = False, device: torch.device | str | None = None,
                 dtype: torch.dtype = torch.bfloat16, **options: Any) -> None:
        super().__init__()
        formula = dict(router or {})
        if aux_loss_coef > 0.0 and formula.get("aux", "none") == "none":
            formula["aux"] = "chosen"
        if z_loss_coef > 0.0:
            formula["z"] = True
        self.formula, self.top_k = formula, top_k
        self.aux_loss_coef, self.z_loss_coef = aux_loss_coef, z_loss_coef
        self.gate = Gate(num_experts + formula.get("zero_experts", 0), hidden_size, formula.get("bias", False),
                         device=device, dtype=dtype)
        self.experts = Experts(num_experts, hidden_size, intermediate_size, top_k, shared_gate=shared_gate, device=device,
                               dtype=dtype, **options)
        self.shared_expert_gate = torch.nn.Linear(hidden_size, 1, False, device, dtype) if shared_gate else None
        self.register_buffer("loss_scale", torch.ones((), dtype=torch.float32, device=device), persistent=False)
        self.gate.reset_parameters()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the block's result, as `hidden_states` [..., H] is."""
        flat = hidden_states.reshape(-1, hidden_states.shape[-1])
        is_trained = self.training and torch.is_grad_enabled()
        formula = self.formula if is_trained else {**self.formula, "aux": "none", "aux_score": "own", "z": False}
        counts = self.gate.tokens_per_expert if is_trained else None
        probs, ids, extras = _choose(flat, self.gate.weight, self.top_k, formula, self.gate.e_score_correction_bias, counts)
        for name, coefficient in (("aux_loss", self.aux_loss_coef), ("z_loss", self.z_loss_coef)):
            if is_trained and coefficient > 0.0:
                probs = attach_loss(probs, coefficient * extras[name], self.loss_scale)
        gate = self.shared_expert_gate
        shared_probs = None if gate is None else torch.sigmoid(gate_logits(flat, gate.weight)).view(-1)
        y = self.experts(flat, ids, probs, shared_probs)
        return _with_zero_experts(y, flat, extras).view(hidden_states.shape)

    def update_bias(self, rate: float = 1e-3, process_group: torch.distributed.ProcessGroup | None = None) -> None:
        """Moves the bias by update_router_bias() with the counts of calls since the last update, and clears them.

        Raises:
            RuntimeError: The formula has no bias.
        """
        if self.gate.e_score_correction_bias is None:
            raise RuntimeError('moejit: invalid_value: update_bias() of a router without a bias\nhint: give MoE a formula '
                               'with "bias": True')
        update_router_bias(self.gate.e_score_correction_bias, self.gate.tokens_per_expert, rate,
                           process_group=process_group)
        self.gate.tokens_per_expert.zero_()


def _choose(flat: torch.Tensor, weight: torch.Tensor, top_k: int, formula: dict[str, Any],
            bias: torch.Tensor | None, counts: torch.Tensor | None) \
        -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    logits = gate_logits(flat, weight, formula.get("logits_dtype", "f32"))
    return router(logits, top_k, bias=bias, counts=counts,
                  **{key: value for key, value in formula.items() if key not in _OF_TENSORS})


def _with_zero_experts(y: torch.Tensor, x: torch.Tensor, extras: dict[str, torch.Tensor]) -> torch.Tensor:
    """Adds what experts add that return the token."""
    if "zero_probs" not in extras:
        return y
    return (y + extras["zero_probs"][:, None] * x).to(y.dtype)
