# SPDX-License-Identifier: Apache-2.0
"""Experts of megatron-core's layers on moejit, beside its SequentialMLP: on one rank, in this process."""
import copy
import functools
import importlib
import runpy
import sys
import unittest
from unittest import mock

import megatron_cpu
import torch
from megatron_cpu import OnCpu
from support import BOUNDS, E, H, K, ROOT, assert_same_bits, describe, relative_error, told
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from moejit.torch import experts

if megatron_cpu.IS_THERE:
    import megatron_case as case
    import megatron_signatures
    from megatron.core import activations
    from megatron.core.fusions import fused_bias_geglu
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron_case import ROWS, SIZES, experts_of, rows
    from moejit.torch.megatron import GroupedMLP, convert_spec
    from moejit.torch.megatron_dispatch import choices_of
    from moejit.torch.megatron_layers import activation_of

# (recipe, more fields of the configuration)
LAYERS = (("bf16", {}), ("fp8_blockwise", {"moe_token_dispatcher_type": "allgather"}),
          ("fp8_flow", {"moe_router_dtype": "fp64"}))


class Layers(megatron_cpu.OnOneRank):

    def test_results_are_near_float32(self):
        for recipe, fields in LAYERS:
            reference = case.layer_of(case.SEQUENTIAL, case.config_of(torch.float32, **fields))
            want = case.results_of(reference, torch.float32, 0)
            got = case.results_of(case.ours(recipe, case.config_of(**fields)), torch.bfloat16, 0)
            for index, pair in enumerate(zip(got, want)):
                with self.subTest((recipe, fields, index)):
                    self.assertLessEqual(relative_error(*pair), BOUNDS[recipe])

    def test_tokens_of_all_gather_have_the_bits_of_the_function(self):
        config = case.config_of(moe_token_dispatcher_type="allgather", moe_router_dtype="fp64")
        layer = case.ours("fp8_flow", config, input="tokens")
        y, dx, *_ = case.results_of(layer, torch.bfloat16, 0)
        generator = torch.Generator().manual_seed(10)
        x, dy = torch.randn(2, case.SEQUENCE, case.BATCH, H, generator=generator).bfloat16()
        probs, routing_map = layer.router(x.requires_grad_())
        ids, probs = choices_of(routing_map, probs, K)
        self.assertTrue((ids.diff(dim=1) > 0).all())
        weights = [parameter.detach() for parameter in layer.experts.parameters()]
        want = experts(x, ids, probs.float(), *weights, layer=describe("fp8_flow"))
        assert_same_bits(self, [y], [want.detach()])
        want.backward(dy)
        self.assertLessEqual(relative_error(dx, x.grad), 2 ** -8)

    def test_choices_that_tokens_do_not_have(self):
        routing_map = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]], dtype=torch.bool)
        probs = (torch.arange(12.0).view(3, 4) * routing_map).requires_grad_()
        ids, chosen = choices_of(routing_map, probs, 2)
        self.assertEqual(ids.tolist(), [[2, 4], [4, 4], [0, 3]])
        self.assertEqual([chosen[0, 0].item(), *chosen[2].tolist()], [2, 8, 11])

    def test_activations(self):
        for fields in ({"activation_func": fused_bias_geglu.quick_gelu},
                       {"activation_func": activations.quick_gelu, "activation_func_clamp_value": 0.5,
                        "glu_linear_offset": 1.0},
                       {"activation_func": F.gelu, "activation_func_clamp_value": 0.5},
                       {"activation_func": activations.squared_relu, "gated_linear_unit": False}):
            reference = case.layer_of(case.SEQUENTIAL, case.config_of(torch.float32, **fields)).experts
            x, sizes, probs = rows()
            sizes[-1] = ROWS - sum(SIZES[:-1])
            with torch.no_grad(), self.subTest(fields):
                want, _ = reference(x.float(), sizes, probs)
                self.assertLessEqual(relative_error(experts_of(**fields)(x, sizes, probs)[0], want), BOUNDS["bf16"])

    def test_formulas_of_activations(self):
        for want, function, fields in (
                ("swiglu", F.silu, {}), ("geglu", F.gelu, {}), ("quick_geglu", activations.quick_gelu, {}),
                ({"preset": "clamped_swiglu", "limit": 7.0, "alpha": 1.0, "offset": 0.0}, F.silu,
                 {"activation_func_clamp_value": 7.0}),
                ({"expression": "silu(gate) * (up + 1.0)"}, F.silu, {"glu_linear_offset": 1.0}),
                ({"expression": "gelu_tanh(up)"}, activations.fast_gelu, {"gated_linear_unit": False})):
            self.assertEqual(activation_of(case.config_of(activation_func=function, **fields)), want)

    def test_a_model_learns(self):
        program = runpy.run_path(str(ROOT / "docs/examples/pytorch/train_megatron.py"))
        with OnCpu():
            model, losses = program["train"](steps=4)
        self.assertLess(losses[-1], losses[0] - 0.5)
        experts = model.decoder.layers[0].mlp.experts
        self.assertIsInstance(experts, GroupedMLP)
        self.assertTrue(all(parameter.grad.any() for parameter in experts.parameters()))


