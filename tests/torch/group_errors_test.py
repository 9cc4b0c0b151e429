# SPDX-License-Identifier: Apache-2.0
"""What misuse of experts with a process group is told in, on all ranks alike; and a rank that is silent."""
import copy
import pickle
import threading
import types
import unittest
import unittest.mock

import torch
import torch.distributed as dist

from group_case import K_OF_GROUP, Case
from ranks import run_on_ranks
from support import DEVICE, E, H, I, MAX_TOKENS, told
from thread_ranks import run_on_threads
import moejit
from moejit import GroupLayer
from moejit.torch import Experts, ops
from moejit.torch.group_memory import _allocate
from moejit.torch.groups import layers_of
from moejit.torch.ranks import Place, check_places


def make(group, **options):
    return Experts(**{"num_experts": E, "hidden_size": H, "intermediate_size": I, "top_k": K_OF_GROUP,
                      "max_tokens": MAX_TOKENS, "process_group": group, **options})


def call_of_process(device):
    """What a rank that is a process with CPU tensors is told."""
    tensors = (torch.zeros(2, H, dtype=torch.bfloat16), torch.zeros(2, K_OF_GROUP, dtype=torch.int64),
               torch.zeros(2, K_OF_GROUP))
    return [told(lambda: make(dist.group.WORLD)(*tensors))]


@unittest.skipUnless(DEVICE.type == "cpu", "simulated ranks")
class Errors(unittest.TestCase):

    def on_ranks(self, function, tokens=(3, 2), recipe="fp8_flow"):
        case = Case(recipe, tokens)
        return run_on_threads(lambda group, rank: function(case, group, rank), len(tokens))

    def check(self, sentences, *words):
        """All ranks were told the same, with these words."""
        self.assertEqual(len(set(sentences)), 1, sentences)
        for word in ("moejit: ", *words):
            self.assertIn(word, sentences[0])

    def test_modules_that_cannot_be(self):
        def run(_, group, rank):
            with self.assertRaisesRegex(RuntimeError, "wrong_type: argument process_group: it is a str, wanted"):
                make("WORLD")
            return [told(lambda: make(group, **options)) for options in
                    ({"num_experts": 7}, {"delay_wgrad_compute": True}, {"max_tokens": 20000})]
        experts, halves, tokens = zip(*self.on_ranks(run))
        self.check(experts, "invalid_value", "experts", "7", "2")
        self.check(halves, "unsupported", "delay_wgrad_compute with process_group")
        self.check(tokens, "max_tokens", "20000", "16384")

    def test_ranks_that_differ(self):
        def run(case, group, rank):
            module, given = make(group, recipe=("bf16", "fp8_flow")[rank]), case.inputs(rank)
            other = make(group).requires_grad_(False)
            if rank == 1:
                other.down_proj.requires_grad_(True)
            return told(lambda: module(*given[:3])), told(lambda: other(*given[:3]))
        recipes, gradients = zip(*self.on_ranks(run))
        self.check(recipes, "tensor_mismatch: ranks 0 and 1 of the process group differ in recipe: "
                   '"bf16" and "fp8_flow"')
        self.check(gradients, "differ in gradients", "dw2")

    def test_a_rank_that_cannot_prepare_is_told_to_all(self):
        prepare, failed = GroupLayer.prepare, []

        def fails_once_on_rank_1(layer, *arguments):
            if layer.info.rank == 1 and not failed:
                failed.append(layer)
                raise moejit.Error("out_of_memory", "load", "no room for a kernel")
            return prepare(layer, *arguments)

        def run(case, group, rank):
            module, given = case.module(group), case.inputs(rank)
            sentence = told(lambda: module(*given[:3]))
            self.assertIsNone(told(lambda: module(*given[:3])))
            return sentence
        with unittest.mock.patch.object(GroupLayer, "prepare", fails_once_on_rank_1):
            self.check(self.on_ranks(run), "out_of_memory: no room for a kernel", "(told by rank 1)")

    def test_calls_that_cannot_be(self):
        def run(case, group, rank):
            module, (x, ids, probs, _) = case.module(group), case.inputs(rank)
            sentences = [told(lambda: module(x, ids[:1], probs)),
                         told(lambda: module(x.float(), ids, probs)),
                         told(lambda: case.module(group).to("meta")(*(each.to("meta") for each in (x, ids, probs)))),
                         told(lambda: pickle.dumps(module)),
                         told(lambda: ops.call([x, ids, probs], "forward", "moejit 1 sim 0 @none.0 {}"))]
            self.assertIs(copy.deepcopy(module)._call.group, module._call.group)
            self.assertIsNone(told(lambda: module(x, ids, probs)))  # the refused calls have left nothing behind
            self.assertEqual(module.status(), 0)
            return sentences
        shape, dtype, meta, pickled, unknown = zip(*self.on_ranks(run, tokens=(3, 3)))
        self.check(shape, "tokens, tensors before it have")
        self.check(dtype, "hidden_states of Experts is float32")
        self.check(meta, "a call on meta, and the process group has layers on cpu")
        self.check(pickled, "is pickled", "state dict")
        self.check(unknown, "none.0, which this process does not have")

    def test_a_silent_rank_is_told_and_forgotten(self):
        stepped = threading.Barrier(2)

        def run(case, group, rank):
            module = case.module(group, timeout_ms=3000)
            want = case.step(module, rank)
            stepped.wait()  # a rank that is slow in its step is not silent
            x, ids, probs, _ = case.inputs(rank)
            if rank == 0:
                module(x, ids, probs)
                word = module.status()
                sentence = told(lambda: module(x, ids, probs))
            else:
                word, sentence = 256 | 65536 << 1, "moejit: invalid_state: rank 1 of the group was silent"
            module.reset_group()
            got = case.step(module, rank)
            self.assertTrue(all(torch.equal(got[name], want[name]) for name in ("y", "dx", "dprobs", "dw1", "dw2")))
            return word, sentence, got["status"]
        for word, sentence, status in self.on_ranks(run):
            self.assertEqual(word, 256 | 65536 << 1)
            self.assertIn("moejit: invalid_state: rank 1 of the group was silent", sentence)
            self.assertEqual(status, 0)

    def test_a_destroyed_process_group(self):
        def run(case, group, rank):
            module = case.module(group)
            want = case.step(module, rank)["y"]
            number = len(layers_of(group).groups)
            return torch.equal(module(*case.inputs(rank)[:3]), want), number
        self.assertEqual(self.on_ranks(run), [(True, 1)] * 2)
        self.assertEqual(self.on_ranks(run), [(True, 1)] * 2)  # a new process group has a group of its own

    def test_processes_with_cpu_tensors(self):
        self.check([sentence for sentence, in run_on_ranks(call_of_process)], "processes with CPU tensors",
                   "threads of one process")


