# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.te in MoE layers of megatron-core, in the place of Transformer Engine's fused functions: on one rank."""
import sys
import unittest

import megatron_device
import torch
from megatron_device import OnCpu
from support import K, assert_same_bits
from te_case import lines_of_docs
from moejit.torch import te

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core.transformer.moe import moe_utils
    NAMES = set(vars(moe_utils)) | {"te_general_gemm"}  # which megatron_device adds

# With at most two rows a token all sums have one addition, so that no order of additions can be seen.
LAYERS = ({}, {"moe_token_dispatcher_type": "allgather"}, {"moe_router_dtype": "fp64"},
          {"moe_expert_capacity_factor": 0.5},
          {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True})


def sequential(config):
    return case.layer_of(case.SEQUENTIAL, config)


def ours(config):
    return case.ours("bf16", config)


class Layers(megatron_device.OnOneRank):

    def tearDown(self):
        te.patch(False)

    def results(self, make, **fields):
        with OnCpu():
            return case.results_of(make(case.config_of(**fields)), torch.bfloat16, 0)

    def test_fused_layers_have_the_bits_of_others(self):
        for fields in LAYERS:
            for make in (sequential, ours):
                te.patch(False)
                want = self.results(make, **fields)
                te.patch()
                with self.subTest(fields):
                    assert_same_bits(self, self.results(make, moe_permute_fusion=True, **fields), want)
        self.assertEqual(te.status(), 0)

    def test_top_k_changes_no_bit(self):
        te.patch()
        want = self.results(ours, moe_permute_fusion=True)
        lines_of_docs(1, {"K": K})
        assert_same_bits(self, self.results(ours, moe_permute_fusion=True), want)
        te.patch(top_k=K - 1)
        self.results(ours, moe_permute_fusion=True)
        self.assertEqual(te.status(), 16)

    def test_nothing_is_left_behind(self):
        def everything():
            return {name: dict(vars(module)) for name, module in list(sys.modules.items())
                    if name.startswith("megatron.")}

        before = everything()
        te.patch()
        self.assertTrue(moe_utils.HAVE_TE)
        self.assertNotEqual(everything(), before)
        te.patch()  # again, which replaces the first
        for _ in range(2):
            te.patch(False)
            self.assertEqual(everything(), before)
        self.assertLessEqual(set(vars(moe_utils)), NAMES)  # other tests have patched before

    def test_modules_that_have_the_names_already_get_ours(self):
        other = type(sys)("megatron.core.other")
        other.fused_permute = other.fused_permute_and_pad_with_probs = None
        sys.modules[other.__name__] = other
        try:
            te.patch()
            self.assertIs(other.fused_permute.func, te.moe_permute)
            self.assertIs(other.fused_permute_and_pad_with_probs.func, te.moe_permute_and_pad_with_probs)
            te.patch(False)
            self.assertIsNone(other.fused_permute)
        finally:
            del sys.modules[other.__name__]


if __name__ == "__main__":
    unittest.main()
