# SPDX-License-Identifier: Apache-2.0
"""What tests of wrong input share."""
import os
import re

import tool

USAGE, FILE, TOOLCHAIN, DEVICE, KERNEL = 2, 3, 4, 5, 6
E, T, K, H, I = 8, 4, 2, 256, 128


class Refusal(tool.ToolTest):
    def refuse(self, arguments, status, *words, **environment):
        """`moejit ARGUMENTS` ends with the status and one sentence that holds all the words."""
        before = sorted(os.listdir(self.folder))
        done = self.run_tool(*arguments, **environment)
        shown = f"{arguments}\n{done.stderr}"
        self.assertEqual(done.returncode, status, shown)
        # Notes: the target, and on a machine that is slow at the moment what takes long.
        lines = [line for line in done.stderr.splitlines() if not re.match(r"moejit: (target |\d+/\d+ )", line)]
        self.assertTrue(lines, shown)
        self.assertRegex(lines[0], r"^moejit: \S", shown)
        self.assertTrue(all(line.startswith("hint: ") for line in lines[1:]), shown)
        self.assertLessEqual(len(lines), 2, shown)
        self.assertNotRegex(done.stderr, r"terminate called|what\(\)|exception|0x[0-9a-f]{9}", shown)
        for word in words:
            self.assertIn(str(word), done.stderr, shown)
        self.assertEqual(done.stdout, "", shown)
        self.assertEqual(sorted(os.listdir(self.folder)), before, shown)
