# SPDX-License-Identifier: Apache-2.0
"""Which specs of megatron-core convert_spec() converts, and which configurations it refuses."""
import functools
import importlib
import sys
import unittest
from unittest import mock

import megatron_device
import torch
from support import E, H, told

if megatron_device.IS_THERE:
    import megatron_case as case
    import megatron_signatures
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron_case import ROWS, experts_of, rows
    from moejit.torch.megatron import GroupedMLP, convert_spec


class Specs(megatron_device.OnOneRank):

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
        convert_spec(case.SEQUENTIAL, recipe="fp8_delayed")  # whose state is in checkpoints
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


class Refusals(megatron_device.OnOneRank):

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
                ('moe_token_dispatcher_type with input="tokens": got alltoall, wanted flex or allgather',
                 {"input": "tokens"}, {}),
                ('moe_flex_dispatcher_backend with input="tokens": got hybridep', {"input": "tokens"},
                 {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}),
                ('moe_token_dispatcher_type with dispatch="fp8": got allgather, wanted flex or alltoall',
                 {"dispatch": "fp8"}, {"moe_token_dispatcher_type": "allgather"}),
                ('hidden_size with dispatch="fp8" over DeepEP: got 64, wanted a multiple of 128', {"dispatch": "fp8"},
                 {"moe_token_dispatcher_type": "flex"}),
                ('moe_shared_expert_overlap with dispatch="fp8": got True', {"dispatch": "fp8"},
                 {"moe_shared_expert_overlap": True}),
                ('delay_wgrad_compute with dispatch="fp8": got True', {"dispatch": "fp8"},
                 {"delay_wgrad_compute": True}),
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
        self.assertIn('recipe bf16 with the dispatch "fp8"',
                      told(lambda: GroupedMLP(E, case.config_of(), recipe="bf16", dispatch="fp8")))
        config = case.config_of(moe_token_dispatcher_type="allgather")
        layer = case.layer_of(case.SEQUENTIAL, config)
        layer.token_dispatcher = mock.Mock()
        self.assertIn("token_dispatcher: got Mock, wanted MoEAllGatherTokenDispatcher",
                      told(lambda: setattr(layer, "experts", GroupedMLP(E, config, recipe="bf16", input="tokens"))))

    def test_the_sentence_reaches_who_builds_the_layer(self):
        fields = {"activation_func": torch.tanh}
        self.assertIn("activation_func: got tanh", told(lambda: experts_of(**fields)))


if __name__ == "__main__":
    unittest.main()
