# SPDX-License-Identifier: Apache-2.0
"""Kernels made ahead of time: a process that may compile nothing trains, evaluates and generates with them.

This process is frozen, has no compiler, and takes kernels from one pack only. `moejit layer --for torch` and `moejit
build` make that pack before moejit is imported.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch
import transformers

TOKENS = 32  # the largest number of tokens of a call: there are layers of 16 and of 32
FOLDER = tempfile.TemporaryDirectory(prefix="moejit-ahead-")
PATH = pathlib.Path(FOLDER.name)
TOOL = os.environ["MOEJIT_TOOL"]
PACK = PATH / "kernels.moejitpack"
MODEL = transformers.Qwen3MoeConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2,
    decoder_sparse_step=1, norm_topk_prob=True)
RECIPES = ("bf16", "fp8_blockwise", "fp8_current", "fp8_flow", "fp8_rowwise", "mxfp8", "nvfp4")


def run_tool(*arguments, **environment):
    """What the tool prints, as one that may compile."""
    names = ("MOEJIT_FROZEN", "MOEJIT_PACKS", "MOEJIT_CXX", "MOEJIT_NVRTC")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run([TOOL, *map(str, arguments)], env={**variables, **environment}, check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def list_layers(configuration, recipe="fp8_flow", tokens=TOKENS):
    """The list that `moejit layer --for torch` prints."""
    configuration.to_json_file(PATH / "config.json")
    return json.loads(run_tool("layer", "--from-hf", PATH, "--for", "torch", "--max-tokens", tokens, "--recipe", recipe))


KEPT = os.environ["MOEJIT_CACHE_DIR"]
(PATH / "layers.json").write_text(json.dumps(list_layers(MODEL)))
TARGET = "sim" if os.environ.get("MOEJIT_TEST_DEVICE", "cpu") == "cpu" else "cuda"  # of an H100 or H200
run_tool("build", PATH / "layers.json", "--target", TARGET, "--variants", "described", "--pack", PACK)
os.environ.update(MOEJIT_FROZEN="1", MOEJIT_PACKS=str(PACK), MOEJIT_CACHE_DIR=str(PATH / "cache"),
                  MOEJIT_CXX="/absent/c++", MOEJIT_NVRTC="/absent/libnvrtc.so.13")

from support import DEVICE, ROOT
import moejit
import moejit.torch
from moejit import texts
from moejit.torch import ops

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

transformers.logging.set_verbosity_error()
moejit.torch.register_hf()
for _recipe in RECIPES:
    moejit.torch.register_hf(f"moejit_{_recipe}", _recipe)


def make(implementation="moejit", device=DEVICE):
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.Qwen3MoeForCausalLM._from_config(MODEL, dtype=torch.bfloat16)
    model.set_experts_implementation(implementation)
    return model


def step(model, tokens):
    """A training step's loss."""
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    return loss


def freeze(model, is_trained):
    """Trains the parameters with these names only."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name))


def kernels_of(layers, target="cuda:sm_90a"):
    """The kernels of layers: what decides a kernel's source, and thus its key, is its spec and the target."""
    found = set()
    for layer in layers:
        with moejit.Layer(layer, target) as planned:
            found |= {(kernel["operation"], kernel["spec"]) for kernel in planned.plan()["kernels"]}
    return found


@contextlib.contextmanager
def layers_asked_for():
    """A list of the layers, as JSON, that operators get."""
    asked, original = [], ops.row_of

    def note(layer, call):
        asked.append(texts.read(layer).json)
        return original(layer, call)

    ops.row_of = note
    try:
        yield asked
    finally:
        ops.row_of = original


