# SPDX-License-Identifier: Apache-2.0
"""FP8 codes and scales of the caller as weights: the bits of the library's own calls, where they lie, and what is refused."""
import functools
import unittest
import unittest.mock

import torch

from support import (BOUNDS, DEVICE, E, H, I, K, MAX_TOKENS, Inputs, Recorder, assert_same_bits, check_operator,
                     describe, relative_error, text, told)
from moejit import Layer
from moejit.torch import HostedExperts, experts, fp8_call, fp8_weights, grouped_experts, ops, serving
from moejit.torch.gathered import parts_of_block
from moejit.torch.weights import quantize

NAMES = ("w1_q", "w1_scale_inv", "w2_q", "w2_scale_inv")
KINDS = {"fp8_flow": "block", "fp8_blockwise": "block", "fp8_rowwise": "channel"}


def given(kind="block", seed=0, gate=True, hidden=H, inner=I, experts_=E):
    """Random codes and scales; no scale is a power of two."""
    generator = torch.Generator().manual_seed(seed)
    rows = (1 + gate) * inner

    def codes(*shape):
        return (torch.randn(*shape, generator=generator) * 100).clamp(-448, 448).to(torch.float8_e4m3fn).to(DEVICE)

    def scales(*shape, width):
        return ((0.7 + 0.2 * torch.rand(*shape, generator=generator)) / 100 / width ** 0.5).to(DEVICE)

    def blocks(size):
        return -(-size // 128)

    shapes = {"block": ((experts_, (1 + gate) * blocks(inner), blocks(hidden)), (experts_, blocks(hidden), blocks(inner))),
              "channel": ((experts_, rows), (experts_, hidden))}[kind]
    return [codes(experts_, rows, hidden), scales(*shapes[0], width=hidden), codes(experts_, hidden, inner),
            scales(*shapes[1], width=inner)]


def dequantized(codes, scales, sections=1):
    """The products in float32."""
    if scales.dim() == 2:
        return codes.float() * scales.float()[..., None]
    parts = [part.float() * half.float().repeat_interleave(128, 1)[:, :part.shape[1]].repeat_interleave(128, 2)[
        ..., :part.shape[2]] for part, half in zip(codes.chunk(sections, 1), scales.chunk(sections, 1))]
    return torch.cat(parts, 1)


def own_codes(inputs, recipe):
    """The library's own codes and scales of bf16 weights."""
    layer = text(recipe, wgrad_dtype="f32")
    block, _ = quantize(inputs.w1.detach(), inputs.w2.detach(), layer)
    parts = parts_of_block(block, layer)
    return [parts[name].view(torch.float8_e4m3fn) if name.endswith("_q") else parts[name] for name in NAMES]


def run(inputs, tensors, recipe, **fields):
    return experts(inputs.x, inputs.ids, inputs.probs, fp8_weights(*tensors), layer=describe(recipe, **fields))


class Bits(unittest.TestCase):

    def test_they_are_those_of_bf16_weights_that_quantize_to_these_codes(self):
        for recipe in KINDS:
            inputs = Inputs()
            with torch.no_grad():
                assert_same_bits(self, [run(inputs, own_codes(inputs, recipe), recipe)], [inputs.run(recipe)])

    def test_they_are_those_of_the_layer_of_the_python_interface(self):
        for recipe, kind in KINDS.items():
            inputs, tensors = Inputs(), given(kind)
            with torch.no_grad():
                got = run(inputs, tensors, recipe)
            layer = Layer({**describe(recipe), "passes": ["forward"], "topk_ids_dtype": "i64"},
                          "sim" if DEVICE.type == "cpu" else "cuda:sm_90a")
            with layer:
                layer.prepare()
                want = torch.empty_like(inputs.x)
                layer.forward({"x": inputs.x.detach(), "topk_ids": inputs.ids, "topk_probs": inputs.probs.detach(), "y": want,
                               "status": torch.zeros(1, dtype=torch.int32, device=DEVICE), **dict(zip(NAMES, tensors))})
            assert_same_bits(self, [got], [want])

    def test_results_are_near_those_of_the_products_in_float32(self):
        for recipe, kind in KINDS.items():
            for gate in (True, False):
                inputs, tensors = Inputs(), given(kind, gate=gate)
                fields = {} if gate else {"activation": "relu_squared"}
                with torch.no_grad():
                    got = run(inputs, tensors, recipe, **fields)
                w1 = dequantized(*tensors[:2], sections=1 + gate)
                w2 = dequantized(*tensors[2:])
                want = torch.zeros(inputs.x.shape, device=DEVICE)
                for expert in range(E):
                    tokens, choices = torch.where(inputs.ids == expert)
                    h = inputs.x[tokens].float() @ w1[expert].T
                    h = torch.nn.functional.silu(h[:, :I]) * h[:, I:] if gate else h.relu() ** 2
                    want.index_add_(0, tokens, inputs.probs[tokens, choices, None] * (h @ w2[expert].T))
                self.assertLessEqual(relative_error(got, want), BOUNDS["fp8_flow"], recipe)

    def test_narrow_scales_and_scales_of_matrices_are_those_that_they_widen_to(self):
        inputs = Inputs()
        for dtype, recipe in ((torch.bfloat16, "fp8_flow"), (torch.float8_e8m0fnu, "fp8_flow"),
                              (torch.bfloat16, "fp8_rowwise")):
            w1_q, s1, w2_q, s2 = given(KINDS[recipe])
            narrow = w1_q, s1.to(dtype), w2_q, s2.to(dtype)
            wide = w1_q, narrow[1].float(), w2_q, narrow[3].float()
            with torch.no_grad():
                assert_same_bits(self, [run(inputs, narrow, recipe)], [run(inputs, wide, recipe)])
        w1_q, _, w2_q, _ = given(hidden=272, inner=144)
        first, second = torch.rand(E, 2, device=DEVICE), torch.rand(E, device=DEVICE)
        for matrices, want in ((first, first), (first[..., None], first), (first[:, 0], first[:, :1].expand(E, 2)),
                               (first[:, :1], first[:, :1].expand(E, 2))):
            got = fp8_weights(w1_q, matrices, w2_q, second)
            self.assertEqual((got.kind, got.recipe), ("channel", "fp8_rowwise"))
            assert_same_bits(self, [got.w1_scale_inv, got.w2_scale_inv],
                             [want.repeat_interleave(144, 1), second[:, None].expand(E, 272)])
        channels = torch.ones(E, 288, 1, device=DEVICE)
        got = fp8_weights(w1_q, channels, w2_q, torch.ones(E, 272, 1, device=DEVICE))
        self.assertEqual((got.kind, got.w1_scale_inv.data_ptr()), ("channel", channels.data_ptr()))

    def test_grouped_rows_serving_and_modules_of_frameworks(self):
        inputs, tensors = Inputs(), given()
        with torch.no_grad():
            want = run(inputs, tensors, "fp8_flow")
            got = [serving.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(*tensors), activation="swiglu"),
                   HostedExperts(describe("fp8_flow"), device=DEVICE)(inputs.x, inputs.ids, inputs.probs,
                                                                      fp8_weights(*tensors))]
            assert_same_bits(self, got, [want, want])
            rows = inputs.x[:E]
            layer = {name: value for name, value in describe("fp8_flow").items() if name != "top_k"}
            got = grouped_experts(rows, torch.ones(E, dtype=torch.int64, device=DEVICE), fp8_weights(*tensors), layer=layer)
            ones = torch.ones(E, 1, device=DEVICE)
            want = experts(rows, torch.arange(E, device=DEVICE)[:, None], ones, fp8_weights(*tensors),
                           layer=describe("fp8_flow", top_k=1))
        assert_same_bits(self, [got], [want])


