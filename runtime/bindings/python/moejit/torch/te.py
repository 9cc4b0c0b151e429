# SPDX-License-Identifier: Apache-2.0
"""Functions with the names, arguments and results of Transformer Engine's, for callers that have its calls already."""
from moejit.torch.te_chunks import (Fp8Padding, Fp8Unpadding, moe_sort_chunks_by_index,
                                    moe_sort_chunks_by_index_with_probs)
from moejit.torch.te_megatron import patch
from moejit.torch.te_permute import (moe_permute, moe_permute_and_pad_with_probs, moe_permute_with_probs, moe_unpermute)
from moejit.torch.te_quantize import Fp8Quantizer, Fp8Tensor, multi_tensor_quantize
from moejit.torch.te_router import (fused_compute_score_for_moe_aux_loss, fused_moe_aux_loss,
                                    fused_topk_with_score_function)
from moejit.torch.te_routing import status

__all__ = ["Fp8Padding", "Fp8Quantizer", "Fp8Tensor", "Fp8Unpadding", "fused_compute_score_for_moe_aux_loss",
           "fused_moe_aux_loss", "fused_topk_with_score_function", "moe_permute", "moe_permute_and_pad_with_probs",
           "moe_permute_with_probs", "moe_sort_chunks_by_index", "moe_sort_chunks_by_index_with_probs", "moe_unpermute",
           "multi_tensor_quantize", "patch", "status"]
