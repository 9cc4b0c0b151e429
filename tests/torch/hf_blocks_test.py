# SPDX-License-Identifier: Apache-2.0
"""Whole blocks of transformers with router and experts on moejit, beside their own modules in float32."""
import copy
import inspect
import io
import re
import sys
import unittest

import torch
from torch.overrides import TorchFunctionMode

from router_models_test import VARIED, class_and_config, configurations
from support import BOUNDS, DEVICE, relative_error
from moejit.torch import convert, explain, hf_gates

TOKENS, EXPERTS, K, H = 32, 24, 3, 64
# Routers whose blocks are compared, one of each kind, with experts that run on moejit.
ROUTERS = ("Qwen3MoeTopKRouter", "Qwen2MoeTopKRouter", "MixtralTopKRouter", "GptOssTopKRouter", "DeepseekV2TopkRouter",
           "DeepseekV3TopkRouter", "Mistral4TopkRouter", "DeepseekV4TopKRouter", "MiniMaxM2TopKRouter",
           "LagunaTopKRouter", "AfmoeTokenChoiceRouter", "HYV3TopKRouter", "Lfm2MoeTopKRouter", "Kolibri1TopKRouter",
           "Ernie4_5_MoeTopKRouter", "GraniteMoeTopKRouter", "NemotronHTopkRouter", "Cohere2MoeTopKRouter",
           "AXK1TopkRouter")
# So that shared experts are one or two experts wide, of a width of 48.
SHARED = {"shared_expert_intermediate_size": 96, "moe_shared_expert_intermediate_size": 96, "num_shared_experts": 2,
          "shared_experts_intermediate_size": 48, "n_shared_experts": 1}
SCALES = {"moe_routed_scaling_factor": 2.5}
KEPT = ("n_shared_experts",)


def classes_of(source):
    """The text of the classes of modules in a source, by name."""
    texts = re.split(r"^class (?=\w+\(nn\.Module\))", source, flags=re.MULTILINE)[1:]
    return {text.partition("(")[0]: text for text in texts}


def make_block(router, saved):
    """A block of the modeling file of a router, with random weights in bf16."""
    kind, config = class_and_config(router, saved)
    for key, value in {**VARIED, **SCALES}.items():
        if hasattr(config, key):
            setattr(config, key, value)
    for key, value in SHARED.items():
        if key not in KEPT or getattr(config, key, None) is None:
            setattr(config, key, value)
    if config.model_type == "deepseek_v4":  # whose first layers would route by a table
        config.mlp_layer_types = ["moe"] * config.num_hidden_layers
    modeling = sys.modules[kind.__module__]
    name, = (name for name, text in classes_of(inspect.getsource(modeling)).items()
             if f" {router}(config" in text and "self.experts = " in text)
    block = getattr(modeling, name)
    arguments = [0] if "layer_idx" in inspect.signature(block.__init__).parameters else []
    made = block(config, *arguments)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
        scale = 0.05 if "bias" in name else tensor.shape[-1] ** -0.5
        tensor.data.copy_(scale * torch.randn(tensor.shape, generator=generator))
    return made.to(DEVICE)


def in_bf16(block):
    """A copy with parameters in bf16, as models are loaded: what transformers keeps in float32 stays."""
    made = copy.deepcopy(block)
    for parameter in made.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    return made


