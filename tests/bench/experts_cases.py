# SPDX-License-Identifier: Apache-2.0
"""Cases of hf_experts_bench.py: transformers' modules of experts, their inputs, and their implementations."""
import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Case:
    """The experts of one decoder layer, all on one device, and a number of tokens."""
    name: str
    family: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    tokens: int


CASES = {case.name: case for case in (
    Case("Qwen3-30B-A3B", "qwen3_moe", experts=128, top_k=8, hidden=2048, intermediate=768, tokens=8192),
    # This is one expert-parallel rank of 32: it has 8 of 256 experts, and gets as many rows as here, 8 per token.
    Case("DeepSeek-V3, 8 experts", "deepseek_v3", experts=8, top_k=8, hidden=7168, intermediate=2048, tokens=8192),
)}
# All have the shape of tests/torch/support.py, whose kernels the simulator has already.
TINY = {case.name: case for case in (
    Case("tiny Qwen3-MoE", "qwen3_moe", experts=8, top_k=2, hidden=64, intermediate=32, tokens=64),
    Case("tiny DeepSeek-V3", "deepseek_v3", experts=8, top_k=2, hidden=64, intermediate=32, tokens=64),
)}


@dataclasses.dataclass(frozen=True)
class Implementation:
    """How a module computes. `recipe` is empty if transformers itself computes."""
    name: str
    mode: str  # "eager", in PyTorch's sense, or "compiled" by torch.compile
    recipe: str = ""

    @property
    def label(self):
        return f"{self.name}, {self.mode}"


IMPLEMENTATIONS = (
    Implementation("eager", "eager"),  # transformers' loop over the experts, which torch.compile cannot take
    Implementation("grouped_mm", "eager"),
    Implementation("grouped_mm", "compiled"),
    Implementation("moejit bf16", "eager", "bf16"),
    Implementation("moejit bf16", "compiled", "bf16"),
    Implementation("moejit fp8_flow", "eager", "fp8_flow"),
    Implementation("moejit fp8_flow", "compiled", "fp8_flow"),
)


def config_of(case):
    """Returns the configuration of a transformers model whose experts have the case's sizes."""
    import transformers
    sizes = {"hidden_size": case.hidden, "moe_intermediate_size": case.intermediate,
             "num_experts_per_tok": case.top_k}
    if case.family == "qwen3_moe":
        return transformers.Qwen3MoeConfig(num_experts=case.experts, **sizes)
    return transformers.DeepseekV3Config(n_routed_experts=case.experts, n_group=1, topk_group=1, **sizes)


def make_module(case, device, dtype=torch.bfloat16):
    """Returns a module of experts whose weights are random, so that results have the scale of their inputs."""
    if case.family == "qwen3_moe":
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts as Experts
    else:
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Experts as Experts
    with torch.device(device):
        module = Experts(config_of(case)).to(dtype)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for weight in (module.gate_up_proj, module.down_proj):
            weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
    return module


class Inputs:
    """The inputs of a step and the gradient of its result.

    Each token goes to the K experts with the largest of E random router logits, with softmax's probabilities of these
    K. `skew` is the standard deviation of the part that all tokens' logits of one expert share.
    """

    def __init__(self, case, device, skew=0.0):
        generator = torch.Generator(device).manual_seed(1)

        def normal(*shape):
            return torch.randn(shape, device=device, generator=generator)

        self.x = normal(case.tokens, case.hidden).bfloat16().requires_grad_()
        self.dy = normal(case.tokens, case.hidden).bfloat16()
        logits = normal(case.tokens, case.experts) + skew * normal(case.experts)
        probs, self.ids = torch.topk(torch.softmax(logits, dim=-1), case.top_k, dim=-1)
        self.probs = (probs / probs.sum(dim=-1, keepdim=True)).requires_grad_()


class Step:
    """A forward and a backward pass of a module, as in a training step."""

    def __init__(self, module, implementation, inputs, tokens, splits_alignment=None):
        if implementation.recipe:
            import moejit.torch
            moejit.torch.register_hf(implementation.name, implementation.recipe, max_tokens=tokens,
                                     splits_alignment=splits_alignment)
        module.config._experts_implementation = implementation.name
        self.module, self.inputs = module, inputs
        self.forward = module
        if implementation.mode == "compiled":
            torch._dynamo.reset()
            self.forward = torch.compile(module, fullgraph=True, dynamic=False)
        self.leaves = (inputs.x, inputs.probs, *module.parameters())

    def forget_gradients(self):
        for leaf in self.leaves:
            leaf.grad = None

    def __call__(self):
        self.forget_gradients()
        y = self.forward(self.inputs.x, self.inputs.ids, self.inputs.probs)
        y.backward(self.inputs.dy)
        return y

    def infer(self):
        """Runs the forward pass alone, without gradients. Quantized weights are then kept between calls."""
        with torch.no_grad():
            return self.forward(self.inputs.x, self.inputs.ids, self.inputs.probs)

    def results(self):
        """Returns y, dx, dprobs, dw1 and dw2 of a step, by name."""
        y = self()
        return {"y": y.detach(), "dx": self.inputs.x.grad, "dprobs": self.inputs.probs.grad,
                "dw1": self.module.gate_up_proj.grad, "dw2": self.module.down_proj.grad}
