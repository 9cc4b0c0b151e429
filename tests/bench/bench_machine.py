# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine of a figure: GPU, clock, power, versions."""
import ctypes
import platform
import statistics
import time

import torch

_SM_CLOCK = 1
_THROTTLE_REASONS = {0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal_slowdown",
                     0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}


class Watch:
    """Clock and power of the current GPU from NVML; finds nothing if NVML is missing."""

    def __init__(self, device):
        self.handle = None
        self.samples = []
        self.last = 0.0
        if device.type != "cuda":
            return
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        handle = ctypes.c_void_p()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) == 0:
            self.handle = handle

    def _ask(self, function, *arguments, kind=ctypes.c_uint):
        value = kind()
        if self.handle is None or getattr(self.nvml, function)(self.handle, *arguments, ctypes.byref(value)) != 0:
            return None
        return value.value

    def facts(self):
        """Returns constant facts: power limit, highest clock, driver; with the names of `moejit bench --json`."""
        found = {}
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        if limit is not None:
            found["power_limit_watts"] = limit / 1000
        most = self._ask("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)
        if most is not None:
            found["most_mhz"] = most
        if self.handle is not None:
            text = ctypes.create_string_buffer(96)
            if self.nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
                found["driver"] = text.value.decode()
        return found

    def sample(self):
        """Records clock and power, at most every 50 ms."""
        now = time.monotonic()
        if self.handle is None or now - self.last < 0.05:
            return
        self.last = now
        self.samples.append((self._ask("nvmlDeviceGetClockInfo", _SM_CLOCK), self._ask("nvmlDeviceGetPowerUsage"),
                             self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)))

    def take(self, prefix):
        """Returns and forgets the records: mean MHz, mean watts, and the reasons for a reduced clock."""
        samples, self.samples = self.samples, []
        found = {}
        for index, name, unit in ((0, "mhz", 1), (1, "watts", 1000)):
            values = [sample[index] / unit for sample in samples if sample[index] is not None]
            if values:
                found[f"{prefix}_{name}"] = round(statistics.fmean(values), 1)
        reasons = 0
        for sample in samples:
            reasons |= sample[2] or 0
        held = [name for bit, name in _THROTTLE_REASONS.items() if reasons & bit]
        if held:
            found[f"{prefix}_throttle_reasons"] = held
        return found


def gpu_facts(device, watch):
    """Returns the facts about the device for a result."""
    if device.type != "cuda":
        return {"name": f"none: {platform.processor() or platform.machine()}, simulator", "sm_count": 0}
    properties = torch.cuda.get_device_properties(device)
    return {"name": properties.name, "sm_count": properties.multi_processor_count, "cuda": torch.version.cuda,
            **watch.facts()}


def versions():
    """Returns the versions of the software that took part."""
    import transformers
    from moejit.torch import layer_text
    tiny = {"experts": 1, "top_k": 1, "hidden": 64, "intermediate": 64, "recipe": "bf16", "splits_alignment": 64,
            "max_tokens": 1}
    return {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
            "moejit": layer_text(tiny).split(" ")[1]}