class Rows(megatron_cpu.OnOneRank):

    def test_no_rows(self):
        experts = experts_of()
        x, sizes, probs = rows()
        x, sizes, probs = x.detach()[:0].requires_grad_(), sizes * 0, probs.detach()[:0].requires_grad_()
        y, _ = experts(x, sizes, probs)
        y.sum().backward()
        self.assertEqual((y.shape, x.grad.shape, probs.grad.shape), ((0, H), (0, H), (0,)))
        for parameter in experts.parameters():
            self.assertEqual(parameter.grad.count_nonzero(), 0)

    def test_rows_of_nobody_and_dtypes_of_probabilities(self):
        experts = experts_of("fp8_flow")
        used = sum(SIZES)
        results = {}
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            x, sizes, probs = rows(torch.bfloat16)
            probs = probs.detach().to(dtype).requires_grad_()
            with torch.no_grad():
                x[used:] = float("nan")
            y, _ = experts(x, sizes.to(torch.int32) if dtype is torch.bfloat16 else sizes, probs)
            y[:used].float().square().sum().backward()
            self.assertEqual(probs.grad.dtype, dtype)
            for each in y, x.grad, probs.grad:
                self.assertEqual(each[used:].count_nonzero(), 0)
            results[dtype] = [y.detach(), x.grad, probs.grad.bfloat16()]
        for dtype in (torch.bfloat16, torch.float64):
            assert_same_bits(self, results[dtype], results[torch.float32])

    def test_a_call_may_have_any_number_of_rows(self):
        experts = case.layer_of(convert_spec(case.SEQUENTIAL, "bf16"), case.config_of()).experts
        with torch.no_grad():
            x, sizes, probs = (torch.cat([each] * 20) for each in rows())
            sizes = torch.tensor([ROWS * 20] + [0] * (E - 1))
            y, _ = experts(x, sizes, probs)
            few, _ = experts(x[:ROWS], torch.tensor([ROWS] + [0] * (E - 1)), probs[:ROWS])
        self.assertTrue(torch.equal(y[:ROWS], few))
        self.assertEqual(experts.status(), 0)
        self.assertEqual(sorted(experts._state.calls), [(256, 0), (512, 0)])

    def test_errors_name_the_parameter(self):
        experts = experts_of()
        self.assertIn("GroupedMLP.linear_fc1.weight is float32", told(lambda: copy.deepcopy(experts).float()(*rows())))
        self.assertIn("tokens_per_expert", told(lambda: experts(rows()[0], torch.tensor(SIZES[:-1]), rows()[2])))


class HostReads(TorchDispatchMode):
    """Refuses operators for which the host would have to know values on the device."""
    REFUSED = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.masked_select.default,
               torch.ops.aten.nonzero.default, torch.ops.aten.repeat_interleave.Tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in self.REFUSED:
            raise AssertionError(f"the host reads values: {func}")
        return func(*args, **(kwargs or {}))


class OnDevice(megatron_cpu.OnOneRank):
    """What CUDA graphs need, whose capture has no values."""

    def test_experts_take_numbers_of_rows_unseen(self):
        experts, (x, sizes, probs) = experts_of("fp8_flow"), rows()
        with HostReads():
            experts(x, sizes, probs)[0].float().square().sum().backward()
        self.assertTrue(x.grad.any())

    def test_layers_of_tokens_read_nothing(self):
        layers = {input: case.ours("fp8_flow", case.config_of(moe_token_dispatcher_type="allgather"), input=input)
                  for input in ("tokens", "grouped")}
        with HostReads():
            y, *_ = case.results_of(layers["tokens"], torch.bfloat16, 0)
            with self.assertRaisesRegex(AssertionError, "the host reads values"):
                case.results_of(layers["grouped"], torch.bfloat16, 0)
        self.assertTrue(y.any())


