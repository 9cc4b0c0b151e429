# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors of torch: the same bytes as moejit.Operation, gradients beside torch's, compiled, refusals."""
import json
import re
import unittest

import torch

import moejit
from support import (BOUNDS, DEVICE, E, H, I, K, ROOT, Inputs, Recorder, assert_same_bits, check_operator,
                     cleared_blocks, describe, relative_error)
from moejit.torch import (activation, grouped_gemm, operation, operation_text, ops, permute_pad, route,
                          unpermute)
from moejit.torch.devices import target_of

EXAMPLES = sorted((ROOT / "docs/examples/operations").glob("*.json"))
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I32": torch.int32, "I64": torch.int64, "U32": torch.int32,
          "F8_E4M3": torch.float8_e4m3fn}
# One rounding to bf16 changes a value by at most 2^-9 of it; results here are rounded once, and the references in
# float32 not at all. Twice that leaves room for sums in another order.
ONE_ROUNDING = 2 ** -8


def layer_by_steps(inputs, recipe, **options):
    """The result of experts(), by the functions of its steps."""
    routing = route(inputs.ids, E, splits_alignment=64, **options)
    rows, row_probs = permute_pad(inputs.x, inputs.probs, routing)
    number_format = recipe if recipe in ("bf16", "fp8_rowwise") else "fp8"
    gate_up = grouped_gemm(rows, inputs.w1, routing, format=number_format)
    activated = activation(gate_up, row_probs, routing)
    return unpermute(grouped_gemm(activated, inputs.w2, routing, format=number_format), routing)


def value(info, shape, routing):
    """An input of an operation over tokens with this routing: random, or what has to agree with it."""
    known = {"counts": routing.counts, "offs": routing.offs, "row_map": routing.row_map,
             "output_offs": routing.colwise_offs}
    if info.name in known:
        return known[info.name]
    if info.name == "topk_ids":
        return torch.rand(shape[0], max(4, shape[1]), device=DEVICE).argsort(-1)[:, :shape[1]].to(DTYPES[info.dtype])
    if info.dtype == "F4_E2M1X2":  # two codes a byte
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=DEVICE)
    if info.name.endswith("scale_inv") and info.dtype == "F8_E8M0":
        return torch.randint(120, 130, shape, dtype=torch.uint8, device=DEVICE).view(torch.float8_e8m0fnu)
    if info.name.endswith("scale_inv"):
        return torch.exp2(torch.randint(-3, 3, shape, device=DEVICE).float())
    if info.dtype == "F8_E8M0":  # all bytes but the last stand for powers of two
        return torch.randint(0, 255, shape, dtype=torch.uint8, device=DEVICE).view(torch.float8_e8m0fnu)
    return torch.randn(shape, device=DEVICE).to(DTYPES[info.dtype])


def bytes_of(tensor):
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def has_tokens(routing, rows):
    """Which of so many permuted rows are tokens, [rows, 1]: others pad groups or lie behind the last one."""
    result = torch.zeros(rows, 1, dtype=torch.bool, device=DEVICE)
    for start, count in zip(routing.offs.tolist(), routing.counts.tolist()):
        result[start:start + count] = True
    return result


