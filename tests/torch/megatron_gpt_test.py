# SPDX-License-Identifier: Apache-2.0
"""GPTs of megatron-core that four ranks train, with experts in groups of two: with moejit's, with SequentialMLP, and
going on from the other's checkpoint. Without arguments a few steps; --steps 50 --recipe fp8_flow prints a table.
"""
import argparse
import functools
import pathlib
import tempfile
import unittest
from unittest import mock

import megatron_device
import torch
import torch.distributed as dist
from megatron_device import OnCpu
from ranks import run_on_ranks
from support import E, H, MAX_TOKENS

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

RANKS, EXPERT_RANKS = 4, 2
SEQUENCE, BATCH, VOCABULARY = 8, 2, 64
KINDS = ("moejit", "sequential")
FEW, RECIPE = 6, "bf16"


def tokens_of(step):
    """(tokens, labels) of this rank, one of four batches. A token follows from the one before, up to some chance."""
    generator = torch.Generator().manual_seed(4 * dist.get_rank() + step % 4)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=generator)
    for place in range(SEQUENCE):
        tokens[:, place + 1] = (5 * tokens[:, place] + tokens[:, place + 1] % 2) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


class Run:
    """A model and its optimizer, and the losses of its steps."""

    def __init__(self, kind, recipe):
        spec = get_gpt_layer_local_spec(num_experts=E)
        if kind == "moejit":
            spec = case.convert_spec(spec, recipe, max_tokens=MAX_TOKENS)
        config = case.config_of()
        self.model = GPTModel(config, spec, vocab_size=VOCABULARY, max_sequence_length=SEQUENCE).bfloat16()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if "experts" not in name and parameter.dim() > 1:
                    parameter.normal_(std=0.1, generator=generator)
        case.fill(self.model.decoder.layers[0].mlp)
        self.ddp = DistributedDataParallel(config, DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=True, overlap_grad_reduce=False), self.model)
        self.optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=2e-4, bf16=True, weight_decay=0.0, clip_grad=1.0,
            use_distributed_optimizer=True), [self.ddp])
        self.losses, self.done = [], 0

    def train(self, steps):
        """Makes steps up to so many in all."""
        future = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
        positions = torch.arange(SEQUENCE).expand(BATCH, -1)
        for self.done in range(self.done + 1, steps + 1):
            self.ddp.zero_grad_buffer()
            self.optimizer.zero_grad()
            tokens, labels = tokens_of(self.done)
            loss = self.ddp(tokens, positions, future, labels=labels).float().mean()
            loss.backward()
            self.ddp.finish_grad_sync()
            assert self.optimizer.step()[0]
            mean = loss.detach().clone()
            dist.all_reduce(mean.div_(RANKS))
            self.losses.append(mean.item())

    def state_dict(self, is_loading):
        metadata = {"distrib_optim_sharding_type": "fully_reshardable",
                    "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
        model = self.model.sharded_state_dict(metadata=metadata)
        return {"model": model,
                "optimizer": self.optimizer.sharded_state_dict(dict(model), is_loading=is_loading, metadata=metadata)}

    def save(self, folder):
        if dist.get_rank() == 0:
            folder.mkdir()
        dist.barrier()
        dist_checkpointing.save(self.state_dict(is_loading=False), str(folder))

    def load(self, folder, done):
        self.train(1)  # before its first step an optimizer has no state to load into
        state = dist_checkpointing.load(self.state_dict(is_loading=True), str(folder))
        self.model.load_state_dict(state["model"])
        set_state = DistributedOptimizer._set_main_param_and_optimizer_states

        def with_step(optimizer, parameter, tensors):  # torch's Adam has it among the states; Megatron forgets it
            set_state(optimizer, parameter, {"step": torch.tensor(float(done)), **tensors})
        with mock.patch.object(DistributedOptimizer, "_set_main_param_and_optimizer_states", with_step):
            self.optimizer.load_state_dict(state["optimizer"])
        for optimizer in self.optimizer.chained_optimizers:
            for of_parameter in optimizer.optimizer.state.values():  # Megatron gives all the same tensor to count with
                of_parameter["step"] = torch.tensor(float(done))
        self.done, self.losses = done, []


def work(folder, steps, recipe, device):
    """{kind: its losses}, and for "one from other" the losses of the later half, of which the other made the first."""
    megatron_device.start(EXPERT_RANKS)
    half, found = steps // 2, {}
    with OnCpu():
        for kind in KINDS:
            run = Run(kind, recipe)
            run.train(half)
            run.save(pathlib.Path(folder) / kind)
            run.train(steps)
            found[kind] = run.losses
        for kind, other in zip(KINDS, KINDS[::-1]):
            run = Run(kind, recipe)
            run.load(pathlib.Path(folder) / other, half)
            run.train(steps)
            found[f"{kind} from {other}"] = [None] * half + run.losses
    return found


def losses_of(steps, recipe):
    with tempfile.TemporaryDirectory() as folder:
        return run_on_ranks(functools.partial(work, folder, steps, recipe), RANKS, method="fork")[0]


def table(losses):
    print("step  " + "  ".join(f"{name:>24}" for name in losses))
    for step, values in enumerate(zip(*losses.values())):
        print(f"{step:4}  " + "  ".join(f"{'' if value is None else format(value, '.5f'):>24}" for value in values))
    print(f"largest difference from {KINDS[1]}: {max(differences(losses)):.3%}")


def differences(losses):
    """How far each loss is from SequentialMLP's in one go, relative to that."""
    return [abs(value - want) / want for values in losses.values()
            for value, want in zip(values, losses[KINDS[1]]) if value is not None]


@megatron_device.needed
class Training(unittest.TestCase):

    def test_losses_are_those_of_other_experts_from_its_checkpoint_too(self):
        losses = losses_of(FEW, RECIPE)
        self.assertEqual([len(values) for values in losses.values()], [FEW] * 4)
        self.assertLess(max(differences(losses)), 0.005)  # 0.01 over 50 steps
        self.assertLess(losses["moejit"][4], losses["moejit"][0] - 0.1)  # of the same batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--recipe", default=RECIPE)
    arguments, rest = parser.parse_known_args()
    if arguments.steps:
        table(losses_of(arguments.steps, arguments.recipe))
    else:
        unittest.main(argv=[__file__, *rest])
