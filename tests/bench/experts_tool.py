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
    return layer_of_calls(step.module._moejit_state)


def layer_of_calls(state):
    """Returns the JSON description of the layer with a backward pass that calls with this state have run."""
    described = (text.split(" ", 4)[4] for call in state.calls.values() for text in call.layers.values())
    return next(text for text in described if "backward" in json.loads(text)["passes"])


def run_tool(layer, tokens, hot_seconds, routing="skewed"):
    """Returns the result of `moejit bench --pass training` for a layer description. Raises the tool's error message."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "layer.json"
        path.write_text(layer)
        command = [sys.executable, "-m", "moejit", "bench", path, "--pass", "training", "--tokens", str(tokens),
                   "--routing", routing, "--hot-seconds", str(hot_seconds), "--json"]
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
    changed.ids = with_choices_of_tool(inputs.ids)
    return changed


def with_choices_of_tool(ids):
    """Returns the ids of experts with the same share of choices without one as the tool's data."""
    generator = torch.Generator(ids.device).manual_seed(2)
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device, generator=generator) < _UNROUTED_SHARE, -1)


def fields_beside(result, milliseconds):
    """Returns fields about a result of the tool, beside the time of a step with as many rows."""
    tool = step_ms(result)
    return {"tool_step_hot_ms": tool, "tool_step_hot_mhz": result["step_hot_mhz"], "ratio_to_tool": milliseconds / tool}


def ratio_text(row, step="tool_rows_step"):
    """Returns the text about a row that was compared by the time of `step`."""
    return (f"{row[f'{step}_hot_ms']:.3f} ms a step beside {row['tool_step_hot_ms']:.3f} ms by `moejit bench`: "
            f"{row['ratio_to_tool']:.3f}")
