# SPDX-License-Identifier: Apache-2.0
"""Routers of transformers on moejit.torch.router(), beside their own forward: each class that moejit knows, with the
formula that its configuration implies."""
import copy
import importlib
import json
import pickle
import re
import unittest

import torch
import transformers

transformers.logging.set_verbosity_error()
from torch.overrides import TorchFunctionMode

from moejit.torch import hf_gates
from moejit.torch.hf_gate_kinds import BIAS, GATES
from support import DEVICE, ROOT

EXPERTS = 24  # as the saved configurations have them
T, K = 24, 3
# A probability may differ by so many times 2^-23 of it. Scores, their sum and the division round fewer than twenty
# times, each by at most half of 2^-23.
ULPS = 10
GRADIENTS = 4e-6  # relative to the largest element
# Values of keys, where a configuration has them, so that no part of a formula is left at a number that does nothing.
VARIED = {"n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "norm_topk_prob": True,
          "routed_scaling_factor": 2.5, "router_scaling_factor": 1.5, "route_scale": 3.0, "zero_expert_num": 8,
          "moe_router_logit_softcapping": 3.0, "moe_norm_min": 0.5, "expert_selection_fn": "sigmoid"}
# Configurations whose names do not begin as their routers'.
CONFIGS = {"Qwen3OmniMoeThinkerText": "Qwen3OmniMoeTextConfig", "Ernie4_5_VLMoeMoe": "Ernie4_5_VLMoeTextConfig"}
# Types of models whose folder has another name.
FOLDERS = {"dots3_note_vision_encoder": "dots3_note", "qwen3_omni_moe_talker": "qwen3_omni_moe", "step3p5": "step3p7"}


def configurations():
    """The small configurations that transformers saved, by the names of their classes."""
    lines = (ROOT / "tests/fixtures/hugging_face/configurations.txt").read_text().splitlines()[1:]
    return {name: json.loads(text, object_hook=lambda fields: float(fields.get("__float__", "nan"))
                             if "__float__" in fields else fields)
            for name, variant, text in (line.split(" ", 2) for line in lines) if variant == "small"}


def class_and_config(gate, saved):
    """A class of routers by its name, and a small configuration for it."""
    start = re.sub("(TopK|Topk|TokenChoice|Hash)?(Router|Gate)$", "", gate)
    names = (CONFIGS.get(start), start + "TextConfig", start + "Config")
    name = next(name for name in names if name in saved)
    folder = saved[name]["model_type"].removesuffix("_text")
    folder = FOLDERS.get(folder, folder)
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    configuration = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
    config = getattr(configuration, name).from_dict(dict(saved[name], vocab_size=T))
    if config.is_heterogeneous:
        config = next(layer for layer in config.per_layer_config
                      if getattr(layer, "num_local_experts", EXPERTS) == EXPERTS)
    return getattr(modeling, gate), config


def stable_topk(values, k, dim=-1, largest=True, sorted=True):
    """torch.topk() without its liberty: of equal values the lower index comes first."""
    found = torch.sort(values, dim=dim, descending=True, stable=True)
    return torch.return_types.topk([part.narrow(dim, 0, k) for part in found])


class Exact(TorchFunctionMode):
    """Hands the hidden states to modules as their logits, knows a rule for ties, and may compute in float64."""

    def __init__(self, is_double):
        super().__init__()
        self.is_double = is_double

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.topk, torch.Tensor.topk):
            return stable_topk(*args, **kwargs)
        if function is torch.nn.functional.linear:
            return args[0][..., :args[1].shape[0]]
        if self.is_double:
            function = torch.Tensor.double if function is torch.Tensor.float else function
            args = tuple(torch.float64 if each is torch.float32 else each for each in args)
            kwargs = {key: torch.float64 if each is torch.float32 else each for key, each in kwargs.items()}
        return function(*args, **kwargs)


