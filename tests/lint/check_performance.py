# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and the plots are what the scripts in docs/ make of their results."""
import sys

import source_tree

sys.path.insert(0, str(source_tree.ROOT / "docs"))
import generate_performance  # noqa: E402
import generate_ranks_plot  # noqa: E402
import generate_step_times  # noqa: E402
import generate_training_plot  # noqa: E402


def plot_findings(folder):
    """A sentence for each plot in a folder that is not what its results give; there is none without results."""
    found = []
    for script, results in ((generate_step_times, "*-hf-experts.json"), (generate_ranks_plot, "*-expert-parallel.json")):
        path = folder / script.PLOT.name
        if (path.read_text(encoding="utf-8") if path.exists() else None) != script.plot(folder):
            found.append(f"docs/performance/{path.name}: run python3 docs/{script.__name__}.py; it draws the results named "
                         f"{results}")
    return found


def training_findings(folder):
    """A sentence where the plot of training losses is not what their file gives."""
    if (folder / generate_training_plot.PLOT.name).read_text(encoding="utf-8") == generate_training_plot.plot(folder):
        return []
    return ["docs/training/losses.svg: run python3 docs/generate_training_plot.py; it draws losses.json"]


def main():
    wanted = generate_performance.page(source_tree.ROOT / "docs/performance")
    found = []
    if source_tree.read("docs/performance.md") != wanted:
        found.append("docs/performance.md: run python3 docs/generate_performance.py; its text is in "
                     "docs/performance/")
    found += plot_findings(source_tree.ROOT / "docs/performance")
    found += training_findings(source_tree.ROOT / "docs/training")
    source_tree.finish("performance", found, 3)


if __name__ == "__main__":
    main()
