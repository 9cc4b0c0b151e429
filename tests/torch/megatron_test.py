# SPDX-License-Identifier: Apache-2.0
"""Experts of megatron-core's layers on moejit, beside its SequentialMLP: on one rank, in this process."""
import copy
import runpy
import unittest

import megatron_device
import torch
from megatron_device import OnCpu
from support import BOUNDS, E, H, K, ROOT, assert_same_bits, describe, relative_error, told
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from moejit.torch import experts

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core import activations
    from megatron.core.fusions import fused_bias_geglu
    from megatron_case import ROWS, SIZES, experts_of, rows
    from moejit.torch.megatron import GroupedMLP, convert_spec
    from moejit.torch.megatron_dispatch import choices_of
    from moejit.torch.megatron_layers import activation_of

# (recipe, more fields of the configuration)
LAYERS = (("bf16", {}), ("fp8_blockwise", {"moe_token_dispatcher_type": "allgather"}),
          ("fp8_flow", {"moe_router_dtype": "fp64"}))


class Layers(megatron_device.OnOneRank):

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


class Rows(megatron_device.OnOneRank):

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
        self.assertEqual(sorted(experts.hosted._state.calls), [256, 512])

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


class OnDevice(megatron_device.OnOneRank):
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


class States(megatron_device.OnOneRank):

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
