# SPDX-License-Identifier: Apache-2.0
"""Shared experts of transformers' blocks in one plan with the others: their weights' memory, and what leaves them apart."""
import copy
import io
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.reductions import StorageWeakRef

from hf_blocks_test import H, TOKENS, classes_of, in_bf16, make_block
from router_models_test import configurations
from support import BOUNDS, DEVICE, assert_same_bits, relative_error
from moejit.torch import convert, explain, hf, hf_shared, update_weights
from moejit.torch.hf_gate_kinds import GATES
from moejit.torch.hf_joined import SHARED
from moejit.torch.hf_shared_kinds import MOE_BLOCKS

PARTS = ("gate_proj", "up_proj", "down_proj")


def converted(router="DeepseekV3TopkRouter", **options):
    """A block whose shared expert runs with the others, and tokens."""
    block = in_bf16(make_block(router, configurations()))
    convert(block, "bf16", shared=True, max_tokens=TOKENS, **options)
    return block, torch.randn(1, TOKENS, H, generator=torch.Generator().manual_seed(3)).bfloat16().to(DEVICE)


def step(block, x):
    """[y, dx, gradients of the parameters]."""
    block.zero_grad()
    x = x.clone().requires_grad_()
    y = block(x)
    y.backward(torch.ones_like(y))
    return [y.detach(), x.grad, *(each.grad for each in block.parameters() if each.grad is not None)]


def is_in_place(block):
    """Whether all weights of a shared expert of one slice lie behind the experts' weights."""
    whole = block.experts.down_proj.untyped_storage().data_ptr()
    return block.shared_experts.down_proj.weight.untyped_storage().data_ptr() == whole


class Table(unittest.TestCase):

    def test_each_class_adds_up_as_its_own_forward(self):
        """With dense math in place of the kernels, in float32: what a row says of the rest is compared."""
        def dense(*call):
            *_, experts, x, ids, probs, shared, factor = call
            routed = type(experts).forward.__wrapped__(experts, x, ids, probs)
            return routed + (1 if factor is None else factor) * shared.mlp(x)

        texts = {}
        for path in (pathlib.Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
            texts.update((name, text) for name, text in classes_of(path.read_text()).items() if name in MOE_BLOCKS)
        self.assertEqual(texts.keys(), MOE_BLOCKS.keys())
        # One class of those with the same row and the same forward: to import a modeling file takes a second.
        chosen = {(MOE_BLOCKS[name], text.partition("def forward(")[2].partition("\n\n\n")[0]): name
                  for name, text in sorted(texts.items(), reverse=True)
                  if name != "HYV4MoE"}  # whose experts are clamped, and its shared expert is not
        saved, generator = configurations(), torch.Generator().manual_seed(0)
        for name in chosen.values():
            with self.subTest(name):
                block = make_block(re.search(r"self\.(?:gate|router) = .*?(\w+(?:Router|Gate))\(config",
                                             texts[name])[1], saved)
                self.assertEqual(type(block).__name__, name)
                x = torch.randn(1, TOKENS, H, generator=generator).to(DEVICE)
                want = block(x)
                convert(block, "bf16", shared=True, max_tokens=TOKENS)
                self.assertIn("runs on moejit with the experts", explain(block))
                with mock.patch.object(hf, "run_experts", dense):
                    # Sums in another order, of numbers of size 1 in float32.
                    torch.testing.assert_close(block(x), want, rtol=1e-5, atol=1e-5)
        print("\ncompared:", ", ".join(chosen.values()))


class Memory(unittest.TestCase):

    def test_parameters_stay_and_hold_the_only_copy(self):
        block = in_bf16(make_block("DeepseekV3TopkRouter", configurations()))
        before, values = dict(block.named_parameters()), {name: each.clone() for name, each in block.state_dict().items()}
        convert(block, "bf16", shared=True, max_tokens=TOKENS)
        after = dict(block.named_parameters())
        self.assertEqual(list(before), list(after))
        self.assertTrue(all(after[name] is each for name, each in before.items()))
        self.assertTrue(all(torch.equal(each, values[name]) for name, each in block.state_dict().items()))
        self.assertTrue(is_in_place(block))
        weights = [block.experts.gate_up_proj, block.experts.down_proj,
                   *(getattr(block.shared_experts, part).weight for part in PARTS)]
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in weights}
        self.assertEqual(sum(storages.values()), sum(each.nbytes for each in weights))

    def test_moved_copied_and_loaded_blocks_compute_the_same(self):
        for router in ("DeepseekV3TopkRouter", "DeepseekV2TopkRouter"):
            block, x = converted(router)
            want, file = step(block, x), io.BytesIO()
            torch.save(block, file)
            file.seek(0)
            assigned = copy.deepcopy(block)
            assigned.load_state_dict({name: each.clone() for name, each in block.state_dict().items()}, assign=True)
            moved = copy.deepcopy(block).to("meta").to_empty(device=DEVICE)
            moved.load_state_dict(block.state_dict())
            for other in (copy.deepcopy(block), torch.load(file, weights_only=False), assigned, moved):
                self.assertIn("runs on moejit with the experts", explain(other))
                assert_same_bits(self, step(other, x), want)

    def test_changes_are_seen_without_gradients_and_by_update_weights(self):
        for router in ("DeepseekV3TopkRouter", "DeepseekV2TopkRouter"):
            block, x = converted(router)
            with torch.no_grad():
                block(x)
                for promised in (False, True):
                    if promised:
                        update_weights(block)
                    block.shared_experts.up_proj.weight.mul_(2)
                    block.experts.down_proj.mul_(2)
                    if promised:
                        update_weights(block)
                    got = block(x)
                    with torch.enable_grad():
                        assert_same_bits(self, [got], [block(x).detach()])

    def test_saved_models_have_plain_weights(self):
        config = transformers.DeepseekV3Config.from_dict({
            **configurations()["DeepseekV3Config"], "vocab_size": 32, "num_hidden_layers": 2, "first_k_dense_replace": 1})
        model = transformers.AutoModelForCausalLM.from_config(config).bfloat16()
        want = {name: each.clone() for name, each in model.state_dict().items()}
        convert(model, "bf16", shared=True)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
        self.assertTrue(all(torch.equal(loaded[name], each) for name, each in want.items()))


