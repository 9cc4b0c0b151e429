# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.router() beside formulas in torch: choices, weights, gradients, losses, compiled, refusals."""
import unittest

import torch

from moejit.torch import operation_text, ops, router
from moejit.torch.devices import target_of
from support import DEVICE

E, K = 32, 4
V3 = {"score": "sigmoid", "groups": 8, "groups_kept": 4, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5}


def random_logits(tokens=24, experts=E, dtype=torch.float32):
    torch.manual_seed(0)
    return (2 * torch.randn(tokens, experts, device=DEVICE)).to(dtype).requires_grad_()


def largest(values, count):
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]


class Choices(unittest.TestCase):

    def test_equal_logits_choose_the_lower_expert(self):
        logits = random_logits(dtype=torch.bfloat16).detach().round()
        probs, ids, extras = router(logits, K, normalize="sum")
        torch.testing.assert_close(ids.long(), largest(logits.float(), K))
        torch.testing.assert_close(probs, logits.float().softmax(-1).gather(1, ids.long())
                                   / logits.float().softmax(-1).gather(1, ids.long()).sum(-1, keepdim=True))
        self.assertEqual(extras["status"].item(), 0)

    def test_a_bias_orders_and_is_no_weight(self):
        logits, bias = random_logits().detach(), torch.randn(E, device=DEVICE)
        probs, ids, _ = router(logits, K, bias=bias, topk_ids_dtype=torch.int64, **V3)
        scores = logits.sigmoid()
        by_group = (scores + bias).view(-1, 8, E // 8)
        kept = largest(by_group.topk(2, -1).values.sum(-1), 4)
        mask = torch.zeros(len(logits), 8, dtype=torch.bool, device=DEVICE).scatter(1, kept, True)
        wanted = largest((scores + bias).masked_fill(~mask.repeat_interleave(E // 8, 1), -torch.inf), K)
        torch.testing.assert_close(ids, wanted)
        weights = scores.gather(1, ids)
        torch.testing.assert_close(probs, 2.5 * weights / weights.sum(-1, keepdim=True))

    def test_counts_are_added_to(self):
        logits, counts = random_logits().detach(), torch.ones(E, dtype=torch.int32, device=DEVICE)
        for aux in ("none", "chosen"):
            before = counts.clone()
            _, ids, _ = router(logits, K, counts=counts, aux=aux)
            torch.testing.assert_close(counts.long(), before + ids.flatten().bincount(minlength=E))

    def test_no_tokens_have_no_choices_and_no_losses(self):
        logits = random_logits(0)
        probs, ids, extras = router(logits, K, aux="chosen", z=True)
        (probs.sum() + extras["aux_loss"] + extras["z_loss"]).backward()
        self.assertEqual((tuple(probs.shape), tuple(ids.shape), tuple(logits.grad.shape)), ((0, K), (0, K), (0, E)))
        self.assertEqual((extras["aux_loss"].item(), extras["z_loss"].item()), (0, 0))


class Gradients(unittest.TestCase):

    def expect_gradients(self, wanted_of, experts=E, dtype=torch.float32, with_factors=False, **formula):
        """Compares gradients of a random function of all results with the ones of the same formula in torch."""
        logits = random_logits(experts=experts, dtype=dtype)
        factors = (1 + torch.rand(experts, device=DEVICE)).requires_grad_() if with_factors else None
        probs, ids, extras = router(logits, K, expert_scale=factors, **formula)
        ids = extras.get("chosen_ids", ids)
        leaves = [logits] + ([factors] if with_factors else [])
        wanted = wanted_of(logits.float(), ids.long(), factors)
        got = {"probs": probs, **{name: extras[name] for name in ("zero_probs", "aux_loss", "z_loss") if name in extras}}
        self.assertEqual(got.keys(), wanted.keys())
        for name in got:
            torch.testing.assert_close(got[name], wanted[name], rtol=2e-6, atol=1e-6, msg=name)
        weights = {name: torch.randn_like(tensor) for name, tensor in got.items()}
        of_got, of_wanted = (torch.autograd.grad(sum((weights[name] * of[name]).sum() for name in of), leaves)
                             for of in (got, wanted))
        for one, other in zip(of_got, of_wanted):
            torch.testing.assert_close(one, other, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-6)

    def test_of_a_normalized_softmax(self):
        def wanted(logits, ids, _):
            weights = logits.softmax(-1).gather(1, ids)
            return {"probs": weights / weights.sum(-1, keepdim=True)}
        self.expect_gradients(wanted, normalize="sum")
        self.expect_gradients(wanted, dtype=torch.bfloat16, normalize="sum")

    def test_of_losses(self):
        def wanted(logits, ids, _):
            scores = logits.softmax(-1)
            counts = ids.flatten().bincount(minlength=E).float()
            aux = E / (K * len(logits) ** 2) * (counts * scores.sum(0)).sum()
            return {"probs": scores.gather(1, ids), "aux_loss": aux, "z_loss": logits.logsumexp(-1).square().mean()}
        self.expect_gradients(wanted, aux="chosen", z=True)

    def test_of_experts_factors(self):
        def wanted(logits, ids, factors):
            weights = logits.sigmoid().gather(1, ids)
            return {"probs": 2.5 * weights / (weights.sum(-1, keepdim=True) + 1e-20) * factors[ids]}
        self.expect_gradients(wanted, with_factors=True, score="sigmoid", normalize="sum", epsilon=1e-20, scale=2.5)

    def test_of_zero_experts(self):
        def wanted(logits, ids, _):
            weights = logits.softmax(-1).gather(1, ids)
            is_zero = ids >= 24
            return {"probs": weights.masked_fill(is_zero, 0), "zero_probs": (weights * is_zero).sum(-1)}
        self.expect_gradients(wanted, zero_experts=8)

    def test_of_given_ids_with_choices_of_none(self):
        logits = random_logits()
        ids = torch.stack([torch.randperm(E, device=DEVICE)[:K] for _ in logits]).int()
        ids[::3, 1] = -1
        probs, same, extras = router(logits, K, topk_ids=ids, score="sigmoid")
        self.assertIs(same, ids)
        wanted = logits.sigmoid().gather(1, ids.clamp(min=0).long()).masked_fill(ids < 0, 0)
        torch.testing.assert_close(probs, wanted)
        for one, other in zip(*(torch.autograd.grad(of.square().sum(), logits) for of in (probs, wanted))):
            torch.testing.assert_close(one, other)

    def test_a_second_derivative_is_refused(self):
        logits = random_logits()
        probs, _, _ = router(logits, K)
        (gradient,) = torch.autograd.grad(probs.square().sum(), logits, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "second derivative"):
            gradient.sum().backward()


class Surfaces(unittest.TestCase):

    def test_the_operator_keeps_what_its_schema_and_fake_kernel_promise(self):
        text = operation_text({"operation": "router", "max_tokens": 256, "experts": E, "top_k": K,
                               "router": {"normalize": "sum"}}, target_of(DEVICE))
        torch.library.opcheck(ops.call, ([random_logits().detach()], "run", text))
        of_logits = operation_text({"operation": "router_backward", "max_tokens": 256, "experts": E, "top_k": K},
                                   target_of(DEVICE))
        ids = torch.arange(24 * K, dtype=torch.int32, device=DEVICE).view(24, K) % E
        torch.library.opcheck(ops.call, ([random_logits().detach(), ids, torch.randn(24, K, device=DEVICE)], "run",
                                         of_logits))

    def test_a_compiled_function_has_the_same_bits_and_gradients(self):
        bias = torch.randn(E, device=DEVICE)

        def loss(logits):
            probs, ids, extras = router(logits, K, bias=bias, aux="unbiased", **V3)
            return (probs * ids).sum() + extras["aux_loss"]
        results = []
        for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
            logits = random_logits()
            value = function(logits)
            value.backward()
            results.append((value.detach(), logits.grad))
        for one, other in zip(*results):
            self.assertTrue(torch.equal(one, other))

    def test_wrong_arguments_are_refused_with_a_sentence(self):
        logits = random_logits()
        for what, call in (("logits: it is torch.float16", lambda: router(logits.half(), K)),
                           ("topk_ids: its dtype is torch.float32", lambda: router(logits, K, topk_ids=logits)),
                           ("router_bias: its shape is", lambda: router(logits, K, bias=torch.zeros(3, device=DEVICE))),
                           ('normalize: got "mean", wanted one of "none"', lambda: router(logits, K, normalize="mean"))):
            with self.subTest(what), self.assertRaisesRegex(RuntimeError, what):
                call()


if __name__ == "__main__":
    unittest.main()
