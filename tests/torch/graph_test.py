# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of models with experts: each replay has new tokens, routing and weights, and the bits of eager."""
import copy
import unittest

import torch
from torch._dynamo.utils import counters

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, Inputs, assert_same_bits
from moejit.torch import Experts

REPLAYS = 100 if DEVICE.type == "cuda" else 12
TOKENS = 32

needs_gpu = unittest.skipIf(DEVICE.type == "cpu", "there are no CUDA graphs without a GPU")


class Model(torch.nn.Module):
    """Experts between operations that have the same bits eager, captured and compiled by Inductor."""

    def __init__(self, recipe):
        super().__init__()
        torch.manual_seed(0)
        self.experts = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, bias=True, device=DEVICE)

    def forward(self, x, ids, probs):
        return self.experts(x * 2, ids, probs) + 1


class Block(Model):
    """A block of a model: the experts' tokens and results go through matmuls of cuBLAS."""

    def __init__(self, recipe):
        super().__init__(recipe)
        options = {"bias": False, "device": DEVICE, "dtype": torch.bfloat16}
        self.before, self.after = torch.nn.Linear(H, H, **options), torch.nn.Linear(H, H, **options)

    def forward(self, x, ids, probs):
        return x + self.after(torch.nn.functional.gelu(self.experts(self.before(x), ids, probs)))


def inputs_of(call):
    """The inputs of a call. The routing is even, then very uneven, then lacks experts, in turn."""
    inputs = Inputs(TOKENS, seed=call)
    if call % 4 == 1:
        inputs.ids[:] = torch.tensor([call % E, (call + 3) % E])  # all tokens to two experts
    elif call % 4 == 2:
        inputs.ids[::2] = -1  # half of the tokens to none
        inputs.ids[:, 1] = -1
    elif call % 8 == 3:
        inputs.ids[1:] = -1  # one token alone
    elif call % 8 == 7:
        inputs.ids[:] = -1  # nothing to do
    return inputs


def forget_gradients(model, inputs):
    for leaf in (inputs.x, inputs.probs, *model.parameters()):
        leaf.grad = None


def step(model, inputs, function=None):
    """[y, dx, dprobs, gradients of the parameters] of a forward and a backward call."""
    forget_gradients(model, inputs)
    y = (model if function is None else function)(inputs.x, inputs.ids, inputs.probs)
    y.backward(inputs.dy)
    return [y.detach(), inputs.x.grad, inputs.probs.grad, *(each.grad for each in model.parameters())]


@torch.no_grad()
def change_weights(*models):
    """Changes the weights as an optimizer does: in place."""
    for model in models:
        for parameter in model.parameters():
            parameter.mul_(-0.75)


class CapturedStep:
    """A step in one graph, captured as PyTorch's notes on CUDA graphs say."""

    def __init__(self, model):
        self.model, self.inputs = model, Inputs(TOKENS, seed=1000)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(model, self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        forget_gradients(model, self.inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = step(model, self.inputs)

    def __call__(self, inputs):
        with torch.no_grad():
            for name in ("x", "ids", "probs", "dy"):
                getattr(self.inputs, name).copy_(getattr(inputs, name))
        self.graph.replay()
        return [each.clone() for each in self.results]


class Case(unittest.TestCase):

    def assert_calls_have_the_bits_of_eager(self, model, eager, run):
        """`run` gives the results of a step of the model for other inputs. `eager` has the same weights."""
        for call in range(REPLAYS):
            if call % 10 == 9:
                change_weights(model, eager)
            with self.subTest(call=call):
                assert_same_bits(self, run(inputs_of(call)), step(eager, inputs_of(call)))
        self.assertEqual((model.experts.status(), eager.experts.status()), (0, 0))


@needs_gpu
class Captured(Case):

    def test_replays_of_a_captured_step(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                model = Block(recipe)
                eager = copy.deepcopy(model)
                self.assert_calls_have_the_bits_of_eager(model, eager, CapturedStep(model))

    def test_graphed_callables(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                model, sample = Block(recipe), Inputs(TOKENS)
                eager = copy.deepcopy(model)
                torch.cuda.make_graphed_callables(model, (sample.x, sample.ids, sample.probs))
                self.assertIn("forward", vars(model), "the graphs' forward goes before that of the class")

                def run(inputs, model=model):
                    return [each.clone() for each in step(model, inputs)]  # which the next replay writes to

                self.assert_calls_have_the_bits_of_eager(model, eager, run)

    def test_a_replay_tells_of_an_id_out_of_range(self):
        model = Model("fp8_flow")
        run, wrong = CapturedStep(model), inputs_of(0)
        wrong.ids[3, 1] = E
        for inputs, status in ((wrong, 1), (inputs_of(0), 0)):
            run(inputs)
            self.assertEqual(model.experts.status(), status)

    def test_eager_calls_keep_no_weights_of_a_captured_one_which_has_not_run(self):
        model, inputs = Model("fp8_flow").experts, Inputs(TOKENS)
        given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())
        with torch.no_grad():
            model(*given)  # loads the kernels
            for _ in range(2):
                model.down_proj.mul_(-0.5)
                want = copy.deepcopy(model)(*given)
                with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
                    captured = model(*given)
                assert_same_bits(self, [model(*given)], [want])
                model.down_proj.mul_(-0.5)  # a graph that quantizes sees changes
                graph.replay()
                assert_same_bits(self, [captured], [model(*given)])

    def test_a_first_call_in_a_capture_is_recorded_or_refused_with_a_sentence(self):
        # Sizes of their own, whose kernels no other test loads.
        module, inputs = Experts(E, H, 2 * I, K, max_tokens=MAX_TOKENS - 1, device=DEVICE), Inputs(TOKENS)
        given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())
        graph, sentence = torch.cuda.CUDAGraph(), ""
        with torch.no_grad():
            try:
                with torch.cuda.graph(graph):
                    try:
                        captured = module(*given)
                    except RuntimeError as error:
                        sentence = str(error)
            except RuntimeError as error:  # the end of the capture says that it has failed
                self.assertTrue(sentence, error)
            if sentence:
                self.assertRegex(sentence, r"moejit: stream_capture: [^$]*hint: [^$]*before the capture")
            want = module(*given)
            self.assertTrue(want.isfinite().all() and want.any())
            if not sentence:
                graph.replay()
                assert_same_bits(self, [captured], [want])


class CompiledToGraphs(Case):
    """On the CPU the same program runs without graphs, and takes g++ half a minute for each recipe."""

    def test_reduce_overhead_skips_no_graph(self):
        for recipe in RECIPES if DEVICE.type == "cuda" else RECIPES[-1:]:
            with self.subTest(recipe=recipe):
                torch._dynamo.reset()
                counters.clear()
                model = Model(recipe)
                eager = copy.deepcopy(model)
                compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)

                def run(inputs, model=model, compiled=compiled):
                    torch.compiler.cudagraph_mark_step_begin()
                    return [each.clone() for each in step(model, inputs, compiled)]  # which the next step writes to

                self.assert_calls_have_the_bits_of_eager(model, eager, run)
                if DEVICE.type == "cuda":
                    self.assertEqual(counters["inductor"]["cudagraph_skips"], 0)
                    self.assertGreater(counters["inductor"]["cudagraph_recorded_non_static_inputs"], 0)


if __name__ == "__main__":
    unittest.main()
