# SPDX-License-Identifier: Apache-2.0
"""The matrix of stale weights (staleness_test.py), of the doors for models and serving libraries, and of groups."""
import unittest

import torch.distributed as dist

from support import DEVICE
from staleness_doors import GROUP_KINDS, KINDS
from staleness_test import add_tests


class Doors(unittest.TestCase):
    pass


class Groups(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo" if DEVICE.type == "cpu" else "nccl", store=dist.HashStore(), rank=0,
                                world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)


add_tests(Doors, KINDS)
add_tests(Groups, GROUP_KINDS)

if __name__ == "__main__":
    unittest.main()
