# SPDX-License-Identifier: Apache-2.0
"""Runs a function on ranks that are threads of this process, as the simulator has them, with torch's threaded groups."""
import threading
import traceback

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg

PATIENCE = 120  # seconds after which ranks that wait for each other are given up


def run_on_threads(function, count=2):
    """[what `function(process group, rank)` returned on each rank]. Its failure is this one's.

    A rank whose function raises ends waiting for the others, unless all raise.
    """
    results, failures = [None] * count, [None] * count
    store = dist.HashStore()

    def run(rank):
        try:
            dist.init_process_group("threaded", rank=rank, world_size=count, store=store)
            results[rank] = function(dist.group.WORLD, rank)
        except BaseException as error:
            failures[rank] = "".join(traceback.format_exception(error))
            multi_threaded_pg.ProcessLocalGroup.exception_handle(error)

    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    multi_threaded_pg._install_threaded_pg()
    try:
        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        if any(thread.is_alive() for thread in threads):
            raise AssertionError(f"ranks still wait after {PATIENCE} s")
    finally:
        multi_threaded_pg.ProcessLocalGroup.reset()
        multi_threaded_pg._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
    failed = [failure for failure in failures if failure is not None and "termination event" not in failure]
    if failed:
        raise AssertionError(failed[0])
    return results
