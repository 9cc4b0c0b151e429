# SPDX-License-Identifier: Apache-2.0
"""How functions and modules of Transformer Engine of August 2026 (2.20) are called: names and parameters."""


def moe_permute(inp, routing_map, num_out_tokens, max_token_num=-1, map_type="mask"): ...


def moe_permute_with_probs(inp, probs, routing_map, num_out_tokens): ...


def moe_permute_and_pad_with_probs(inp, probs, routing_map, tokens_per_expert, align_size): ...


def moe_unpermute(inp, row_id_map, merging_probs=None, restore_shape=None, map_type="mask", probs=None,
                  pad_offsets=None): ...


def moe_sort_chunks_by_index(inp, split_sizes, sorted_index): ...


def moe_sort_chunks_by_index_with_probs(inp, probs, split_sizes, sorted_index): ...


def multi_tensor_quantize(tensor_list, quantizers): ...


def fused_topk_with_score_function(logits, topk, use_pre_softmax, num_groups, group_topk, scaling_factor,
                                   score_function, expert_bias, routing_map_format=0, topk_indices=None,
                                   qb_histogram=None, qb_bin_bounds=None, qb_histogram_mode=None):
    """0 stands for RoutingMapFormat.BYTEMAP."""


def fused_compute_score_for_moe_aux_loss(logits, topk, score_function, routing_map_format=0): ...


def fused_moe_aux_loss(probs, tokens_per_expert, total_num_tokens, num_experts, topk, coeff): ...


class Fp8Padding:
    def __init__(self, num_gemms, align_size=None): ...

    def forward(self, inp, m_splits): ...


class Fp8Unpadding:
    def __init__(self, num_gemms, align_size=None): ...

    def forward(self, inp, m_splits): ...
