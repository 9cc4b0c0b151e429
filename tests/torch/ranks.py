# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes, the ranks of a torch.distributed group, and returns what each returned."""
import datetime
import pathlib
import tempfile
import traceback
import unittest

import torch
import torch.distributed as dist

from support import DEVICE

BACKEND = "gloo" if DEVICE.type == "cpu" else "nccl"
PATIENCE = datetime.timedelta(seconds=120)  # after which a rank gives up waiting for another that has failed


def run_on_ranks(function, count=2, method="spawn"):
    """[what `function(device)` returned on each rank]. It has to be a module's function. Its failure is this one's.

    With "fork" ranks need not import again what this process has imported, which must not have run anything yet. On
    GPUs that means no CUDA, which importing may begin: there ranks are spawned. Too few of them skip the test.
    """
    if not is_possible(count):
        raise unittest.SkipTest(f"needs {count} GPUs")
    if DEVICE.type == "cuda":
        method = "spawn"
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / str(rank) for rank in range(count)]
        try:
            torch.multiprocessing.start_processes(_work, (function, count, folder), nprocs=count, start_method=method)
        except torch.multiprocessing.ProcessExitedException as error:
            # Ranks of gloo sometimes end like this when the interpreter takes their threads down.
            if error.signal_name != "SIGABRT" or not all(file.exists() for file in files):
                raise
        results = [torch.load(file, weights_only=False) for file in files]
    failed = [result for result in results if isinstance(result, str)]
    if failed:
        raise AssertionError("\n".join(failed))  # a rank that others wait for has another reason than they
    return results


def is_possible(count=2):
    """Whether the tests' device exists often enough."""
    return DEVICE.type == "cpu" or torch.cuda.device_count() >= count


def _work(rank, function, count, folder):
    torch.set_num_threads(1)
    device = DEVICE if DEVICE.type == "cpu" else torch.device(DEVICE.type, rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # A file and no port: other tests may run beside this one.
    dist.init_process_group(BACKEND, init_method=f"file://{folder}/group", rank=rank, world_size=count, timeout=PATIENCE)
    try:
        result = function(device)
        dist.barrier()  # that no rank leaves while another one is in a collective of the function
    except Exception:
        result = f"rank {rank}:\n{traceback.format_exc()}"
    torch.save(result, pathlib.Path(folder) / str(rank))
    if not isinstance(result, str):
        dist.barrier()  # that no rank ends before all have saved
    dist.destroy_process_group()
