# SPDX-License-Identifier: Apache-2.0
"""Compiled inference with weights that update_weights() has quantized and kept."""
import sys
import unittest

import torch
import transformers

from support import DEVICE, E, H, I, K, MAX_TOKENS, ROOT, Inputs, assert_same_bits, kept_block
from moejit.torch import Experts, convert, register_hf, update_weights

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

TOKENS, EXPERTS, HIDDEN, INTERMEDIATE = 32, 8, 128, 64

transformers.logging.set_verbosity_error()
register_hf()


class KeptWeights(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        self.graphs = []
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        self.inputs = [inputs[name].to(DEVICE) for name in ("x", "topk_ids", "topk_probs")]

    def make(self, family="qwen3_moe"):
        model = make_checkpoints.make_model(family, EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        return model, make_checkpoints.experts_of(model)

    def compile(self, module):
        def record(graph, _):
            self.graphs.append([node.args[-2] for node in graph.graph.nodes if node.op == "call_function"
                                and "moejit" in str(node.target)])
            return graph

        return torch.compile(module, fullgraph=True, backend=record)

    def quantizations(self):
        """How many calls that quantize weights each graph has."""
        return [sum("update_weights" in call for call in graph) for graph in self.graphs]

    def run_without_gradients(self, module):
        x, ids, probs = self.inputs
        with torch.no_grad():
            return module(x, ids.long(), probs)

    def assert_keeps(self, model, module):
        """The compiled module quantizes nothing, has the bits of eager, and sees changes after update_weights()."""
        want = self.run_without_gradients(module)
        update_weights(model)
        compiled = self.compile(module)
        assert_same_bits(self, [self.run_without_gradients(compiled)], [want])
        self.assertEqual(self.quantizations(), [0])
        block = kept_block(module._moejit_state).data_ptr()
        with torch.no_grad():
            module.down_proj.mul_(2)
        assert_same_bits(self, [self.run_without_gradients(compiled)], [want])
        update_weights(model)
        assert_same_bits(self, [self.run_without_gradients(compiled)], [self.run_without_gradients(module)])
        self.assertFalse(torch.equal(self.run_without_gradients(compiled), want))
        self.assertEqual(len(self.graphs), 1, "compiled again")
        self.assertEqual(kept_block(module._moejit_state).data_ptr(), block, "captured graphs read there")

    def test_without_it_each_call_of_a_graph_quantizes(self):
        model, module = self.make()
        model.set_experts_implementation("moejit")
        self.run_without_gradients(self.compile(module))
        self.assertEqual(self.quantizations(), [1])

    def test_registered_modules(self):
        for family in ("qwen3_moe", "gpt_oss"):  # whose weights are transposed
            model, module = self.make(family)
            model.set_experts_implementation("moejit")
            self.setUp()
            self.assert_keeps(model, module)

    def test_converted_modules(self):
        model, module = self.make()
        self.assert_keeps(convert(model), module)

    def test_a_whole_model_in_one_graph(self):
        model, module = self.make()
        convert(model)
        tokens = torch.randint(0, model.config.vocab_size, (1, 8), device=DEVICE)
        with torch.no_grad():
            want = model(tokens).logits
            update_weights(model)
            compiled = self.compile(model)
            assert_same_bits(self, [compiled(tokens).logits], [want])
            self.assertEqual(self.quantizations(), [0])

    def test_a_module_that_may_keep_nothing_quantizes(self):
        model, module = self.make()
        convert(model, cache_weights=False)
        update_weights(model)
        self.assertNotIn("_moejit_state", module.__dict__)
        self.run_without_gradients(self.compile(module))
        self.assertEqual(self.quantizations(), [1])

    def test_experts_of_ours_and_weights_in_float32_under_autocast(self):
        model = torch.nn.ModuleList([Experts(8, 64, 32, 2, max_tokens=16, device=DEVICE, dtype=dtype)
                                     for dtype in (torch.bfloat16, torch.float32)])
        update_weights(model)
        x, probs = torch.randn(4, 64, device=DEVICE).bfloat16(), torch.rand(4, 2, device=DEVICE)
        ids = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]], device=DEVICE)
        for experts in model:
            with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16):
                compiled = self.compile(experts)
                assert_same_bits(self, [compiled(x, ids, probs)], [experts(x, ids, probs)])
        self.assertEqual(self.quantizations(), [0, 0])

    def test_a_model_without_experts_of_moejit_is_refused(self):
        model, _ = self.make()
        model.set_experts_implementation("eager")
        for without in (model, torch.nn.Linear(2, 2)):
            with self.assertRaisesRegex(RuntimeError, "has no experts that run on moejit"):
                update_weights(without)


class Promise(unittest.TestCase):
    """What eager calls see of writes behind an update_weights(), and what takes its promise back."""

    @torch.no_grad()
    def setUp(self):
        torch.manual_seed(0)
        self.inputs = Inputs()
        self.module = self.make()
        self.module.update_weights()
        self.before = self.call(self.module)

    def make(self):
        return Experts(E, H, I, K, max_tokens=MAX_TOKENS, device=DEVICE)

    @torch.no_grad()
    def call(self, module):
        return module(self.inputs.x, self.inputs.ids, self.inputs.probs)

    def assert_is_of_this_moment(self, module=None):
        fresh = self.make()
        fresh.load_state_dict(self.module.state_dict())
        want = self.call(fresh)
        self.assertFalse(torch.equal(want, self.before), "the write changes nothing")
        assert_same_bits(self, [self.call(self.module if module is None else module)], [want])

    def test_what_pytorch_does_not_count_is_not_looked_for(self):
        self.module.down_proj.data.mul_(2)
        assert_same_bits(self, [self.call(self.module)], [self.before])

    def test_writes_that_are_counted_and_other_tensors_are_seen(self):
        with torch.no_grad():
            self.module.down_proj.mul_(2)
        self.assert_is_of_this_moment()
        self.module.gate_up_proj = torch.nn.Parameter(self.module.gate_up_proj.detach() * 3)
        self.assert_is_of_this_moment()

    def test_an_eager_call_with_gradients_takes_it_back(self):
        self.module(self.inputs.x, self.inputs.ids, self.inputs.probs).sum().backward()
        for _ in range(2):
            self.module.down_proj.data.mul_(2)
            self.assert_is_of_this_moment()

    def assert_compiled_is_of_this_moment(self):
        self.addCleanup(torch._dynamo.reset)
        self.assert_is_of_this_moment(torch.compile(self.module, backend="eager", fullgraph=True))

    def test_a_step_with_kept_weights_takes_it_back_from_compiled_calls(self):
        self.module(self.inputs.x, self.inputs.ids, self.inputs.probs, is_first_microbatch=True).sum().backward()
        self.module.down_proj.data.mul_(2)
        self.assert_compiled_is_of_this_moment()

    def test_a_new_promise_lets_compiled_calls_look_until_the_weights_are_quantized(self):
        self.module._state.weights.promise()  # as update_weights() of moejit.torch.serving
        self.module.down_proj.data.mul_(2)
        self.assert_compiled_is_of_this_moment()


if __name__ == "__main__":
    unittest.main()
