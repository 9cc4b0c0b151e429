# SPDX-License-Identifier: Apache-2.0
"""MoE layers of megatron-core: with experts of moejit in bf16, and with SequentialMLP in float32 as reference."""
import torch
import torch.distributed as dist
from torch.nn import functional as F

from support import DEVICE, E, H, I, K, MAX_TOKENS, relative_error

from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.moe.moe_utils import get_default_pg_collection
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig

from moejit.torch.megatron import GroupedMLP, convert_spec

SEQUENCE, BATCH = 6, 2
SIZES = (3, 0, 5, 2, 0, 0, 4, 1)  # of E experts
ROWS = 24  # of which nobody has the last nine
SEQUENTIAL = ModuleSpec(module=MoELayer, submodules=MoESubmodules(experts=ModuleSpec(
    module=SequentialMLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear))))


def config_of(dtype=torch.bfloat16, **fields):
    fields = {"num_layers": 1, "moe_token_dispatcher_type": "alltoall", "moe_router_topk": K, "add_bias_linear": False,
              "gated_linear_unit": True, "activation_func": F.silu, "moe_router_dtype": "fp32", **fields}
    is_delayed = fields.pop("delay_wgrad_compute", False)  # which TransformerConfig wants Transformer Engine for
    config = TransformerConfig(
        hidden_size=fields.pop("hidden_size", H), num_attention_heads=4, ffn_hidden_size=I, moe_ffn_hidden_size=I,
        num_moe_experts=E,
        expert_tensor_parallel_size=1, use_cpu_initialization=True, bias_activation_fusion=False, params_dtype=dtype,
        bf16=dtype == torch.bfloat16, moe_router_load_balancing_type="none", moe_aux_loss_coeff=0.0, hidden_dropout=0.0,
        attention_dropout=0.0, expert_model_parallel_size=get_default_pg_collection().ep.size(), **fields)
    config.delay_wgrad_compute = is_delayed
    return config


def layer_of(spec, config):
    """An MoE layer whose parameters random numbers of its own make, the same with any experts."""
    layer = spec.module(config, spec.submodules, layer_number=1, pg_collection=get_default_pg_collection()).to(DEVICE)
    fill(layer)
    return layer


def fill(layer):
    values = Values(layer.config)
    with torch.no_grad():
        layer.router.weight.copy_(values.router)
        if getattr(layer.router, "bias", None) is not None:
            layer.router.bias.zero_()
        for each, value in zip(weights_of(layer.experts), values.of_rank()):
            for expert, part in zip(each, value):
                expert.copy_(part)


def weights_of(experts, of=lambda parameter: parameter):
    """What `of` says of each parameter, for each expert: of fc1, fc2, and of their biases if there are any."""
    found = []
    for kind in ("weight", "bias"):
        for name in ("linear_fc1", "linear_fc2"):
            if isinstance(experts, GroupedMLP):
                parameter = getattr(getattr(experts, name), kind)
                found.append(None if parameter is None else list(of(parameter)))
            else:
                all_of_them = [getattr(getattr(expert, name), kind) for expert in experts.local_experts]
                found.append(None if all_of_them[0] is None else [of(each) for each in all_of_them])
    return [each for each in found if each is not None]


class Values:
    """Weights of all experts, in bf16."""

    def __init__(self, config):
        generator = torch.Generator().manual_seed(5)

        def random(*shape, scale=1.0):
            return (torch.randn(*shape, generator=generator) * scale).bfloat16()

        rows, hidden = I * (2 if config.gated_linear_unit else 1), config.hidden_size
        self.router = random(E, hidden, scale=hidden ** -0.5)
        self.all = [random(E, rows, hidden, scale=hidden ** -0.5), random(E, hidden, I, scale=I ** -0.5)]
        if config.add_bias_linear:
            self.all += [random(E, rows), random(E, hidden)]

    def of_rank(self):
        group = get_default_pg_collection().ep
        mine = slice(group.rank() * E // group.size(), (group.rank() + 1) * E // group.size())
        return [each[mine] for each in self.all]


def results_of(layer, dtype, rank, gradient=lambda parameter: parameter.grad):
    """[y, dx, gradients of router and experts] of a call with tokens of this rank."""
    generator = torch.Generator().manual_seed(10 + rank)
    x, dy = torch.randn(2, SEQUENCE, BATCH, layer.config.hidden_size, generator=generator).bfloat16().to(DEVICE, dtype)
    y, bias = layer(x.requires_grad_())
    assert bias is None
    y.backward(dy)
    of_experts = [torch.stack(each) for each in weights_of(layer.experts, gradient)]
    return [y.detach(), x.grad, layer.router.weight.grad, *of_experts]


def ours(recipe, config, **options):
    return layer_of(convert_spec(SEQUENTIAL, recipe, max_tokens=MAX_TOKENS, **options), config)


class Errors:
    """Relative errors of layers beside SequentialMLP in float32, on each rank of the groups."""

    def __init__(self):
        self.want = {}

    def of(self, recipe, dispatcher, has_biases=False, **options):
        """(errors of results_of(), the results) of a layer."""
        if has_biases not in self.want:
            reference = layer_of(SEQUENTIAL, config_of(torch.float32, add_bias_linear=has_biases))
            self.want[has_biases] = results_of(reference, torch.float32, dist.get_rank())
        layer = ours(recipe, config_of(moe_token_dispatcher_type=dispatcher, add_bias_linear=has_biases), **options)
        got = results_of(layer, torch.bfloat16, dist.get_rank())
        return [relative_error(*pair) for pair in zip(got, self.want[has_biases], strict=True)], got


def are_equal(one, other):
    """Whether two modules of experts have the same parameters."""
    pairs = list(zip(weights_of(one), weights_of(other), strict=True))
    return all(torch.equal(*both) for each in pairs for both in zip(*each, strict=True))


def rows(dtype=torch.float32):
    """(rows, sizes, probabilities)."""
    generator = torch.Generator().manual_seed(3)
    x, probs = torch.randn(ROWS, H, generator=generator), torch.rand(ROWS, generator=generator)
    return (x.bfloat16().to(DEVICE).requires_grad_(), torch.tensor(SIZES, device=DEVICE),
            probs.to(DEVICE, dtype).requires_grad_())


def experts_of(recipe="bf16", **fields):
    """The experts alone, with weights of their own."""
    return ours(recipe, config_of(**fields)).experts
