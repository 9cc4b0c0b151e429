# SPDX-License-Identifier: Apache-2.0
"""The exception that failed calls raise."""
from __future__ import annotations

from moejit import records


class Error(RuntimeError):
    """The exception that every failed call of the library raises.

    Attributes:
        code: The name of the error in docs/errors.md, such as "tensor_mismatch". Programs decide by it.
        stage: The step that failed: "parse", "plan", "compile", "cache", "load", "launch", ...
        message: One sentence that says what is wrong and where, what was got and what was wanted.
        hint: What to do; may be empty.
        detail: Long material, such as a compiler's log; may be empty.
    """

    def __init__(self, code: str, stage: str, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(code, stage, message, hint, detail)
        self.code, self.stage, self.message, self.hint, self.detail = code, stage, message, hint, detail

    def __str__(self) -> str:
        told = f"{self.stage} error [{self.code}]: {self.message}"
        return f"{told}\nhint: {self.hint}" if self.hint else told


Error.__module__ = "moejit"  # programs find it there, and tracebacks name it so


def error_of(record: records.Error, code: str) -> Error:
    """Returns the exception for the library's last error; `code` is the name of its code."""
    texts = (record.stage, record.message, record.hint, record.detail)
    return Error(code, *((text or b"").decode(errors="replace") for text in texts))
