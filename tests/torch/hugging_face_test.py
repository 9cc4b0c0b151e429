# SPDX-License-Identifier: Apache-2.0
"""Experts of transformers' models: eight families beside their own modules in float32, and a model in training."""
import copy
import sys
import unittest

import torch
import transformers

from support import BOUNDS, DEVICE, RECIPES, ROOT, assert_same_bits, relative_error
from moejit.torch import register_hf

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

TOKENS, EXPERTS, HIDDEN, INTERMEDIATE = 32, 8, 128, 64

transformers.logging.set_verbosity_error()
for _recipe in RECIPES:
    register_hf(f"moejit_{_recipe}", recipe=_recipe, max_tokens=TOKENS)
register_hf()


def run(module, inputs):
    """A forward and a backward call of a module of experts: {name: tensor}."""
    module.zero_grad()
    x, probs = (inputs[name].clone().to(DEVICE).requires_grad_() for name in ("x", "topk_probs"))
    y = module(x, inputs["topk_ids"].long().to(DEVICE), probs)
    y.backward(inputs["dy"].to(DEVICE))
    gradients = {"d" + name: parameter.grad for name, parameter in module.named_parameters()}
    return {"y": y.detach(), "dx": x.grad, "dprobs": probs.grad, **gradients}


def error_of_most(got, want):
    """The relative error of the 90 % of elements that differ least.

    A value beside the limit may be clamped in bf16 but not in float32. That changes all gradients behind it.
    """
    most = (got.float() - want).abs().flatten().argsort()[:got.numel() * 9 // 10]
    return relative_error(got.flatten()[most], want.flatten()[most])


class Families(unittest.TestCase):

    def test_experts_are_near_those_of_the_library_in_float32(self):
        for name in make_checkpoints.families(EXPERTS, INTERMEDIATE):
            torch.manual_seed(0)
            model = make_checkpoints.make_model(name, EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
            module = make_checkpoints.experts_of(model)
            inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
            in_float32 = copy.deepcopy(module).float()
            want = run(in_float32, {key: tensor.float() for key, tensor in inputs.items()})
            before = list(model.state_dict())
            for recipe in RECIPES:
                model.set_experts_implementation(f"moejit_{recipe}")
                got = run(module, inputs)
                self.assertEqual(list(got), list(want))
                for tensor in want:
                    with self.subTest(family=name, recipe=recipe, tensor=tensor):
                        self.assertLessEqual(relative_error(got[tensor], want[tensor]), BOUNDS[recipe])
            self.assertEqual(list(model.state_dict()), before)

    def test_numbers_that_a_module_computes_with_go_before_those_of_its_configuration(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("gpt_oss", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        module = make_checkpoints.experts_of(model)
        # The module of transformers 5.17 has numbers of its own, whatever its configuration says.
        module.alpha, module.limit = 1.25, 3.0
        model.config.swiglu_alpha, model.config.swiglu_limit = 1.5, 7.0
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        want = run(copy.deepcopy(module).float(), {key: tensor.float() for key, tensor in inputs.items()})
        model.set_experts_implementation("moejit_bf16")
        for tensor, got in run(module, inputs).items():
            self.assertLessEqual(error_of_most(got, want[tensor]), BOUNDS["bf16"], tensor)

    def test_transposed_interleaved_experts_with_biases_in_one_graph(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("gpt_oss", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        module = make_checkpoints.experts_of(model)
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        model.set_experts_implementation("moejit_fp8_flow")
        torch._dynamo.reset()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        want = run(module, inputs)
        got = run(compiled, inputs)
        assert_same_bits(self, list(got.values()), list(want.values()))

    def test_a_compiled_module_needs_no_eager_call_before(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("qwen3_moe", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        module = make_checkpoints.experts_of(model)
        model.set_experts_implementation("moejit")
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        torch._dynamo.reset()
        got = run(torch.compile(module, fullgraph=True, backend="aot_eager"), inputs)
        assert_same_bits(self, list(got.values()), list(run(module, inputs).values()))

    def test_experts_of_other_ranks_add_nothing(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("qwen3_moe", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        module = make_checkpoints.experts_of(model)
        model.set_experts_implementation("moejit")
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        inputs["topk_ids"][::3, 0] = -1
        want = run(module, inputs)
        inputs["topk_ids"][::3, 0] = EXPERTS
        module._is_expert_parallel = True
        assert_same_bits(self, list(run(module, inputs).values()), list(want.values()))
        # As before transformers 5.18, whose modules do not say that they are parallel.
        del module._is_expert_parallel
        assert_same_bits(self, list(run(module, inputs).values()), list(want.values()))
        self.assertEqual(module._moejit_state.status_word(), 0)

    def test_what_no_layer_expresses_is_refused(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("qwen3_moe", EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)
        module = make_checkpoints.experts_of(model)
        model.set_experts_implementation("moejit")
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        module.has_post_expert_norm = True
        with self.assertRaisesRegex(RuntimeError, "has a norm behind each expert"):
            run(module, inputs)
        module.has_post_expert_norm = False
        module.config.hidden_act = "mish"
        with self.assertRaisesRegex(RuntimeError, "mish.*not supported"):
            run(module, inputs)

    def test_parameters_in_float32_are_refused_with_the_dtype(self):
        torch.manual_seed(0)
        model = make_checkpoints.make_model("qwen3_moe", EXPERTS, HIDDEN, INTERMEDIATE).float().to(DEVICE)
        model.set_experts_implementation("moejit")
        inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
        with self.assertRaisesRegex(
                RuntimeError, r"model\.layers\.1\.mlp\.experts\.gate_up_proj is float32; moejit computes in bfloat16\nhint: "
                r"load or make the model with dtype=torch\.bfloat16, .*\(Trainer: bf16=True\)"):
            run(make_checkpoints.experts_of(model), {key: tensor.float() for key, tensor in inputs.items()})


class Registration(unittest.TestCase):

    def test_options_are_checked_when_they_are_given(self):
        for options, words in (
                ({"recipe": "fp8"}, r'\$\.recipe: got "fp8", wanted one of "bf16", "fp8_flow"'),
                ({"recipe": "fp8_delayed"}, r'"fp8_delayed" has a state [^$]*\nhint: use "fp8_current"'),
                ({"recompute": "all"}, r'\$\.recompute: got "all", wanted one of "none", "moe_expert"'),
                ({"max_tokens": 0}, r"\$\.max_tokens: got 0, wanted 1 to"),
                ({"max_tokens": 1.5}, r"\$\.max_tokens: got 1.5, wanted 1 to"),
                ({"splits_alignment": 0}, r"\$\.splits_alignment: got 0, wanted 1 to"),
                ({"recipe": "nvfp4", "splits_alignment": 8}, r'splits_alignment "8" does not run'),
                ({"cache_weights": "yes"}, r"cache_weights: got 'yes', wanted True, False or None"),
                ({"name": ""}, r"name: got '', wanted a name"), ({"name": "eager"}, r"name: got 'eager', wanted a name"),
                ({"name": "grouped_mm"}, r"name: got 'grouped_mm', wanted a name that transformers does not use")):
            with self.subTest(**options):
                self.assertRaisesRegex(RuntimeError, r"^moejit: (invalid_value: )?register_hf\(\): [^$]*" + words,
                                       register_hf, **{"name": "refused", **options})
        self.assertNotIn("refused", transformers.integrations.moe.ALL_EXPERTS_FUNCTIONS)

    def test_a_name_may_be_registered_again(self):
        for recipe in RECIPES:
            register_hf("again", recipe)


def bound_of_loss(recipe, fall):
    """How far the loss may be from that of another implementation, once it has fallen by so much.

    Logits are below 1 at first, and are off by r, the recipe's relative error. The derivative of a token's loss by its
    logits has a 1-norm of at most 2, so this loss is off by 2r. Gradients are off by r too, in both factors of what a
    step gains: 2r of the fall, and 2r more as the logits grow with it. Errors of 30 tokens have either sign: three
    standard deviations of their mean are 3 / sqrt(30) = 0.55 of one. Errors of experts reach the loss through a
    residual stream that mostly is not theirs, so that 0.15 is much at any time.
    """
    return min(0.55 * BOUNDS[recipe] * (2 + 4 * fall), 0.15)


class Training(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(0)
        config = transformers.Qwen3MoeConfig(
            vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2,
            decoder_sparse_step=1, norm_topk_prob=True)
        self.model = transformers.Qwen3MoeForCausalLM(config).bfloat16().to(DEVICE)
        self.tokens = torch.randint(0, 64, (2, 16), device=DEVICE)

    def train(self, implementation, steps=6):
        model = copy.deepcopy(self.model)
        model.set_experts_implementation(implementation)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(steps):
            loss = model(self.tokens, labels=self.tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def test_six_steps_go_as_with_the_librarys_own_experts(self):
        for own in ("eager", "grouped_mm"):
            want = self.train(own)
            self.assertLess(want[-1], want[0] - 0.2, "the reference learns nothing")
            for recipe in RECIPES:
                got = self.train(f"moejit_{recipe}")
                for step, (one, other) in enumerate(zip(got, want)):
                    self.assertLessEqual(abs(one - other), bound_of_loss(recipe, want[0] - other),
                                         f"{recipe}, step {step}: {got} beside {want} of {own}")

    def test_the_whole_model_is_one_graph_with_the_loss_of_eager(self):
        self.model.set_experts_implementation("moejit_fp8_flow")
        want = self.model(self.tokens, labels=self.tokens).loss
        torch._dynamo.reset()
        compiled = torch.compile(self.model, fullgraph=True, backend="aot_eager")
        loss = compiled(self.tokens, labels=self.tokens).loss
        loss.backward()
        self.assertEqual(loss.item(), want.item())
        self.assertTrue(all(parameter.grad is not None for name, parameter in self.model.named_parameters()
                            if "experts" in name))


if __name__ == "__main__":
    unittest.main()