class Graphs(unittest.TestCase):

    def test_a_graph_has_the_same_bits_and_sees_moved_weights(self):
        block, x = converted(gates=True)
        want = step(block, x)
        torch._dynamo.reset()
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        assert_same_bits(self, step(compiled, x), want)
        with torch.no_grad():
            assert_same_bits(self, [compiled(x)], want[:1])
        block.to(torch.float32).to(torch.bfloat16)  # other memory, with both kinds in it again
        assert_same_bits(self, step(compiled, x), want)
        weight = block.shared_experts.up_proj.weight
        weight.data = weight.data.clone()
        with self.assertRaisesRegex(RuntimeError, "lie no longer behind the experts' weights"):
            compiled(x)

    def test_a_graph_of_two_slices_leaves_them_to_the_model(self):
        block, x = converted("DeepseekV2TopkRouter")
        torch._dynamo.reset()
        got = torch.compile(block, fullgraph=True, backend="aot_eager")(x)
        convert(block, "bf16", max_tokens=TOKENS)
        assert_same_bits(self, [got], [block(x)])


class Apart(unittest.TestCase):
    """Blocks whose shared expert stays the model's own, with a sentence that says why."""

    def expect(self, block, reason):
        self.assertRegex(explain(block), rf"shared_experts: stays the model's own: {reason}")

    def test_what_no_plan_expresses(self):
        def wide(block):
            block.shared_experts.down_proj.weight = torch.nn.Parameter(block.shared_experts.down_proj.weight[:, :40].clone())

        def other(block):
            block.shared_experts.act_fn = torch.nn.GELU()

        def in_float32(block):
            block.shared_experts.float()

        def biased(block):
            block.shared_experts.up_proj = torch.nn.Linear(H, 48, dtype=torch.bfloat16)

        def unknown(block):
            block.__class__ = type("OtherBlock", (type(block),), {})

        for change, reason in ((wide, "it is 40 wide, no multiple of the experts' 48"), (other, "its activation is not"),
                               (in_float32, f"its weights are float32 on {DEVICE.type}.*, the experts' bfloat16"),
                               (biased, "it has biases"), (unknown, "no formula is known for the block OtherBlock")):
            with self.subTest(change.__name__):
                block = in_bf16(make_block("DeepseekV3TopkRouter", configurations()))
                change(block)
                original = type(block)
                convert(block, "bf16", shared=True, max_tokens=TOKENS)
                self.expect(block, reason)
                self.assertIs(type(block), original)

    def test_adapters_and_hooks_that_come_later_run(self):
        class Adapter(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x) + 1

        block, x = converted()
        plain, shared = block(x), block.shared_experts
        handle = shared.register_forward_hook(lambda module, inputs, y: y + 1)
        self.expect(block, "modules have hooks")
        self.assertGreater((block(x) - plain).float().mean(), 0.5)
        handle.remove()
        assert_same_bits(self, [block(x)], [plain])
        shared.down_proj.__class__ = Adapter
        self.expect(block, "down_proj is a Adapter")
        self.assertGreater((block(x) - plain).float().mean(), 0.5)

    def test_weights_that_were_moved_away(self):
        block, x = converted()
        plain = block(x)
        block.experts.down_proj.data = block.experts.down_proj.data.clone()
        self.expect(block, "its weights were moved away")
        self.assertTrue(torch.isfinite(block(x)).all())
        convert(block, "bf16", shared=True, max_tokens=TOKENS)
        assert_same_bits(self, [block(x)], [plain])

    def test_weights_that_fsdp_gathers(self):
        block, x = converted()
        plain, kept = block(x).detach(), StorageWeakRef(block.experts.down_proj.untyped_storage())
        backend = "gloo" if DEVICE.type == "cpu" else "nccl"
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
            try:
                fully_shard(block, mesh=init_device_mesh(DEVICE.type, (1,)))
                sharded = step(block, x)
                self.expect(block, "FSDP gathers its weights one by one")
            finally:
                torch.distributed.destroy_process_group()
        self.assertTrue(kept.expired())
        self.assertLess(relative_error(sharded[0], plain), BOUNDS["bf16"])

    def test_conversions_are_taken_back_and_parts_left_out(self):
        block, x = converted()
        original = type(block).original
        for options in ({"shared": False}, {"shared": True, "filter_fn": lambda module, name: name != "shared_experts"}):
            convert(block, "bf16", shared=True, max_tokens=TOKENS)
            self.assertIsInstance(block, hf_shared.MoejitBlock)
            convert(block, "bf16", max_tokens=TOKENS, **options)
            self.assertIs(type(block), original)
            self.assertNotIn(SHARED, block.experts.__dict__)
            self.assertNotIn("shared_experts:", explain(block))


if __name__ == "__main__":
    unittest.main()
