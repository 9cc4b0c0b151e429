# SPDX-License-Identifier: Apache-2.0
"""Modules of the recipe fp8_delayed for tests, and the rule of their scales, written from Transformer Engine's."""
import numpy as np
import torch

from support import DEVICE, E, H, I, K, MAX_TOKENS, Inputs
from moejit.torch import Experts

HISTORY = 4
FORWARD = ("fc1_amax_history", "fc2_amax_history", "fc1_scale", "fc2_scale")
GRADIENTS = ("fc1_grad_amax_history", "fc2_grad_amax_history", "fc1_grad_scale", "fc2_grad_scale")
STATE = FORWARD + GRADIENTS


def make(seed=0, **options):
    """Experts of the recipe, with a short history unless told otherwise."""
    torch.manual_seed(seed)
    given = {"max_tokens": MAX_TOKENS, "recipe": "fp8_delayed", "amax_history_len": HISTORY, "device": DEVICE, **options}
    return Experts(E, H, I, K, **given)


def state_of(module):
    """{name: a copy of the tensor} of the scaling state."""
    return {name: getattr(module, name).clone() for name in STATE}


def step(module, seed, call=None):
    """[y, dx, dprobs, gradients of the weights] of a forward and a backward call of tokens with this seed."""
    inputs = Inputs(seed=seed)
    for parameter in module.parameters():
        parameter.grad = None
    y = (module if call is None else call)(inputs.x, inputs.ids, inputs.probs)
    y.backward(inputs.dy)
    return [y.detach(), inputs.x.grad, inputs.probs.grad, *(each.grad for each in module.parameters())]


def assert_same_state(test, got, want, message=""):
    """Fails unless two states, as state_of() returns them, are equal, bit for bit."""
    for name in STATE:
        test.assertTrue(torch.equal(got[name].view(torch.int32), want[name].view(torch.int32)), f"{name} {message}")


class Rule:
    """Delayed scaling of one history and its scales, in numpy, as TE's `_amax_and_scale_update` has it."""

    def __init__(self, columns, largest, margin=0, length=HISTORY, algorithm="max"):
        self.history, self.scale = np.zeros((length, columns), np.float32), np.ones(columns, np.float32)
        self.largest, self.algorithm = np.float32(largest / 2 ** margin), algorithm

    def update(self):
        """Moves every column on by a step, but those that recorded nothing."""
        for column in np.flatnonzero(self.history[0]):
            steps = self.history[:, column]
            amax = steps.max() if self.algorithm == "max" else steps[0]
            rolled = np.roll(steps, -1)  # TE rolls, then clears row 0
            rolled[0] = 0
            self.history[:, column] = rolled
            if np.isfinite(amax) and amax > 0:
                with np.errstate(over="ignore"):
                    scale = self.largest / amax
                self.scale[column] = np.finfo(np.float32).max if np.isinf(scale) else scale
