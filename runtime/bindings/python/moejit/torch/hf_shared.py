# SPDX-License-Identifier: Apache-2.0
"""Blocks of transformers' models whose shared expert runs in one plan with the routed ones."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable

import torch

from moejit.torch import hf
from moejit.torch.arguments import is_exporting
from moejit.torch.checks import name_of
from moejit.torch.devices import target_of
from moejit.torch.gathered import is_sharded
from moejit.torch.hf_classes import Converted, converted, original_class
from moejit.torch.hf_fp8 import has_codes
from moejit.torch.hf_joined import SHARED, SharedExpert, linears_of
from moejit.torch.hf_layers import describe_before_calls, first_weights
from moejit.torch.hf_shared_kinds import MOE_BLOCKS, Block
from moejit.torch.layers import FEWEST_MAX_TOKENS, call_text

_NAMES = ("shared_experts", "shared_expert", "shared_mlp")


class MoejitBlock(Converted):
    """A block of transformers whose shared expert runs with its experts."""

    def forward(self, hidden_states: torch.Tensor, input_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what the block's own class returns, which runs itself where the shared expert cannot be joined."""
        shared = self.experts.__dict__[SHARED]
        if why_apart(self.experts, shared):
            return self.original.forward(self, hidden_states, *(() if input_ids is None else (input_ids,)))
        row = MOE_BLOCKS[self.original.__name__]
        argument = (getattr(self, row.argument),) if row.argument else (input_ids,) if getattr(self, "is_hash", False) else ()
        flat = hidden_states.reshape(-1, hidden_states.shape[-1])
        router = self.router if "router" in self._modules else self.gate
        _, probs, ids = router(hidden_states if row.is_batched else flat, *argument)
        if row.factor:
            probs = probs.float() * getattr(self, row.factor)
        factor = getattr(self, row.gate)(flat).sigmoid() if row.gate else None
        y = hf.run_experts(*shared.options, self.experts, flat, ids, probs, shared, factor)
        return row.after(self, y.view(hidden_states.shape))

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        _join(self)

    def _apply(self, fn: Callable, recurse: bool = True) -> MoejitBlock:
        super()._apply(fn, recurse)
        _join(self)
        return self


def _join(block: torch.nn.Module, _: object = None) -> None:
    """Moves the weights into one memory again; also a hook of load_state_dict()."""
    shared = block.experts.__dict__[SHARED]
    if not _why_not_plain(block.experts, shared):
        shared.join(block.experts)


def why_apart(experts: torch.nn.Module, shared: SharedExpert) -> str:
    """Returns why a call leaves the shared expert to the model, in words; empty: it runs with the experts."""
    reason = _why_not_plain(experts, shared)
    if reason:
        if is_sharded(experts) or is_sharded(shared.mlp):
            shared.release()  # memory in which no parameter lies any more
        return reason
    if is_exporting():
        return "an exported program would have its weights twice"
    if torch.compiler.is_compiling():
        return "" if shared.is_joined and shared.slices == 1 else "a graph would copy its weights"
    if shared.lies_behind(experts):
        return ""
    shared.release()
    return "its weights were moved away from the experts'; convert again"


def _why_not_plain(experts: torch.nn.Module, shared: SharedExpert) -> str:
    """Returns why modules around the weights do more than multiply, in words."""
    if is_sharded(experts) or is_sharded(shared.mlp):
        return "FSDP gathers its weights one by one"
    for name, linear in linears_of(shared.mlp).items():
        if type(linear) is not torch.nn.Linear or type(linear.weight) is not torch.nn.Parameter:
            return f"{name} is a {type(linear).__name__} with a {type(linear.weight).__name__}"
    if any(type(experts._parameters.get(name)) is not torch.nn.Parameter for name in hf.weight_names(experts)):
        return "the experts' weights are no parameters of their own"
    if any(_is_hooked(module) for module in (experts, shared.mlp, *linears_of(shared.mlp).values())):
        return "modules have hooks, which would not run"
    return ""


def _is_hooked(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or "forward" in module.__dict__)


class _Activation:
    """Stands for a dense MLP without its products, so that its class computes the activation alone."""

    def __init__(self, mlp: torch.nn.Module) -> None:
        self._mlp = mlp

    def __getattr__(self, name: str) -> object:
        return getattr(self._mlp, name)

    def gate_proj(self, x: torch.Tensor) -> torch.Tensor:
        return x.chunk(2, -1)[0]

    def up_proj(self, x: torch.Tensor) -> torch.Tensor:
        return x.chunk(2, -1)[1] if "gate_proj" in self._mlp._modules else x

    def down_proj(self, x: torch.Tensor) -> torch.Tensor:
        return x


def _has_activation_of(experts: torch.nn.Module, mlp: torch.nn.Module) -> bool:
    """Returns whether both compute the same of gate and up, by values of all sizes: limits show in large ones."""
    line = torch.cat([sign * 2.0 ** torch.arange(-6.0, 10.5, 0.25) for sign in (-1, 1)])
    points = torch.cartesian_prod(line, line) if "gate_proj" in mlp._modules else line[:, None]
    want = experts._apply_gate(points) if experts.has_gate else experts.act_fn(points)
    return torch.allclose(type(mlp).forward(_Activation(mlp), points), want, rtol=1e-6)


