# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT of megatron-core whose experts run on moejit: torchrun --nproc-per-node 1 train_megatron.py"""
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

from moejit.torch.megatron import convert_spec

SEQUENCE, BATCH, VOCABULARY = 16, 2, 128


def train(steps):
    """Returns the model, and the loss of each step."""
    config = TransformerConfig(
        num_layers=1, hidden_size=64, num_attention_heads=4, ffn_hidden_size=32, moe_ffn_hidden_size=32,
        num_moe_experts=8, moe_router_topk=2, moe_token_dispatcher_type="alltoall", moe_aux_loss_coeff=0.0,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, hidden_dropout=0.0,
        attention_dropout=0.0, params_dtype=torch.bfloat16, bf16=True, expert_tensor_parallel_size=1,
        use_cpu_initialization=True)
    spec = convert_spec(get_gpt_layer_local_spec(num_experts=8), recipe="fp8_flow", max_tokens=64)
    torch.manual_seed(0)
    model = GPTModel(config, spec, vocab_size=VOCABULARY, max_sequence_length=SEQUENCE).bfloat16().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    positions = torch.arange(SEQUENCE, device="cuda").expand(BATCH, -1)
    future = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool, device="cuda").triu(1)
    losses = []
    for _ in range(steps):
        loss = model(tokens, positions, future, labels=tokens.roll(-1, 1)).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(0)
    for step, loss in enumerate(train(steps=8)[1]):
        print(f"step {step}: loss {loss:.4f}")
    torch.distributed.destroy_process_group()