class Memory(unittest.TestCase):

    def test_calls_read_the_tensors_of_the_caller(self):
        seen = []

        class Addresses(Recorder):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function.namespace == "moejit":
                    seen.append({tensor.data_ptr() for tensor in args[0]})
                return super().__torch_dispatch__(function, types, args, kwargs)

        inputs, tensors = Inputs(), given()
        with torch.no_grad(), Addresses() as recorder:
            run(inputs, tensors, "fp8_flow")
            serving.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(*tensors), activation="swiglu")
        self.assertEqual([name for name, _ in recorder.calls], ["forward", "forward"])
        for addresses in seen:
            self.assertLessEqual({tensor.data_ptr() for tensor in tensors}, addresses)

    def test_what_is_written_in_place_counts_in_the_next_call(self):
        inputs, tensors, others = Inputs(), given(), given(seed=1)
        weights = fp8_weights(*tensors)
        layer = describe("fp8_flow")
        with torch.no_grad():
            experts(inputs.x, inputs.ids, inputs.probs, weights, layer=layer)
            for tensor, other in zip(tensors, others):
                tensor.data.copy_(other)
            got = experts(inputs.x, inputs.ids, inputs.probs, weights, layer=layer)
            assert_same_bits(self, [got], [run(inputs, others, "fp8_flow")])

    @unittest.skipIf(DEVICE.type == "cpu", "there are no CUDA graphs without a GPU")
    def test_replays_of_a_captured_graph_see_what_is_written(self):
        inputs, tensors, others = Inputs(), given(), given(seed=1)
        call = functools.partial(serving.run, inputs.x, inputs.ids, inputs.probs, fp8_weights(*tensors), activation="swiglu")
        first = call()
        torch.cuda.synchronize()
        before, graph = torch.cuda.memory_allocated(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call()
        graph.replay()
        assert_same_bits(self, [y], [first])
        for tensor, other in zip(tensors, others):
            tensor.copy_(other)
        graph.replay()
        assert_same_bits(self, [y], [run(inputs, others, "fp8_flow").detach()])
        self.assertLess(torch.cuda.memory_allocated() - before, 2 ** 21)

    def test_repeated_calls_go_the_short_way_with_the_bits_of_the_first_one(self):
        inputs, weights, others = Inputs(biases=True), fp8_weights(*given()), fp8_weights(*given(seed=1))

        def call(weights, *biases, x=inputs.x, recipe=None):
            return serving.run(x, inputs.ids, inputs.probs, weights, None, *biases, activation="swiglu", recipe=recipe)

        biases = inputs.b1, inputs.b2
        first, want = [call(weights), call(weights, *biases)], [call(others), call(others, *biases)]
        with unittest.mock.patch.object(fp8_call, "ops", None):  # of the long way
            assert_same_bits(self, [call(weights), call(weights, *biases)], first)
            for tensor, other in zip(weights.tensors.values(), others.tensors.values()):
                tensor.copy_(other)
            assert_same_bits(self, [call(weights), call(weights, *biases)], want)
        self.assertRegex(told(lambda: call(weights, recipe="fp8_rowwise")), 'recipe: got "fp8_rowwise", wanted')
        self.assertRegex(told(lambda: call(weights, x=inputs.x.float())), "tensor x: .*dtype")
        record = next(iter(serving._states[weights.w1_q].calls.values())).inference  # of the first call
        self.assertIsNone(record.run(inputs.x, inputs.ids, inputs.probs, fp8_weights(*given("channel")), None, None, None))
        self.assertIsNone(record.run(inputs.x, inputs.ids, inputs.probs, weights, None, *biases))

    def test_in_one_graph(self):
        inputs, tensors = Inputs(), given()

        def function(x, ids, probs, *tensors):
            return serving.run(x, ids, probs, fp8_weights(*tensors), activation="swiglu") + run(inputs, tensors, "fp8_flow")

        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for seed in (0, 1):
            tensors = given(seed=seed)
            with torch.no_grad():
                assert_same_bits(self, [compiled(inputs.x, inputs.ids, inputs.probs, *tensors)],
                                 [function(inputs.x, inputs.ids, inputs.probs, *tensors)])


class Backward(unittest.TestCase):

    def gradients(self, inputs, function):
        for leaf in (inputs.x, inputs.probs, inputs.b1, inputs.b2):
            if leaf is not None:
                leaf.grad = None
        y = function()
        y.backward(inputs.dy)
        return [y.detach(), *(leaf.grad for leaf in (inputs.x, inputs.probs, inputs.b1, inputs.b2) if leaf is not None)]

    def test_they_are_those_of_bf16_weights_that_quantize_to_these_codes(self):
        for recipe in ("fp8_flow", "fp8_blockwise"):
            for fields in ({}, {"recompute": "moe_expert"}, {"biases": True}):
                inputs = Inputs(biases="biases" in fields)
                frozen = inputs.w1.detach(), inputs.w2.detach()
                more = {"gate_up_proj_bias": inputs.b1, "down_proj_bias": inputs.b2}
                layer = describe(recipe, **fields)
                want = self.gradients(inputs, lambda: experts(inputs.x, inputs.ids, inputs.probs, *frozen, layer=layer, **more))
                codes = fp8_weights(*own_codes(inputs, recipe))
                got = self.gradients(inputs, lambda: experts(inputs.x, inputs.ids, inputs.probs, codes, layer=layer, **more))
                assert_same_bits(self, got, want)

    def test_in_one_graph(self):
        inputs, tensors = Inputs(), given()
        torch._dynamo.reset()
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        assert_same_bits(self, self.gradients(inputs, lambda: compiled(inputs, tensors, "fp8_flow")),
                         self.gradients(inputs, lambda: run(inputs, tensors, "fp8_flow")))

    def test_gradients_of_weights_are_refused(self):
        for trained in range(4):
            inputs, tensors = Inputs(), given()
            tensors[trained].requires_grad_()
            y = run(inputs, tensors, "fp8_flow")
            self.assertRegex(told(lambda: y.backward(inputs.dy)), "unsupported: a gradient of FP8 weights: .*\nhint: freeze")
            with torch.no_grad():
                run(inputs, tensors, "fp8_flow")
        inputs = Inputs()
        inputs.x, inputs.probs = inputs.x.detach(), inputs.probs.detach()
        y = run(inputs, tensors, "fp8_flow")
        self.assertIn("a gradient of FP8 weights", told(lambda: y.backward(inputs.dy)))

    def test_channels_have_no_backward(self):
        sentence = told(lambda: run(Inputs(), given("channel"), "fp8_rowwise"))
        self.assertRegex(sentence, "moejit: unsupported: backward of FP8 weights with a scale for each channel.*\nhint: ")


class Refusals(unittest.TestCase):

    def assert_told(self, words, function):
        with torch.no_grad():
            self.assertRegex(told(function) or "nothing", words)

    def test_shapes_dtypes_and_devices(self):
        w1_q, s1, w2_q, s2 = given()
        shape = rf"\[{E}, {2 * I}, {H}\]"
        for tensors, words in (
                ((w1_q.view(torch.uint8), s1, w2_q, s2), "w1_q: its dtype is uint8, wanted float8_e4m3fn\nhint: "),
                ((w1_q, s1, w2_q.float(), s2), "w2_q: its dtype is float32, wanted float8_e4m3fn"),
                ((w1_q[0], s1, w2_q, s2), "w1_q: its shape is .*, wanted experts, rows and columns"),
                ((w1_q, s1, w2_q[:, :, :0], s2), "w2_q: its shape is .*, wanted experts, rows and columns"),
                ((w1_q[:4], s1, w2_q, s2), rf"w1_q: its shape is \[4, .*\], wanted {shape}"),
                ((w1_q[:, :48].contiguous(), s1, w2_q, s2), rf"w1_q: its shape is .*, wanted {shape}"),
                ((w1_q.transpose(1, 2).contiguous().transpose(1, 2), s1, w2_q, s2), "w1_q: its strides are .*\nhint: "),
                ((w1_q, s1.half(), w2_q, s2), "w1_scale_inv: its dtype is float16, wanted float32, bfloat16 or float8_e8m0"),
                ((w1_q, s1[:4], w2_q, s2), rf"w1_scale_inv: its shape is .*, wanted \[{E}, 2, 1\] for 128x128 blocks, or "
                                           rf"\[{E}, {2 * I}\] for channels"),
                ((w1_q, s1, w2_q, s2.expand(E, 2, 1)), "w2_scale_inv: its shape is"),
                ((w1_q, s1, w2_q, s2[:, :, 0].expand(E, H)), "w2_scale_inv: it has a scale for each channel, wanted .* block"),
                ((w1_q, s1.to("meta"), w2_q, s2), "w1_scale_inv: it is on meta, wanted ")):
            self.assert_told(f"^moejit: tensor_mismatch: tensor {words}", lambda: fp8_weights(*tensors))

    def test_recipes_and_layers(self):
        inputs = Inputs()
        for kind, recipe, wanted in (("block", "bf16", '"fp8_flow" or "fp8_blockwise"'), ("channel", "fp8_flow", '"fp8_rowwise"'),
                                     ("block", "fp8_rowwise", '"fp8_flow" or'), ("block", "fp8_current", '"fp8_flow" or')):
            self.assert_told(f'unsupported: FP8 weights with a scale for .*: got "{recipe}", wanted {wanted}.*\nhint: ',
                             lambda: run(inputs, given(kind), recipe))
        self.assert_told('gate_up_layout "interleaved", wanted "concat"',
                         lambda: run(inputs, given(), "fp8_flow", gate_up_layout="interleaved"))
        self.assert_told("scale_sharing_k 2, wanted 1", lambda: run(inputs, given(hidden=256, inner=256), "fp8_flow",
                                                                    hidden=256, intermediate=256, scale_sharing_k=2))
        self.assert_told("tensor w1_q: its shape is", lambda: run(inputs, given(experts_=4), "fp8_flow"))
        layer, bias = describe("fp8_flow"), torch.zeros(E, 2 * I, dtype=torch.bfloat16, device=DEVICE)
        self.assert_told("missing_tensor: tensor b1: the layer has no caller's tensor of this name", lambda: experts(
            inputs.x, inputs.ids, inputs.probs, fp8_weights(*given()), layer=layer, gate_up_proj_bias=bias,
            down_proj_bias=bias[:, :H]))
        for parameters in ((fp8_weights(*given()), inputs.w2), (inputs.w1,)):
            self.assert_told("missing_tensor: the second weights .*: got .*\nhint: ",
                             lambda: experts(inputs.x, inputs.ids, inputs.probs, *parameters, layer=layer))
            self.assert_told("missing_tensor: the second weights .*: got .*\nhint: ", lambda: serving.run(
                inputs.x, inputs.ids, inputs.probs, *parameters, activation="swiglu"))

    def test_values(self):
        fp8_weights(*given()).check_values()
        for index, code in ((0, 0x7f), (2, 0xff)):
            tensors = given()
            tensors[index].view(torch.uint8)[3, 5, 7] = code
            self.assert_told(f"tensor {NAMES[index]}: expert 3 has the code of NaN, wanted",
                             fp8_weights(*tensors).check_values)
        for index, scale in ((1, float("nan")), (3, float("inf"))):
            tensors = given()
            tensors[index][6] = scale
            self.assert_told(f"tensor {NAMES[index]}: expert 6 has a scale that is NaN or infinite",
                             fp8_weights(*tensors).check_values)


class Operators(unittest.TestCase):

    def test_what_torch_checks_of_operators(self):
        inputs, tensors = Inputs(), given()
        layer = text("fp8_flow", passes=["forward"], topk_ids_dtype="i64")
        reads = [inputs.x.detach(), inputs.ids, inputs.probs.detach(), *tensors]
        # test_schema compares what was read by an operator that torch lacks for FP8.
        check_operator(ops.call, (reads, "forward", layer), test_utils=(
            "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"))

    def test_one_tensor_less_is_told_by_name(self):
        inputs, (w1_q, s1, w2_q, _) = Inputs(), given()
        layer = text("fp8_flow", passes=["forward"], topk_ids_dtype="i64")
        tensors = {"x": inputs.x, "topk_ids": inputs.ids, "topk_probs": inputs.probs, "w1_q": w1_q, "w1_scale_inv": s1,
                   "w2_q": w2_q}
        self.assertRegex(told(lambda: ops.run(layer, "forward", tensors)),
                         "missing_tensor: tensor w2_scale_inv: the call forward reads it.*\nhint: .*w1_q, w1_scale_inv, w2_q")


if __name__ == "__main__":
    unittest.main()