class Operations(unittest.TestCase):

    def test_any_operation_writes_the_bytes_that_it_writes_without_torch(self):
        tokens, rows = 20, 96  # 20 * 2 rows in 4 groups at multiples of 16
        torch.manual_seed(0)
        routing = route(torch.randint(0, 4, (tokens, 2), device=DEVICE), 4, splits_alignment=16)
        count = 0
        for path in EXAMPLES:
            description = json.loads(path.read_text())
            with self.subTest(path.stem), moejit.Operation(description, target_of(DEVICE)) as plain:
                if path.stem == "multi_cast_transpose":
                    continue  # its outputs are the caller's
                of_groups = routing
                if path.stem == "contraction_grouped_gemm":
                    of_groups = routing._replace(offs=routing.colwise_offs)
                needed = [info for info in plain.tensors.values() if not info.is_optional]
                inputs = {info.name: value(info, info.shape_of(tokens, rows, 512), of_groups)
                          for info in needed if info.role == "input"}
                with cleared_blocks():
                    got = operation(description, **inputs)
                outputs = {name: torch.zeros_like(tensor) for name, tensor in got.items()}
                plain.prepare().run({**inputs, **outputs})
                if DEVICE.type == "cuda":
                    torch.cuda.synchronize()
                self.assertEqual(list(got), [info.name for info in needed if info.role == "output"])
                for name, tensor in got.items():
                    self.assertTrue(torch.equal(bytes_of(tensor), bytes_of(outputs[name])), name)
                    self.assertTrue(bytes_of(tensor).any() or name == "status", name)
                count += 1
        self.assertEqual(count, len(EXAMPLES) - 1)

    @unittest.skipIf(DEVICE.type == "cuda", "GPUs have what memory had")
    def test_what_no_kernel_writes_is_nan(self):
        inputs = Inputs()
        routing = route(inputs.ids % 2, E)  # the other groups are empty, so their rows are behind the last one
        rows, _ = permute_pad(inputs.x, inputs.probs, routing)
        used = int(routing.offs[-1])
        self.assertLess(used, len(rows))
        self.assertTrue(rows[used:].isnan().all())
        self.assertTrue(rows[:used].isfinite().all())

    def test_outputs_that_are_added_to_begin_as_zeros(self):
        description = {"operation": "route", "max_tokens": 64, "top_k": 2, "local_experts": 4}
        wrong = torch.full((3, 2), 4, dtype=torch.int32, device=DEVICE)
        self.assertEqual(operation(description, topk_ids=wrong)["status"].item(), 1)
        self.assertEqual(operation(description, topk_ids=torch.zeros_like(wrong))["status"].item(), 0)

    def test_the_operator_keeps_what_its_schema_and_fake_kernel_promise(self):
        inputs = Inputs()
        fields = {"max_tokens": 64, "top_k": K, "local_experts": E, "splits_alignment": 16}
        routing, short = (route(inputs.ids, E, splits_alignment=16, max_permuted_rows=most) for most in (None, 48))
        rows = torch.randn(144, H, device=DEVICE).bfloat16()
        for description, given in (
                ({"operation": "route", **fields, "topk_ids_dtype": "i64"}, (inputs.ids,)),
                ({"operation": "quantize", "max_tokens": 64, "columns": H}, (inputs.dy,)),
                ({"operation": "permute_pad_grad", **fields, "columns": H, "format": "bf16"},
                 (inputs.dy, routing.row_map, routing.counts, routing.offs)),
                ({"operation": "permute_pad_grad", **fields, "columns": H, "format": "bf16",
                     "max_permuted_rows": 48},
                 (inputs.dy, short.row_map, short.counts, short.offs)),
                ({"operation": "unpermute", **fields, "columns": H}, (rows, routing.row_map))):
            with self.subTest(description["operation"]):
                text = operation_text(description, target_of(DEVICE))
                check_operator(ops.call, (list(given), "run", text))