def _slices_of(block: torch.nn.Module, experts: torch.nn.Module, mlp: torch.nn.Module) -> int:
    """Returns n; raises an error that says in words why a shared expert is no n slices of the experts beside it."""
    linears, w1 = linears_of(mlp), first_weights(experts)
    own = original_class(block)
    if own.__name__ not in MOE_BLOCKS or not own.__module__.startswith("transformers."):
        raise RuntimeError(f"no formula is known for the block {own.__name__}")
    if has_codes(experts):
        raise RuntimeError("the experts' weights are codes of a quantized checkpoint")
    if experts.down_proj.dim() != 3:
        raise RuntimeError("the experts' weights are elsewhere until the call")
    if len(linears) != (3 if experts.has_gate else 2) or set(mlp._parameters):
        raise RuntimeError(f"{type(mlp).__name__} has not the products of an expert")
    if experts.is_transposed or not experts.is_concatenated:
        raise RuntimeError("the experts' weights lie otherwise than a dense MLP's")
    if experts.has_bias or any(linear.bias is not None for linear in linears.values()):
        raise RuntimeError("it has biases, or the experts have")
    if not isinstance(block._modules.get("fc1_latent_proj", torch.nn.Identity()), torch.nn.Identity):
        raise RuntimeError("the experts see a projection of its tokens")
    down, hidden, width = linears["down_proj"].weight, w1.shape[2], experts.down_proj.shape[2]
    if down.shape[0] != hidden or down.shape[1] % width != 0:
        raise RuntimeError(f"it is {down.shape[1]} wide, no multiple of the experts' {width}")
    if any((linear.weight.dtype, linear.weight.device) != (w1.dtype, w1.device) for linear in linears.values()):
        raise RuntimeError(f"its weights are {name_of(down.dtype)} on {down.device}, the experts' {name_of(w1.dtype)} on "
                           f"{w1.device}")
    if not _has_activation_of(experts, mlp):
        raise RuntimeError("its activation is not the experts'")
    return down.shape[1] // width


def _shared_of(block: torch.nn.Module, name: str, experts: torch.nn.Module, mlp: torch.nn.Module,
               options: tuple[str, int | None, bool | None]) -> SharedExpert:
    """Returns how a shared expert runs, or why it does not; nothing is changed."""
    try:
        slices = _slices_of(block, experts, mlp)
        gate = MOE_BLOCKS[original_class(block).__name__].gate
        fields = json.dumps({**json.loads(options[0]), "shared": {"experts": slices, "gate": bool(gate)}})
        shared = SharedExpert(name, mlp, slices, (fields, *options[1:]))
        reason = _why_not_plain(experts, shared)
        if reason:
            raise RuntimeError(reason)
        description = describe_before_calls(experts, fields, options[1] or FEWEST_MAX_TOKENS)
        for gradients in ((), ("dx", "dprobs", "dw1", "dw2")):
            call_text(description, target_of(experts.down_proj.device), gradients, "bf16")
        return shared
    except RuntimeError as error:
        return SharedExpert(name, reason=str(error).partition("\n")[0].removeprefix("moejit: "))


def changes_of(model: torch.nn.Module, experts: dict[str, torch.nn.Module],
               options: tuple[str, int | None, bool | None],
               filter_fn: Callable[[torch.nn.Module, str], bool] | None) -> list[Callable[[], None]]:
    """Returns what joins the shared experts of a model with all experts that are converted, by name."""
    changes = []
    for name, module in experts.items():
        path = name.rpartition(".")[0]
        block = model.get_submodule(path)
        for child in _NAMES:
            mlp, full = block._modules.get(child), f"{path}.{child}".lstrip(".")
            if mlp is not None and (filter_fn is None or filter_fn(mlp, full)):
                shared = _shared_of(block, full, module, mlp, options)
                changes.append(functools.partial(_change, block, module, shared))
    return changes


def _change(block: torch.nn.Module, experts: torch.nn.Module, shared: SharedExpert) -> None:
    experts.__dict__[SHARED] = shared
    if shared.reason:
        return
    block.__class__ = converted(MoejitBlock, original_class(block))
    shared.join(experts)
    block.register_load_state_dict_post_hook(_join)  # for assign=True


def revert_shared(model: torch.nn.Module, name: str, experts: torch.nn.Module) -> None:
    """Gives the block of a module of experts its own class back. Its weights stay where they are."""
    block = model.get_submodule(name.rpartition(".")[0])
    if experts.__dict__.pop(SHARED, None) is not None and isinstance(block, MoejitBlock):
        block.__class__ = block.original
        hooks = block._load_state_dict_post_hooks
        for key in [key for key, hook in hooks.items() if hook is _join]:
            del hooks[key]


def explain_shared(experts: torch.nn.Module) -> list[str]:
    """Returns a line about the shared expert beside a module of experts, if there is one and convert() was told of it."""
    shared = experts.__dict__.get(SHARED)
    if shared is None:
        return []
    reason = shared.reason or why_apart(experts, shared)
    how = f"stays the model's own: {reason}" if reason else f"runs on moejit with the experts, as {shared.slices} of their width"
    return [f"{shared.name}: {how}"]
