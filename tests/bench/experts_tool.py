# SPDX-License-Identifier: Apache-2.0
"""Runs `moejit bench` for the layer that a module of experts runs, to compare it with a step in PyTorch."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

_UNROUTED_SHARE = 1 / 64  # share of the choices, in the data of `moejit bench` for layers with all experts


def layer_of(step):
    """Returns the JSON description of the layer with a backward pass that a moejit.torch module runs in a step."""
    step.module(step.inputs.x, step.inputs.ids, step.inputs.probs)
    calls = step.module._moejit_state.calls.values()
    described = (text.split(" ", 4)[4] for call in calls for text in call.layers.values())
    return next(text for text in described if "backward" in json.loads(text)["passes"])


def run_tool(layer, tokens, hot_seconds):
    """Returns the result of `moejit bench --pass training` for a layer description. Raises the tool's error message."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "layer.json"
        path.write_text(layer)
        command = [sys.executable, "-m", "moejit", "bench", path, "--pass", "training", "--tokens", str(tokens),
                   "--hot-seconds", str(hot_seconds), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def step_ms(result):
    """Returns the time of a step's kernels in a result of the tool: those of weights, forward and backward."""
    weights = sum(kernel["hot_us"] for kernel in result["kernels"] if kernel["phase"] == "weights")
    return 1e-3 * (weights + result["step_hot_us"])


def with_rows_of_tool(inputs):
    """Returns the inputs with the same share of choices without an expert as the tool's data."""
    changed = copy.copy(inputs)
    generator = torch.Generator(inputs.ids.device).manual_seed(2)
    is_unrouted = torch.rand(inputs.ids.shape, device=inputs.ids.device, generator=generator) < _UNROUTED_SHARE
    changed.ids = inputs.ids.masked_fill(is_unrouted, -1)
    return changed


def ratio_text(row):
    """Returns the text about a row that was compared."""
    return (f"{row['tool_rows_step_hot_ms']:.3f} ms a step beside {row['tool_step_hot_ms']:.3f} ms by `moejit bench`: "
            f"{row['ratio_to_tool']:.3f}")
