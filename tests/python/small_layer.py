# SPDX-License-Identifier: Apache-2.0
"""A small layer of the recipe bf16 with inputs, ready for calls in the simulator, and what they have to give."""
import array
import itertools
import random

import bounded
from bounded import Bounded
from package_case import SMALL, bf16_bits, bf16_values, shaped, test_engine

import moejit

TOKENS = 5
SIZES = {"T": TOKENS, "K": SMALL["top_k"], "E": SMALL["experts"], "H": SMALL["hidden"], "I": SMALL["intermediate"]}


def prepared_layer(**changes):
    return moejit.Layer({**SMALL, **changes}, "sim").prepare(test_engine())


class Inputs:
    """Random inputs of the layer: plain arrays, and the numbers that they hold."""

    def __init__(self, seed=1):
        self._random = random.Random(seed)
        tokens, top_k, experts, hidden, inner = (SIZES[symbol] for symbol in "TKEHI")
        self.x, self.dy = self._matrix(tokens, hidden), self._matrix(tokens, hidden)
        self.w1 = self._matrix(experts, 2 * inner, hidden, scale=0.3)
        self.w2 = self._matrix(experts, hidden, inner, scale=0.3)
        self.ids = array.array("i", [e for _ in range(tokens) for e in self._random.sample(range(experts), top_k)])
        self.ids[3] = -1  # a choice that is not on this rank
        self.probs = array.array("f", [self._random.random() for _ in range(tokens * top_k)])

    def _matrix(self, *shape, scale=1.0):
        count = 1
        for size in shape:
            count *= size
        return shaped(bf16_bits(self._random.gauss(0, scale) for _ in range(count)), shape)

    def tensors(self):
        """Inputs, weights and outputs of all calls, in plain memory."""
        tokens, top_k = TOKENS, SIZES["K"]
        outputs = {"y": ("H", self.x.shape), "dx": ("H", self.dy.shape), "dprobs": ("f", (tokens, top_k)),
                   "dw1": ("f", self.w1.shape), "dw2": ("f", self.w2.shape), "status": ("I", (1,))}
        return {"x": self.x, "topk_ids": shaped(self.ids, (tokens, top_k)), "w1": self.w1, "w2": self.w2,
                "topk_probs": shaped(self.probs, (tokens, top_k)), "dy": self.dy,
                **{name: zeros(kind, shape) for name, (kind, shape) in outputs.items()}}

    def expected(self):
        """Bounded numbers of y, dx, dprobs, dw1 and dw2, in the order of their memory."""
        x, dy = nested(self.x), nested(self.dy)
        ids = [list(self.ids[i:i + 2]) for i in range(0, len(self.ids), 2)]
        probs = [[Bounded(p) for p in self.probs[i:i + 2]] for i in range(0, len(self.probs), 2)]
        experts = bounded.Experts(nested(self.w1), nested(self.w2))
        results = [experts.forward(x, ids, probs), *experts.backward(x, ids, probs, dy)]
        return dict(zip(("y", "dx", "dprobs", "dw1", "dw2"), map(flat, results)))


def zeros(kind, shape):
    count = 1
    for size in shape:
        count *= size
    return shaped(array.array(kind, bytes(count * array.array(kind).itemsize)), shape)


def nested(bits):
    """Nested lists of exact numbers of BF16 bits with a shape."""
    values = [Bounded(value) for value in bf16_values(bits.tobytes())]
    for size in reversed(bits.shape[1:]):
        values = [values[i:i + size] for i in range(0, len(values), size)]
    return values


def flat(values):
    while isinstance(values[0], list):
        values = list(itertools.chain.from_iterable(values))
    return values


def check(case, tensors, expected, names):
    """Every element lies within its bound, and the bounds are tight enough to tell."""
    for name in names:
        wanted, memory = expected[name], tensors[name]
        got = bf16_values(memory.tobytes()) if memory.format == "H" else list(memory.cast("B").cast("f"))
        case.assertEqual(len(got), len(wanted))
        case.assertLess(sum(w.error for w in wanted), 0.2 * sum(abs(w.value) for w in wanted), f"bounds of {name}")
        for index, (value, want) in enumerate(zip(got, wanted)):
            case.assertLessEqual(abs(value - want.value), want.error, f"{name}[{index}]: got {value}, wanted {want}")
