# SPDX-License-Identifier: Apache-2.0
"""`python -m moejit`: the command line tool."""
from moejit.tool import main

if __name__ == "__main__":
    main()
