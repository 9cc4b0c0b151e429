# SPDX-License-Identifier: Apache-2.0
"""Conversion of transformers' models, module by module."""
import copy
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers
from torch.nn.utils import parametrize

from support import BOUNDS, DEVICE, ROOT, assert_same_bits, relative_error
from moejit.torch import Experts, convert, explain, register_hf

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

EXPERTS, HIDDEN, INTERMEDIATE, MAX_TOKENS = 8, 64, 32, 64
TOKENS = torch.arange(24).reshape(2, 12) % 16
NAMES = ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"]

transformers.logging.set_verbosity_error()


def make(family="qwen3_moe", seed=0):
    torch.manual_seed(seed)
    return make_checkpoints.make_model(family, EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)


def converted(recipe="fp8_flow", **options):
    return convert(make(), recipe, max_tokens=MAX_TOKENS, **options)


def step(model):
    """[logits and all gradients] of a call."""
    model.zero_grad()
    logits = model(TOKENS.to(DEVICE)).logits
    logits.float().square().mean().backward()
    return [logits.detach()] + [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def experts(model, layer=0):
    return model.model.layers[layer].mlp.experts


class Convert(unittest.TestCase):

    def test_modules_run_as_those_of_a_registered_implementation(self):
        register_hf("registered", "fp8_flow", MAX_TOKENS)
        model = make()
        model.set_experts_implementation("registered")
        want = step(model)
        model = make()
        self.assertIs(convert(model, "fp8_flow", max_tokens=MAX_TOKENS), model)
        assert_same_bits(self, step(model), want)

    def test_each_module_has_its_recipe(self):
        model = converted("bf16", filter_fn=lambda module, name: name == NAMES[0])
        convert(model, "fp8_flow", max_tokens=MAX_TOKENS, filter_fn=lambda module, name: name == NAMES[1])
        told = explain(model).splitlines()
        self.assertEqual(len(told), 2)
        for line, name, recipe in zip(told, NAMES, ("bf16", "fp8_flow")):
            self.assertEqual(line, f"{name}: Qwen3MoeExperts, 8 experts, hidden 64, intermediate 32, runs on "
                             f"moejit, recipe {recipe}")
        mixed = step(model)[0]
        self.assertGreater(relative_error(mixed, step(converted("bf16"))[0]), 0)
        self.assertGreater(relative_error(mixed, step(converted("fp8_flow"))[0]), 0)

    def test_modules_that_are_not_chosen_run_as_before(self):
        model = converted(filter_fn=lambda module, name: name == NAMES[1])
        self.assertEqual(explain(model).splitlines()[0], f"{NAMES[0]}: Qwen3MoeExperts, not on moejit: runs as eager")
        x = torch.randn(4, HIDDEN).to(torch.bfloat16).to(DEVICE)
        routing = torch.tensor([[0, 1]] * 4, device=DEVICE), torch.full((4, 2), 0.5, device=DEVICE)
        with torch.no_grad():
            assert_same_bits(self, [experts(model)(x, *routing)], [experts(make())(x, *routing)])
            self.assertFalse(torch.equal(experts(model, 1)(x, *routing), experts(make(), 1)(x, *routing)))

    def test_a_plan_is_explained(self):
        model = converted()
        self.assertIn("\nno plans yet: ", explain(model, plans=True))
        step(model)
        told = explain(model, plans=True)
        self.assertEqual(told.count("\nlayer "), 1, "both modules are the same layer")
        self.assertIn(f"T <= {MAX_TOKENS} ", told)
        with torch.no_grad():
            model(TOKENS.to(DEVICE))
        self.assertEqual(explain(model, plans=True).count("\nlayer "), 2, "evaluation has another one")
        self.assertEqual(explain(torch.nn.Linear(4, 4)), "no module runs on moejit\n")
        self.assertIn("fp8_flow", explain(Experts(4, 64, 32, 2, max_tokens=16)))

    def test_parameters_and_state_dict_stay(self):
        model = make()
        parameters, state = list(model.parameters()), model.state_dict()
        convert(model, max_tokens=MAX_TOKENS)
        step(model)
        self.assertTrue(all(one is other for one, other in zip(model.parameters(), parameters, strict=True)))
        self.assertEqual([(name, value.shape, value.dtype) for name, value in model.state_dict().items()],
                         [(name, value.shape, value.dtype) for name, value in state.items()])
        make(seed=1).load_state_dict(model.state_dict(), strict=True)
        other = convert(make(seed=1), max_tokens=MAX_TOKENS)
        other.load_state_dict(make().state_dict(), strict=True)
        assert_same_bits(self, step(other), step(model))

    def test_conversions_are_taken_back(self):
        model = make()
        want, config = step(model), experts(model).config
        convert(model, "bf16", max_tokens=MAX_TOKENS)
        convert(model, "fp8_flow", max_tokens=MAX_TOKENS)
        step(model)
        self.assertIs(convert(model, None, filter_fn=lambda module, name: name == NAMES[0]), model)
        self.assertIs(experts(model).config, config)
        self.assertIsNot(experts(model, 1).config, config)
        convert(model, recipe=None)
        assert_same_bits(self, step(model), want)
        self.assertEqual([name for name in vars(experts(model)) if "moejit" in name], [])

    def test_the_implementation_of_the_model_reaches_other_modules_only(self):
        model = converted("bf16", filter_fn=lambda module, name: name == NAMES[0])
        model.set_experts_implementation("batched_mm")
        told = explain(model)
        self.assertIn(f"{NAMES[0]}: Qwen3MoeExperts, 8 experts", told)
        self.assertIn(f"{NAMES[1]}: Qwen3MoeExperts, not on moejit: runs as batched_mm", told)

    def test_whole_models_compile_to_one_graph(self):
        model = converted()
        want = step(model)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_same_bits(self, step(compiled), want)

    def test_whole_models_with_checkpoints_compile_to_one_graph(self):
        model = converted()
        want = step(model)
        model.train()
        model.config.use_cache = False  # else transformers writes a warning, which Dynamo cannot trace
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_same_bits(self, step(compiled), want)


class Refusals(unittest.TestCase):

    def refuse(self, model, *wanted, **options):
        """Fails unless conversion raises these texts and leaves every module as it was."""
        configs = [vars(module).get("config") for module in model.modules()]
        with self.assertRaises(RuntimeError) as caught:
            convert(model, **options)
        for text in wanted:
            self.assertIn(text, str(caught.exception))
        for module, config in zip(model.modules(), configs):
            self.assertIs(vars(module).get("config"), config)

    def test_a_module_that_no_description_expresses(self):
        model = make()
        experts(model, 1).has_post_expert_norm = True
        self.refuse(model, f"moejit: module {NAMES[1]}: unsupported: Qwen3MoeExperts has a norm behind each expert")

    def test_a_recipe_that_the_target_cannot_run(self):
        self.refuse(make(), "moejit: convert(): ", "nvfp4", "hint: ", recipe="nvfp4", splits_alignment=8)

    def test_a_recipe_with_a_state(self):
        self.refuse(make(), "moejit: convert(): ", "fp8_delayed", "state", "fp8_current", recipe="fp8_delayed")

    def test_a_dtype_that_no_recipe_takes(self):
        model = make().half()
        self.refuse(model, f"{NAMES[0]}.down_proj is float16; moejit computes in bfloat16\nhint: ")

    def test_models_without_experts(self):
        self.refuse(torch.nn.Sequential(torch.nn.Linear(4, 4)), "Sequential has no experts to convert")
        self.refuse(make(), "no experts to convert", filter_fn=lambda module, name: False)

    def test_experts_that_take_no_implementation_are_named(self):
        alike = torch.nn.Module()
        alike.gate_up_proj = alike.down_proj = torch.nn.Parameter(torch.zeros(2))
        self.refuse(torch.nn.ModuleDict({"own": alike}), "; own has such parameters, but a class that takes no")


class Copies(unittest.TestCase):

    def test_deep_copies_are_models_of_their_own(self):
        model = converted()
        want = step(model)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        step(model)
        assert_same_bits(self, step(other), want)
        convert(other, recipe=None)
        self.assertIn("not on moejit", explain(other))
        self.assertNotIn("not on moejit", explain(model))

    def test_whole_models_are_read_in_other_processes(self):
        model = converted()
        with torch.no_grad():
            want = model(TOKENS.to(DEVICE)).logits
        with tempfile.NamedTemporaryFile(suffix=".pt") as saved, tempfile.NamedTemporaryFile(suffix=".pt") as result:
            torch.save(model, saved.name)
            code = ("import sys, torch\nmodel, tokens = torch.load(sys.argv[1], weights_only=False), "
                    "torch.arange(24).reshape(2, 12) % 16\nwith torch.no_grad():\n"
                    "    torch.save(model(tokens.to(model.device)).logits, sys.argv[2])\n")
            subprocess.run([sys.executable, "-W", "ignore", "-c", code, saved.name, result.name], check=True,
                           env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
            assert_same_bits(self, [torch.load(result.name)], [want])

    def test_models_without_memory_are_converted_before_they_are_loaded(self):
        source = converted()
        with torch.device("meta"):
            model = type(source)(source.config).to(torch.bfloat16)
        convert(model, max_tokens=MAX_TOKENS)
        model.to_empty(device=DEVICE)
        model.load_state_dict(source.state_dict(), strict=True)
        for module, other in zip(model.modules(), source.modules()):  # buffers that no state dict has
            for name, buffer in other._buffers.items():
                module._buffers[name] = buffer
        assert_same_bits(self, step(model), step(source))


class Parameters(unittest.TestCase):

    def test_shared_parameters_get_the_sum_of_gradients(self):
        apart = converted("bf16")
        for name in ("gate_up_proj", "down_proj"):
            with torch.no_grad():
                getattr(experts(apart, 1), name).copy_(getattr(experts(apart), name))
        shared = converted("bf16")
        for name in ("gate_up_proj", "down_proj"):
            setattr(experts(shared, 1), name, getattr(experts(shared), name))
        assert_same_bits(self, step(shared)[:1], step(apart)[:1])
        for name in ("gate_up_proj", "down_proj"):
            want = getattr(experts(apart), name).grad + getattr(experts(apart, 1), name).grad
            assert_same_bits(self, [getattr(experts(shared), name).grad], [want])

    def test_frozen_experts_pass_gradients_on(self):
        model = converted()
        want = dict(zip([name for name, _ in model.named_parameters()], step(model)[1:]))
        for layer in (0, 1):
            experts(model, layer).requires_grad_(False)
        logits_and_gradients = step(model)
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.assertEqual(len(names), len(want) - 4)
        assert_same_bits(self, logits_and_gradients[1:], [want[name] for name in names])

    def test_low_rank_updates_train_beside_frozen_experts(self):
        class LowRank(torch.nn.Module):
            def __init__(self, weight):
                super().__init__()
                options = {"dtype": weight.dtype, "device": weight.device}
                self.down = torch.nn.Parameter(torch.randn(EXPERTS, 4, weight.shape[2], **options) / 8)
                self.up = torch.nn.Parameter(torch.zeros(EXPERTS, weight.shape[1], 4, **options))

            def forward(self, weight):
                return weight + self.up @ self.down

        model = converted()
        module = experts(model)
        plain = step(model)[0]
        module.requires_grad_(False)
        for name in ("gate_up_proj", "down_proj"):
            parametrize.register_parametrization(module, name, LowRank(getattr(module, name)))
        torch.manual_seed(0)
        assert_same_bits(self, step(model)[:1], [plain])
        update = module.parametrizations.gate_up_proj[0]
        whole = converted()
        step(whole)
        self.assertIsNone(module.parametrizations.gate_up_proj.original.grad)
        want = experts(whole).gate_up_proj.grad @ update.down.detach().transpose(1, 2)
        self.assertLess(relative_error(update.up.grad, want), 2 ** -7)  # two roundings to bf16
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        optimizer.step()
        self.assertFalse(torch.equal(step(model)[0], plain))

    def test_models_change_dtype_and_device_after_conversion(self):
        model = converted("bf16")
        want = step(model)
        model.half()
        with self.assertRaisesRegex(RuntimeError, rf"{NAMES[0]}\.gate_up_proj is float16; "):
            model(TOKENS.to(DEVICE))
        model = converted("bf16").float()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            self.assertLess(relative_error(model(TOKENS.to(DEVICE)).logits, want[0]), BOUNDS["bf16"] * 4)
        model = converted("bf16").to("meta")
        self.assertEqual(model(TOKENS.to("meta")).logits.device.type, "meta")


if __name__ == "__main__":
    unittest.main()