def make_gate(kind, config, generator):
    module = kind(config, *([0] if "layer_idx" in kind.__init__.__code__.co_varnames else [])).to(DEVICE)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        value = torch.randn(tensor.shape, generator=generator)
        if name.endswith(BIAS):
            tensor.data.copy_(0.05 * value)
        elif name == "per_expert_scale":
            tensor.data.copy_(1 + 0.1 * value)
        elif name == "tid2eid":
            tensor.data.copy_(torch.stack([torch.randperm(24, generator=generator)[:K] for _ in range(T)]))
    return module


def inputs(generator, config, has_norm):
    """Logits of normal size, logits with many ties, and rows that are no numbers."""
    width = max(64, getattr(config, "hidden_size", 64))
    usual = 2.0 * torch.randn(T, width, generator=generator)
    tied = (2.0 * torch.randn(T, width, generator=generator)).round()
    odd = usual.clone()
    odd[0], odd[2] = torch.nan, -torch.inf
    if not has_norm:  # which makes NaN of single logits, of which torch's softmax makes NaN everywhere
        odd[1, ::2] = -torch.inf
    return {"usual": usual, "tied": tied, "odd": odd}


def run(module, x, argument, is_double=False):
    """Logits, probabilities and ids in the order of ids, and the gradient of x."""
    x = x.to(DEVICE, torch.float64 if is_double else torch.float32, copy=True).requires_grad_()
    with Exact(is_double):
        # One of transformers' routers wants the shape of a batch.
        told, probs, ids = module(x[None] if hf_gates.original_class(module).__name__ == "AfmoeTokenChoiceRouter" else x,
                                  *argument)
    ids, order = ids.reshape(T, K).sort()
    probs = probs.reshape(T, K).gather(1, order)
    gradient = torch.randn(T, K, generator=torch.Generator().manual_seed(2)).to(DEVICE, probs.dtype)
    probs.backward(gradient)
    return told.detach(), probs.detach(), ids, x.grad


class Routers(unittest.TestCase):

    def check(self, kind, config, generator):
        gate, row = make_gate(kind, config, generator), GATES[kind.__name__]
        argument = []
        if row.bias == "argument":
            argument = [0.05 * torch.randn(24, generator=generator).to(DEVICE)]
        elif row.table:
            argument = [torch.randperm(T, generator=generator).to(DEVICE)]
        converted = copy.deepcopy(gate)
        hf_gates.convert_gate("gate", converted, config)()
        self.assertIsInstance(converted, kind)
        self.assertEqual(list(converted.state_dict()), list(gate.state_dict()))
        in_double = copy.deepcopy(gate).double()
        for name, x in inputs(generator, config, hasattr(gate, "norm")).items():
            with self.subTest(kind.__name__, inputs=name):
                told, probs, ids, dx = run(converted, x, argument)
                if name != "usual":
                    wanted_told, _, wanted_ids, _ = run(gate, x, argument)
                    self.assertTrue(torch.equal(ids, wanted_ids))
                    torch.testing.assert_close(told, wanted_told, rtol=1e-6, atol=0, equal_nan=True)
                    continue
                doubles = [each.double() if each.is_floating_point() else each for each in argument]
                _, wanted, wanted_ids, wanted_dx = run(in_double, x, doubles, is_double=True)
                self.assertTrue(torch.equal(ids, wanted_ids))
                ulps = ((probs - wanted).abs() / wanted.abs()).max().item() * 2 ** 23
                error = ((dx - wanted_dx).abs().max() / wanted_dx.abs().max()).item()
                self.assertLessEqual(ulps, ULPS)
                self.assertLessEqual(error, GRADIENTS)

    def test_each_class_chooses_as_its_own_forward(self):
        generator, saved = torch.Generator().manual_seed(0), configurations()
        for name in GATES:
            kind, config = class_and_config(name, saved)
            for key, value in VARIED.items():
                if hasattr(config, key):
                    setattr(config, key, value)
            self.check(kind, config, generator)


if __name__ == "__main__":
    unittest.main()
