# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md is what docs/generate_performance.py makes of docs/performance/."""
import sys

import source_tree

sys.path.insert(0, str(source_tree.ROOT / "docs"))
import generate_performance  # noqa: E402


def main():
    wanted = generate_performance.page(source_tree.ROOT / "docs/performance")
    found = []
    if source_tree.read("docs/performance.md") != wanted:
        found.append("docs/performance.md: run python3 docs/generate_performance.py; its text is in "
                     "docs/performance/")
    source_tree.finish("performance", found, 1)


if __name__ == "__main__":
    main()
