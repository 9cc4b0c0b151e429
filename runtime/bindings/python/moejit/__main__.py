# SPDX-License-Identifier: Apache-2.0
"""Runs the command line tool: `python -m moejit`."""
from moejit.tool import main

if __name__ == "__main__":
    main()