class Gradients(unittest.TestCase):

    def test_a_layer_by_its_steps_has_the_bits_of_experts(self):
        for tokens, recipe in ((0, "bf16"), (1, "bf16"), (12, "bf16"), (64, "bf16"), (12, "fp8_rowwise")):
            inputs = Inputs(tokens)
            if tokens:
                inputs.ids[0, 0] = -1
            with self.subTest(recipe, tokens=tokens):
                assert_same_bits(self, inputs.results(lambda: layer_by_steps(inputs, recipe)),
                                 inputs.results(lambda: inputs.run(recipe)))

    def test_the_lines_of_the_docs_are_a_layer(self):
        inputs = Inputs()
        section = (ROOT / "docs/pytorch.md").read_text().split("## Single steps")[1]
        names = {"x": inputs.x, "topk_ids": inputs.ids, "topk_probs": inputs.probs, "w1": inputs.w1, "w2": inputs.w2,
                 "E": E}
        exec(re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1), names)
        assert_same_bits(self, [names["y"]], [inputs.run("bf16")])

    def test_a_layer_in_fp8_is_as_near_to_float32_as_the_recipe(self):
        inputs = Inputs(48)
        for index, (got, want) in enumerate(zip(inputs.results(lambda: layer_by_steps(inputs, "fp8_flow")),
                                                inputs.results(inputs.reference))):
            self.assertLessEqual(relative_error(got, want), BOUNDS["fp8_flow"], f"result {index}")

    def test_permute_pad_and_unpermute_are_differentiated_exactly(self):
        inputs = Inputs(40)
        with torch.no_grad():
            inputs.probs[::3, 0] = 0
            inputs.ids[1] = -1
        routing = route(inputs.ids, E, splits_alignment=16)
        rows, row_probs = permute_pad(inputs.x, inputs.probs, routing)
        # Integers, so that float32 and bf16 hold each sum.
        drows = torch.randint(-8, 8, rows.shape, device=DEVICE).bfloat16()
        drow_probs = torch.randint(-8, 8, row_probs.shape, device=DEVICE).float()
        dx, dprobs = torch.autograd.grad((rows, row_probs), (inputs.x, inputs.probs), (drows, drow_probs))
        has_row = routing.row_map >= 0
        of_choices = drows[routing.row_map.clamp(min=0)] * (has_row & (inputs.probs != 0))[..., None]
        self.assertTrue(torch.equal(dx, of_choices.sum(1)))
        self.assertTrue(torch.equal(dprobs, drow_probs[routing.row_map.clamp(min=0)] * has_row))

        summed = torch.randint(-8, 8, rows.shape, device=DEVICE).bfloat16().requires_grad_()
        y = unpermute(summed, routing)
        self.assertTrue(torch.equal(y, (summed[routing.row_map.clamp(min=0)] * has_row[..., None]).sum(1)))
        (gradient,) = torch.autograd.grad(y, summed, inputs.dy)
        want = torch.zeros_like(gradient)
        for token, choice in has_row.nonzero().tolist():
            want[routing.row_map[token, choice]] = inputs.dy[token]
        self.assertTrue(torch.equal(gradient[:routing.offs[-1]], want[:routing.offs[-1]]))

    def test_activations_are_differentiated_as_torch_does(self):
        functions = {"swiglu": lambda h: torch.nn.functional.silu(h.chunk(2, -1)[0]) * h.chunk(2, -1)[1],
                     "relu_squared": lambda h: torch.relu(h).square()}
        routing = route(Inputs(40).ids, E, splits_alignment=16)
        used = int(routing.offs[-1])
        is_row = has_tokens(routing, used)
        for name, function in functions.items():
            with self.subTest(name):
                gate_up = torch.randn(used, 2 * I, device=DEVICE).bfloat16().requires_grad_()
                probs = torch.rand(used, device=DEVICE).requires_grad_()
                got = activation(gate_up, probs, routing, activation=name)
                dy = torch.randn(got.shape, device=DEVICE).bfloat16()
                inputs = [gate_up.detach().float().requires_grad_(), probs.detach().requires_grad_()]
                want = function(inputs[0]) * inputs[1][:, None] * is_row
                for one, other in zip((got, *torch.autograd.grad(got, (gate_up, probs), dy)),
                                      (want, *torch.autograd.grad(want, inputs, dy.float()))):
                    self.assertLessEqual(relative_error(one, other), ONE_ROUNDING)

    def test_grouped_gemms_are_differentiated_as_torch_does(self):
        inputs = Inputs(40)
        for number_format, alignment, limit in (("bf16", 64, ONE_ROUNDING), ("bf16", 1, ONE_ROUNDING),
                                                ("fp8", 64, BOUNDS["fp8_flow"]), ("fp8_rowwise", 64, BOUNDS["fp8_flow"])):
            routing = route(inputs.ids, E, splits_alignment=alignment)
            rows, _ = permute_pad(inputs.x, inputs.probs, routing)
            used = int(routing.offs[-1])
            rows = rows.detach()
            rows[used:] = torch.nan  # nobody may read rows behind the last group
            rows.requires_grad_()
            with self.subTest(number_format, alignment=alignment):
                got = grouped_gemm(rows, inputs.w1, routing, format=number_format)
                dd = torch.randn(got.shape, device=DEVICE).bfloat16()
                a, b = rows.detach().float().requires_grad_(), inputs.w1.detach().float().requires_grad_()
                want = torch.zeros(got.shape, device=DEVICE)
                for expert, (start, count) in enumerate(zip(routing.offs.tolist(), routing.counts.tolist())):
                    want = want.index_add(0, torch.arange(start, start + count, device=DEVICE),
                                          a[start:start + count] @ b[expert].T)
                dd *= has_tokens(routing, len(rows))  # a pad row's gradient is zeros, as activation() makes it
                dd[used:] = torch.nan
                drows, dw = torch.autograd.grad(got, (rows, inputs.w1), dd)
                want_drows, want_dw = torch.autograd.grad(want, (a, b), dd.float())
                for one, other in ((got[:used], want[:used]), (drows[:used], want_drows[:used]), (dw, want_dw)):
                    self.assertLessEqual(relative_error(one, other), limit)

    def test_without_gradients_the_results_are_the_same(self):
        for recipe in ("bf16", "fp8_flow"):
            inputs = Inputs()
            want = layer_by_steps(inputs, recipe)
            with torch.no_grad():
                got = layer_by_steps(inputs, recipe)
            self.assertTrue(want.requires_grad and not got.requires_grad)
            assert_same_bits(self, [got], [want])

    def test_what_is_frozen_gets_no_gradient_and_costs_no_call(self):
        inputs = Inputs()
        inputs.w1.requires_grad_(False)
        inputs.x.requires_grad_(False)
        y = layer_by_steps(inputs, "bf16")
        with Recorder() as recorder:
            y.backward(inputs.dy)
        # unpermute, w2's two gradients, activation; nothing of w1, x, and the probabilities need no operator.
        self.assertEqual(len(recorder.calls), 4)
        self.assertIsNone(inputs.w1.grad)
        self.assertIsNotNone(inputs.probs.grad)


