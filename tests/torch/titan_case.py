# SPDX-License-Identifier: Apache-2.0
"""A tiny decoder of torchtitan's modules, with experts of torchtitan or moejit."""
import dataclasses
import functools
import importlib.util
import sys
import types
import unittest

import torch

from support import E, H, I, K

IS_THERE = importlib.util.find_spec("torchtitan") is not None and torch.__version__ >= "2.11"
needed = unittest.skipUnless(IS_THERE, "needs torch 2.11 and torchtitan, which .ci/setup-torch fetches")
BATCH, LENGTH, VOCABULARY = 2, 6, 32

if IS_THERE:
    if importlib.util.find_spec("triton") is None:
        # The kernels of a dispatcher for GPUs, the only ones in triton that these modules import. No test calls them.
        kernels = types.ModuleType("torchtitan.distributed.minimal_async_ep.kernels")
        kernels.__getattr__ = lambda name: None if name.endswith("_kernel") else object.__getattribute__(kernels, name)
        sys.modules[kernels.__name__] = kernels
    if not hasattr(torch.compiler, "_is_non_strict_tracing"):  # which its dispatchers ask torch 2.12 for
        torch.compiler._is_non_strict_tracing = lambda: False

    from torchtitan.models.common import Decoder, Embedding, Linear, MoE, RMSNorm, TransformerBlock
    from torchtitan.models.common.moe import GroupedExperts, RoutedExperts, TokenChoiceTopKRouter
    from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher

    from moejit.torch.titan import ExpertsConverter

    class Block(TransformerBlock):
        """A layer without attention, which knows nothing of experts."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(TransformerBlock.Config):
            pass

        def __init__(self, config):
            super().__init__()
            self.ffn_norm, self.moe = config.ffn_norm.build(), config.moe.build()

        def forward(self, x, attention_masks=None, positions=None):
            return x + self.moe(self.ffn_norm(x))


def config_of(layers=1, **sizes):
    """The configuration of a decoder, and of its experts other sizes."""
    init = {"param_init": {name: _small for name in ("weight", "w1_EFD", "w2_EDF", "w3_EFD")}}
    sizes = {"dim": H, "hidden_dim": I, "num_experts": E, **sizes}

    def block():
        moe = MoE.Config(
            num_experts=E, load_balance_coeff=None,
            routed_experts=RoutedExperts.Config(
                inner_experts=GroupedExperts.Config(**sizes, **init),
                token_dispatcher=LocalTokenDispatcher.Config(num_experts=E, top_k=K)),
            router=TokenChoiceTopKRouter.Config(
                num_experts=E, top_k=K, score_func="softmax", route_norm=True,
                gate=Linear.Config(in_features=H, out_features=E, **init)))
        return Block.Config(attention=None, moe=moe, attention_norm=None, ffn_norm=norm())

    def norm():
        return RMSNorm.Config(normalized_shape=H)

    return Decoder.Config(
        dim=H, vocab_size=VOCABULARY, norm=norm(), layers=[block() for _ in range(layers)],
        lm_head=Linear.Config(in_features=H, out_features=VOCABULARY, **init),
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=H, **init))


def _small(parameter):
    torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)


def model_of(recipe=None, dtype=torch.bfloat16, **fields):
    """A decoder with experts of moejit, or without a recipe of torchtitan. Any two have the same parameters."""
    config = config_of(**fields)
    if recipe is not None:
        config = ExpertsConverter.Config(recipe=recipe).build().convert(config)
    torch.manual_seed(7)
    model = config.build()
    model.init_states()
    return model.bfloat16().to(dtype)


def experts_of(model):
    return model.layers["0"].moe.routed_experts.inner_experts


def tokens(seed=0):
    """(tokens, the ones to predict)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (2, BATCH, LENGTH), generator=generator)


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]).float().flatten(0, 1), batch[1].flatten())


def results_of(model, batch=None):
    """[loss, and the gradients of all parameters] of one step."""
    model.zero_grad()
    loss = loss_of(model, tokens() if batch is None else batch)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


def layer_results_of(model):
    """[y, dx, and the gradients of all parameters] of the MoE layer."""
    moe = model.layers["0"].moe
    x, dy = torch.randn(2, BATCH, LENGTH, H, generator=torch.Generator().manual_seed(3)).bfloat16().float()
    y = moe(x.requires_grad_())
    y.backward(dy)
    return [y.detach(), x.grad, *(parameter.grad for parameter in moe.parameters())]


def exact(experts, x_RD, num_tokens_per_expert_E):
    """What GroupedExperts computes, in the dtype of its parameters."""
    results = []
    for e, rows in enumerate(x_RD.split(num_tokens_per_expert_E.tolist())):
        gate, up = rows @ experts.w1_EFD[e].T, rows @ experts.w3_EFD[e].T
        results.append((torch.nn.functional.silu(gate) * up) @ experts.w2_EDF[e].T)
    return torch.cat(results)


def reference():
    """The decoder in float32, with the parameters of model_of()."""
    model = model_of(dtype=torch.float32)
    experts = experts_of(model)
    experts.forward = functools.partial(exact, experts)
    return model