class Specs(megatron_cpu.OnOneRank):

    def test_layers_and_blocks(self):
        given = get_gpt_layer_local_spec(num_experts=E)
        kept = repr(given)
        layer = convert_spec(given, recipe="bf16")
        self.assertEqual(repr(given), kept)
        of_given, of_layer = (getattr(spec.submodules.mlp, "keywords", vars(spec.submodules.mlp))["submodules"]
                              for spec in (given, layer))  # newer releases have partial functions
        self.assertIs(of_layer.experts.module, GroupedMLP)
        self.assertIs(of_layer.shared_experts, of_given.shared_experts)
        self.assertIs(layer.submodules.self_attention, given.submodules.self_attention)
        config = case.config_of(moe_layer_freq=2, num_layers=2)
        block = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
        converted = convert_spec(block)
        self.assertIsNot(converted.layer_specs[0], block.layer_specs[0])
        self.assertIs(converted.layer_specs[1], block.layer_specs[1])  # a dense layer

    def test_what_it_cannot_convert(self):
        self.assertIn("no Mixture-of-Experts layer", told(lambda: convert_spec(get_gpt_layer_local_spec())))
        self.assertIn("recipe", told(lambda: convert_spec(case.SEQUENTIAL, recipe="fp8")))
        self.assertIn("fp8_delayed", told(lambda: convert_spec(case.SEQUENTIAL, recipe="fp8_delayed")))
        self.assertIn("cache_weights", told(lambda: convert_spec(case.SEQUENTIAL, cache_weights=1.5)))
        self.assertIn("input: got 'rows'", told(lambda: convert_spec(case.SEQUENTIAL, input="rows")))
        self.assertIn("dispatch: got 'fp4'", told(lambda: convert_spec(case.SEQUENTIAL, dispatch="fp4")))
        for options in {"recipe": "bf16"}, {"input": "tokens"}, {"cache_weights": True}:
            self.assertIn('dispatch="fp8" goes with recipe="fp8_flow" alone',
                          told(lambda: convert_spec(case.SEQUENTIAL, dispatch="fp8", **options)))

    def test_without_megatron_the_sentence_says_so(self):
        with mock.patch.dict(sys.modules, {"megatron.core.transformer.spec_utils": None}):
            with self.assertRaisesRegex(ImportError, "moejit.torch.megatron needs megatron-core 0.16 or newer"):
                importlib.reload(importlib.import_module("moejit.torch.megatron"))

    def test_builders_of_newer_releases(self):
        shared = functools.partial(dict)
        given = {"layer": [megatron_signatures.get_moe_module_spec(experts=dict, shared_experts=shared)]}
        converted, = convert_spec(given, "bf16", max_tokens=case.MAX_TOKENS)["layer"]
        layer = converted(config=case.config_of(), pg_collection=case.get_default_pg_collection())
        self.assertIs(layer.submodules.shared_experts, shared)
        self.assertIsInstance(layer.experts, GroupedMLP)
        y, bias = layer.routed_experts_compute(*rows())
        self.assertEqual((y.shape, bias), ((ROWS, H), None))


