# SPDX-License-Identifier: Apache-2.0
"""What only GPUs have: training in a graph, several GPUs in one process, and big offsets."""
import copy
import threading
import unittest

import torch

from support import BOUNDS, DEVICE, relative_error
from moejit.torch import Experts

E, H, I, K, T = 8, 1024, 512, 2, 64
BIG_BYTES = 75 << 30  # what the largest layer and its gradients take
IS_CUDA = DEVICE.type == "cuda"
GPUS = torch.cuda.device_count() if IS_CUDA else 0


def make(device, recipe="fp8_flow", sizes=(E, H, I, K), tokens=256):
    torch.manual_seed(0)
    return Experts(*sizes, max_tokens=tokens, recipe=recipe, device=device)


def given(device, seed=1):
    """x, ids and probabilities."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T, H, generator=generator).bfloat16()
    probs, ids = torch.topk(torch.randn(T, E, generator=generator).softmax(-1), K)
    return x.to(device), ids.to(device), probs.to(device)


@torch.no_grad()
def error(module, y, x, ids, probs):
    """The relative error beside float32 of the module's weights of now."""
    want = torch.zeros(x.shape, device=x.device)
    for expert in range(E):
        factors = (probs * (ids == expert)).sum(1, keepdim=True)
        gate, up = (x.float() @ module.gate_up_proj[expert].float().T).chunk(2, 1)
        want += factors * ((torch.nn.functional.silu(gate) * up) @ module.down_proj[expert].float().T)
    return relative_error(y.detach(), want)


class Case(unittest.TestCase):

    def assert_near(self, module, y, inputs, recipe="fp8_flow"):
        self.assertLess(error(module, y, *inputs), BOUNDS[recipe])


@unittest.skipUnless(IS_CUDA, "needs a GPU")
class Graphs(Case):

    def test_training_in_a_graph_with_evaluations_between_replays(self):
        module, inputs = make(DEVICE), given(DEVICE)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.02, capturable=True)

        def step():
            optimizer.zero_grad(set_to_none=False)
            module(*inputs).float().square().mean().backward()
            optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            step()
        for _ in range(4):
            with torch.no_grad():
                self.assert_near(module, module(*inputs), inputs)
            for _ in range(3):
                graph.replay()

    def test_graphs_of_inference_see_weights_that_change_between_replays(self):
        module, inputs = make(DEVICE), given(DEVICE)
        with torch.no_grad():
            module(*inputs)
            with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
                y = module(*inputs)
            for _ in range(3):
                graph.replay()
                self.assert_near(module, y, inputs)
                module.gate_up_proj.mul_(1.5)


@unittest.skipUnless(GPUS > 1, "needs two GPUs")
class TwoGpus(Case):

    def test_a_module_on_a_gpu_that_is_not_current(self):
        module, inputs = make("cuda:1"), given("cuda:1")
        self.assertEqual(torch.cuda.current_device(), 0)
        for _ in range(3):
            x = inputs[0].clone().requires_grad_()
            y = module(x, *inputs[1:])
            y.float().sum().backward()
            self.assert_near(module, y, inputs)
            self.assertEqual(x.grad.device, x.device)
            with torch.no_grad():
                self.assert_near(module, module(*inputs), inputs)

    def test_data_parallel(self):
        for recipe in ("bf16", "fp8_flow"):
            module = make("cuda:0", recipe)
            replicated = torch.nn.DataParallel(module, [0, 1])
            optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
            for step in range(40):
                with self.subTest(recipe=recipe, step=step):
                    inputs = given("cuda:0", step)
                    y = replicated(*inputs)
                    self.assert_near(module, y, inputs, recipe)
                    y.float().square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    with torch.no_grad():
                        for _ in range(3):
                            self.assert_near(module, replicated(*inputs), inputs, recipe)

    def test_threads_with_a_gpu_each(self):
        modules = [make("cuda:0")]
        modules.append(copy.deepcopy(modules[0]).to("cuda:1"))
        errors = [[], []]

        def work(index):
            torch.cuda.set_device(index)
            inputs = given(f"cuda:{index}")
            for call in range(50):
                with torch.set_grad_enabled(call % 2 == 0):
                    errors[index].append(error(modules[index], modules[index](*inputs), *inputs))
                if call % 10 == 9:
                    modules[index].down_proj.data.mul_(-1)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for found in errors:
            self.assertEqual(len(found), 50)
            self.assertLess(max(found), BOUNDS["fp8_flow"])


@unittest.skipUnless(IS_CUDA and torch.cuda.mem_get_info()[0] > BIG_BYTES,
                     f"needs a GPU with {BIG_BYTES >> 30} GiB free")
class BigOffsets(unittest.TestCase):
    """Offsets beyond 2^31 elements: of tokens, of rows and of weights."""

    LAST = 64  # tokens at the end, which have the bits that they have alone

    def tearDown(self):
        torch.cuda.empty_cache()

    def check(self, recipe, tokens, experts, top_k, hidden, intermediate):
        module = make(DEVICE, recipe, (experts, hidden, intermediate, top_k), tokens).requires_grad_(False)
        generator = torch.Generator(DEVICE).manual_seed(1)
        x = torch.empty(tokens, hidden, device=DEVICE, dtype=torch.bfloat16).normal_(generator=generator)
        turns = torch.arange(top_k, device=DEVICE)
        ids = (torch.randint(0, experts, (tokens, 1), device=DEVICE, generator=generator) + turns) % experts
        ids[-self.LAST:] = experts - 1 - turns % experts
        probs = torch.rand(tokens, top_k, device=DEVICE, generator=generator)

        def run(part):
            own = x[part].clone().requires_grad_()
            y = module(own, ids[part].clone(), probs[part].clone())
            y.backward(torch.ones_like(y))
            return y.detach(), own.grad, module.status()

        y, dx, status = run(slice(None))
        self.assertEqual(status, 0)
        self.assertTrue(bool(y.isfinite().all()))
        y, dx = y[-self.LAST:].clone(), dx[-self.LAST:].clone()
        alone, dx_alone, _ = run(slice(tokens - self.LAST, tokens))
        self.assertTrue(torch.equal(y, alone) and torch.equal(dx, dx_alone))

    def test_tokens_rows_and_weights(self):
        for recipe in ("fp8_flow", "bf16"):
            for name, sizes in (("tokens", (327_680, 8, 1, 7168, 256)), ("rows", (163_840, 8, 8, 2048, 1024)),
                                ("weights", (1024, 520, 2, 2048, 1024))):
                with self.subTest(recipe=recipe, beyond=name):
                    self.check(recipe, *sizes)
                torch.cuda.empty_cache()

    def test_gradients_of_weights(self):
        module = make(DEVICE, sizes=(520, 2048, 1024, 2), tokens=1024)
        x = torch.randn(1024, 2048, device=DEVICE).bfloat16()
        ids = torch.tensor([519, 518], device=DEVICE).repeat(1024, 1)
        module(x, ids, torch.ones(1024, 2, device=DEVICE)).float().sum().backward()
        for weight in module.parameters():
            self.assertTrue(bool((weight.grad[:518] == 0).all()), "of experts without tokens")
            self.assertTrue(bool(weight.grad.isfinite().all()))
            self.assertTrue(bool((weight.grad[518:] != 0).flatten(1).any(1).all()), "of the last experts")


if __name__ == "__main__":
    unittest.main()
