# SPDX-License-Identifier: Apache-2.0
"""The experts class of vLLM's modular kernels, against the signatures of vLLM (vllm_signatures.py), not vLLM itself."""
import importlib.metadata
import inspect
import subprocess
import sys
import tomllib
import types
import unittest

import torch
from torch.nn import functional as F

import vllm_signatures
from fp8_weights_test import given
from serving_test import Case, clamped, reference, silu_and_mul
from support import BOUNDS, DEVICE, E, H, I, K, ROOT, TOKENS, Inputs, assert_same_bits, relative_error
from vllm_signatures import FP8Registry, FusedMoEExpertsModular, MoEActivation

vllm_signatures.install()

from moejit.torch import fp8_weights, serving  # noqa: E402
from moejit.torch.vllm import MoejitExperts, register_backend  # noqa: E402


class Bf16Experts(MoejitExperts):
    recipe = "bf16"


def make(kind=MoejitExperts, **fields):
    """Experts with a quantization config that says nothing but these fields."""
    names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "block_shape", "w1_bias", "w2_bias", "gemm1_clamp_limit", "gemm1_alpha", "gemm1_beta")
    return kind(types.SimpleNamespace(), types.SimpleNamespace(**{**dict.fromkeys(names), **fields}))


class Vllm(Case):

    def call(self, experts, inputs, activation=MoEActivation.SILU, **more):
        """The output, called as vLLM's kernel calls: by name, with memory of shapes that the class gave."""
        w1 = more.get("w1", inputs.w1)
        first, second, out = experts.workspace_shapes(inputs.x.shape[0], w1.shape[1], H, K, E, w1.shape[0], None,
                                                      activation)
        output = torch.full(out, float("nan"), dtype=torch.bfloat16, device=DEVICE)
        arguments = {"hidden_states": inputs.x.detach(), "w1": inputs.w1, "w2": inputs.w2,
                     "topk_weights": inputs.probs.detach(), "topk_ids": inputs.ids, "activation": activation,
                     "global_num_experts": E, "expert_map": None, "a1q_scale": None, "a2_scale": None,
                     "workspace13": torch.empty(first), "workspace2": torch.empty(second), "expert_tokens_meta": None,
                     "apply_router_weight_on_input": False, **more}
        self.assertIsNone(experts.apply(output=output, **arguments))
        return output

    def test_it_has_every_method_with_vllm_s_arguments(self):
        self.assertEqual(MoejitExperts.__abstractmethods__, frozenset())
        for name, theirs in vars(FusedMoEExpertsModular).items():
            if not inspect.isfunction(getattr(theirs, "__func__", theirs)) or name == "__init__":
                continue
            ours = inspect.signature(getattr(MoejitExperts, name))
            self.assertEqual([*ours.parameters], [*inspect.signature(getattr(FusedMoEExpertsModular, name)).parameters],
                             name)

    def test_what_it_says_of_itself(self):
        self.assertEqual(MoejitExperts.activation_format().name, "Standard")
        self.assertTrue(MoejitExperts._supports_current_device())
        self.assertTrue(MoejitExperts._supports_quant_scheme(None, None))
        for weight, token in (("Static128Block", "Dynamic128"), ("StaticChannel", "DynamicToken"),
                              ("StaticTensor", "DynamicToken")):
            self.assertTrue(MoejitExperts._supports_quant_scheme(f"kFp8{weight}Sym", f"kFp8{token}Sym"))
        for weight, token in (("Static128Block", "DynamicToken"), ("StaticTensor", "StaticTensor"), ("Static128Block", None)):
            self.assertFalse(MoejitExperts._supports_quant_scheme(f"kFp8{weight}Sym", token and f"kFp8{token}Sym"))
        self.assertTrue(make().expects_unquantized_inputs)
        self.assertTrue(MoejitExperts._supports_activation(MoEActivation.SILU))
        self.assertFalse(MoejitExperts._supports_activation(MoEActivation.SITU))
        self.assertIsInstance(make().finalize_weight_and_reduce_impl(), vllm_signatures.TopKWeightAndReduceNoOP)

    def test_results_and_biases(self):
        for biases in (False, True):
            inputs = Inputs(biases=biases)
            experts = make(w1_bias=inputs.b1, w2_bias=inputs.b2)
            self.assert_near(self.call(experts, inputs), reference(inputs, silu_and_mul))

    def test_activations(self):
        inputs = Inputs()
        inputs.w1 = 4 * inputs.w1.detach()
        numbers = {"gemm1_clamp_limit": 1.25, "gemm1_alpha": 1.5, "gemm1_beta": 0.5}
        for kind, fields, function in (
                (MoEActivation.GELU, {}, lambda gate, up: F.gelu(gate) * up),
                (MoEActivation.GELU_TANH, {}, lambda gate, up: F.gelu(gate, approximate="tanh") * up),
                (MoEActivation.SILU, {"gemm1_clamp_limit": 1.25},
                 lambda *both: clamped(*both, limit=1.25, alpha=1.0, offset=0.0)),
                (MoEActivation.SWIGLUSTEP, {}, lambda gate, up: F.silu(gate).clamp(max=7) * up.clamp(-7, 7)),
                (MoEActivation.SWIGLUOAI_UNINTERLEAVE, numbers,
                 lambda *both: clamped(*both, limit=1.25, alpha=1.5, offset=0.5))):
            self.assert_near(self.call(make(Bf16Experts, **fields), inputs, kind), reference(inputs, function), "bf16")
        self.assert_near(self.call(make(Bf16Experts), inputs, MoEActivation.SWIGLUOAI),
                         reference(inputs, clamped, lambda h1: (h1[:, ::2], h1[:, 1::2])), "bf16")
        w1 = inputs.w1[:, :I].contiguous()
        for kind, function in ((MoEActivation.SILU_NO_MUL, F.silu), (MoEActivation.GELU_NO_MUL, F.gelu),
                               (MoEActivation.GELU_TANH_NO_MUL, lambda up: F.gelu(up, approximate="tanh")),
                               (MoEActivation.RELU2_NO_MUL, lambda up: F.relu(up) ** 2)):
            self.assert_near(self.call(make(Bf16Experts), inputs, kind, w1=w1),
                             reference(inputs, function, lambda h1: (h1,), w1), "bf16")

    def test_an_expert_map_leaves_the_experts_of_other_ranks_out(self):
        inputs, parts = Inputs(), 0
        inputs.ids[0, 0] = -1
        for rank in range(2):
            expert_map = torch.full((E,), -1, dtype=torch.int32, device=DEVICE)
            mine = torch.arange(rank, E, 2, device=DEVICE)
            expert_map[mine] = torch.arange(E // 2, dtype=torch.int32, device=DEVICE)
            parts = parts + self.call(make(), inputs, expert_map=expert_map, w1=inputs.w1.detach()[mine],
                                      w2=inputs.w2.detach()[mine]).float()
        self.assertLessEqual(relative_error(parts, reference(inputs, silu_and_mul)), BOUNDS["fp8_flow"])

    def test_weights_on_the_input_are_not_applied_again(self):
        inputs = Inputs()
        got = self.call(make(), inputs, apply_router_weight_on_input=True)
        inputs.probs = torch.ones(TOKENS, K, device=DEVICE)
        assert_same_bits(self, [got], [self.call(make(), inputs)])

    def test_weights_that_were_loaded_anew_count(self):
        inputs = Inputs()
        inputs.w1 = inputs.w1.detach().clone()
        experts = make()
        self.call(experts, inputs)
        inputs.w1.data.mul_(-1)
        experts.process_weights_after_loading(types.SimpleNamespace(w13_weight=inputs.w1))
        self.assert_near(self.call(experts, inputs), reference(inputs, silu_and_mul))

    def test_fp8_weights_have_the_bits_of_the_function(self):
        for kind, fields in (("block", {"block_shape": [128, 128]}), ("channel", {})):
            inputs, (w1, s1, w2, s2) = Inputs(), given(kind)
            if kind == "channel":
                s1, s2 = s1[..., None], s2[..., None]
            experts = make(w1_scale=s1, w2_scale=s2, **fields)
            experts.process_weights_after_loading(types.SimpleNamespace(w13_weight=w1, w2_weight=w2))
            inputs.w2 = w2
            want = serving.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(w1, s1, w2, s2), activation="swiglu")
            assert_same_bits(self, [self.call(experts, inputs, w1=w1)], [want])
            w1.view(torch.uint8)[0, 0, 0] = 0x7f
            with self.assertRaisesRegex(RuntimeError, "tensor w1_q: expert 0 has the code of NaN"):
                experts.process_weights_after_loading(types.SimpleNamespace(w13_weight=w1, w2_weight=w2))
        self.assert_refused("block_shape", lambda: self.call(
            make(w1_scale=s1, w2_scale=s2, block_shape=[64, 128]), inputs, w1=w1))

    def test_it_registers_as_a_backend(self):
        register_backend()
        self.assertEqual(FP8Registry.registered, ("moejit", "moejit.torch.vllm.MoejitExperts", False))

    def test_the_package_offers_the_backend_to_vllm(self):
        group, project = "vllm.general_plugins", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        FP8Registry.registered = None
        importlib.metadata.EntryPoint("moejit", project["entry-points"][group]["moejit"], group).load()()
        name, path, auto_select = FP8Registry.registered
        self.assertEqual((name, auto_select), ("moejit", False))
        module, _, kind = path.rpartition(".")
        self.assertIs(getattr(sys.modules[module], kind), MoejitExperts)

    def test_a_vllm_without_backends_from_outside_loads_the_plugin(self):
        program = ("import sys, types\n"
                   "for name in ('vllm', 'vllm.model_executor', 'vllm.model_executor.layers',\n"
                   "             'vllm.model_executor.layers.fused_moe', 'vllm.model_executor.layers.fused_moe.oracle'):\n"
                   "    sys.modules[name] = types.ModuleType(name)\n"
                   "import moejit.vllm_plugin\n"
                   "moejit.vllm_plugin.register()\n"
                   "sys.exit('torch' in sys.modules)")  # which vLLM's own order of imports decides
        self.assertEqual(subprocess.run([sys.executable, "-c", program], check=False).returncode, 0)

    def test_what_it_cannot_do_is_refused(self):
        inputs, scale = Inputs(), torch.ones(1, device=DEVICE)
        self.assert_refused("a1q_scale", lambda: self.call(make(), inputs, a1q_scale=scale))
        self.assert_refused("a2_scale", lambda: self.call(make(), inputs, a2_scale=scale))
        for name in ("a1_scale", "a2_scale"):
            self.assert_refused(f"{name} of the quant_config", lambda: self.call(make(**{name: scale}), inputs))
        self.assert_refused("w2_scale", lambda: self.call(make(w1_scale=scale), inputs))
        self.assert_refused("activation", lambda: self.call(make(), inputs, MoEActivation.SITU))
        self.assert_refused("activation", lambda: self.call(make(), inputs, MoEActivation.SWIGLUOAI_UNINTERLEAVE))

    def test_moejit_torch_does_not_import_vllm(self):
        program = "import sys, moejit.torch; sys.exit(any(name.split('.')[0] == 'vllm' for name in sys.modules))"
        self.assertEqual(subprocess.run([sys.executable, "-c", program], check=False).returncode, 0)

    def test_without_vllm_the_sentence_says_so(self):
        done = subprocess.run([sys.executable, "-c", "import moejit.torch.vllm"], capture_output=True, text=True,
                              check=False)
        self.assertIn("ImportError: moejit.torch.vllm needs vLLM", done.stderr)


if __name__ == "__main__":
    unittest.main()
