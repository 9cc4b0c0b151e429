# SPDX-License-Identifier: Apache-2.0
"""Inputs of the ranks of a group, and what one rank with all tokens says they have to give."""
import torch

from support import DEVICE, E, H, I, MAX_TOKENS
from moejit.torch import Experts

K_OF_GROUP = 3  # so that a token's experts are on one rank and on several


class Case:
    """One layer on as many ranks as there are numbers of tokens. `of_group` are arguments of modules with a group."""

    def __init__(self, recipe, tokens, device=DEVICE, sizes=(E, H, I, K_OF_GROUP), max_tokens=MAX_TOKENS, of_group=None,
                 **options):
        self.of_group = of_group or {}
        self.recipe, self.tokens, self.device, self.options = recipe, tokens, device, options
        self.experts, self.hidden, _, self.top_k = self.sizes = sizes
        self.max_tokens, self.local = max_tokens, sizes[0] // len(tokens)
        self.whole = self._one_rank()

    def _one_rank(self):
        torch.manual_seed(1)
        module = Experts(*self.sizes, max_tokens=self.max_tokens * len(self.tokens), recipe=self.recipe,
                         device=self.device, **self.options)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        return module

    def check(self, test, ranks, what):
        """Lets a test fail unless the ranks' steps gave what one rank with all tokens gives, and status 0."""
        for rank, (got, want) in enumerate(zip(ranks, self.expected())):
            for name, tensor in want.items():
                test.assertTrue(torch.equal(got[name], tensor), f"{name} of rank {rank}, {what}")
        test.assertEqual([got["status"] for got in ranks], [0] * len(self.tokens))

    def module(self, group, **options):
        """The module of a rank, with its part of the weights."""
        module = Experts(*self.sizes, max_tokens=self.max_tokens, recipe=self.recipe, device=self.device,
                         process_group=group, **self.options, **{**self.of_group, **options})
        module.load_state_dict(self.part_of_rank(group.rank()))
        return module

    def part_of_rank(self, rank):
        """The state dict of a rank: weights of its experts, and columns of a scaling state."""
        def part(tensor):
            share = tensor.shape[-1] // len(self.tokens)
            return tensor[..., rank * share:(rank + 1) * share]
        return {name: part(tensor) if name.startswith("fc") else tensor[rank * self.local:(rank + 1) * self.local]
                for name, tensor in self.whole.state_dict().items()}

    def all_inputs(self, seed=0):
        """x, ids, probs and dy of all ranks, one rank's tokens after the other."""
        generator, tokens = torch.Generator().manual_seed(seed), sum(self.tokens)
        x, dy = (torch.randn(tokens, self.hidden, generator=generator).bfloat16() for _ in range(2))
        ids = torch.stack([torch.randperm(self.experts, generator=generator)[:self.top_k] for _ in range(tokens)]
                          or [torch.zeros(self.top_k, dtype=torch.int64)])[:tokens]
        ids[torch.rand(tokens, self.top_k, generator=generator) < 0.1] = -1
        probs = torch.rand(tokens, self.top_k, generator=generator)
        return [each.to(self.device) for each in (x, ids, probs, dy)]

    def inputs(self, rank, seed=0):
        """Those of one rank; x and probs are leaves."""
        begin = sum(self.tokens[:rank])
        x, ids, probs, dy = (each[begin:begin + self.tokens[rank]].clone() for each in self.all_inputs(seed))
        return x.requires_grad_(), ids, probs.requires_grad_(), dy

    def step(self, module, rank, seed=0, call=None):
        """The results of a forward and a backward call of a rank, by name."""
        x, ids, probs, dy = self.inputs(rank, seed)
        for parameter in module.parameters():
            parameter.grad = None
        y = (module if call is None else call)(x, ids, probs)  # a compiled module has no truth
        y.backward(dy)
        return {"y": y.detach(), "dx": x.grad, "dprobs": probs.grad, **_gradients(module), "status": module.status()}

    def expected(self, seed=0):
        """The same of each rank, by calls of one rank with all tokens.

        Its y and dx for the experts of one rank are what that rank sends home, where they are added in float32. With
        combine="rows" they are what all ranks give.
        """
        x, ids, probs, dy = self.all_inputs(seed)
        y, dx, dprobs, of_weights = self._whole_step(x, ids, probs, dy)
        of_tokens = {"y": y, "dx": dx, "dprobs": dprobs}
        if self.of_group.get("combine") != "rows":
            of_tokens.update(self._added_at_home(x, ids, probs, dy))
        ends = [sum(self.tokens[:rank]) for rank in range(len(self.tokens) + 1)]
        return [{**{name: each[ends[rank]:ends[rank + 1]] for name, each in of_tokens.items()},
                 **{name: each[rank * self.local:(rank + 1) * self.local] for name, each in of_weights.items()}}
                for rank in range(len(self.tokens))]

    def _added_at_home(self, x, ids, probs, dy):
        sums = {"y": torch.zeros(x.shape, device=self.device), "dx": torch.zeros(x.shape, device=self.device)}
        for rank in range(len(self.tokens)):
            y, dx, _, _ = self._whole_step(x, torch.where(ids // self.local == rank, ids, -1), probs, dy)
            sums["y"] += y.float()
            sums["dx"] += dx.float()
        return {name: each.bfloat16() for name, each in sums.items()}

    def _whole_step(self, x, ids, probs, dy):
        x, probs = x.clone().requires_grad_(), probs.clone().requires_grad_()
        for parameter in self.whole.parameters():
            parameter.grad = None
        y = self.whole(x, ids, probs)
        y.backward(dy)
        return y.detach(), x.grad, probs.grad, _gradients(self.whole)


def _gradients(module):
    names = ("dw1", "dw2", "db1", "db2")
    parameters = (module.gate_up_proj, module.down_proj, module.gate_up_proj_bias, module.down_proj_bias)
    return {name: parameter.grad.clone() for name, parameter in zip(names, parameters)
            if parameter is not None and parameter.grad is not None}
