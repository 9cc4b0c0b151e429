# SPDX-License-Identifier: Apache-2.0
"""What torch itself takes for calls like moejit's: an operator that does nothing, a module and a function around it.

The operator has the schema of torch.ops.moejit.call, and allocates what that allocates. It is in
libmoejit_torch_floor.so: build the target `moejit_torch_floor` and name the file in MOEJIT_TORCH_FLOOR.
"""
import os

import torch


def is_available():
    return bool(os.environ.get("MOEJIT_TORCH_FLOOR"))


def operator():
    """Returns the operator."""
    if not hasattr(torch.ops.moejit_floor, "call"):
        torch.ops.load_library(os.environ["MOEJIT_TORCH_FLOOR"])
    return torch.ops.moejit_floor.call.default


def module_of(w1, w2, quantized, layer):
    """Returns a module of the least that one can do: without gradients an operator, else an autograd.Function."""
    call = operator()

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, ids, probs, w1, w2):
            colwise, y, _, saved = call([x, ids, probs, quantized, quantized], "update_weights+forward", layer)
            ctx.save_for_backward(saved, probs, w1, w2, colwise)
            return y

        @staticmethod
        def backward(ctx, dy):
            _, probs, w1, w2, _ = ctx.saved_tensors
            dx, dprobs, dw1, dw2 = call([dy, dy, probs, w1, w2], "backward", layer)
            return dx, None, dprobs, dw1, dw2

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2 = torch.nn.Parameter(w1.detach()), torch.nn.Parameter(w2.detach())

        def forward(self, x, ids, probs):
            own = self._parameters
            if torch.is_grad_enabled():
                return Function.apply(x, ids, probs, own["w1"], own["w2"])
            return call([x, ids, probs, quantized], "forward", layer)[0]

    return Module()
