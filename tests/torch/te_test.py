# SPDX-License-Identifier: Apache-2.0
"""moejit.torch.te: signatures beside Transformer Engine's; rows and gradients beside torch's indexing."""
import inspect
import unittest

import te_signatures
import torch
from support import DEVICE, E, H, relative_error, told
from te_case import Case, integers, lines_of_docs, of_tokens
from moejit.torch import te


class Signatures(unittest.TestCase):

    def test_calls_of_transformer_engine_fit(self):
        names = [name for name in vars(te_signatures) if not name.startswith("_")]
        self.assertEqual(len(names), 12)
        for name in names:
            theirs, ours = getattr(te_signatures, name), getattr(te, name)
            pairs = [(theirs, ours)]
            if inspect.isclass(theirs):
                pairs = [(theirs.__init__, ours.__init__), (theirs.forward, ours.forward)]
            for wanted, got in pairs:
                wanted, got = (list(inspect.signature(function).parameters.values()) for function in (wanted, got))
                with self.subTest(name):
                    self.assertEqual([(each.name, each.default, each.kind) for each in wanted],
                                     [(each.name, each.default, each.kind) for each in got[:len(wanted)]])
                    for each in got[len(wanted):]:
                        self.assertIsNot(each.default, inspect.Parameter.empty, each.name)


