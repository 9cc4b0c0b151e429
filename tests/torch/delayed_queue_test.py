# SPDX-License-Identifier: Apache-2.0
"""backward_dw(): its order, its memory, its hooks, and what it does with compiled, copied and distributed modules."""
import copy
import io
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ranks
from delayed_case import ModuleCase
from support import DEVICE, E, H, I, K, MAX_TOKENS, Inputs, Recorder, assert_same_bits
from moejit.torch import Experts


class Queue(ModuleCase):

    def setUp(self):
        self.module = self.make(delay_wgrad_compute=True)

    def test_backward_runs_the_data_half_alone_and_backward_dw_the_oldest_weights_half(self):
        first, second = self.microbatches()
        with Recorder() as recorder:
            self.run_all(self.module, [first, second])
        self.assertEqual([name for name, _ in recorder.calls if name.startswith("backward")], ["backward_data"] * 2)
        self.assertTrue(first.x.grad.any())
        with Recorder() as recorder:
            self.module.backward_dw()
        self.assertEqual([name for name, _ in recorder.calls], ["backward_weights"])
        alone = self.make()
        self.run_all(alone, [first])
        assert_same_bits(self, [each.grad for each in self.module.parameters()],
                         [each.grad for each in alone.parameters()])

    def test_the_memory_of_a_microbatch_is_free_behind_its_weights_half(self):
        with Recorder() as recorder:
            for inputs in self.microbatches():
                self.module(inputs.x, inputs.ids, inputs.probs).backward(inputs.dy)
        alive = [0 if block.expired() else 1 for block in recorder.blocks]
        self.assertEqual(sum(alive), 4, "a saved and a deferred block of each microbatch, no quantized weights")
        for left in (2, 0):
            self.module.backward_dw()
            self.assertEqual(sum(not block.expired() for block in recorder.blocks), left)

    def test_with_nothing_to_do_it_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, r"backward_dw\(\) has nothing to do[^$]*hint"):
            self.module.backward_dw()
        self.run_all(self.module, self.microbatches()[:1])
        self.module.backward_dw()
        with self.assertRaisesRegex(RuntimeError, r"nothing to do"):
            self.module.backward_dw()
        with torch.no_grad():
            inputs = Inputs()
            self.module(inputs.x, inputs.ids, inputs.probs)
        with self.assertRaisesRegex(RuntimeError, r"nothing to do"):
            self.module.backward_dw()

    def test_a_module_without_the_option_has_nothing_to_wait_for(self):
        module = self.make()
        self.run_all(module, self.microbatches()[:1])
        before = module.down_proj.grad.clone()
        self.assertEqual((module.need_backward_dw(), self.module.need_backward_dw()), (False, True))
        module.backward_dw()
        assert_same_bits(self, [module.down_proj.grad], [before])
        with self.assertRaisesRegex(RuntimeError, "without delay_wgrad_compute"):
            module.register_wgrad_accumulation_and_reduce_hooks(lambda: None)

    def test_copies_begin_with_nothing_to_do(self):
        self.run_all(self.module, self.microbatches()[:1])
        self.module.register_wgrad_accumulation_and_reduce_hooks(lambda: None)
        file = io.BytesIO()
        torch.save(self.module, file)
        file.seek(0)
        for other in (copy.deepcopy(self.module), torch.load(file, weights_only=False)):
            with self.assertRaisesRegex(RuntimeError, "nothing to do"):
                other.backward_dw()
            self.assertTrue(all(each.skip_backward_post_hook for each in other.parameters()))
            inputs = self.microbatches()[1]
            self.run_all(other, [inputs])
            other.backward_dw()
        self.module.backward_dw()

    def test_parameters_keep_the_mark_of_megatron_when_they_move(self):
        with torch.device("meta"):
            module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, delay_wgrad_compute=True)
        for parameter in module.to_empty(device=DEVICE).parameters():
            self.assertTrue(parameter.skip_backward_post_hook)
        self.assertFalse(any(hasattr(parameter, "skip_backward_post_hook") for parameter in self.make().parameters()))

    def test_hooks_run_when_the_gradients_are_there_and_not_before(self):
        calls = []
        self.module.register_wgrad_accumulation_and_reduce_hooks(
            lambda: calls.append(("module", self.module.down_proj.grad is not None)))
        self.module.down_proj.register_post_accumulate_grad_hook(
            lambda parameter: calls.append(("parameter", parameter.grad is not None)))
        self.run_all(self.module, self.microbatches()[:1])
        self.assertEqual(calls, [])
        self.module.backward_dw()
        self.assertEqual(calls, [("parameter", True), ("module", True)])

    def test_within_another_backward_call_as_soon_as_the_data_half_has_run(self):
        inputs, = self.microbatches()[:1]
        hidden = inputs.x * 2
        hidden.register_hook(lambda _: self.module.backward_dw())
        self.module(hidden, inputs.ids, inputs.probs).backward(inputs.dy)
        alone = self.make()
        alone(inputs.x * 2, inputs.ids, inputs.probs).backward(inputs.dy)
        assert_same_bits(self, [each.grad for each in self.module.parameters()],
                         [each.grad for each in alone.parameters()])

    def test_optimizers_that_skip_it_see_no_gradient(self):
        before = [parameter.detach().clone() for parameter in self.module.parameters()]
        self.run_all(self.module, self.microbatches()[:1])
        torch.optim.SGD(self.module.parameters(), 0.1).step()
        assert_same_bits(self, list(self.module.parameters()), before)


