# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer: checkpoints, resuming, and accumulation of float32 gradients."""
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import torch
import transformers

from support import DEVICE, assert_same_bits
from moejit.torch import register_hf

STEPS, SAVED = 4, 2  # a checkpoint after two of four steps
CONFIG = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 8,
          "num_experts_per_tok": 2, "decoder_sparse_step": 1, "norm_topk_prob": True}

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
register_hf()


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Weights(transformers.TrainerCallback):
    """Keeps copies of the weights at the beginning of each step."""

    def __init__(self):
        self.of_steps = {}

    def on_step_begin(self, args, state, control, model=None, **_):
        self.of_steps[state.global_step] = [parameter.detach().clone() for parameter in model.parameters()]


def make(seed=0):
    torch.manual_seed(seed)
    return transformers.Qwen3MoeForCausalLM._from_config(transformers.Qwen3MoeConfig(**CONFIG), dtype=torch.bfloat16)


def trainer_of(model, folder, **options):
    model.set_experts_implementation("moejit")
    arguments = transformers.TrainingArguments(
        str(folder), **{"max_steps": STEPS, "per_device_train_batch_size": 2, "learning_rate": 0.01,
                        "save_steps": SAVED, "logging_steps": 1, "report_to": [], "disable_tqdm": True,
                        "use_cpu": DEVICE.type == "cpu", **options})
    return transformers.Trainer(model, arguments, train_dataset=Texts(), callbacks=[Weights()])


def weights_of(trainer, step):
    callback, = (each for each in trainer.callback_handler.callbacks if isinstance(each, Weights))
    return callback.of_steps[step]


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def experts(model):
    """The experts' parameters on the host: a trainer moves its model to a GPU that is there."""
    return [parameter.detach().cpu() for name, parameter in model.named_parameters() if ".experts." in name]


class Training(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.checkpoint = cls.folder / "straight" / f"checkpoint-{SAVED}"
        with open(os.devnull, "w") as nothing, unittest.mock.patch("sys.stdout", nothing):
            cls.straight = trainer_of(make(), cls.folder / "straight")
            cls.straight.train()

    def train(self, trainer, **options):
        with open(os.devnull, "w") as nothing, unittest.mock.patch("sys.stdout", nothing):
            trainer.train(**options)
        return losses(trainer)

    def test_a_run_that_is_resumed_has_the_losses_of_one_that_was_not(self):
        model = transformers.AutoModelForCausalLM.from_pretrained(self.checkpoint, dtype=torch.bfloat16)
        resumed = trainer_of(model, self.folder / "resumed")
        got = self.train(resumed, resume_from_checkpoint=str(self.checkpoint))
        assert_same_bits(self, weights_of(resumed, SAVED), weights_of(self.straight, SAVED))
        self.assertEqual(got, losses(self.straight))

    def test_transformers_still_loses_experts_of_models_that_were_made_otherwise(self):
        model = make(seed=1)
        trainer_of(model, self.folder / "lost")._load_from_checkpoint(str(self.checkpoint))
        first = experts(make(seed=1))
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(experts(model), first, strict=True)),
                        "transformers loads the experts now: take the warning out of docs/fine-tuning.md")

    def test_a_saved_model_does_not_name_moejit(self):
        self.assertNotIn("moejit", (self.checkpoint / "config.json").read_text())

    def test_accumulation_of_float32_gradients(self):
        trainer = trainer_of(make().float(), self.folder / "float32", bf16=True, max_steps=1,
                             gradient_accumulation_steps=2, per_device_train_batch_size=1, save_strategy="no")
        before = experts(make().float())
        loss, = self.train(trainer)
        self.assertAlmostEqual(loss, losses(self.straight)[0], delta=0.1)
        for was, now in zip(before, experts(trainer.model), strict=True):
            self.assertEqual(now.dtype, torch.float32)
            self.assertFalse(torch.equal(was, now))


if __name__ == "__main__":
    unittest.main()
