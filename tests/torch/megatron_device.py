# SPDX-License-Identifier: Apache-2.0
"""Groups of megatron-core 0.16 on the tests' device. On CPUs it needs more: gloo, no streams, and the CPU for "cuda"."""
import contextlib
import importlib.util
import tempfile
import unittest
from unittest import mock

import deep_ep_over_torch
import torch
from ranks import BACKEND
from support import DEVICE
from torch.overrides import TorchFunctionMode

IS_THERE = importlib.util.find_spec("megatron") is not None
deep_ep_over_torch.install()  # before megatron.core looks for it


def needed(case):
    """Skips a class of tests where they cannot run."""
    if not IS_THERE:
        return unittest.skip("needs megatron-core, which .ci/setup-torch fetches")(case)
    return unittest.skipIf(DEVICE.type == "cpu" and torch.cuda.is_available(),
                           "Megatron takes the GPU where there is one, not the CPU")(case)


class OnCpu(TorchFunctionMode):
    """Takes the CPU for "cuda". Optimizers of Megatron ask for the type of tensors by its name."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            kwargs["device"] = "cpu"
        if func is torch.Tensor.to:
            args = [torch.device("cpu") if isinstance(each, torch.device) else each for each in args]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        return args[0] if func is torch.Tensor.cuda else func(*args, **kwargs)


class NoStream:
    """Stands for streams and events: on CPUs nothing is asynchronous."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return NoStream

    def __bool__(self):
        return True


def start(expert_ranks):
    """Makes the groups of this process and of the others, which share experts in groups of so many ranks."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils
    moe_utils.te_general_gemm = None  # without TE 0.16.1 does not define it, and asks for it
    if DEVICE.type == "cpu":
        _replace_cuda()
    parallel_state.initialize_model_parallel(expert_model_parallel_size=expert_ranks, expert_tensor_parallel_size=1,
                                             create_gloo_process_groups=True)
    if DEVICE.type == "cuda":
        random.model_parallel_cuda_manual_seed(0)


def _replace_cuda():
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import token_dispatcher
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.Stream = torch.cuda.Event = torch.cuda.current_stream = torch.cuda.default_stream = NoStream
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.compiler.set_stance("force_eager")  # activations are compiled functions, which take long on CPUs
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    dispatcher = token_dispatcher.MoEAlltoAllTokenDispatcher
    dispatcher._maybe_dtoh_and_synchronize = _splits_to_numpy
    # Processes that help to write checkpoints would import all of this again.
    filesystem_async.mp = mock.Mock(wraps=torch.multiprocessing,
                                    get_context=lambda _: torch.multiprocessing.get_context("fork"))


def _splits_to_numpy(self, point, tokens_per_expert=None):
    """Does without streams what the method of this name does."""
    if point == self.cuda_dtoh_point:
        for name in ("input_splits", "output_splits", "output_splits_tp"):
            value = getattr(self, name, None)
            setattr(self, name, value.numpy() if torch.is_tensor(value) else value)
        self.num_out_tokens = int(self.num_out_tokens)
    return tokens_per_expert


def stop():
    """Ends the groups."""
    from megatron.core import parallel_state
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


@needed
@unittest.skipUnless(DEVICE.type == "cpu", "makes tensors on CPUs")
class OnOneRank(unittest.TestCase):
    """Tests on groups of this process alone."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        torch.distributed.init_process_group(BACKEND, rank=0, world_size=1,
                                             init_method=f"file://{cls.folder.name}/group")
        start(1)

    @classmethod
    def tearDownClass(cls):
        stop()
        cls.folder.cleanup()