def gradients_under_ddp(device):
    """[whole, in halves]: gradients under DistributedDataParallel, of the second of two steps."""
    gradients = []
    for delays in (False, True):
        torch.manual_seed(0)
        experts = Experts(E, H, I, K, max_tokens=MAX_TOKENS, bias=True, device=device, delay_wgrad_compute=delays)
        model = torch.nn.parallel.DistributedDataParallel(experts)
        for step in range(2):
            model.zero_grad()
            inputs = Inputs(seed=2 * step + dist.get_rank())
            model(*(each.detach().to(device) for each in (inputs.x, inputs.ids, inputs.probs))).backward(
                inputs.dy.to(device))
            experts.backward_dw()
        gradients.append([parameter.grad.cpu() for parameter in experts.parameters()])
    return gradients


def refusal_under_fsdp(device):
    """[what a call under FSDP2 says]."""
    experts = Experts(E, H, I, K, max_tokens=MAX_TOKENS, device=device, delay_wgrad_compute=True)
    fully_shard(experts, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))
    inputs = Inputs()
    try:
        experts(*(each.detach().to(device) for each in (inputs.x, inputs.ids, inputs.probs)))
    except RuntimeError as error:
        return [str(error)]
    return []


class Ranks(unittest.TestCase):

    def test_ddp_sums_the_gradients_when_they_are_there(self):
        results = ranks.run_on_ranks(gradients_under_ddp)
        for whole, delayed in results:
            assert_same_bits(self, delayed, whole)
        assert_same_bits(self, results[1][1], results[0][1])

    def test_fsdp_is_refused(self):
        for refusal in ranks.run_on_ranks(refusal_under_fsdp):
            self.assertRegex("".join(refusal), r"delay_wgrad_compute under fully_shard\(\)[^$]*hint")


class Compile(ModuleCase):

    def setUp(self):
        torch._dynamo.reset()

    def test_a_whole_graph_is_refused_with_a_sentence(self):
        module = self.make(delay_wgrad_compute=True)
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        with self.assertRaisesRegex(Exception, "delay_wgrad_compute run outside of compiled graphs"):
            self.run_all(module, self.microbatches()[:1], compiled)

    def test_with_graph_breaks_the_experts_run_between_the_graphs(self):
        class Between(torch.nn.Module):
            def __init__(self, experts):
                super().__init__()
                self.experts = experts

            def forward(self, x, ids, probs):
                return self.experts(x * 2, ids, probs) + 1

        def call(module):
            between = Between(module)
            return torch.compile(between, backend="aot_eager") if module.need_backward_dw() else between

        self.assert_same_as_whole(call=call)

    def test_without_gradients_there_is_one_graph(self):
        module, inputs = self.make(delay_wgrad_compute=True), Inputs()
        with torch.no_grad():
            got = torch.compile(module, fullgraph=True, backend="aot_eager")(inputs.x, inputs.ids, inputs.probs)
            assert_same_bits(self, [got], [module(inputs.x, inputs.ids, inputs.probs)])

    def test_an_exported_program_is_a_forward_pass(self):
        module, inputs = self.make(delay_wgrad_compute=True), Inputs()
        given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())
        program = torch.export.export(module, given)
        with torch.no_grad():
            assert_same_bits(self, [program.module()(*given)], [module(*given)])


if __name__ == "__main__":
    unittest.main()
