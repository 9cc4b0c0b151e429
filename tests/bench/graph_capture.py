# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of steps: whether they have the bits of eager steps, and which call ends a capture that fails."""
import ctypes
import traceback

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Other threads may ask the device meanwhile, as NCCL's watchdog does about earlier collectives: not "global".
MODES = ("thread_local", "relaxed")
_WARM_UPS = 3
_IS_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_FRAMES = 12


class _Watch(TorchDispatchMode):
    """Asks behind each operator whether the capture is still valid, and keeps the first one behind which it is not."""

    def __init__(self, stream):
        super().__init__()
        self.stream = ctypes.c_void_p(stream.cuda_stream)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.before = "the first operator"
        self.found = None

    def state(self):
        status = ctypes.c_int()
        code = self.driver.cuStreamIsCapturing(self.stream, ctypes.byref(status))
        return None if (code, status.value) == (0, _IS_ACTIVE) else f"status {status.value}, code {code}"

    def note(self, what):
        state = self.state() if self.found is None else None
        if state is not None:
            self.found = {"call": what, "state": state, "stack": traceback.format_stack()[-_FRAMES:-1]}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.note(f"between {self.before} and {function}")
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.note(f"in {function}")
            self.before = str(function)


def warmed_up(step):
    """Returns a stream for a capture, on which some steps have run: autograd gives parameters' gradients a stream at
    their first use, and cuBLAS has a workspace for each stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    return stream


def _captured(step, mode, watch=False):
    """(graph, y, what has failed first or None)."""
    stream = warmed_up(step)
    graph = torch.cuda.CUDAGraph()
    if not watch:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            return graph, step(), None
    seen = _Watch(stream)
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode), seen:
            y = step()
    except Exception as error:  # of any kind: this is what is asked for
        return None, None, {"error": "".join(traceback.format_exception(error)), "first": seen.found}
    return graph, y, None


def is_exact(step):
    """Whether a graph of the step has the bits of eager steps, with the tokens of its capture and with others."""
    graph, y, _ = _captured(step, MODES[0])
    made = [y, step.leaf.grad]
    made += [parameter.grad for parameter in step.module.parameters() if parameter.grad is not None]
    exact = True
    for _ in range(2):
        graph.replay()
        got = [each.detach().clone() for each in made]
        exact = exact and all(map(torch.equal, got, step.results()))
        with torch.no_grad():
            step.leaf.copy_(step.leaf.flip(0))
    return exact


def explained(step):
    """is_exact(), or what is known of a capture that fails: its error, and for each mode the first call that fails in
    another capture; None: that one did not fail."""
    try:
        return {"is_exact": is_exact(step)}
    except Exception as error:  # of any kind: the other layers must still be measured
        found = {"is_exact": False, "error": "".join(traceback.format_exception(error))}
    for mode in MODES:
        try:
            torch.cuda.synchronize()
            found[mode] = _captured(step, mode, watch=True)[2]
        except Exception as error:  # of any kind, such as a warm-up that finds the device in error
            found[mode] = {"error": "".join(traceback.format_exception(error)), "first": None}
    return found
