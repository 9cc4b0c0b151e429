# SPDX-License-Identifier: Apache-2.0
"""The plugin that vLLM finds by the entry point of this package, in the group "vllm.general_plugins"."""
import logging


def register() -> None:
    """Offers moejit.torch.vllm.MoejitExperts to vLLM's `--moe-backend moejit`. vLLM calls it in each of its processes.

    The class is named and not imported: vLLM imports it where it is chosen. A vLLM that takes no backends from outside
    gets none, and loads as before.
    """
    try:
        from vllm.model_executor.layers.fused_moe.oracle import register_fp8_moe_backend
    except ImportError:
        logging.getLogger("moejit").info("this vLLM takes no backends of experts from outside, so it has no "
                                         "--moe-backend moejit")
        return
    register_fp8_moe_backend("moejit", "moejit.torch.vllm.MoejitExperts")
