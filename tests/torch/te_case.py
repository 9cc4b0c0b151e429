# SPDX-License-Identifier: Apache-2.0
"""Tokens with a map of experts, and what torch's indexing makes of them."""
import re

import torch

from support import DEVICE, E, H, ROOT


def lines_of_docs(block, names):
    """Runs a block of the page's Python, and returns its names with the given ones."""
    page = (ROOT / "docs/transformer-engine.md").read_text()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[block], names)
    return names


def integers(shape):
    """Small integers in bf16, whose sums float32 and bf16 hold exactly."""
    return torch.randint(-8, 8, shape, device=DEVICE).bfloat16()


def of_tokens(token, rows, tokens):
    """The sums of the rows of each token."""
    return rows.new_zeros(tokens, rows.shape[1]).index_add(0, token, rows)


class Case:
    """Random tokens of which some have no expert, and experts of which one has no token. A token has at most five.

    Attributes:
        expert, token: Of each row, in the order of experts, and of tokens within an expert.
        count: The number of rows.
    """

    def __init__(self, tokens):
        generator = torch.Generator().manual_seed(tokens)
        chosen = torch.rand(tokens, E, generator=generator) < 0.4
        chosen[:, 3] = False
        chosen[::7] = False
        chosen &= chosen.cumsum(1) <= 5
        probs = torch.rand(tokens, E, generator=generator)
        probs[::5, 1] = 0
        self.map, self.probs = chosen.to(DEVICE), probs.to(DEVICE).requires_grad_()
        self.x = torch.randn(tokens, H, generator=generator).bfloat16().to(DEVICE).requires_grad_()
        self.expert, self.token = self.map.T.nonzero(as_tuple=True)
        self.count = self.token.shape[0]

    def rows(self):
        return self.x[self.token] * (self.row_probs() != 0)[:, None]

    def row_probs(self):
        return self.probs[self.token, self.expert]

    def summed(self, rows):
        return of_tokens(self.token, rows, self.x.shape[0])

    def spread(self, row_probs):
        """Values of rows at their places in the map, zeros elsewhere."""
        return torch.zeros_like(self.probs).index_put((self.token, self.expert), row_probs)
