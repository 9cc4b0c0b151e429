# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.router() beside routers of transformers' families, written in float64: ids, probabilities, losses, and
gradients beside torch's autograd."""
import unittest

import torch
from torch.nn.functional import one_hot, softplus
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from moejit.torch import router
from support import DEVICE

T, E, K = 24, 16, 4
# Relative to the largest element. Forward rounds less than twenty times to 2^-24, and logits to it before e^x.
PROBS, LOSSES, GRADIENTS = 1e-6, 1e-6, 4e-6


def first_of(order, count=K):
    """The largest, the lower index first where some are equal."""
    return torch.sort(order, dim=-1, descending=True, stable=True).indices[:, :count]


def is_kept(groups):
    """Which experts are in the two of four groups with the largest scores."""
    return one_hot(first_of(groups, 2), 4).sum(1).repeat_interleave(E // 4, 1).bool()


def normalized(weights, epsilon=0.0):
    return weights / (weights.sum(-1, keepdim=True) + epsilon)


def mixtral(z, bias):
    p = torch.softmax(z, -1)
    ids = first_of(p)
    return ids, normalized(p.gather(1, ids))


def gpt_oss(z, bias):
    ids = first_of(z)
    return ids, torch.softmax(z.gather(1, ids), -1)


def deepseek_v3(z, bias):
    s = torch.sigmoid(z)
    order = s + bias
    kept = is_kept(order.view(T, 4, -1).topk(2, dim=-1).values.sum(-1))
    ids = first_of(order.masked_fill(~kept, -torch.inf))
    return ids, normalized(s.gather(1, ids), 1e-20) * 2.5


def deepseek_v2(z, bias):
    p = torch.softmax(z, -1)
    ids = first_of(p.masked_fill(~is_kept(p.view(T, 4, -1).amax(-1)), 0.0))
    return ids, p.gather(1, ids) * 16.0


def deepseek_v4(z, bias):
    s = softplus(z).sqrt()
    ids = first_of(s + bias)
    return ids, normalized(s.gather(1, ids), 1e-20) * 1.5


def ernie(z, bias):
    p = torch.softmax(z, -1)
    ids = first_of(p + bias)
    weights = p.gather(1, ids)
    return ids, weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)


def laguna(z, bias):
    s = torch.sigmoid(torch.tanh(z / 3.0) * 3.0)
    ids = first_of(s + bias)
    return ids, normalized(s.gather(1, ids))


GROUPED = {"groups": 4, "groups_kept": 2}
FAMILIES = (
    (mixtral, {"normalize": "sum"}),
    (gpt_oss, {"when": "after"}),
    (deepseek_v2, {**GROUPED, "group_score": "max", "group_fill": "zero", "scale": 16}),
    (deepseek_v3, {"score": "sigmoid", **GROUPED, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5}),
    (deepseek_v4, {"score": "sqrtsoftplus", "normalize": "sum", "epsilon": 1e-20, "scale": 1.5}),
    (ernie, {"normalize": "floor", "epsilon": 1e-12}),
    (laguna, {"score": "sigmoid", "softcap": 3, "normalize": "sum"}),
)
BIASED = (deepseek_v3, deepseek_v4, ernie, laguna)


def inputs(rounded=False):
    generator = torch.Generator().manual_seed(5)
    logits = 2.0 * torch.randn(T, E, generator=generator)
    bias = 0.05 * torch.randn(E, generator=generator)
    if rounded:  # many are equal
        logits, bias = logits.round(), torch.zeros(E)
    return logits.to(DEVICE).requires_grad_(), bias.to(DEVICE), torch.randn(T, K, generator=generator).to(DEVICE)


def error(got, wanted):
    return ((got.double() - wanted).abs().max() / wanted.abs().max()).item()


class Families(unittest.TestCase):

    def test_ids_probabilities_and_gradients_are_the_formulas(self):
        for family, formula in FAMILIES:
            for rounded in (False, True):
                with self.subTest(family.__name__, rounded=rounded):
                    logits, bias, gradient = inputs(rounded)
                    probs, ids, extras = router(logits, K, bias=bias if family in BIASED else None, **formula)
                    probs.backward(gradient)
                    z = logits.detach().double().requires_grad_()
                    wanted_ids, wanted = family(z, bias.double())
                    wanted.backward(gradient.double())
                    self.assertTrue(torch.equal(ids.long(), wanted_ids))
                    self.assertLess(error(probs, wanted), PROBS)
                    self.assertLess(error(logits.grad, z.grad), GRADIENTS)
                    self.assertEqual(extras["status"].item(), 0)


class Losses(unittest.TestCase):

    def test_transformers_loss_is_the_sums_times_a_number(self):
        logits, _, gradient = inputs()
        _, _, extras = router(logits, K, normalize="sum", aux="chosen", z=True)
        z = logits.detach().double().requires_grad_()
        wanted = load_balancing_loss_func((z,), E, K)
        self.assertLess(error(K * extras["aux_loss"].detach(), wanted), LOSSES)
        got, = torch.autograd.grad(K * extras["aux_loss"], logits, retain_graph=True)
        self.assertLess(error(got, torch.autograd.grad(wanted, z)[0]), GRADIENTS)
        wanted = torch.logsumexp(z, -1).square().mean()
        self.assertLess(error(extras["z_loss"].detach(), wanted), LOSSES)
        got, = torch.autograd.grad(extras["z_loss"], logits)
        self.assertLess(error(got, torch.autograd.grad(wanted, z)[0]), GRADIENTS)

    def test_the_loss_of_deepseek_counts_an_unbiased_choice(self):
        logits, bias, _ = inputs()
        formula = dict(FAMILIES[3][1], aux="unbiased")
        _, ids, extras = router(logits, K, bias=bias, **formula)
        z = logits.detach().double().requires_grad_()
        counts = torch.bincount(first_of(z).flatten(), minlength=E)
        self.assertTrue(torch.equal(extras["unbiased_counts"].long(), counts))
        self.assertTrue(torch.equal(extras["counts"].long(), torch.bincount(ids.flatten().long(), minlength=E)))
        wanted = E / (K * T * T) * (counts * normalized(torch.sigmoid(z), 1e-20).sum(0)).sum()
        self.assertLess(error(extras["aux_loss"].detach(), wanted), LOSSES)
        got, = torch.autograd.grad(extras["aux_loss"], logits)
        self.assertLess(error(got, torch.autograd.grad(wanted, z)[0]), GRADIENTS)


if __name__ == "__main__":
    unittest.main()