class Pinned(TorchFunctionMode):
    """Makes routers choose given experts."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.topk, torch.Tensor.topk) and args[0].shape[-1] == EXPERTS and self.ids is not None:
            return torch.return_types.topk([args[0].gather(-1, self.ids), self.ids])
        return function(*args, **kwargs)


def run(block, x, dy, ids=None):
    """(results and gradients by name, the ids that were chosen)."""
    block.zero_grad()
    x = x.to(next(block.experts.parameters()).dtype, copy=True).requires_grad_()
    chosen = []
    gate = next(module for module in block.modules() if hf_gates.is_gate(module))
    hook = gate.register_forward_hook(lambda module, inputs, made: chosen.append(made[2]))
    with Pinned(ids):
        y = block(x)
    y = y[0] if isinstance(y, tuple) else y
    hook.remove()
    y.backward(dy.to(y.dtype))
    gradients = {name: parameter.grad for name, parameter in block.named_parameters() if parameter.grad is not None}
    return {"y": y.detach(), "dx": x.grad, **gradients}, chosen[0].view(TOKENS, K)


class Blocks(unittest.TestCase):

    def test_results_and_gradients_are_near_float32(self):
        saved, generator = configurations(), torch.Generator().manual_seed(0)
        others = {}
        for router in ROUTERS:
            block = in_bf16(make_block(router, saved))
            in_float32 = copy.deepcopy(block).float()
            x = torch.randn(1, TOKENS, H, generator=generator).bfloat16().to(DEVICE)
            dy = torch.randn(1, TOKENS, H, generator=generator).bfloat16().to(DEVICE)
            before = list(block.state_dict())
            _, free = run(in_float32, x, dy)
            for recipe in ("bf16", "fp8_flow"):
                convert(block, recipe, gates=True, shared=True, max_tokens=TOKENS)
                got, ids = run(block, x, dy)
                want, _ = run(in_float32, x, dy, ids)
                self.assertEqual(got.keys(), want.keys())
                for name in want:
                    with self.subTest(router, recipe=recipe, tensor=name):
                        self.assertLessEqual(relative_error(got[name], want[name]), BOUNDS[recipe])
            self.assertEqual(list(block.state_dict()), before)
            has_shared = any("shared" in name for name in before)
            self.assertEqual("runs on moejit with the experts" in explain(block), has_shared, router)
            others[router] = (ids.sort(-1).values != free.sort(-1).values).any(-1).float().mean().item()
        print("\ntokens that choose otherwise than in float32:", {name: f"{share:.3f}" for name, share in others.items()})


class Doors(unittest.TestCase):

    def block(self, name="Qwen3MoeTopKRouter"):
        return in_bf16(make_block(name, configurations()))

    def test_conversions_are_taken_back_and_copies_are_converted(self):
        block, x = self.block(), torch.randn(1, TOKENS, H).bfloat16().to(DEVICE)
        original, before = type(block.gate), block(x)
        convert(block, "bf16", gates=True, max_tokens=TOKENS)
        self.assertIsInstance(block.gate, original)
        self.assertIn("gate: Qwen3MoeTopKRouter, runs on moejit, 3 experts a token by {", explain(block))
        y = block(x)
        file = io.BytesIO()
        torch.save(block, file)
        file.seek(0)
        for other in (copy.deepcopy(block), torch.load(file, weights_only=False)):
            self.assertIsInstance(other.gate, hf_gates.MoejitGate)
            self.assertTrue(torch.equal(other(x), y))
        convert(block, recipe=None)
        self.assertIs(type(block.gate), original)
        self.assertTrue(torch.equal(block(x), before))

    def test_parts_are_left_out_by_the_filter(self):
        block = self.block()
        convert(block, "bf16", gates=True, max_tokens=TOKENS, filter_fn=lambda module, name: name != "gate")
        self.assertNotIsInstance(block.gate, hf_gates.MoejitGate)
        convert(block, "bf16", max_tokens=TOKENS)
        self.assertNotIsInstance(block.gate, hf_gates.MoejitGate)

    def test_an_unknown_router_is_refused_and_nothing_changes(self):
        block = self.block()
        block.gate.__class__ = type("OtherRouter", (type(block.gate),), {})
        with self.assertRaisesRegex(RuntimeError, "module gate: no formula is known for the router OtherRouter\nhint: leave"):
            convert(block, "bf16", gates=True, max_tokens=TOKENS)
        self.assertIn("not on moejit", explain(block))

    def test_a_configuration_of_another_router_is_refused(self):
        block = self.block("DeepseekV3TopkRouter")
        block.experts.config.scoring_func = "softmax"
        with self.assertRaisesRegex(RuntimeError, 'module gate: .*scoring_func: got "softmax", but the modules of'):
            convert(block, "bf16", gates=True, max_tokens=TOKENS)

    def test_one_graph(self):
        block, x = self.block("DeepseekV3TopkRouter"), torch.randn(1, TOKENS, H).bfloat16().to(DEVICE)
        convert(block, "bf16", gates=True, max_tokens=TOKENS)
        torch._dynamo.reset()
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(x), block(x)))


if __name__ == "__main__":
    unittest.main()