class Permute(unittest.TestCase):

    def test_rows_with_probabilities(self):
        for tokens in (0, 1, 40):
            for top_k in (None, 5):
                case = Case(tokens)
                rows, probs, row_id_map = te.moe_permute_with_probs(case.x, case.probs, case.map, case.count,
                                                                    top_k=top_k)
                with self.subTest(tokens=tokens, top_k=top_k):
                    self.assertTrue(torch.equal(rows, case.rows()))
                    self.assertTrue(torch.equal(probs, case.row_probs()))
                    drows, drow_probs = integers(rows.shape), integers(probs.shape).float()
                    dx, dprobs = torch.autograd.grad((rows, probs), (case.x, case.probs), (drows, drow_probs))
                    self.assertTrue(torch.equal(dx, case.summed(drows)))
                    self.assertTrue(torch.equal(dprobs, case.spread(drow_probs)))
                    summed = integers(rows.shape).requires_grad_()
                    y = te.moe_unpermute(summed, row_id_map, restore_shape=case.x.shape)
                    self.assertTrue(torch.equal(y, case.summed(summed)))
                    dy = integers(y.shape)
                    self.assertTrue(torch.equal(torch.autograd.grad(y, summed, dy)[0], dy[case.token]))
        self.assertEqual(te.status(), 0)

    def test_rows_alone_of_maps_of_any_dtype(self):
        case = Case(40)
        for dtype in (torch.bool, torch.uint8, torch.int32):
            rows, row_id_map = te.moe_permute(case.x, case.map.to(dtype), case.count)
            self.assertTrue(torch.equal(rows, case.x[case.token]))
            drows = integers(rows.shape)
            self.assertTrue(torch.equal(torch.autograd.grad(rows, case.x, drows)[0], case.summed(drows)))
            self.assertTrue(torch.equal(te.moe_unpermute(drows, row_id_map), case.summed(drows)))  # as many tokens

    def test_rows_beyond_num_out_tokens_are_dropped(self):
        case = Case(40)
        kept = case.count - 25
        rows, probs, row_id_map = te.moe_permute_with_probs(case.x, case.probs, case.map, kept)
        self.assertTrue(torch.equal(rows, case.rows()[:kept]))
        drows, drow_probs = integers(rows.shape), torch.ones(kept, device=DEVICE)
        dx, dprobs = torch.autograd.grad((rows, probs), (case.x, case.probs), (drows, drow_probs))
        few = of_tokens(case.token[:kept], drows, 40)
        self.assertTrue(torch.equal(dx, few))
        self.assertEqual(dprobs.count_nonzero(), kept)
        self.assertTrue(torch.equal(te.moe_unpermute(drows, row_id_map, restore_shape=case.x.shape), few))

    def test_there_may_be_more_rows_than_choices(self):
        case = Case(40)
        rows, probs, row_id_map = te.moe_permute_with_probs(case.x, case.probs, case.map, case.count + 500)
        self.assertEqual((rows.shape[0], probs.shape[0]), (case.count + 500,) * 2)
        self.assertTrue(torch.equal(rows[:case.count], case.rows()))
        drows = integers(rows.shape)
        drows[case.count:] = float("nan")  # of nobody
        dx, = torch.autograd.grad(rows, case.x, drows)
        self.assertTrue(torch.equal(dx, case.summed(drows[:case.count])))
        self.assertTrue(torch.equal(te.moe_unpermute(drows, row_id_map, restore_shape=case.x.shape), dx))

    def test_without_num_out_tokens_there_are_as_many_rows_as_choices(self):
        case = Case(40)
        for number in (None, -1):
            self.assertTrue(torch.equal(te.moe_permute(case.x, case.map, number)[0], case.x[case.token]))

    def test_tokens_with_more_experts_than_top_k_are_told(self):
        case = Case(40)
        few = case.map & (case.map.cumsum(1) <= 2)
        self.assertGreater(case.count, int(few.sum()))
        rows, _ = te.moe_permute(case.x, case.map, int(few.sum()), top_k=2)
        self.assertTrue(torch.equal(rows, case.x[few.T.nonzero()[:, 1]]))
        self.assertEqual((te.status(), te.status()), (16, 0))

    def test_dtypes(self):
        case = Case(40)
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            probs = (case.probs.detach().to(dtype) / 3).requires_grad_()
            rows, row_probs, _ = te.moe_permute_with_probs(case.x, probs, case.map, case.count)
            self.assertTrue(torch.equal(row_probs, probs[case.token, case.expert]))
            self.assertTrue(torch.equal(rows, case.rows()))
            gradient, = torch.autograd.grad(row_probs, probs, torch.ones_like(row_probs))
            self.assertTrue(torch.equal(gradient, case.map.to(dtype)))
        for rows in (torch.randn(40, H, device=DEVICE), torch.randn(40, H, device=DEVICE).to(torch.float8_e4m3fn)):
            moved, _ = te.moe_permute(rows, case.map, case.count)
            self.assertTrue(torch.equal(moved.view(torch.uint8), rows.view(torch.uint8)[case.token]))

    def test_what_is_frozen_gets_no_gradient(self):
        case = Case(40)
        rows, row_probs, _ = te.moe_permute_with_probs(case.x.detach(), case.probs, case.map, case.count)
        self.assertEqual((rows.requires_grad, row_probs.requires_grad), (False, True))
        rows, row_probs, _ = te.moe_permute_with_probs(case.x, case.probs.detach(), case.map, case.count)
        self.assertEqual((rows.requires_grad, row_probs.requires_grad), (True, False))

    def test_ids_of_experts(self):
        tokens = torch.arange(40, device=DEVICE).repeat_interleave(3)
        ids = torch.randint(0, 5, (40, 3), generator=torch.Generator().manual_seed(0), dtype=torch.int32).to(DEVICE)
        order = torch.sort(ids.flatten().long(), stable=True).indices
        for rows_out in (0, 100):
            kept = order[:rows_out or 120]
            x = torch.randn(40, H, device=DEVICE).bfloat16().requires_grad_()
            rows, row_id_map = te.moe_permute(x, ids, rows_out, map_type="index")
            self.assertTrue(torch.equal(rows, x[tokens[kept]]))
            drows = integers(rows.shape)
            want = of_tokens(tokens[kept], drows, 40)
            self.assertTrue(torch.equal(torch.autograd.grad(rows, x, drows)[0], want))
            self.assertTrue(torch.equal(te.moe_unpermute(drows, row_id_map, map_type="index"), want))
            ones = torch.ones(40, 3, device=DEVICE)
            self.assertTrue(torch.equal(te.moe_unpermute(drows, row_id_map, ones, map_type="index"), want))

    def test_merging_probabilities(self):
        case = Case(40)
        rows, row_id_map = te.moe_permute(torch.randn(40, H, device=DEVICE).bfloat16(), case.map, case.count)
        rows.requires_grad_()
        dy = torch.randn(40, H, device=DEVICE).bfloat16()
        y = te.moe_unpermute(rows, row_id_map, case.probs, case.x.shape)
        factors = case.probs[case.token, case.expert][:, None]
        want = torch.zeros(40, H, device=DEVICE).index_add(0, case.token, rows.float() * factors)
        for got, wanted in zip((y, *torch.autograd.grad(y, (rows, case.probs), dy)),
                               (want, *torch.autograd.grad(want, (rows, case.probs), dy.float()))):
            self.assertLessEqual(relative_error(got, wanted), 2 ** -8)  # products and sums are rounded to bf16
        with self.assertWarnsRegex(UserWarning, "older name"):
            self.assertTrue(torch.equal(te.moe_unpermute(rows, row_id_map, probs=case.probs), y))


