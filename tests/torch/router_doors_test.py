# SPDX-License-Identifier: Apache-2.0
"""Routers in the shapes of other libraries: Transformer Engine's functions beside Megatron's, vLLM's and SGLang's."""
import inspect
import unittest

import torch

import megatron_device
import vllm_signatures
from router_models_test import Exact, stable_topk
from support import DEVICE
from moejit.torch import serving_router, te

T, E, K = 24, 16, 4
PROBS, GRADIENTS = 1e-6, 4e-6  # as in router_test.py
SCORES = (  # (use_pre_softmax, num_groups, group_topk, scaling_factor, score_function, whether there is a bias)
    (False, None, None, None, "softmax", False), (True, None, None, 2.5, "softmax", False),
    (True, 4, 2, None, "softmax", False), (False, None, None, None, "sigmoid", True),
    (False, 4, 2, 2.5, "sigmoid", True))


def random(*shape, seed=0, scale=1.0):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(DEVICE)


def error(got, wanted):
    return ((got.double() - wanted).abs().max() / wanted.abs().max()).item()


@megatron_device.needed
class TransformerEngine(unittest.TestCase):

    def test_probabilities_maps_and_gradients_are_megatrons(self):
        from megatron.core.transformer.moe import moe_utils
        bias, gradient = random(E, seed=1, scale=0.05), random(T, E, seed=2)
        for pre, groups, kept, scale, score, has_bias in SCORES:
            for rounded in (False, True):
                logits = random(T, E, scale=2.0)
                logits = (logits.round() if rounded else logits).requires_grad_()
                used = bias if has_bias else None
                with self.subTest(score, pre=pre, groups=groups, rounded=rounded):
                    probs, chosen = te.fused_topk_with_score_function(logits, K, pre, groups, kept, scale, score, used)
                    z = logits.detach().double().requires_grad_()
                    with Exact(is_double=True):
                        wanted, wanted_map = moe_utils.topk_routing_with_score_function(
                            z, K, pre, groups, kept, scale, score, None if used is None else used.double())
                    self.assertTrue(torch.equal(chosen, wanted_map))
                    self.assertLess(error(probs.detach(), wanted.detach()), PROBS)
                    probs.backward(gradient)
                    wanted.backward(gradient.double())
                    self.assertLess(error(logits.grad, z.grad), GRADIENTS)

    def test_rows_of_numbers_that_are_none_have_k_experts(self):
        logits = random(4, E)
        logits[0], logits[1, ::2], logits[2] = torch.nan, -torch.inf, -torch.inf
        for score in ("softmax", "sigmoid", "sqrtsoftplus"):
            _, chosen = te.fused_topk_with_score_function(logits, K, False, None, None, None, score, None)
            self.assertEqual(chosen.sum(1).tolist(), [K] * 4)
            self.assertEqual(chosen[0].nonzero().flatten().tolist(), list(range(K)))

    def test_losses_are_megatrons(self):
        from megatron.core.transformer.moe import moe_utils
        for score in ("softmax", "sigmoid"):
            logits = random(T, E).requires_grad_()
            z = logits.detach().double().requires_grad_()
            with Exact(is_double=True):
                wanted_map, wanted = moe_utils.compute_routing_scores_for_aux_loss(z, K, score)
            chosen, scores = te.fused_compute_score_for_moe_aux_loss(logits, K, score)
            self.assertTrue(torch.equal(chosen, wanted_map))
            loss = te.fused_moe_aux_loss(scores, chosen.sum(0), T, E, K, 0.25)
            want = moe_utils.switch_load_balancing_loss_func(wanted, wanted_map.sum(0), T, K, E, 0.25)
            self.assertLess(error(loss.detach(), want.detach()), PROBS)
            loss.backward()
            want.backward()
            self.assertLess(error(logits.grad, z.grad), GRADIENTS)

    def test_ids_in_the_place_of_a_map_and_what_is_refused(self):
        logits = random(T, E)
        ids = torch.empty(T, K, dtype=torch.int32, device=DEVICE)
        probs, got = te.fused_topk_with_score_function(logits, K, True, None, None, None, "softmax", None,
                                                       topk_indices=ids)
        self.assertIs(got, ids)
        self.assertTrue(torch.equal(ids.long(), stable_topk(logits, K).indices))
        self.assertTrue(torch.equal((probs > 0).sum(1), torch.full((T,), K, device=DEVICE)))
        for more in ({"routing_map_format": "bitmap_u8"}, {"routing_map_format": 1}, {"qb_histogram_mode": "two_kernel"}):
            with self.assertRaisesRegex(RuntimeError, f"argument {next(iter(more))}: got"):
                te.fused_topk_with_score_function(logits, K, True, None, None, None, "softmax", None, **more)


