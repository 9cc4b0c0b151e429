# SPDX-License-Identifier: Apache-2.0
"""Numbers with a bound on how far a rounded computation of them may be off, and a layer in such numbers.

The layer follows the formulas of docs/recipes.md for the recipe bf16, written down anew. The bound of an operation is
that of first-year numerics: for a product |a| eb + |b| ea + ea eb, for a function its largest slope times the bound of
its argument, and half a unit in the last place for a rounding: 2^-8 for BF16, which keeps 8 bits. Sums in fp32 round
once for each term, by 2^-24 of the terms' sum; 2^-22 leaves room for accumulators that drop bits."""
import dataclasses
import math

BF16_ROUNDING = 2.0**-8
SUM_ROUNDING = 2.0**-22
FP32_FUNCTION = 2.0**-18  # of an exponential and a division in fp32


@dataclasses.dataclass
class Bounded:
    value: float
    error: float = 0.0

    def __mul__(self, other):
        return Bounded(self.value * other.value, abs(self.value) * other.error + abs(other.value) * self.error
                       + self.error * other.error)

    def rounded(self):
        """To BF16."""
        return Bounded(self.value, self.error + BF16_ROUNDING * (abs(self.value) + self.error))

    def through(self, function, slope):
        value = function(self.value)
        return Bounded(value, slope * self.error + FP32_FUNCTION * (abs(value) + abs(self.value)))


def total(terms):
    terms = list(terms)
    size = sum(abs(term.value) + term.error for term in terms)
    return Bounded(math.fsum(term.value for term in terms),
                   sum(term.error for term in terms) + len(terms) * SUM_ROUNDING * size)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)  # its slope is at most 1.1


def silu_slope(x):
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)))  # whose slope is at most 0.5


def dot(a, b):
    return total(x * y for x, y in zip(a, b))


class Experts:
    """A layer's weights: w1[e] has rows of gate and then of up, w2[e] a row for each element of a token."""

    def __init__(self, w1, w2):
        self.w1, self.w2 = w1, w2

    def row(self, expert, x, prob):
        """What an expert makes of a token: gate and up, the activation without and with the probability, and h2."""
        h1 = [dot(x, row).rounded() for row in self.w1[expert]]
        gate, up = h1[:len(h1) // 2], h1[len(h1) // 2:]
        plain = [g.through(silu, 1.1) * u for g, u in zip(gate, up)]
        act = [(a * prob).rounded() for a in plain]
        return gate, up, plain, act, [dot(act, row).rounded() for row in self.w2[expert]]

    def forward(self, x, ids, probs):
        """y [T, H]; choices of expert -1 give nothing."""
        y = []
        for token, experts, weights in zip(x, ids, probs):
            rows = [self.row(expert, token, prob)[-1] for expert, prob in zip(experts, weights) if expert >= 0]
            y.append([total(column).rounded() for column in zip(*rows)] if rows else [Bounded(0.0)] * len(token))
        return y

    def backward(self, x, ids, probs, dy):
        """dx [T, H], dprobs [T, K], and terms of dw1 and dw2 by expert, row and column, to be summed."""
        dx, dprobs = [], []
        dw1 = [[[[] for _ in row] for row in expert] for expert in self.w1]
        dw2 = [[[[] for _ in row] for row in expert] for expert in self.w2]
        for token, experts, weights, grad in zip(x, ids, probs, dy):
            parts, of_probs = [], []
            for expert, prob in zip(experts, weights):
                if expert < 0:
                    of_probs.append(Bounded(0.0))
                    continue
                gate, up, plain, act, _ = self.row(expert, token, prob)
                dact = [dot(grad, column).rounded() for column in zip(*self.w2[expert])]
                of_probs.append(dot(dact, plain))
                scaled = [d * prob for d in dact]
                dgate = [(d * u * g.through(silu_slope, 0.5)).rounded() for d, g, u in zip(scaled, gate, up)]
                dup = [(d * g.through(silu, 1.1)).rounded() for d, g in zip(scaled, gate)]
                dh1 = dgate + dup
                parts.append([dot(dh1, column).rounded() for column in zip(*self.w1[expert])])
                add_outer(dw1[expert], dh1, token)
                add_outer(dw2[expert], grad, act)
            dx.append([total(column).rounded() for column in zip(*parts)] if parts else [Bounded(0.0)] * len(token))
            dprobs.append(of_probs)
        return dx, dprobs, summed(dw1), summed(dw2)


def add_outer(matrix, rows, columns):
    for terms, row in zip(matrix, rows):
        for cell, column in zip(terms, columns):
            cell.append(row * column)


def summed(matrices):
    return [[[total(cell) for cell in row] for row in matrix] for matrix in matrices]
