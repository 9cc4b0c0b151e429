# SPDX-License-Identifier: Apache-2.0
"""Experts of megatron-core's layers on moejit, which two ranks share, and checkpoints between them and one rank."""
import contextlib
import functools
import pathlib
import tempfile
import unittest
from unittest import mock

import megatron_device
import torch
import torch.distributed as dist
from ranks import BACKEND, run_on_ranks
from support import BOUNDS, DEVICE, H, assert_same_bits

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.transformer.moe import token_dispatcher

# (recipe, dispatcher, what experts get, whether they have biases)
LAYERS = (("bf16", "alltoall", "grouped", True), ("fp8_flow", "allgather", "grouped", True),
          ("fp8_flow", "alltoall", "grouped", False), ("fp8_flow", "flex", "grouped", False),
          ("bf16", "flex", "tokens", False), ("fp8_flow", "flex", "tokens", True),
          ("fp8_flow", "allgather", "tokens", True))
WIDE, SCALES = 128, 4  # columns of rows whose scales DeepEP takes, and bytes of these
PREFIX = "decoder.layers.0.mlp.experts."
KINDS = ("sequential", "moejit")
MARKS = "allreduce", "tensor_model_parallel"


def make(kind, **fields):
    """A layer whose experts are SequentialMLP or moejit's, all in bf16."""
    config = case.config_of(add_bias_linear=True, **fields)
    return case.ours("bf16", config) if kind == "moejit" else case.layer_of(case.SEQUENTIAL, config)


def sharded(experts, is_singleton):
    return experts.sharded_state_dict(PREFIX, (), {
        "singleton_local_shards": is_singleton,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})


def place(folder, kind, is_singleton):
    return pathlib.Path(folder) / f"{kind}-{is_singleton}"


def save_all(folder):
    for kind in KINDS:
        experts = make(kind).experts
        for is_singleton in (False, True):
            if dist.get_rank() == 0:
                place(folder, kind, is_singleton).mkdir()
            dist.barrier()
            dist_checkpointing.save(sharded(experts, is_singleton), str(place(folder, kind, is_singleton)))


def load_all(folder):
    """{(saved by, loaded into, singleton): whether all parameters are what was saved}."""
    found = {}
    for kind in KINDS:
        want, experts = make(kind).experts, make(kind).experts
        for other in KINDS:
            for is_singleton in (False, True):
                with torch.no_grad():
                    for parameter in experts.parameters():
                        parameter.zero_()
                state = dist_checkpointing.load(sharded(experts, is_singleton), str(place(folder, other, is_singleton)))
                experts.load_state_dict({key.removeprefix(PREFIX): value for key, value in state.items()})
                found[other, kind, is_singleton] = case.are_equal(experts, want)
    return found


@contextlib.contextmanager
def counted_messages():
    """Collects (rows, bytes of a row) of each exchange of rows, ids and probabilities left out."""
    found, run = [], dist.all_to_all_single

    def counting(output, sent, *args, **kwargs):
        if sent.dim() == 2 and sent[0].nbytes in (SCALES, WIDE, WIDE + SCALES, 2 * WIDE):
            found.append((sent.shape[0], sent[0].nbytes))
        return run(output, sent, *args, **kwargs)
    with mock.patch.object(dist, "all_to_all_single", counting):
        yield found


def fp8_dispatch():
    """{dispatcher: (results in FP8, in bf16, exchanges in FP8, in bf16)}, of rows of WIDE columns."""
    found = {}
    for dispatcher, dtype in (("alltoall", torch.float32), ("flex", torch.bfloat16)):
        results, exchanges = [], []
        for options in ({"dispatch": "fp8"}, {"input": "tokens" if dispatcher == "flex" else "grouped"}):
            config = case.config_of(moe_token_dispatcher_type=dispatcher, hidden_size=WIDE, add_bias_linear=True,
                                    gradient_accumulation_fusion=True)
            layer = case.ours("fp8_flow", config, **options)
            for parameter in layer.experts.parameters():
                parameter.main_grad = torch.ones_like(parameter, dtype=dtype)
            with counted_messages() as counted:
                results.append(case.results_of(layer, torch.bfloat16, dist.get_rank(),
                                               lambda parameter: parameter.main_grad))
            exchanges.append(counted)
        found[dispatcher] = (*results, *exchanges)
    return found


def refused_permutes():
    """Lets nothing of Megatron permute rows or make maps of DeepEP's ids."""
    found = contextlib.ExitStack()
    for place, name in ((token_dispatcher, "permute"), (token_dispatcher, "unpermute"),
                        (token_dispatcher._DeepepManager, "_indices_to_multihot")):
        found.enter_context(mock.patch.object(place, name, side_effect=AssertionError(name)))
    return found


