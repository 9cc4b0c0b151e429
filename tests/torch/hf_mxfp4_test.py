# SPDX-License-Identifier: Apache-2.0
"""gpt-oss loaded from a checkpoint in MXFP4: experts hold FP8 codes of the same values, or packed tiles, never bf16.

The checkpoint is made here in the form of the published ones: `gate_up_proj_blocks`, `gate_up_proj_scales`, ...
"""
import copy
import io
import json
import pathlib
import sys
import tempfile
import unittest

import safetensors.torch
import torch
import transformers

from support import BOUNDS, DEVICE, ROOT, assert_same_bits, relative_error, told
from moejit.torch import build, convert, experts, explain, mxfp4_weights, register_hf, update_weights

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

E, H, I, TOKENS = 4, 160, 96, 16  # widths that end within blocks, as those of gpt-oss
NAME = f"model.layers.{make_checkpoints.LAYER}.mlp.experts"  # that has weights and biases of its own

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
register_hf("moejit_mxfp4", "fp8_flow", TOKENS)
register_hf("moejit_packed", "fp8_flow", TOKENS, packed=True)


def random_mxfp4(rows, columns, generator):
    blocks = torch.randint(0, 256, (E, rows, columns // 32, 16), generator=generator).to(torch.uint8)
    return blocks, torch.randint(119, 123, blocks.shape[:3], generator=generator).to(torch.uint8)


def write_checkpoint(folder, change=lambda state: None):
    torch.manual_seed(0)
    model = make_checkpoints.make_model("gpt_oss", E, H, I)
    generator, state = torch.Generator().manual_seed(1), model.state_dict()
    for name in [name for name in state if name.endswith("_proj") and ".experts." in name]:
        shape = (2 * I, H) if "gate_up" in name else (H, I)
        del state[name]
        state[name + "_blocks"], state[name + "_scales"] = random_mxfp4(*shape, generator)
    change(state)
    model.config.save_pretrained(folder)
    safetensors.torch.save_file(state, pathlib.Path(folder, "model.safetensors"), metadata={"format": "pt"})
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {
        "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}))
    return state


def experts_of(model):
    return model.model.layers[make_checkpoints.LAYER].mlp.experts


def arguments():
    torch.manual_seed(1)
    inputs = make_checkpoints.make_inputs(TOKENS, E, H)
    return inputs["x"].to(DEVICE), inputs["topk_ids"].long().to(DEVICE), inputs["topk_probs"].to(DEVICE)


def run(model):
    with torch.no_grad():
        return experts_of(model)(*arguments())


class Mxfp4(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.state = {name.removeprefix(NAME + "."): tensor.to(DEVICE)
                     for name, tensor in write_checkpoint(cls.folder).items() if name.startswith(NAME)}

    def load(self, folder=None, implementation="moejit_mxfp4", **options):
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder or self.folder, dtype=torch.bfloat16, device_map=str(DEVICE), experts_implementation=implementation,
            **options)

    def test_experts_hold_the_codes_of_the_checkpoint_s_values(self):
        module, state = experts_of(self.load()), self.state
        want = mxfp4_weights(state["gate_up_proj_blocks"], state["gate_up_proj_scales"], state["down_proj_blocks"],
                             state["down_proj_scales"], gate_up_layout="interleaved")
        bias = state["gate_up_proj_bias"]
        held = {"gate_up_proj": want.w1_q, "gate_up_proj_scale_inv": want.w1_scale_inv, "down_proj": want.w2_q,
                "down_proj_scale_inv": want.w2_scale_inv, "gate_up_proj_bias": torch.cat((bias[:, ::2], bias[:, 1::2]), 1),
                "down_proj_bias": state["down_proj_bias"]}
        got = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.assertEqual(sorted(got), sorted(held))
        for name, tensor in held.items():
            self.assertEqual(got[name].dtype, tensor.dtype, name)
            assert_same_bits(self, [got[name].detach()], [tensor])
        self.assertEqual(sum(got[name].nbytes for name in ("gate_up_proj", "down_proj")), E * 3 * I * H)

    def test_results_have_the_bits_of_a_layer_on_these_codes(self):
        model = self.load()
        module = experts_of(model)
        update_weights(model)  # has nothing to do
        weights = mxfp4_weights(*(self.state[f"{name}_{part}"] for name in ("gate_up_proj", "down_proj")
                                  for part in ("blocks", "scales")), gate_up_layout="interleaved")
        bias, (x, ids, probs) = self.state["gate_up_proj_bias"], arguments()
        layer = {"experts": E, "top_k": ids.shape[1], "hidden": H, "intermediate": I, "max_tokens": TOKENS, "biases": True,
                 "recipe": "fp8_flow", "dispatch": "none",
                 "activation": {"preset": "clamped_swiglu", "limit": module.limit, "alpha": module.alpha, "offset": 1.0}}
        with torch.no_grad():
            want = experts(x, ids, probs, weights, gate_up_proj_bias=torch.cat((bias[:, ::2], bias[:, 1::2]), 1),
                           down_proj_bias=self.state["down_proj_bias"], layer=layer)
        assert_same_bits(self, [run(model)], [want])
        assert_same_bits(self, [run(convert(model))], [want])
        convert(model, "fp8_blockwise")
        self.assertLess(relative_error(run(model), want), BOUNDS["fp8_blockwise"])
        self.assertIn(f"{NAME}: FP8GptOssExperts, {E} experts, hidden {H}, intermediate {I}, runs on moejit, "
                      "recipe fp8_blockwise, on its FP8 weights", explain(model))

    def test_results_are_near_those_of_the_dequantized_model(self):
        plain = self.load(implementation="eager", quantization_config=transformers.Mxfp4Config(dequantize=True))
        self.assertEqual(type(experts_of(plain)).__name__, "GptOssExperts")
        self.assertLess(relative_error(run(self.load()), run(plain)), BOUNDS["fp8_flow"])
        # Whoever asks for bf16 weights gets them, and they run, too.
        asked = self.load(quantization_config=transformers.Mxfp4Config(dequantize=True))
        self.assertEqual(experts_of(asked).down_proj.dtype, torch.bfloat16)
        self.assertLess(relative_error(run(asked), run(plain)), BOUNDS["fp8_flow"])

    def test_models_are_pickled(self):
        for implementation in ("moejit_mxfp4", "moejit_packed"):
            model = self.load(implementation=implementation)
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            assert_same_bits(self, [run(torch.load(file, weights_only=False)), run(copy.deepcopy(model))], 2 * [run(model)])

    def test_weights_may_stay_packed(self):
        model, state = self.load(implementation="moejit_packed"), self.state
        module = experts_of(model)
        want = mxfp4_weights(state["gate_up_proj_blocks"], state["gate_up_proj_scales"], state["down_proj_blocks"],
                             state["down_proj_scales"], gate_up_layout="interleaved", packed=True)
        names = ("gate_up_proj", "gate_up_proj_scale_inv", "down_proj", "down_proj_scale_inv")
        assert_same_bits(self, [getattr(module, name).detach() for name in names], [*want.tensors.values()])
        assert_same_bits(self, [run(model), run(convert(copy.deepcopy(model)))], 2 * [run(self.load())])
        self.assertIn(f"{NAME}: PackedGptOssExperts, {E} experts, hidden {H}, intermediate {I}, runs on moejit, recipe "
                      "fp8_flow, on its packed weights", explain(model))
        x, ids, probs = arguments()
        self.assertIn("unsupported: backward of packed MXFP4 weights, which only forward reads",
                      told(lambda: module(x.requires_grad_(), ids, probs)))
        model.set_experts_implementation("eager")
        self.assertIn("its weights were loaded packed for moejit, got the implementation 'eager'", told(lambda: run(model)))

    def test_kernels_of_packed_weights_are_built_ahead(self):
        layers = build(self.load(implementation="moejit_packed"), TOKENS)
        self.assertGreater(len(layers), 0)
        for layer in layers:
            self.assertEqual((layer["weight_format"], layer["passes"]), ("mxfp4", ["forward"]))

    def test_the_model_decodes(self):
        prompt = torch.arange(8, device=DEVICE)[None]
        plain = self.load(implementation="eager", quantization_config=transformers.Mxfp4Config(dequantize=True))
        got, want = (model.generate(prompt, max_new_tokens=8, do_sample=False)[0, 8:].tolist()
                     for model in (self.load(), plain))
        self.assertEqual(got, want)
        self.assertGreater(len(set(want)), 1)

    def test_other_experts_are_refused_for_these_weights(self):
        model = self.load()
        model.set_experts_implementation("eager")
        self.assertEqual(told(lambda: run(model)), f"moejit: unsupported: {NAME}: its weights were loaded as FP8 codes for "
                         "moejit, got the implementation 'eager'\nhint: load the model again without moejit's "
                         "experts_implementation")
        model.set_experts_implementation("moejit_mxfp4")
        with tempfile.TemporaryDirectory() as folder:
            self.assertRaisesRegex(ValueError, "not serializable", model.save_pretrained, folder)

    def test_checkpoints_that_fp8_cannot_express_are_refused(self):
        def spread(state):
            state[NAME + ".down_proj_scales"][2, 5, 1] = 90
            state[NAME + ".down_proj_blocks"][2, 5, 1] = 0x11

        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(folder, spread)
            sentence = told(lambda: self.load(folder))
        self.assertIn(f"{NAME}.down_proj of expert 2: row 5, columns 32 to 63: a group with a scale below 2^-14", sentence)

    def test_a_checkpoint_that_lacks_scales_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(folder, lambda state: state.pop(NAME + ".down_proj_scales"))
            self.assertIn(f"moejit: missing_tensor: the checkpoint has no {NAME}.down_proj_scales",
                          told(lambda: self.load(folder)))

    def test_a_recipe_that_does_not_take_codes_is_refused(self):
        register_hf("moejit_bf16_of_mxfp4", "bf16")
        self.assertIn('mlp.experts: unsupported: FP8 weights with a scale for each 128x128 block: recipe: got "bf16"',
                      told(lambda: self.load(implementation="moejit_bf16_of_mxfp4")))


if __name__ == "__main__":
    unittest.main()