class Padding(unittest.TestCase):

    def test_each_expert_gets_whole_multiples_of_rows(self):
        for tokens in (0, 40):
            for options in ({}, {"top_k": 5}, {"top_k": 5, "strict_shape": False}):
                case = Case(tokens)
                rows, probs, row_id_map, pad_offsets, targets = te.moe_permute_and_pad_with_probs(
                    case.x, case.probs, case.map, case.map.sum(0), 16, **options)
                sizes = case.map.sum(0)
                with self.subTest(tokens=tokens, **options):
                    self.assertTrue(torch.equal(targets, (sizes + 15) // 16 * 16))
                    self.assertTrue(torch.equal(pad_offsets, (targets - sizes).cumsum(0) - (targets - sizes)))
                    used = int(targets.sum())
                    self.assertEqual(rows.shape[0] > used, tokens > 0 and "strict_shape" in options)
                    place = torch.arange(case.count, device=DEVICE) + pad_offsets[case.expert]
                    for got, want in ((rows, case.rows()), (probs, case.row_probs())):
                        self.assertTrue(torch.equal(got[:used], spread_to(place, want, used)))
                    drows, drow_probs = integers(rows.shape), integers(probs.shape).float()
                    dx, dprobs = torch.autograd.grad((rows, probs), (case.x, case.probs), (drows, drow_probs))
                    self.assertTrue(torch.equal(dx, case.summed(drows[place])))
                    self.assertTrue(torch.equal(dprobs, case.spread(drow_probs[place])))
                    summed = integers(rows.shape).requires_grad_()
                    y = te.moe_unpermute(summed, row_id_map, restore_shape=case.x.shape, pad_offsets=pad_offsets)
                    self.assertTrue(torch.equal(y, case.summed(summed[place])))
                    dy = integers(y.shape)
                    gradient, = torch.autograd.grad(y, summed, dy)
                    self.assertTrue(torch.equal(gradient[:used], spread_to(place, dy[case.token], used)))

    def test_fewer_rows_than_there_were_are_left_alone(self):
        case = Case(40)
        _, _, row_id_map, pad_offsets, targets = te.moe_permute_and_pad_with_probs(case.x, case.probs, case.map,
                                                                                   case.map.sum(0), 16)
        self.assertGreater(int(targets.sum()), 50)
        few = integers((50, H)).requires_grad_()
        y = te.moe_unpermute(few, row_id_map, restore_shape=case.x.shape, pad_offsets=pad_offsets)
        place = torch.arange(case.count, device=DEVICE) + pad_offsets[case.expert]
        kept = place < 50
        self.assertTrue(torch.equal(y, of_tokens(case.token[kept], few[place[kept]], 40)))
        gradient, = torch.autograd.grad(y, few, torch.ones_like(y))
        want = torch.zeros(50, H, device=DEVICE).index_fill(0, place[kept], 1)
        self.assertTrue(torch.equal(gradient.float(), want))

    def test_the_lines_of_the_docs_add_up_rows(self):
        case, x = Case(40), integers((40, H))
        names = lines_of_docs(0, {"x": x, "probs": case.probs, "routing_map": case.map, "K": 5,
                                  "tokens_per_expert": case.map.sum(0), "experts": lambda rows, *_: rows})
        self.assertTrue(torch.equal(names["y"], x * (case.map & (case.probs != 0)).sum(1, keepdim=True)))

    def test_modules_add_no_rows(self):
        rows, sizes = torch.randn(7, H, device=DEVICE), [3, 4]
        padded, splits = te.Fp8Padding(2)(rows, sizes)
        self.assertIs(padded, rows)
        self.assertIs(splits, sizes)
        self.assertIs(te.Fp8Unpadding(2, 128)(rows, sizes), rows)
        self.assertIn("Fp8Unpadding: got 2 m_splits, wanted 3", told(lambda: te.Fp8Unpadding(3)(rows, sizes)))


class Chunks(unittest.TestCase):

    def test_chunks_move_as_split_and_cat_move_them(self):
        sizes, order = torch.tensor([3, 0, 5, 2, 0, 8]), torch.tensor([5, 1, 0, 4, 2, 3], dtype=torch.int32)
        for rows in (18, 21):  # of which nobody has the last three
            values = torch.randn(rows, H, device=DEVICE)
            for dtype in (torch.bfloat16, torch.float32, torch.float8_e4m3fn):
                x = values.to(dtype).clone()
                chunks = torch.arange(rows, device=DEVICE).split([*sizes.tolist(), rows - 18])
                wanted = torch.cat([*(chunks[i] for i in order.tolist()), chunks[-1]])
                probs = torch.rand(rows, device=DEVICE).requires_grad_()
                x.requires_grad_(dtype is not torch.float8_e4m3fn)
                y, moved = te.moe_sort_chunks_by_index_with_probs(x, probs, sizes, order)
                alone = te.moe_sort_chunks_by_index(x, sizes.to(DEVICE), order.to(DEVICE))
                for got in (y, alone):
                    self.assertTrue(torch.equal(got.detach().view(torch.uint8),
                                                x.detach().view(torch.uint8)[wanted]))
                self.assertTrue(torch.equal(moved, probs[wanted]))
                back = torch.argsort(wanted)
                gradient = torch.rand(rows, device=DEVICE)
                self.assertTrue(torch.equal(torch.autograd.grad(moved, probs, gradient, retain_graph=True)[0],
                                            gradient[back]))
                if x.requires_grad:
                    dy = torch.randn(rows, H, device=DEVICE).to(dtype)
                    self.assertTrue(torch.equal(torch.autograd.grad(y, x, dy)[0], dy[back]))

    def test_no_rows(self):
        x, none = torch.randn(0, H, device=DEVICE).bfloat16(), torch.zeros(3, dtype=torch.int64)
        self.assertEqual(te.moe_sort_chunks_by_index(x, none, torch.tensor([2, 0, 1])).shape, (0, H))


class Compile(unittest.TestCase):

    def test_one_graph_has_the_bits_of_eager(self):
        case = Case(40)
        order = torch.arange(E - 1, -1, -1, device=DEVICE)

        def step(x, probs):
            rows, row_probs, row_id_map = te.moe_permute_with_probs(x, probs, case.map, case.count)
            sizes = case.map.sum(0)
            there, there_probs = te.moe_sort_chunks_by_index_with_probs(rows, row_probs, sizes, order)
            back = te.moe_sort_chunks_by_index(there, sizes[order], order)
            padded, padded_probs, padded_map, pad_offsets, targets = te.moe_permute_and_pad_with_probs(
                x, probs, case.map, sizes, 16, top_k=5, strict_shape=False)
            y = te.moe_unpermute(back, row_id_map, restore_shape=x.shape)
            z = te.moe_unpermute(padded, padded_map, probs, x.shape, pad_offsets=pad_offsets)
            return y, z, there_probs, padded_probs[:16], targets

        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        for dtype in (torch.float32, torch.bfloat16):
            results = []
            for function in (step, compiled):
                probs = case.probs.detach().to(dtype).requires_grad_()
                made = function(case.x, probs)
                ones = [torch.ones_like(each) for each in made[:-1]]
                results.append([*made, *torch.autograd.grad(made[:-1], (case.x, probs), ones)])
            for got, want in zip(*results):
                self.assertTrue(torch.equal(got, want))


@unittest.skipIf(DEVICE.type == "cpu", "the host waits for no CPU, and there are no CUDA graphs without a GPU")
class Devices(unittest.TestCase):

    def step(self, case):
        """All functions for which the host does not wait, with gradients."""
        rows, probs, row_id_map = te.moe_permute_with_probs(case.x, case.probs, case.map, case.count, top_k=5)
        padded, _, padded_map, pad_offsets, _ = te.moe_permute_and_pad_with_probs(
            case.x, case.probs, case.map, case.map.sum(0), 16, top_k=5, strict_shape=False)
        y = te.moe_unpermute(rows, row_id_map, restore_shape=case.x.shape)
        z = te.moe_unpermute(padded, padded_map, restore_shape=case.x.shape, pad_offsets=pad_offsets)
        sorted_rows, sorted_probs = te.moe_sort_chunks_by_index_with_probs(rows, probs, case.sizes, case.order)
        alone, _ = te.moe_permute(case.x, case.ids, 0, map_type="index")
        made = (y, z, sorted_rows, sorted_probs, alone)
        return [*made, *torch.autograd.grad(made, (case.x, case.probs), [torch.ones_like(each) for each in made])]

    def case(self, tokens):
        case = Case(tokens)
        case.sizes, case.order = case.map.sum(0), torch.arange(E - 1, -1, -1, device=DEVICE)
        case.ids = torch.rand(40, E, device=DEVICE).topk(2).indices.int()
        return case

    def test_the_host_waits_for_nothing(self):
        case = self.case(40)
        weights, quantizers = [torch.randn(48, 80, device=DEVICE)], [te.Fp8Quantizer(torch.ones(1, device=DEVICE))]
        outputs = te.multi_tensor_quantize(weights, quantizers)
        self.step(case)
        torch.cuda.set_sync_debug_mode("error")
        try:
            self.step(case)
            te.moe_sort_chunks_by_index(case.x, torch.tensor([30, 10]), torch.tensor([1, 0]))  # numbers on the host
            te.multi_tensor_quantize(weights, quantizers, outputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_a_captured_step_follows_its_inputs(self):
        case, other = self.case(40), self.case(40)
        with torch.no_grad():
            other.x.copy_(torch.randn_like(other.x))
            other.map.copy_(case.map.flip(0))  # as many rows
            other.sizes = other.map.sum(0)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            want = self.step(other)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            got = self.step(case)
        with torch.no_grad():
            for to, source in ((case.x, other.x), (case.probs, other.probs), (case.map, other.map),
                               (case.sizes, other.sizes), (case.ids, other.ids)):
                to.copy_(source)
        graph.replay()
        torch.cuda.synchronize()
        for one, wanted in zip(got, want):
            self.assertTrue(torch.equal(one, wanted))


class Refusals(unittest.TestCase):

    def test_errors_say_what_is_wanted(self):
        case = Case(40)
        rows, row_id_map = te.moe_permute(case.x, case.map, case.count)
        wide = case.x.detach().float().requires_grad_()
        padded = te.moe_permute_and_pad_with_probs(case.x, case.probs, case.map, case.map.sum(0), 16)
        for words, call in (
                ("inp is torch.float32, wanted torch.bfloat16", lambda: te.moe_permute(wide, case.map, case.count)),
                ("inp is torch.float32", lambda: te.moe_unpermute(rows.float(), row_id_map)),
                ("it has 40 tokens, wanted 39", lambda: te.moe_permute(case.x[1:], case.map, case.count)),
                ("wanted [T, E]", lambda: te.moe_permute(case.x, case.map[:, 0], case.count)),
                (f"[40, {2 * E}], wanted int32 [3, 2K]",
                 lambda: te.moe_unpermute(rows, row_id_map, restore_shape=torch.Size([3, H]))),
                (f"wanted int32 [40 + {E + 1}, 2K]",
                 lambda: te.moe_unpermute(rows, row_id_map, restore_shape=case.x.shape, pad_offsets=padded[3])),
                ("wanted int32 [40, 2K]",
                 lambda: te.moe_unpermute(padded[0], padded[2], restore_shape=case.x.shape)),
                ("strict_shape=False without top_k", lambda: te.moe_permute_and_pad_with_probs(
                    case.x, case.probs, case.map, case.map.sum(0), 16, strict_shape=False))):
            with self.subTest(words):
                self.assertIn(words, told(call) or "nothing")
        for words, call in (
                ("map_type: got 'list'", lambda: te.moe_permute(case.x, case.map, 1, map_type="list")),
                ("map_type: got 'list'", lambda: te.moe_unpermute(rows, row_id_map, map_type="list")),
                ("align_size: got 0", lambda: te.moe_permute_and_pad_with_probs(case.x, case.probs, case.map, 1, 0)),
                ("tokens_per_expert is missing",
                 lambda: te.moe_permute_and_pad_with_probs(case.x, case.probs, case.map, None, 16)),
                ("got merging_probs and probs",
                 lambda: te.moe_unpermute(rows, row_id_map, case.probs, probs=case.probs))):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                call()


def spread_to(place, values, rows):
    return values.new_zeros(rows, *values.shape[1:]).index_copy(0, place, values)


if __name__ == "__main__":
    unittest.main()
