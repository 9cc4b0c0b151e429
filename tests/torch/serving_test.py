# SPDX-License-Identifier: Apache-2.0
"""Experts in the shapes of FlashInfer's, SGLang's and vLLM's functions against PyTorch's operators in float32."""
import enum
import gc
import inspect
import types
import unittest
import weakref

import torch
from torch.nn import functional as F

from support import BOUNDS, DEVICE, E, H, I, K, RECIPES, Inputs, Recorder, assert_same_bits, relative_error
from fp8_weights_test import given
from moejit.torch import fp8_weights, serving
from moejit.torch.flashinfer import cutlass_fused_moe
from moejit.torch.layers import max_tokens_of
from moejit.torch.sglang import fused_experts


class ActivationType(enum.IntEnum):
    """FlashInfer's, as of its version 0.6."""
    Gelu, Relu, Silu, Swiglu, Geglu, SwigluBias, Relu2, SwigluStep = range(8)


def clamped(gate, up, limit=7.0, alpha=1.702, offset=1.0):
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + offset)


def reference(inputs, activation, split=lambda h1: h1.chunk(2, -1), w1=None):
    """[T, H] in float32. `split` takes gate and up out of what the first weights give."""
    w1 = inputs.w1 if w1 is None else w1
    y = torch.zeros(inputs.x.shape, device=DEVICE)
    for expert in range(w1.shape[0]):
        tokens, choices = torch.where(inputs.ids == expert)
        h1 = inputs.x[tokens].float() @ w1[expert].float().T
        if inputs.b1 is not None:
            h1 = h1 + inputs.b1[expert].float()
        h2 = activation(*split(h1)) @ inputs.w2[expert].float().T
        if inputs.b2 is not None:
            h2 = h2 + inputs.b2[expert].float()
        y = y.index_add(0, tokens, inputs.probs[tokens, choices, None].float() * h2)
    return y.detach()


def silu_and_mul(gate, up):
    return F.silu(gate) * up


class Case(unittest.TestCase):

    def assert_near(self, got, want, recipe="fp8_flow"):
        self.assertEqual(got.dtype, torch.bfloat16)
        self.assertLessEqual(relative_error(got, want), BOUNDS[recipe])

    def assert_refused(self, argument, call):
        with self.assertRaisesRegex(RuntimeError, f"moejit: unsupported: .*argument {argument}: got .*, wanted "):
            call()


