# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and the plots are what the scripts in docs/ make of their results."""
import json
import re
import sys

import source_tree

sys.path.insert(0, str(source_tree.ROOT / "docs"))
import generate_megatron_plot  # noqa: E402
import generate_performance  # noqa: E402
import generate_ranks_plot  # noqa: E402
import generate_step_times  # noqa: E402
import generate_training_plot  # noqa: E402


def plot_findings(folder):
    """A sentence for each plot in a folder that is not what its results give; there is none without results."""
    found = []
    for script, results in ((generate_step_times, "*-hf-experts.json"), (generate_ranks_plot, "*-expert-parallel.json"),
                            (generate_megatron_plot, "*-megatron.json")):
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


BENCH = re.compile(r"moejit bench (\S+\.json)")
LAYERS = "docs/performance/layers"


def layer_findings(root):
    """A sentence for each command of a published figure whose layer is not in the repository."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "docs").glob("performance*.md"))}
    for path in sorted((root / "docs/performance").glob("*.json")):
        texts[path] = json.loads(path.read_text(encoding="utf-8")).get("command_line", "")
    found = []
    for path, text in texts.items():
        for name in sorted(set(BENCH.findall(text))):
            if not (root / name).is_file() and not (root / LAYERS / name).is_file():
                found.append(f"{path.relative_to(root)}: layer {name} is neither there nor in {LAYERS}: add it, with the "
                             "figures of \"description\" in the results")
    return found


def main():
    wanted = generate_performance.page(source_tree.ROOT / "docs/performance")
    found = []
    if source_tree.read("docs/performance.md") != wanted:
        found.append("docs/performance.md: run python3 docs/generate_performance.py; its text is in "
                     "docs/performance/")
    found += plot_findings(source_tree.ROOT / "docs/performance")
    found += training_findings(source_tree.ROOT / "docs/training")
    found += layer_findings(source_tree.ROOT)
    source_tree.finish("performance", found, 4)


if __name__ == "__main__":
    main()
