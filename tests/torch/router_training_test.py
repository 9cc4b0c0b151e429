# SPDX-License-Identifier: Apache-2.0
"""What training does around a router: losses beside Megatron's functions, balancing by a bias, and a whole block."""
import copy
import io
import unittest

import torch
from torch.nn.functional import linear, one_hot

import megatron_device
from router_models_test import stable_topk
from support import BOUNDS, DEVICE, relative_error
from moejit.torch import MoE, attach_loss, moe, router, router_of_sequences, update_router_bias
from moejit.torch.moe import gate_logits

T, E, K, H, I = 24, 16, 4, 64, 32
LOSSES, GRADIENTS = 1e-6, 4e-6  # as in router_test.py


def random(*shape, seed=0, scale=1.0):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(DEVICE)


def error(got, wanted):
    return ((got.double() - wanted).abs().max() / wanted.abs().max()).item()


def aux_loss(z, counts, tokens=None):
    """The load-balancing loss of softmax scores, in float64."""
    tokens = z.shape[0] if tokens is None else tokens
    return E / (K * z.shape[0] * tokens) * (torch.softmax(z, -1).sum(0) * counts).sum()


def counts_of(z):
    return torch.bincount(z.topk(K).indices.flatten(), minlength=E)


class Losses(unittest.TestCase):

    def check(self, loss, logits, wanted, z):
        self.assertLess(error(loss.detach(), wanted.detach()), LOSSES)
        got, = torch.autograd.grad(loss, logits)
        want, = torch.autograd.grad(wanted, z)
        self.assertLess(error(got, want), GRADIENTS)

    def test_a_loss_over_several_calls_counts_all_of_them(self):
        running = torch.zeros(E, dtype=torch.int32, device=DEVICE)
        calls = [random(T, E, seed=seed).requires_grad_() for seed in range(2)]
        losses = [router(each, K, aux="chosen", loss_counts=running)[2]["aux_loss"] for each in calls]
        doubles = [each.detach().double().requires_grad_() for each in calls]
        first, second = (counts_of(each) for each in doubles)
        self.check(losses[0], calls[0], aux_loss(doubles[0], first), doubles[0])
        self.check(losses[1], calls[1], aux_loss(doubles[1], first + second, 2 * T), doubles[1])
        self.assertTrue(torch.equal(running.long(), first + second))

    def test_losses_of_sequences_are_means(self):
        logits = random(3, T, E).requires_grad_()
        z = logits.detach().double().requires_grad_()
        probs, ids, extras = router_of_sequences(logits, K, aux="chosen", z=True)
        alone, ids_alone, _ = router(logits.view(-1, E), K)
        self.assertTrue(torch.equal(probs, alone) and torch.equal(ids, ids_alone))
        self.check(extras["aux_loss"], logits, torch.stack([aux_loss(each, counts_of(each)) for each in z]).mean(), z)

    def test_an_attached_loss_is_not_handed_on(self):
        logits = random(T, E).requires_grad_()
        probs, _, extras = router(logits, K, normalize="sum", z=True)
        scale = torch.full((), 3.0, device=DEVICE)
        attach_loss(probs, 0.5 * extras["z_loss"], scale).sum().backward()  # the sum alone has no gradient
        z = logits.detach().double().requires_grad_()
        (1.5 * torch.logsumexp(z, -1).square().mean()).backward()
        self.assertLess(error(logits.grad, z.grad), GRADIENTS)


class Balancing(unittest.TestCase):

    def test_the_bias_moves_by_the_sign_of_the_difference_from_the_mean(self):
        counts = torch.tensor([3, 5, 4, 4], dtype=torch.int32, device=DEVICE)
        bias = torch.zeros(4, device=DEVICE)
        update_router_bias(bias, counts, 0.25)
        self.assertEqual(bias.tolist(), [0.25, -0.25, 0.0, 0.0])
        # fp32 cannot tell these from their mean.
        counts = torch.tensor([2 ** 30 + 1, 2 ** 30, 2 ** 30], dtype=torch.int32, device=DEVICE)
        bias = torch.zeros(3, device=DEVICE)
        update_router_bias(bias, counts, torch.tensor(1.0, device=DEVICE))
        self.assertEqual(bias.tolist(), [-1.0, 1.0, 1.0])
        with self.assertRaisesRegex(RuntimeError, "bias is torch.bfloat16"):
            update_router_bias(bias.bfloat16(), counts)

    def test_load_is_even_after_200_steps(self):
        tokens = 512
        skew = torch.linspace(-1.5, 1.5, E, device=DEVICE)  # the last experts would get most
        bias = torch.zeros(E, device=DEVICE)
        loads = []
        for step in range(200):
            counts = torch.zeros(E, dtype=torch.int32, device=DEVICE)
            router(random(tokens, E, seed=step) + skew, K, bias=bias, counts=counts, score="sigmoid", normalize="sum")
            update_router_bias(bias, counts, 5e-3)
            loads.append(counts)
        first, last = loads[0].double(), torch.stack(loads[-10:]).double().sum(0)
        self.assertGreater((first.max() / first.mean()).item(), 2.0)
        self.assertLessEqual((last.max() / last.mean()).item(), 1.3)