class Frozen(unittest.TestCase):

    def setUp(self):
        self.tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0)).to(DEVICE)
        torch._dynamo.reset()

    def test_training_evaluation_and_generation(self):
        model = make()
        self.assertTrue(step(model, self.tokens).isfinite())
        with torch.no_grad():
            model(self.tokens)
            model(self.tokens[:, :8])  # 16 tokens
            model.generate(self.tokens, max_new_tokens=3, do_sample=False)
        moejit.torch.update_weights(model)

    def test_compiled_calls(self):
        model = make()
        compiled = torch.compile(model, backend="aot_eager")
        step(compiled, self.tokens)
        moejit.torch.update_weights(model)
        with torch.no_grad():
            compiled(self.tokens)

    def test_float32_under_autocast(self):
        with torch.autocast(DEVICE.type, torch.bfloat16):
            step(make().float(), self.tokens)

    def test_frozen_parameters(self):
        for what, is_trained in (("attention", lambda name: "self_attn" in name),
                                 ("experts", lambda name: "experts" in name),
                                 ("one weight", lambda name: name.endswith("experts.down_proj")),
                                 ("routers", lambda name: "gate.weight" in name),
                                 ("all but embeddings", lambda name: "embed" not in name)):
            with self.subTest(what=what):
                model = make()
                freeze(model, is_trained)
                step(model, self.tokens)

    def test_a_miss_tells_the_layer_and_how_to_make_it(self):
        model = make()
        module = model.model.layers[1].mlp.experts
        x = torch.zeros(4, 64, dtype=torch.bfloat16, device=DEVICE)
        given = x, torch.zeros(4, 2, dtype=torch.int32, device=DEVICE), torch.ones(4, 2, device=DEVICE)
        with torch.no_grad(), self.assertRaises(RuntimeError) as caught:
            module(*given)
        told = str(caught.exception)
        self.assertRegex(told, r"^moejit: cache_miss: model\.layers\.1\.mlp\.experts: .*the frozen cache .* has no kernel "
                               r"moejit_route_")
        self.assertIn('moejit.torch.build(model, tokens=16, target=..., pack="kernels.moejitpack")', told)
        wanted = PATH / "wanted.json"
        wanted.write_text(told.splitlines()[-1])
        run_tool("build", wanted, "--target", TARGET, "--cache-dir", PATH / "made")
        code = ("import json, sys, moejit\nlayer = moejit.Layer(json.load(open(sys.argv[1])), sys.argv[2])\n"
                "layer.prepare()\n")
        subprocess.run([sys.executable, "-c", code, wanted, TARGET], check=True,
                       env=os.environ | {"MOEJIT_CACHE_DIR": str(PATH / "made")})


class Lists(unittest.TestCase):
    """The kernels that are made are those that calls ask for, for GPUs too. Tensors on "meta" are planned for a GPU."""

    def assert_same_layers(self, model, recipe):
        """A model and its configuration give the same layers."""
        built = list(moejit.torch.ahead._layers_of_calls(model, TOKENS))
        listed = list_layers(model.config, recipe)
        names = sorted(set().union(*built))

        def told(layer):  # the tool tells fields that are false, and the dtype of gradients that there are none of
            return json.dumps({name: layer.get(name) or None for name in names
                               if name != "wgrad_dtype" or layer.get("gradients")})

        self.assertEqual(set(map(told, built)), set(map(told, listed)))
        self.assertEqual(len(built), len(listed))

    def test_a_model_and_its_configuration_in_every_recipe(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                self.assert_same_layers(make(f"moejit_{recipe}", "meta"), recipe)

    def test_a_model_and_its_configuration_of_every_family(self):
        for family in make_checkpoints.families(8, 32):
            with self.subTest(family=family):
                model = make_checkpoints.make_model(family, 8, 64, 32)
                model.set_experts_implementation("moejit_bf16")
                self.assert_same_layers(model, "bf16")

    def test_calls_ask_for_nothing_else(self):
        built = kernels_of(list_layers(MODEL))
        with layers_asked_for() as asked:
            for is_trained in (lambda name: True, lambda name: "self_attn" in name, lambda name: "experts" in name,
                               lambda name: "gate.weight" in name, lambda name: name.endswith("experts.gate_up_proj")):
                model = make(device="meta")
                freeze(model, is_trained)
                for length in (8, 12):
                    tokens = torch.zeros(2, length, dtype=torch.int64, device="meta")
                    step(model, tokens)
                    with torch.no_grad():
                        model(tokens)
        self.assertEqual({json.loads(layer)["max_tokens"] for layer in asked}, {16, 32})
        kernels = kernels_of(map(json.loads, set(asked)))
        self.assertLessEqual(kernels, built)
        self.assertGreater(len(kernels), len(built) / 2)


class Build(unittest.TestCase):

    def test_a_pack_of_a_model(self):
        pack = PATH / "model.moejitpack"
        with unittest.mock.patch.dict(os.environ):
            del os.environ["MOEJIT_CXX"]
            layers = moejit.torch.build(make(), [16, TOKENS], target=TARGET, pack=pack, cache_dir=KEPT)
        self.assertEqual(len(layers), len(list_layers(MODEL)))
        self.assertEqual(pack.read_bytes(), PACK.read_bytes())

    def test_a_module(self):
        module = moejit.torch.Experts(8, 64, 32, 2, max_tokens=100, device="meta", delay_wgrad_compute=True)
        layers = list(moejit.torch.ahead._layers_of_calls(module, 1))
        self.assertEqual({layer["max_tokens"] for layer in layers}, {100})
        self.assertIn(True, {layer["backward_halves"] for layer in layers})

    def test_refusals(self):
        for what, words in (
                (lambda: moejit.torch.build(make("eager"), 16), "Qwen3MoeForCausalLM has no experts that run on moejit"),
                (lambda: moejit.torch.build(make(), 0), "tokens: got 0, wanted the largest number of tokens"),
                (lambda: moejit.torch.build(make(), []), r"tokens: got \[\], wanted"),
                (lambda: moejit.torch.build(make(), 16, target="cuda:sm_80a"), r"moejit: build\(\): .*cuda:sm_80a")):
            self.assertRaisesRegex(RuntimeError, words, what)


if __name__ == "__main__":
    unittest.main()