def vllm_grouped_topk(logits, bias, renormalize, groups, kept, scoring, factor):
    """What vLLM's function computes, in float64, with the rule for ties."""
    scores = torch.softmax(logits, -1) if scoring == "softmax" else logits.sigmoid()
    order = scores if bias is None else scores + bias
    if groups > 1:
        parts = order.view(T, groups, -1)
        best = parts.amax(-1) if bias is None else parts.topk(2, -1).values.sum(-1)
        is_kept = torch.zeros(T, groups, dtype=torch.bool).scatter(1, stable_topk(best, kept).indices, True)
        order = order.masked_fill(~is_kept.repeat_interleave(E // groups, 1), -torch.inf)
    ids = stable_topk(order, K).indices
    weights = scores.gather(1, ids)
    return (weights / weights.sum(-1, keepdim=True) if renormalize else weights) * factor, ids


class Serving(unittest.TestCase):

    def test_signatures_are_vllms(self):
        function = serving_router.routing_function()
        for name, got in (("grouped_topk", serving_router.grouped_topk), ("custom_routing_function", function)):
            wanted = inspect.signature(getattr(vllm_signatures, name)).parameters.values()
            got = inspect.signature(inspect.unwrap(got)).parameters.values()
            self.assertEqual([(each.name, each.default) for each in wanted], [(each.name, each.default) for each in got])

    def test_grouped_topk(self):
        bias, x = random(E, seed=1, scale=0.05), random(T, 8)
        for rounded in (False, True):
            logits = random(T, E, scale=2.0)
            logits = logits.round() if rounded else logits
            for groups, kept, scoring, used, renormalize in ((0, 0, "softmax", None, False), (4, 2, "softmax", None, True),
                                                             (4, 2, "sigmoid", bias, True)):
                weights, ids = serving_router.grouped_topk(x, logits, K, renormalize, groups, kept, scoring, 2.5, used)
                wanted, wanted_ids = vllm_grouped_topk(logits.double().cpu(), None if used is None else used.double().cpu(),
                                                       renormalize, groups, kept, scoring, 2.5)
                self.assertEqual((weights.dtype, ids.dtype), (torch.float32, torch.int32))
                self.assertTrue(torch.equal(ids.long().cpu(), wanted_ids))
                self.assertLess(error(weights.cpu(), wanted), PROBS)

    def test_a_routing_function_has_the_formula(self):
        logits, x = random(T, E).bfloat16(), random(T, 8)
        function = serving_router.routing_function(when="after", logits_dtype="bf16")
        weights, ids = function(hidden_states=x, gating_output=logits, topk=K, renormalize=True)
        values, wanted_ids = stable_topk(logits.double(), K)
        self.assertTrue(torch.equal(ids.long(), wanted_ids))
        self.assertLess(error(weights, torch.softmax(values, -1)), PROBS)
        with self.assertRaisesRegex(RuntimeError, "gating_output: it has 24 tokens"):
            function(x[1:], logits, K, True)


if __name__ == "__main__":
    unittest.main()