def all_to_one(layer):
    """[y, gradients of weights] of tokens whose experts are all on rank 0."""
    layer.zero_grad()
    with torch.no_grad():
        layer.router.weight[:] = -1
        layer.router.weight[:2] = 1
    x = torch.rand(case.SEQUENCE, case.BATCH, H, generator=torch.Generator().manual_seed(dist.get_rank())).bfloat16()
    x = x.to(DEVICE)
    y, _ = layer(x.requires_grad_())
    y.float().sum().backward()
    return [y.detach(), *(parameter.grad for parameter in layer.experts.parameters())]


def work(folder, device):
    megatron_device.start(2)
    results = {"errors": {}, "gradients of weights": {}}
    errors = case.Errors()
    for key in LAYERS:
        recipe, dispatcher, input, has_biases = key
        with refused_permutes() if input == "tokens" else contextlib.nullcontext():
            results["errors"][key], got = errors.of(recipe, dispatcher, has_biases, input=input)
        results["gradients of weights"][key] = got[3:]
    layer = case.ours("fp8_flow", case.config_of())
    results["fp8"] = fp8_dispatch()
    results["marks"] = [[getattr(parameter, mark) for mark in MARKS] for parameter in layer.experts.parameters()]
    results["all to one"] = [all_to_one(layer), all_to_one(case.ours("fp8_flow", case.config_of(), dispatch="fp8")),
                             all_to_one(case.ours("fp8_flow", case.config_of(moe_token_dispatcher_type="flex"),
                                                  input="tokens"))]
    save_all(folder)
    results["loaded"] = load_all(folder)
    return results


@megatron_device.needed
class Ranks(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.results = run_on_ranks(functools.partial(work, cls.folder.name), method="fork")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_results_are_near_float32(self):
        for results in self.results:
            self.assertEqual(len(results["errors"]), len(LAYERS))
            for (recipe, *rest), errors in results["errors"].items():
                with self.subTest((recipe, *rest)):
                    self.assertLessEqual(max(errors), BOUNDS[recipe])

    def test_gradients_of_weights_have_the_bits_of_other_dispatchers(self):
        for results in self.results:
            found = results["gradients of weights"]
            for has_biases in (False, True):
                want, *others = [value for (recipe, _, _, biases), value in found.items()
                                 if (recipe, biases) == ("fp8_flow", has_biases)]
                self.assertTrue(others)
                for got in others:
                    assert_same_bits(self, got, want)

    def test_fp8_rows_have_the_bits_of_a_bf16_exchange(self):
        for results in self.results:
            for dispatcher, (got, want, *_) in results["fp8"].items():
                with self.subTest(dispatcher):
                    assert_same_bits(self, got, want)

    def test_fp8_rows_are_half_the_bytes(self):
        for results in self.results:
            for dispatcher, (_, _, narrow, wide) in results["fp8"].items():
                with self.subTest(dispatcher):
                    self.assertEqual([size for _, size in wide], [2 * WIDE] * 4)  # tokens, y, dy, dx
                    tokens, y, dy, dx = (rows for rows, _ in wide)
                    self.assertEqual(sum(rows * size for rows, size in narrow),
                                     (tokens + dy) * (WIDE + SCALES) + (y + dx) * 2 * WIDE)

    def test_no_other_rank_has_an_expert(self):
        for results in self.results:
            self.assertEqual(results["marks"], [[False, True]] * 2)

    def test_a_rank_without_rows_goes_on(self):
        for (y, *busy), (_, *idle) in zip(*(results["all to one"] for results in self.results), strict=True):
            self.assertTrue(y.isfinite().all() and y.any())
            self.assertTrue(all(gradient.any() for gradient in busy))
            self.assertFalse(any(gradient.any() for gradient in idle))

    def test_checkpoints_are_interchangeable(self):
        for results in self.results:
            self.assertEqual(results["loaded"], dict.fromkeys(results["loaded"], True))

    def test_one_rank_loads_what_two_have_saved(self):
        dist.init_process_group(BACKEND, init_method=f"file://{self.folder.name}/group-of-one", rank=0, world_size=1)
        megatron_device.start(1)
        try:
            loaded = load_all(self.folder.name)
        finally:
            megatron_device.stop()
        self.assertEqual(len(loaded), 8)
        self.assertEqual(loaded, dict.fromkeys(loaded, True))


if __name__ == "__main__":
    unittest.main()