class Places(unittest.TestCase):
    """Ranks that cannot be a group, whose places are given: this machine lacks them."""

    def test_a_torch_without_symmetric_memory(self):
        with unittest.mock.patch.object(torch.distributed, "_symmetric_memory", types.SimpleNamespace(), create=True):
            with self.assertRaisesRegex(RuntimeError, r"moejit: unsupported: torch 2\..* has no symmetric memory .*\n"
                                        "hint: use torch 2.10 or newer"):
                _allocate(256, torch.device("cpu"))

    def test_ranks_on_two_hosts_and_two_ranks_on_one_gpu(self):
        for places, sentence in (
                ([Place("a", 1, "gpu-1"), Place("b", 1, "gpu-2")],
                 "ranks 0 and 1 .* are on the hosts a and b"),
                ([Place("a", 1, "gpu-1"), Place("a", 2, "gpu-1")], "rank 1 .* has the GPU of another rank"),
                ([Place("a", 1, "gpu-1"), Place("a", 2, "")], "ranks 0 and 1 are on a GPU and on the CPU")):
            with self.assertRaisesRegex(RuntimeError, f"moejit: unsupported: .*{sentence}.*\nhint: "):
                check_places(places, "peer")
        with self.assertRaisesRegex(RuntimeError, '\nhint: make the module with transport="nccl"'):
            check_places([Place("a", 1, "gpu-1"), Place("b", 1, "gpu-2")], "peer")
        check_places([Place("a", 1, "gpu-1"), Place("a", 2, "gpu-2")], "peer")

    def test_ranks_that_nccl_joins(self):
        check_places([Place("a", 1, "gpu-1"), Place("b", 1, "gpu-2")], "nccl")
        with self.assertRaisesRegex(RuntimeError, "rank 1 .* has the GPU of another rank"):
            check_places([Place("a", 1, "gpu-1"), Place("a", 2, "gpu-1")], "nccl")
        for places in ([Place("a", 1, ""), Place("a", 2, "")], [Place("a", 1, ""), Place("b", 1, "")]):
            with self.assertRaisesRegex(RuntimeError, "processes with CPU tensors"):
                check_places(places, "nccl")


if __name__ == "__main__":
    unittest.main()
