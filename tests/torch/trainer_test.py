# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer with its default optimizer, the fused AdamW: evaluations between steps see the steps."""
import importlib.util
import tempfile
import unittest

import torch
import transformers

from support import DEVICE, I, K, MAX_TOKENS
from moejit.torch import register_hf

HAS_ACCELERATE = importlib.util.find_spec("accelerate") is not None
STEPS, EVERY, LENGTH, VOCABULARY = 20, 5, 8, 64

transformers.logging.set_verbosity_error()
for _name, _cache_weights in (("trainer_default", None), ("trainer_kept", True), ("trainer_not_kept", False)):
    register_hf(_name, max_tokens=MAX_TOKENS, cache_weights=_cache_weights)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, VOCABULARY, (LENGTH,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


def make(implementation):
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=I, moe_intermediate_size=I, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=4, num_experts_per_tok=K,
        norm_topk_prob=True, use_cache=False)
    model = transformers.Qwen3MoeForCausalLM(config).bfloat16()
    model.set_experts_implementation(implementation)
    return model


def evaluations(implementation, folder, **more):
    """The losses of all evaluations of a run, and that of one behind it."""
    torch._dynamo.reset()
    trainer = transformers.Trainer(
        make(implementation), transformers.TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=2, per_device_eval_batch_size=4, learning_rate=1e-2,
            eval_strategy="steps", eval_steps=EVERY, save_strategy="no", report_to=[], use_cpu=DEVICE.type == "cpu",
            disable_tqdm=True, log_level="error", logging_strategy="no", seed=0, **more),
        train_dataset=Data(), eval_dataset=Data())
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train()
    told = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    return told + [trainer.evaluate()["eval_loss"]]


@unittest.skipUnless(HAS_ACCELERATE, "needs accelerate, without which transformers has no Trainer")
class Trainer(unittest.TestCase):

    def assert_evaluations_are_of_their_moment(self, implementations=("trainer_default",), **more):
        with tempfile.TemporaryDirectory() as folder:
            want = evaluations("trainer_not_kept", folder, **more)
            self.assertEqual(len(want), STEPS // EVERY + 1)
            # Else losses of weights of another moment would be as good.
            self.assertEqual(len(set(want[:-1])), STEPS // EVERY, want)
            for implementation in implementations:
                self.assertEqual(evaluations(implementation, folder, **more), want, implementation)

    def test_eager(self):
        self.assert_evaluations_are_of_their_moment(("trainer_default", "trainer_kept"))

    def test_compiled(self):
        backend = "eager" if DEVICE.type == "cpu" else "inductor"
        self.assert_evaluations_are_of_their_moment(torch_compile=True, torch_compile_backend=backend)

    def test_checkpoints_that_run_forward_without_gradients(self):
        self.assert_evaluations_are_of_their_moment(gradient_checkpointing=True,
                                                    gradient_checkpointing_kwargs={"use_reentrant": True})


if __name__ == "__main__":
    unittest.main()
