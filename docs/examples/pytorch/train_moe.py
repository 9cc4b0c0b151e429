# SPDX-License-Identifier: Apache-2.0
"""Trains two whole MoE blocks, routers included, to learn a noisy table, and keeps the load of their experts even.

    python3 train_moe.py cuda --steps 500                           # one line for each recipe
    python3 train_moe.py cpu --steps 20 --tokens 32 --kinds 8 --recipe bf16    # in the simulator

Prints the mean loss of the last fifth of the steps, and of the last steps the largest share of an expert over the mean.
"""
import argparse

import torch

import moejit.torch

RECIPES = "bf16", "fp8_flow", "fp8_blockwise", "fp8_current", "fp8_delayed", "fp8_rowwise", "mxfp8", "nvfp4"
HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, CLASSES = 256, 128, 8, 2, 64
BIAS_RATE, LOAD_STEPS = 2e-3, 20
FORMULA = {"score": "sigmoid", "bias": True, "normalize": "sum"}  # as DeepSeek-V3's


class Model(torch.nn.Module):
    """Classifies tokens, of which there are so many kinds."""

    def __init__(self, recipe, kinds, tokens, device):
        super().__init__()
        self.embedding = torch.nn.Embedding(kinds, HIDDEN, device=device)
        self.blocks = torch.nn.ModuleList(
            moejit.torch.MoE(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, router=FORMULA, recipe=recipe, max_tokens=tokens,
                             device=device, dtype=torch.float32) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(HIDDEN, device=device) for _ in range(3))
        self.head = torch.nn.Linear(HIDDEN, CLASSES, device=device)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x).bfloat16())
        return self.head(self.norms[-1](x))


def batches(settings):
    """Yields tokens and their classes. A token has its own class nine times of ten."""
    generator = torch.Generator().manual_seed(1)
    table = torch.randint(CLASSES, (settings.kinds,), generator=generator)
    for _ in range(settings.steps):
        tokens = torch.randint(settings.kinds, (settings.tokens,), generator=generator)
        noise = torch.randint(CLASSES, (settings.tokens,), generator=generator)
        is_noise = torch.rand(settings.tokens, generator=generator) < 0.1
        yield (each.to(settings.device) for each in (tokens, torch.where(is_noise, noise, table[tokens])))


def train(recipe, settings):
    """Returns the losses of all steps, and the largest load of an expert over the mean in each block."""
    torch.manual_seed(0)
    model = Model(recipe, settings.kinds, settings.tokens, settings.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    losses, loads = [], torch.zeros(2, EXPERTS, device=settings.device)
    for step, (tokens, classes) in enumerate(batches(settings)):
        with torch.autocast(settings.device, torch.bfloat16):
            logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.float(), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= settings.steps - LOAD_STEPS:
            loads += torch.stack([block.gate.tokens_per_expert for block in model.blocks])
        for block in model.blocks:
            block.update_bias(BIAS_RATE)
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), (loads.amax(1) / loads.mean(1)).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("device", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--kinds", type=int, default=4096, help="how many tokens there are to learn")
    parser.add_argument("--recipe", nargs="+", default=RECIPES)
    settings = parser.parse_args()
    for recipe in settings.recipe:
        losses, loads = train(recipe, settings)
        last = losses[-max(settings.steps // 5, 1):]
        print(f"{recipe}: first loss {losses[0]:.4f}, last {sum(last) / len(last):.4f}, load "
              f"{' '.join(f'{load:.2f}' for load in loads)}", flush=True)


if __name__ == "__main__":
    main()