class Refusals(megatron_cpu.OnOneRank):

    def test_configurations_that_cannot_run(self):
        groups = case.get_default_pg_collection()
        for words, field, value in (
                ("moe_apply_probs_on_input: got True", "moe_apply_probs_on_input", True),
                ("moe_mlp_glu_interleave_size: got 32", "moe_mlp_glu_interleave_size", 32),
                ("use_transformer_engine_op_fuser: got True", "use_transformer_engine_op_fuser", True),
                ("moe_paged_stash: got True", "moe_paged_stash", True),
                ("moe_ncclep_zero_copy: got True", "moe_ncclep_zero_copy", True),
                ("moe_dispatch_fwd_dtype: got mxfp8, wanted bf16", "moe_dispatch_fwd_dtype", "mxfp8"),
                ("moe_combine_bwd_dtype: got mxfp8, wanted bf16", "moe_combine_bwd_dtype", "mxfp8"),
                ("fp8_param: got True", "fp8_param", True),
                ("fp4_param: got True", "fp4_param", True),
                ("expert_gtp_weight_remat_size: got 2, wanted 1", "expert_gtp_weight_remat_size", 2),
                ("params_dtype: got float32, wanted bfloat16", "params_dtype", torch.float32),
                ("transformer_impl: got inference_optimized", "transformer_impl", "inference_optimized"),
                ('recompute="moe_expert"', "recompute_modules", ["moe_expert"]),
                ("activation_func: got tanh", "activation_func", torch.tanh),
                ("hidden", "hidden_size", 7)):
            config = case.config_of()
            setattr(config, field, value)
            with self.subTest(field):
                sentence = told(lambda: GroupedMLP(E, config, pg_collection=groups))
                self.assertIn(words, sentence or "nothing")
                self.assertIn("\nhint: ", sentence)
        config = case.config_of()
        config.fine_grained_activation_offloading, config.offload_modules = True, ["moe_act"]
        self.assertIn("offload_modules: got ['moe_act']", told(lambda: GroupedMLP(E, config, pg_collection=groups)))

        class TwoRanks:
            size = staticmethod(lambda: 2)
        groups.expt_tp = TwoRanks
        self.assertIn("expert_tensor_parallel_size: got 2, wanted 1",
                      told(lambda: GroupedMLP(E, case.config_of(), pg_collection=groups)))

    def test_dispatchers_that_do_not_go_with_the_options(self):
        for words, options, fields in (
                ('moe_token_dispatcher_type with input="tokens": got alltoall, wanted flex or allgather', {"input": "tokens"},
                 {}),
                ('moe_flex_dispatcher_backend with input="tokens": got hybridep', {"input": "tokens"},
                 {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}),
                ('moe_token_dispatcher_type with dispatch="fp8": got allgather, wanted flex or alltoall',
                 {"dispatch": "fp8"}, {"moe_token_dispatcher_type": "allgather"}),
                ('hidden_size with dispatch="fp8" over DeepEP: got 64, wanted a multiple of 128', {"dispatch": "fp8"},
                 {"moe_token_dispatcher_type": "flex"}),
                ('moe_shared_expert_overlap with dispatch="fp8": got True', {"dispatch": "fp8"},
                 {"moe_shared_expert_overlap": True}),
                ('delay_wgrad_compute with dispatch="fp8": got True', {"dispatch": "fp8"}, {"delay_wgrad_compute": True}),
                ('overlap_moe_expert_parallel_comm with dispatch="fp8"', {"dispatch": "fp8"},
                 {"overlap_moe_expert_parallel_comm": True}),
                ('overlap_dispatch_backward_with_experts_wgrad with dispatch="fp8"', {"dispatch": "fp8"},
                 {"overlap_dispatch_backward_with_experts_wgrad": True})):
            config = case.config_of()
            for field, value in fields.items():
                setattr(config, field, value)
            with self.subTest(words):
                sentence = told(lambda: GroupedMLP(E, config, **options)) or "nothing"
                self.assertIn(words, sentence)
                self.assertIn("\nhint: ", sentence)
        self.assertIn('recipe bf16 with the dispatch "fp8"', told(lambda: GroupedMLP(E, case.config_of(), recipe="bf16", dispatch="fp8")))
        config = case.config_of(moe_token_dispatcher_type="allgather")
        layer = case.layer_of(case.SEQUENTIAL, config)
        layer.token_dispatcher = mock.Mock()
        self.assertIn("token_dispatcher: got Mock, wanted MoEAllGatherTokenDispatcher",
                      told(lambda: setattr(layer, "experts", GroupedMLP(E, config, recipe="bf16", input="tokens"))))

    def test_the_sentence_reaches_who_builds_the_layer(self):
        fields = {"activation_func": torch.tanh}
        self.assertIn("activation_func: got tanh", told(lambda: experts_of(**fields)))


class States(megatron_cpu.OnOneRank):

    def test_state_dicts_of_other_experts(self):
        for fields in ({}, {"add_bias_linear": True}):
            sequential = case.layer_of(case.SEQUENTIAL, case.config_of(**fields)).experts
            for state in sequential.state_dict(), te_state_dict(sequential):
                experts = blank(experts_of(**fields))
                self.assertEqual(str(experts.load_state_dict(state)), "<All keys matched successfully>")
                self.assertTrue(case.are_equal(experts, sequential))
        del state["linear_fc2.bias3"]
        sentence = told(lambda: experts.load_state_dict(state))
        self.assertIn('Missing key(s) in state_dict: "linear_fc2.bias"', sentence)
        self.assertIn('"linear_fc2.bias2"', sentence)

    def test_copies_have_the_bits(self):
        experts = experts_of("fp8_flow")
        with torch.no_grad():
            want = experts(*rows())[0]
            self.assertTrue(torch.equal(copy.deepcopy(experts)(*rows())[0], want))


def blank(experts):
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.zero_()
    return experts


def te_state_dict(sequential):
    """The state dict of TEGroupedMLP with these experts."""
    state = {}
    for index, expert in enumerate(sequential.local_experts):
        for name, value in expert.state_dict().items():
            linear, kind = name.split(".")
            state[f"{linear}._extra_state" if kind == "_extra_state" else f"{linear}.{kind}{index}"] = value
    return state


if __name__ == "__main__":
    unittest.main()
