# SPDX-License-Identifier: Apache-2.0
"""Experts of torchtitan's models on moejit. Importing this module imports torchtitan."""
from __future__ import annotations

import dataclasses
from typing import Any

try:
    from torchtitan.components.quantization import QuantizationConverter
    from torchtitan.models.common.moe import GroupedExperts
except ImportError as error:
    raise ImportError(f"moejit.torch.titan needs torchtitan 0.3 or newer: {error}") from error

from moejit.torch.checks import check_options
from moejit.torch.titan_experts import MoejitGroupedExperts, check_plan

__all__ = ["ExpertsConverter", "MoejitGroupedExperts"]


class ExpertsConverter(QuantizationConverter):
    """A converter of model configurations: GroupedExperts compute on moejit. All else stays, dispatchers too.

    Example:
        >>> converters = [moejit.torch.titan.ExpertsConverter.Config(recipe="fp8_flow")]
    """

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(QuantizationConverter.Config):
        """Options of the experts.

        Attributes:
            recipe: "fp8_flow", "bf16", ...
            recompute: "none" or "moe_expert".
            max_tokens: The largest number of rows of a call. None: for each call the smallest power of two, from 256
                on, that it does not exceed; each such size is a layer of its own.
        """
        recipe: str = "fp8_flow"
        recompute: str = "none"
        max_tokens: int | None = None

    def __init__(self, config: Config) -> None:
        """Checks the options.

        Raises:
            RuntimeError: No experts can run with them.
        """
        check_options("ExpertsConverter", {"recipe": config.recipe, "recompute": config.recompute}, config.max_tokens,
                      None)
        self.config = config

    def convert(self, model_config: Any) -> Any:
        """Swaps the configurations of experts, and returns the model's configuration.

        Raises:
            RuntimeError: There are no experts, or some that moejit cannot compute; then nothing is swapped.
        """
        found = list(model_config.traverse(GroupedExperts.Config))
        if not found:
            raise RuntimeError("moejit: unsupported: ExpertsConverter: no GroupedExperts in the model's configuration\n"
                               "hint: leave the converter out of models without Mixture-of-Experts layers")
        swapped = [self._swapped(name, config) for name, config, _, _ in found]
        for new, (_, _, parent, place) in zip(swapped, found):
            if parent is None:
                return new
            if isinstance(parent, list):
                parent[place] = new
            else:
                setattr(parent, place, new)
        return model_config

    def _swapped(self, name: str, config: Any) -> MoejitGroupedExperts.Config:
        owner = type(config)._owner
        if owner is not GroupedExperts:
            raise RuntimeError(f"moejit: unsupported: ExpertsConverter: {name} belongs to {owner.__name__}, wanted "
                               "GroupedExperts\nhint: leave out other converters and overrides of experts; those with "
                               "biases, as in gpt-oss, have no place here yet")
        fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.init}
        new = MoejitGroupedExperts.Config(**fields, recipe=self.config.recipe, recompute=self.config.recompute,
                                          max_tokens=self.config.max_tokens)
        try:
            check_plan(new)
        except RuntimeError as error:
            raise RuntimeError(f"moejit: ExpertsConverter: {name}: {str(error).removeprefix('moejit: ')}") from error
        return new