class Logits(unittest.TestCase):

    def test_sums_are_float32(self):
        x, weight = random(T, H, seed=4).bfloat16(), random(E, H, seed=5).bfloat16()
        products = x.double()[:, None] * weight.double()
        # A float32 sum of H exact products may lose 2^-24 of what it has so far, H times; tensor cores truncate.
        bound = H * 2.0 ** -23 * products.abs().sum(-1)
        self.assertTrue(((gate_logits(x, weight) - products.sum(-1)).abs() <= bound).all())

    def test_gradients_keep_what_bf16_would_round_off(self):
        x, weight = random(T, H, seed=4).bfloat16(), random(E, H, seed=5).bfloat16()
        x[1::2], weight[1::2] = -x[::2], -weight[::2]
        x, weight = x.requires_grad_(), weight.requires_grad_()
        dlogits = torch.ones(T, E, device=DEVICE)
        dlogits[::2, ::2] += 2.0 ** -12  # which alone the opposite rows do not cancel
        gate_logits(x, weight).backward(dlogits)
        for got, wanted in ((x.grad[::2], 2.0 ** -12 * weight[::2].double().sum(0).expand(T // 2, H)),
                            (weight.grad[::2], 2.0 ** -12 * x[::2].double().sum(0).expand(E // 2, H))):
            self.assertLess(error(got, wanted), 2.0 ** -8)  # rounding to bf16, twice at most
        self.assertEqual(x.grad[1::2].abs().max().item(), 0.0)

    def test_weights_of_float32(self):
        x, weight = random(T, H, seed=4).bfloat16(), random(E, H, seed=5)
        self.assertTrue(torch.equal(gate_logits(x, weight), linear(x.float(), weight)))


class Block(unittest.TestCase):

    def reference(self, block, x):
        """A block with the recipe bf16 in float32, with its losses, by torch's own functions."""
        logits = linear(x, block.gate.weight.float())
        scores = torch.sigmoid(logits)
        ids = stable_topk(scores + block.gate.e_score_correction_bias, K).indices
        weights = scores.gather(1, ids)
        weights = weights / weights.sum(-1, keepdim=True)
        gate, up = torch.einsum("th,eih->tei", x, block.experts.gate_up_proj.float()).chunk(2, -1)
        each = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, block.experts.down_proj.float())
        y = (each.gather(1, ids[..., None].expand(-1, -1, H)) * weights[..., None]).sum(1)
        if block.shared_expert_gate is not None:
            gate, up = linear(x, block.experts.shared_gate_up_proj[0].float()).chunk(2, -1)
            shared = linear(torch.nn.functional.silu(gate) * up, block.experts.shared_down_proj[0].float())
            y = y + torch.sigmoid(linear(x, block.shared_expert_gate.weight.float())) * shared
        counts = torch.bincount(ids.flatten(), minlength=E)
        share = (scores / scores.sum(-1, keepdim=True)).sum(0)
        return y, E / (K * T * T) * (share * counts).sum(), torch.logsumexp(logits, -1).square().mean(), counts

    def block(self, **more):
        torch.manual_seed(0)
        block = MoE(E, H, I, K, max_tokens=64, recipe="bf16", router={"score": "sigmoid", "bias": True, "normalize": "sum"},
                    device=DEVICE, **more)
        block.gate.e_score_correction_bias.copy_(random(E, seed=1, scale=0.05))
        return block

    def test_results_and_gradients_with_attached_losses(self):
        self.check(self.block(aux_loss_coef=0.5, z_loss_coef=0.1))

    def test_a_shared_expert_with_a_gate(self):
        block = self.block(aux_loss_coef=0.5, z_loss_coef=0.1, num_shared_experts=1, shared_gate=True)
        self.assertEqual(list(block.state_dict())[2:],
                         ["experts.gate_up_proj", "experts.shared_gate_up_proj", "experts.down_proj",
                          "experts.shared_down_proj", "shared_expert_gate.weight"])
        self.check(block)

    def check(self, block):
        """Compares a step of a block, and of its bias, with the same in float32."""
        block.loss_scale.fill_(2.0)
        x = random(T, H, seed=2).bfloat16().requires_grad_()
        dy = random(T, H, seed=3).bfloat16()
        y = block(x.view(4, 6, H))
        y.backward(dy.view(4, 6, H))
        exact = copy.deepcopy(block)
        exact.zero_grad()
        z = x.detach().float().requires_grad_()
        wanted, aux, z_loss, counts = self.reference(exact, z)
        ((wanted * dy.float()).sum() + 2.0 * (0.5 * aux + 0.1 * z_loss)).backward()
        self.assertLessEqual(relative_error(y.view(T, H), wanted), BOUNDS["bf16"])
        self.assertLessEqual(relative_error(x.grad, z.grad), BOUNDS["bf16"])
        for name, parameter in block.named_parameters():
            self.assertLessEqual(relative_error(parameter.grad, exact.get_parameter(name).grad), BOUNDS["bf16"], name)
        self.assertTrue(torch.equal(block.gate.tokens_per_expert.long(), counts))
        before = block.gate.e_score_correction_bias.clone()
        block.update_bias(0.125)
        moved = block.gate.e_score_correction_bias - before
        self.assertTrue(torch.equal(moved.sign(), (counts.sum() - counts * E).sign().float()))
        self.assertEqual(block.gate.tokens_per_expert.sum().item(), 0)

    def test_the_function_is_the_module(self):
        block = self.block().eval()
        x = random(T, H, seed=2).bfloat16()
        description = {"experts": E, "hidden": H, "intermediate": I, "top_k": K, "recipe": "bf16", "max_tokens": 64}
        y, extras = moe(x, block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj, layer=description,
                        router_formula=block.formula, router_bias=block.gate.e_score_correction_bias)
        self.assertTrue(torch.equal(y, block(x)))
        self.assertEqual(extras["status"].item(), 0)
        self.assertEqual(block.gate.tokens_per_expert.sum().item(), 0)  # nobody trains

    def test_state_dict_and_casts(self):
        block = self.block().to(torch.float32).to(torch.bfloat16)
        self.assertEqual(block.gate.e_score_correction_bias.dtype, torch.float32)
        self.assertEqual(list(block.state_dict()), ["gate.weight", "gate.e_score_correction_bias", "experts.gate_up_proj",
                                                    "experts.down_proj"])
        file = io.BytesIO()
        torch.save(block.state_dict(), file)
        other = MoE(E, H, I, K, max_tokens=64, recipe="bf16", router=block.formula, device=DEVICE)
        file.seek(0)
        other.load_state_dict(torch.load(file))
        x = random(T, H, seed=2).bfloat16()
        self.assertTrue(torch.equal(other(x), block(x)))

    def test_one_graph_with_losses_and_counts(self):
        block = self.block(aux_loss_coef=0.5, z_loss_coef=0.1)
        x = random(T, H, seed=2).bfloat16()
        torch._dynamo.reset()
        results = []
        for call in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
            block.zero_grad()
            block.gate.tokens_per_expert.zero_()
            y = call(x)
            y.sum().backward()
            results.append([y.detach(), *(parameter.grad for parameter in block.parameters()),
                            block.gate.tokens_per_expert.clone()])
        for got, wanted in zip(*results):
            self.assertTrue(torch.equal(got, wanted))

    def test_zero_experts_return_the_token(self):
        block = MoE(E, H, I, K, max_tokens=64, recipe="bf16", router={"zero_experts": 8, "bias": True}, device=DEVICE)
        block.gate.e_score_correction_bias[E:] = 10.0  # all choices are zero experts
        x = random(T, H, seed=2).bfloat16()
        logits = linear(x.float(), block.gate.weight.float())
        factor = torch.softmax(logits, -1)[:, E:].topk(K).values.sum(-1, keepdim=True)
        self.assertLessEqual(relative_error(block(x), factor * x.float()), BOUNDS["bf16"])


@megatron_device.needed
class Megatron(unittest.TestCase):

    def test_losses_are_megatrons(self):
        from megatron.core.transformer.moe import moe_utils
        for score, formula in (("softmax", {"normalize": "sum", "aux": "chosen"}),
                               ("sigmoid", {"score": "sigmoid", "aux": "chosen"})):
            logits = random(T, E).requires_grad_()
            z = logits.detach().double().requires_grad_()
            with self.subTest(score):
                _, ids, extras = router(logits, K, **formula, z=True)
                # In float32 their losses have errors of their own; softmax takes a dtype by force.
                scores = torch.softmax(z, -1) if score == "softmax" else None
                routing_map, own = moe_utils.compute_routing_scores_for_aux_loss(z, K, score)
                scores = own if scores is None else scores
                self.assertTrue(torch.equal(one_hot(ids.long(), E).sum(1).bool(), routing_map))
                wanted = moe_utils.switch_load_balancing_loss_func(scores, routing_map.sum(0), T, K, E, 0.25)
                for loss, want in ((0.25 * extras["aux_loss"], wanted),
                                   (0.25 * extras["z_loss"], moe_utils.z_loss_func(z, 0.25))):
                    self.assertLess(error(loss.detach(), want.detach()), LOSSES)
                    got, = torch.autograd.grad(loss, logits, retain_graph=True)
                    self.assertLess(error(got, torch.autograd.grad(want, z, retain_graph=True)[0]), GRADIENTS)


if __name__ == "__main__":
    unittest.main()