class Compile(unittest.TestCase):

    def test_one_graph_has_the_bits_of_eager(self):
        for recipe in ("bf16", "fp8_flow"):
            for is_dynamic in (False, True):
                with self.subTest(recipe=recipe, is_dynamic=is_dynamic):
                    torch._dynamo.reset()
                    compiled = torch.compile(lambda inputs, *_: layer_by_steps(inputs, recipe), fullgraph=True,
                                             dynamic=is_dynamic, backend="aot_eager")
                    for tokens in (12, 20, 33) if is_dynamic else (12,):
                        inputs = Inputs(tokens)
                        assert_same_bits(self, inputs.results(lambda: compiled(inputs)),
                                         inputs.results(lambda: layer_by_steps(inputs, recipe)))

    def test_any_operation_in_a_graph(self):
        x = Inputs().dy
        description = {"operation": "quantize", "max_tokens": 64, "columns": H}
        compiled = torch.compile(lambda x: operation(description, input=x * 2)["output"].float(), fullgraph=True)
        self.assertTrue(torch.equal(compiled(x), operation(description, input=x * 2)["output"].float()))
        self.assertEqual(compiled(x[:0]).shape, (0, H))


class Refusals(unittest.TestCase):

    def test_errors_name_the_tensor_and_what_to_do(self):
        x = Inputs().dy
        description = {"operation": "quantize", "max_tokens": 64, "columns": H}
        for pattern, given, tensors in (
                ("tensor input: it is missing, wanted input", description, {"x": x}),
                ("the operation has no input y, it has input", description, {"input": x, "y": x}),
                ("tensor input: .*BF16", description, {"input": x.float()}),
                (r"tensor input: .*\[T <= 64, 64\]", description, {"input": x[:, :32]}),
                ("tensor input: it has 108 tokens, wanted at most 64", description, {"input": x.repeat(9, 1)}),
                ("got no inputs", description, {}),
                ("max_tokens", {"operation": "quantize", "columns": H}, {"input": x}),
                ("moejit.Operation", json.loads((EXAMPLES[0].parent / "multi_cast_transpose.json").read_text()),
                 {"tensors": x, "tile_ends": x})):
            with self.subTest(pattern), self.assertRaisesRegex((RuntimeError, moejit.Error), pattern):
                operation(given, **tensors)
        with self.assertRaisesRegex(RuntimeError, "argument plan: it begins with \"no text\""):
            ops.call([x], "run", "no text")
        with self.assertRaisesRegex(RuntimeError, "the operation quantize has no call forward"):
            ops.call([x], "forward", operation_text(description, target_of(DEVICE)))

    def test_functions_say_what_they_want(self):
        inputs = Inputs()
        routing = route(inputs.ids, E, splits_alignment=16)
        rows, row_probs = permute_pad(inputs.x, inputs.probs, routing)
        for pattern, call in (
                (r"topk_ids: it is torch.float32 \[12, 2\], wanted int32 or int64", lambda: route(inputs.probs, E)),
                ("topk_probs: its dtype is torch.float16", lambda: permute_pad(inputs.x, inputs.probs.half(), routing)),
                ("argument format: it is 'fp4'", lambda: grouped_gemm(rows, inputs.w1, routing, format="fp4")),
                (r"wanted \[P, k\] and \[E, n, k\]", lambda: grouped_gemm(rows, inputs.w1[0], routing)),
                ("tensor b: .*64", lambda: grouped_gemm(rows.detach(), inputs.w1.detach()[:, :, :32], routing))):
            with self.subTest(pattern), self.assertRaisesRegex((RuntimeError, moejit.Error), pattern):
                call()


@unittest.skipIf(DEVICE.type == "cpu", "there are no CUDA graphs without a GPU")
class Graphs(unittest.TestCase):

    def test_a_captured_layer_follows_its_inputs(self):
        for recipe in ("bf16", "fp8_flow"):
            inputs, other = Inputs(32), Inputs(32, seed=1)
            other.ids[3] = -1

            def step(given=inputs):
                y = layer_by_steps(given, recipe)
                return [y, *torch.autograd.grad(y, given.leaves, given.dy)]

            want = step(other)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                got = step()
            with torch.no_grad():
                for to, source in zip((*inputs.leaves, inputs.ids, inputs.dy), (*other.leaves, other.ids, other.dy)):
                    to.copy_(source)
            graph.replay()
            assert_same_bits(self, got, want)


if __name__ == "__main__":
    unittest.main()
