# SPDX-License-Identifier: Apache-2.0
"""Handles of the library that outlive the calls which use them.

While a thread is in a call with a handle, another one may close it, or its object may be collected. The library's
object is destroyed when the last such call has returned. A process made by fork() never destroys handles of its parent,
since it lacks the parent's threads and GPU.
"""
from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Callable, Iterator, Sequence, TypeVar

from moejit.errors import Error

# Guards all handles. A single lock is enough, since it is held for moments only. After a fork() it is free in both
# processes.
_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Handle:
    """A pointer into the library, whose object is destroyed once, after its users are done."""

    def __init__(self, pointer: int, destroy: Callable[[int], object], what: str) -> None:
        self._pointer, self._destroy, self._what = pointer, destroy, what
        self._users, self._is_closed, self._process = 0, False, os.getpid()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def acquire(self) -> int:
        """Returns the pointer, which stays valid until release() is called once for each acquire().

        Raises:
            Error: The handle is closed.
        """
        with _lock:
            if self._is_closed:
                raise Error("invalid_value", "load", f"{self._what} is closed", "make another one")
            self._users += 1
            return self._pointer

    def release(self) -> None:
        with _lock:
            self._users -= 1
            is_last = self._is_closed and self._users == 0
        if is_last:
            self._end()

    @staticmethod
    def acquire_all(handles: Sequence[Handle]) -> None:
        """Acquires several handles at once, or none of them if one is closed."""
        with _lock:
            for handle in handles:
                if handle._is_closed:
                    raise Error("invalid_value", "load", f"{handle._what} is closed", "make another one")
            for handle in handles:
                handle._users += 1

    @staticmethod
    def release_all(handles: Sequence[Handle]) -> None:
        last = []
        with _lock:
            for handle in handles:
                handle._users -= 1
                if handle._is_closed and handle._users == 0:
                    last.append(handle)
        for handle in last:
            handle._end()

    @contextlib.contextmanager
    def use(self) -> Iterator[int]:
        """Yields the pointer to a `with` block, in which it stays valid."""
        pointer = self.acquire()
        try:
            yield pointer
        finally:
            self.release()

    def close(self) -> None:
        """Destroys the library's object, now or when the last call that uses it returns."""
        with _lock:
            is_last = not self._is_closed and self._users == 0
            self._is_closed = True
        if is_last:
            self._end()

    def _end(self) -> None:
        if os.getpid() == self._process:
            self._destroy(self._pointer)


_Self = TypeVar("_Self", bound="Owner")


class Owner:
    """A base class for owners of a handle, which close(), the end of a `with` block or garbage collection closes."""

    _handle: Handle

    def _own(self, handle: Handle) -> None:
        self._handle = handle
        weakref.finalize(self, handle.close)

    def close(self) -> None:
        """Closes the library's object, now or when the last call that uses it returns. May be called again."""
        self._handle.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
