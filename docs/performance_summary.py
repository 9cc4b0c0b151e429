# SPDX-License-Identifier: Apache-2.0
"""The first table of docs/performance.md: training steps of all results, each beside what it was compared with."""
import re

from performance_text import layer_command, table, time_text

SHAPE = ("experts", "local_experts", "top_k", "hidden", "intermediate", "max_tokens")
# Families of layers that results of `moejit bench` call by the name of a file.
MODELS = {"dsv3_8_fused": "8 experts of DeepSeek-V3", "gpt_oss_ep8": "16 experts of the sizes of gpt-oss-120b",
          "qwen_fused": "Qwen3-30B-A3B"}


def gpu_name(result):
    """The short name: "NVIDIA H100 80GB HBM3" is an H100."""
    return re.search(r"[A-Z]+\d+", result["gpu"]["name"].removeprefix("NVIDIA ")).group()


def fastest(rows, is_moejit):
    rows = [row for row in rows if "step_hot_ms" in row and row["implementation"].startswith("moejit") == is_moejit]
    return min(rows, key=lambda row: row["step_hot_ms"])


def named(row):
    return f"{row['implementation']}{', compiled' if row['mode'] == 'compiled' else ''}"


def torch_rows(result):
    """A row for each model of transformers: the fastest of moejit beside the fastest of transformers in the same run."""
    for case in result["cases"]:
        ours, other = fastest(case["results"], True), fastest(case["results"], False)
        yield {"model": case["name"], "GPU": gpu_name(result), "tokens": str(case["tokens"]),
               "training step": f"**{time_text(1e3 * ours['step_hot_ms'])}** ({named(ours).removeprefix('moejit ')})",
               "against": f"{time_text(1e3 * other['step_hot_ms'])}: transformers, {named(other)}",
               "command": f"`{result['command_line']}`"}


def bench_row(result, results):
    """A row of `moejit bench --pass training`, beside the same layer in bf16 if that was measured on the same GPU."""
    layer = result["description"]
    others = [other for other in results if other is not result and "step_hot_us" in other
              and other["gpu"]["name"] == result["gpu"]["name"] and other["tokens"] == result["tokens"]
              and other["description"]["recipe"] == "bf16"
              and all(other["description"][name] == layer[name] for name in SHAPE)]
    against = f"{time_text(others[0]['step_hot_us'])}: moejit in bf16" if others else ""
    return {"model": MODELS.get(result["layer"], result["layer"]), "GPU": gpu_name(result),
            "tokens": str(result["tokens"]),
            "training step": f"**{time_text(result['step_hot_us'])}** ({layer['recipe']})", "against": against,
            "command": f"`{layer_command(result['command_line'])}`"}


def summary(results):
    rows = [row for result in results if result.get("kind") == "hf_experts" for row in torch_rows(result)]
    rows += [bench_row(result, results) for result in results
             if "step_hot_us" in result and result["description"]["recipe"] != "bf16"]
    return table(sorted(rows, key=lambda row: (row["command"].startswith("`moejit"), row["model"], row["GPU"])))