class FlashInfer(Case):

    def call(self, inputs, *, w1=None, **more):
        more = {"output_dtype": torch.bfloat16, "quant_scales": [], "fc1_expert_biases": inputs.b1,
                "fc2_expert_biases": inputs.b2, **more}
        return cutlass_fused_moe(inputs.x, inputs.ids.int(), inputs.probs, inputs.w1 if w1 is None else w1, inputs.w2,
                                 **more)[0]

    @staticmethod
    def up_first(h1):
        return reversed(h1.chunk(2, -1))

    def test_up_comes_before_gate(self):
        for recipe in RECIPES:
            for biases in (False, True):
                inputs = Inputs(biases=biases)
                self.assert_near(self.call(inputs, recipe=recipe), reference(inputs, silu_and_mul, self.up_first),
                                 recipe)

    def test_activations(self):
        inputs = Inputs()
        self.assert_near(self.call(inputs, activation_type=ActivationType.Geglu, recipe="bf16"),
                         reference(inputs, lambda gate, up: F.gelu(gate) * up, self.up_first), "bf16")
        for kind, function in ((ActivationType.Relu2, lambda up: F.relu(up) ** 2), (ActivationType.Silu, F.silu),
                               (int(ActivationType.Gelu), F.gelu), (int(ActivationType.Relu), F.relu)):
            w1 = inputs.w1.detach()[:, :I].contiguous()
            self.assert_near(self.call(inputs, w1=w1, activation_type=kind, recipe="bf16"),
                             reference(inputs, function, lambda h1: (h1,), w1), "bf16")

    def test_numbers_of_swiglu(self):
        inputs = Inputs()
        inputs.w1 = (4 * inputs.w1.detach())
        numbers = {f"swiglu_{name}": torch.full((E,), value, device=DEVICE)
                   for name, value in (("alpha", 1.5), ("beta", 0.5), ("limit", 1.25))}
        for alpha in (1.5, 1.0):
            numbers["swiglu_alpha"].fill_(alpha)
            wanted = reference(inputs, lambda *both: clamped(*both, limit=1.25, alpha=alpha, offset=0.5), self.up_first)
            self.assert_near(self.call(inputs, recipe="bf16", **numbers), wanted, "bf16")
        numbers["swiglu_beta"][0] = 9
        self.assert_refused("swiglu_beta", lambda: self.call(inputs, **numbers))

    def test_fp8_weights_have_the_bits_of_the_function(self):
        inputs, (w1, s1, w2, s2) = Inputs(), given()
        inputs.w2 = w2
        swapped = [tensor.unflatten(1, (2, -1)).flip(1).flatten(1, 2) for tensor in (w1, s1)]
        got = self.call(inputs, w1=swapped[0], use_deepseek_fp8_block_scale=True, quant_scales=[swapped[1], s2])
        want = serving.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(w1, s1, w2, s2), activation="swiglu")
        self.assertLessEqual(relative_error(got, want), 2 ** -7)  # the formula rounds elsewhere than the preset
        self.assert_refused("quant_scales", lambda: self.call(inputs, w1=w1, use_deepseek_fp8_block_scale=True))

    def test_experts_of_other_ranks_add_nothing(self):
        inputs = Inputs()
        whole, parts = self.call(inputs), 0
        for rank in range(2):
            mine = slice(rank * E // 2, (rank + 1) * E // 2)
            parts = parts + cutlass_fused_moe(
                inputs.x, inputs.ids, inputs.probs, inputs.w1[mine].contiguous(), inputs.w2[mine].contiguous(),
                torch.bfloat16, None, ep_size=2, ep_rank=rank)[0].float()
        self.assert_near(whole, reference(inputs, silu_and_mul, self.up_first))
        # Two roundings to bf16 instead of one, of parts that may be larger than their sum.
        self.assertLessEqual(relative_error(parts, whole), 2 ** -7)

    def test_ids_of_other_ranks_become_minus_one(self):
        ids = torch.tensor([-1, 0, 3, 4, 7, 8])
        self.assertEqual(serving.local_ids(ids, 4, 4).tolist(), [-1, -1, -1, 0, 3, -1])

    def test_parts_of_the_width_add_up(self):
        inputs = Inputs()
        up, gate = inputs.w1.detach().chunk(2, 1)
        parts = 0
        for rank in range(2):
            mine = slice(rank * I // 2, (rank + 1) * I // 2)
            parts = parts + cutlass_fused_moe(
                inputs.x, inputs.ids, inputs.probs, torch.cat([up[:, mine], gate[:, mine]], 1),
                inputs.w2.detach()[:, :, mine].contiguous(), torch.bfloat16, None, tp_size=2,
                tp_rank=rank)[0].float()
        self.assertLessEqual(relative_error(parts, reference(inputs, silu_and_mul, self.up_first)), BOUNDS["fp8_flow"])

    def test_the_output_that_is_given_gets_the_result(self):
        inputs = Inputs()
        output = torch.empty_like(inputs.x).detach()
        got = self.call(inputs, output=output)
        self.assertIs(got, output)
        assert_same_bits(self, [output], [self.call(inputs)])
        self.assert_refused("output", lambda: self.call(inputs, output=output.float()))

    def test_what_it_cannot_do_is_refused(self):
        inputs, biased = Inputs(), Inputs(biases=True)
        some = torch.ones(E, device=DEVICE)
        for argument, value in (("output_dtype", torch.float16), ("quant_scales", [some]), ("input_sf", some),
                                ("cluster_size", 2), ("enable_alltoall", True), ("use_w4_group_scaling", True),
                                ("use_mxfp8_act_scaling", True), ("min_latency_mode", True), ("use_packed_weights", True), ("use_wfp4afp8_humming", True),
                                ("profile_ids", [1, 2]), ("workspace_buffer", some),
                                ("activation_type", ActivationType.SwigluStep), ("activation_type", 11)):
            self.assert_refused(argument, lambda: self.call(inputs, **{argument: value}))
        self.assert_refused("tp_rank or ep_rank", lambda: self.call(inputs, ep_rank=1))
        self.assert_refused("tp_size", lambda: self.call(biased, tp_size=2))
        self.assert_refused("swiglu_limit", lambda: self.call(inputs, swiglu_limit=some, activation_type=4))
        with self.assertRaisesRegex(RuntimeError, "one bias is given and the other is not"):
            self.call(biased, fc1_expert_biases=None)


class SGLang(Case):

    @staticmethod
    def config(**fields):
        """The fields of SGLang's MoeRunnerConfig that a layer sets."""
        return types.SimpleNamespace(**{"activation": "silu", "is_gated": True, "apply_router_weight_on_input": False,
                                        "inplace": False, "no_combine": False, "routed_scaling_factor": None,
                                        "gemm1_alpha": None, "gemm1_clamp_limit": None, **fields})

    def call(self, inputs, *, w1=None, ids=None, config=None, **more):
        output = (inputs.probs.detach(), inputs.ids if ids is None else ids, None)
        return fused_experts(inputs.x.detach(), inputs.w1 if w1 is None else w1, inputs.w2, output,
                             config or self.config(), inputs.b1, inputs.b2, **more)

    def test_gate_comes_before_up(self):
        for recipe in RECIPES:
            for biases in (False, True):
                inputs = Inputs(biases=biases)
                self.assert_near(self.call(inputs, recipe=recipe), reference(inputs, silu_and_mul), recipe)

    def test_activations(self):
        inputs = Inputs()
        inputs.w1 = 4 * inputs.w1.detach()
        for fields, function in (
                ({"activation": "gelu"}, lambda gate, up: F.gelu(gate) * up),
                ({"gemm1_clamp_limit": 1.25}, lambda gate, up: F.silu(gate).clamp(max=1.25) * up.clamp(-1.25, 1.25)),
                ({"gemm1_alpha": 1.5, "gemm1_clamp_limit": 1.25, "gate_up_interleaved": False},
                 lambda *both: clamped(*both, limit=1.25, alpha=1.5))):
            self.assert_near(self.call(inputs, config=self.config(**fields), recipe="bf16"),
                             reference(inputs, function), "bf16")
        config = self.config(gemm1_alpha=1.702, gemm1_clamp_limit=7.0)
        self.assert_near(self.call(inputs, config=config, recipe="bf16"),
                         reference(inputs, clamped, lambda h1: (h1[:, ::2], h1[:, 1::2])), "bf16")
        w1 = inputs.w1[:, :I].contiguous()
        for name, function in (("silu", F.silu), ("gelu", F.gelu), ("relu2", lambda up: F.relu(up) ** 2)):
            config = self.config(activation=name, is_gated=False)
            self.assert_near(self.call(inputs, w1=w1, config=config, recipe="bf16"),
                             reference(inputs, function, lambda h1: (h1,), w1), "bf16")

    def test_ids_of_minus_one_add_nothing(self):
        inputs = Inputs()
        ids = inputs.ids.clone()
        ids[::2, 0] = -1
        got = self.call(inputs, ids=ids)
        inputs.ids = ids
        self.assert_near(got, reference(inputs, silu_and_mul))

    def test_the_scaling_factor_and_in_place(self):
        inputs = Inputs()
        got = self.call(inputs, config=self.config(routed_scaling_factor=2.0))
        assert_same_bits(self, [got], [2 * self.call(inputs)])
        x = inputs.x.detach().clone()
        in_place = fused_experts(x, inputs.w1, inputs.w2, (inputs.probs, inputs.ids, None), self.config(inplace=True))
        self.assertIs(in_place, x)
        assert_same_bits(self, [x], [self.call(inputs)])

    def test_what_it_cannot_do_is_refused(self):
        inputs, some = Inputs(), torch.ones(E, device=DEVICE)
        for argument, value in (("use_int8_w8a8", True), ("use_int8_w8a16", True),
                                ("use_int4_w4a16", True), ("per_channel_quant", True), ("block_shape", [128, 128]),
                                ("w1_scale", some), ("w2_scale", some), ("w1_zp", some), ("w2_zp", some),
                                ("a1_scale", some), ("a2_scale", some)):
            self.assert_refused(argument, lambda: self.call(inputs, **{argument: value}))
        for field, value in (("apply_router_weight_on_input", True), ("no_combine", True), ("custom_act_fn", F.silu),
                             ("swiglu_limit", 7.0), ("activation", "relu2"), ("gemm1_alpha", 1.0)):
            self.assert_refused("moe_runner_config.*", lambda: self.call(inputs, config=self.config(**{field: value})))

    def test_fp8_weights_have_the_bits_of_the_function(self):
        for kind, fields in (("block", {"block_shape": [128, 128]}), ("channel", {"per_channel_quant": True})):
            inputs, (w1, s1, w2, s2) = Inputs(), given(kind)
            inputs.w1, inputs.w2 = w1, w2
            shape = (lambda scale: scale[..., None]) if kind == "channel" else lambda scale: scale
            got = self.call(inputs, use_fp8_w8a8=True, w1_scale=shape(s1), w2_scale=shape(s2), **fields)
            want = serving.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(w1, s1, w2, s2), activation="swiglu")
            assert_same_bits(self, [got], [want])
        for argument, more in (("block_shape", {"block_shape": [64, 128]}), ("block_shape", {"block_shape": [128, 128]}),
                               ("w2_scale", {"w2_scale": None}), ("a1_scale", {"a1_scale": s1})):
            self.assert_refused(argument, lambda: self.call(inputs, **{
                "use_fp8_w8a8": True, "w1_scale": s1, "w2_scale": s2, **more}))
        inputs, (w1, s1, w2, s2) = Inputs(), given()
        inputs.w1, inputs.w2 = w1, w2
        for argument, more in (("block_shape", {}), ("per_channel_quant", {"per_channel_quant": True,
                                                                           "block_shape": [128, 128]})):
            self.assert_refused(argument, lambda: self.call(inputs, use_fp8_w8a8=True, w1_scale=s1, w2_scale=s2, **more))
        with self.assertRaisesRegex(RuntimeError, 'scale for each 128x128 block: recipe: got "bf16"'):
            self.call(inputs, use_fp8_w8a8=True, w1_scale=s1, w2_scale=s2, block_shape=[128, 128], recipe="bf16")

    def test_other_dtypes_are_refused_with_the_tensor_s_name(self):
        inputs = Inputs()
        with self.assertRaisesRegex(RuntimeError, "tensor w1: .*dtype"):
            self.call(inputs, w1=inputs.w1.detach().float())


class Weights(Case):

    def run_on(self, inputs, w1):
        return serving.run(inputs.x, inputs.ids, inputs.probs, w1, inputs.w2, None, None, activation="swiglu")

    def test_changes_in_place_are_seen(self):
        inputs = Inputs()
        w1 = inputs.w1.detach().clone()
        self.run_on(inputs, w1)
        w1.mul_(-1)
        self.assert_near(self.run_on(inputs, w1), reference(inputs, silu_and_mul, w1=w1))

    def test_changes_that_are_hidden_are_seen(self):
        inputs = Inputs()
        w1, w2 = inputs.w1.detach().clone(), inputs.w2.detach().clone()
        inputs.w2 = w2
        for weight in (w1, w2):
            self.run_on(inputs, w1)
            weight.data.mul_(-1)
            self.assert_near(self.run_on(inputs, w1), reference(inputs, silu_and_mul, w1=w1))

    def test_calls_do_not_look_after_update_weights(self):
        inputs = Inputs()
        w1 = inputs.w1.detach().clone()
        serving.update_weights(w1)
        self.run_on(inputs, w1)
        with Recorder() as recorder:
            self.run_on(inputs, w1)
        self.assertEqual([name for name, _ in recorder.calls], ["forward"])
        w1.data.mul_(-1)
        serving.update_weights(w1)
        self.assert_near(self.run_on(inputs, w1), reference(inputs, silu_and_mul, w1=w1))

    def test_forget_frees_what_is_kept(self):
        inputs = Inputs()
        w1 = inputs.w1.detach().clone()
        self.run_on(inputs, w1)
        serving.forget(w1)
        self.assertEqual(serving._states[w1].weights.kept, {})
        self.assert_near(self.run_on(inputs, w1), reference(inputs, silu_and_mul, w1=w1))

    def test_weights_of_inference_mode(self):
        inputs = Inputs()
        with torch.inference_mode():
            w1, w2 = inputs.w1.detach().clone(), inputs.w2.detach().clone()
            inputs.w2 = w2
            got = self.run_on(inputs, w1)
            self.assertTrue(w1.is_inference())
        self.assert_near(got, reference(inputs, silu_and_mul))

    def test_nothing_keeps_weights_alive(self):
        inputs = Inputs()
        w1 = inputs.w1.detach().clone()
        self.run_on(inputs, w1)
        alive = weakref.ref(w1)
        del w1
        gc.collect()
        self.assertIsNone(alive())

    def test_layers_are_shared_by_calls_of_about_as_many_tokens(self):
        self.assertEqual([max_tokens_of(tokens) for tokens in (0, 1, 16, 17, 4096, 4097)],
                         [16, 16, 16, 32, 4096, 8192])
        inputs, many = Inputs(), Inputs(tokens=40)
        for each in (inputs, many):
            each.w1, each.w2 = inputs.w1, inputs.w2
            self.assert_near(self.run_on(each, inputs.w1), reference(each, silu_and_mul))
        none = Inputs(tokens=0)
        none.w2 = inputs.w2
        self.assertEqual(self.run_on(none, inputs.w1).shape, (0, H))


class Signatures(unittest.TestCase):

    def test_arguments_are_named_and_ordered_as_theirs(self):
        self.assertEqual([*inspect.signature(cutlass_fused_moe).parameters][:-1], """
            input token_selected_experts token_final_scales fc1_expert_weights fc2_expert_weights output_dtype
            quant_scales fc1_expert_biases fc2_expert_biases input_sf swiglu_alpha swiglu_beta swiglu_limit tp_size
            tp_rank ep_size ep_rank cluster_size cluster_rank output enable_alltoall use_deepseek_fp8_block_scale
            use_w4_group_scaling use_mxfp8_act_scaling min_latency_mode use_packed_weights use_wfp4afp8_humming
            tune_max_num_tokens enable_pdl activation_type swizzled_input_sf use_fused_finalize profile_ids
            workspace_buffer""".split())
        self.assertEqual([*inspect.signature(fused_experts).parameters][:-1], """
            hidden_states w1 w2 topk_output moe_runner_config b1 b2 use_fp8_w8a8 use_int8_w8a8 use_int8_w8a16
            use_int4_w4a16 per_channel_quant w1_scale w2_scale w1_zp w2_zp a1_scale a2_scale block_shape""".split())


if __name__ == "__main__":
    unittest.main()
