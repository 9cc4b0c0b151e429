# SPDX-License-Identifier: Apache-2.0
"""Engines make kernels and keep them."""
from __future__ import annotations

import functools
import logging
import os
from ctypes import byref, c_void_p
from typing import Callable, Sequence

from moejit import records
from moejit.handle import Handle, Owner
from moejit.info import EngineInfo, info_of
from moejit.library import get_info, load
from moejit.sources import join_paths

_log = logging.getLogger("moejit")


class Engine(Owner):
    """Makes the kernels of layers, or fetches them from its cache; serves any number of devices and layers.

    An argument of None leaves the choice to its environment variable (docs/environment.md).

    Example:
        >>> engine = moejit.Engine(cache_dir="kernels", frozen=True)
        >>> layer.prepare(engine)
    """

    def __init__(self, *, cache_dir: str | os.PathLike | None = None, memory_only: bool = False, frozen: bool = False,
                 packs: Sequence[str | os.PathLike] | None = None, pack_keys: str | os.PathLike | None = None,
                 cache_max_bytes: int | None = None, cache_max_files: int | None = None,
                 cache_network: str | None = None, run_dir: str | os.PathLike | None = None,
                 lock_patience_ms: int | None = None, compile_jobs: int | None = None,
                 compile_worker: str | os.PathLike | None = None, reproducer_dir: str | os.PathLike | None = None,
                 warn: Callable[[str], object] | None = None) -> None:
        """Opens the cache folder and the packs.

        Args:
            cache_dir: Folder of the kernel cache (MOEJIT_CACHE_DIR).
            memory_only: Whether the engine neither reads from nor writes to the disk.
            frozen: Whether a kernel that no cache holds is an error instead of a compile (MOEJIT_FROZEN).
            packs: Paths of packs to take kernels from after the folder (MOEJIT_PACKS).
            pack_keys: Key ring; each pack must be signed with one of its keys (MOEJIT_PACK_KEYS).
            cache_max_bytes, cache_max_files: Limits of the folder (MOEJIT_CACHE_MAX_BYTES, _FILES); moejit.ANY_AMOUNT:
                no limit.
            cache_network: "read" or "write": how to use a folder on a network file system (MOEJIT_CACHE_NETWORK).
            run_dir: Folder of lock files, an absolute path (MOEJIT_RUN_DIR).
            lock_patience_ms: Milliseconds to wait for a process that compiles the same kernel; 0: not at all
                (MOEJIT_LOCK_SECONDS).
            compile_jobs: Largest number of kernels compiled at a time (MOEJIT_COMPILE_JOBS).
            compile_worker: Path of the program moejit, which then compiles in processes of its own; moejit.tool_path()
                returns it (MOEJIT_COMPILE_WORKER).
            reproducer_dir: Folder that gets reproducers of failed compiles (MOEJIT_REPRODUCER_DIR).
            warn: Gets sentences that users should know but that are no errors, each once, from any thread that prepares
                a layer. None: the logger "moejit" gets them.

        Raises:
            Error: "cache_unusable", "cache_corrupt", "invalid_value", ...
        """
        if cache_network not in records.CACHE_NETWORKS:
            raise ValueError(f'cache_network is "{cache_network}", wanted "read", "write" or None')
        patience = 0 if lock_patience_ms is None else lock_patience_ms if lock_patience_ms > 0 else -1
        options = records.EngineOptions(
            cache_dir=_path(cache_dir), memory_only=memory_only, frozen=frozen,
            packs=join_paths(packs), pack_keys=_path(pack_keys),
            cache_max_bytes=cache_max_bytes or 0, cache_max_files=cache_max_files or 0, run_dir=_path(run_dir),
            compile_worker=_path(compile_worker), reproducer_dir=_path(reproducer_dir), lock_patience_ms=patience,
            cache_network=records.CACHE_NETWORKS[cache_network], compile_jobs=compile_jobs or 0)
        options.warn = callback = _callback(warn or _log.warning)
        pointer = c_void_p()
        load().moejit_engine_create(byref(options), byref(pointer))

        def destroy(engine: int) -> None:  # keeps the callback alive as long as the library's engine
            load().moejit_engine_destroy(engine)
            _ = callback

        self._own(Handle(pointer.value, destroy, "the engine"))

    @property
    def info(self) -> EngineInfo:
        """Returns counts of the engine's work so far: kernels compiled, served by the cache, ..."""
        with self._handle.use() as engine:
            return info_of(EngineInfo, get_info(records.EngineInfo, "moejit_engine_get_info", engine))

    def __repr__(self) -> str:
        return "<moejit.Engine, closed>" if self._handle.is_closed else f"<moejit.Engine {self.info.cache}>"


@functools.lru_cache(maxsize=None)
def shared_engine() -> Engine:
    """Returns the engine that layers share if they are given none."""
    return Engine()


def _path(path: str | os.PathLike | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _callback(warn: Callable[[str], object]) -> records.WarnFunction:
    def call(_context: int | None, text: bytes) -> None:
        try:
            warn(text.decode(errors="replace"))
        except Exception:  # C++ code of the library cannot catch it
            _log.exception("a function of warnings failed")

    return records.WarnFunction(call)
