# SPDX-License-Identifier: Apache-2.0
"""What torch itself takes for calls like moejit's: operators that do nothing, a module and a function around them.

The operators have the arguments and results of moejit's, and allocate what those allocate. They are those of
libmoejit_torch_floor.so: build the target `moejit_torch_floor` and name the file in MOEJIT_TORCH_FLOOR.
"""
import os

import torch


def is_available():
    return bool(os.environ.get("MOEJIT_TORCH_FLOOR"))


def operators():
    """Returns the operators infer, train and backward."""
    if not hasattr(torch.ops.moejit_floor, "infer"):
        torch.ops.load_library(os.environ["MOEJIT_TORCH_FLOOR"])
    return [getattr(torch.ops.moejit_floor, name).default for name in ("infer", "train", "backward")]


def module_of(w1, w2, quantized, layer):
    """Returns a module of the least that one can do: without gradients an operator, else an autograd.Function."""
    infer, train, backward = operators()
    none = w1.new_empty(0)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, ids, probs, w1, w2):
            y, saved, _, _, colwise = train(x, ids, probs, w1, w2, none, none, quantized, layer)
            ctx.save_for_backward(saved, probs, w1, w2, colwise)
            return y

        @staticmethod
        def backward(ctx, dy):
            saved, probs, w1, w2, colwise = ctx.saved_tensors
            dx, dprobs, dw1, dw2, _, _ = backward(dy, saved, none, probs, w1, w2, none, none, none, colwise, layer)
            return dx, None, dprobs, dw1, dw2

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2 = torch.nn.Parameter(w1.detach()), torch.nn.Parameter(w2.detach())

        def forward(self, x, ids, probs):
            own = self._parameters
            if torch.is_grad_enabled():
                return Function.apply(x, ids, probs, own["w1"], own["w2"])
            return infer(x, ids, probs, own["w1"], own["w2"], none, none, quantized, layer)[0]

    return Module()
