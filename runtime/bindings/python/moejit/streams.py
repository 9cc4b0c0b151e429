# SPDX-License-Identifier: Apache-2.0
"""CUDA streams of frameworks."""
from __future__ import annotations


def address_of(stream: object) -> int:
    """Returns the CUstream of a stream as a number.

    Args:
        stream: None for the default stream; a number; an object with `__cuda_stream__()`, such as a stream of
            cuda.core; or an object with an attribute `cuda_stream`, such as torch.cuda.Stream.

    Raises:
        TypeError: It is none of these.
    """
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        _version, address = protocol() if callable(protocol) else protocol
        return int(address)
    address = getattr(stream, "cuda_stream", None)
    if isinstance(address, int):
        return address
    raise TypeError(f"stream is {type(stream).__name__}, wanted None, the number of a CUstream, an object with "
                    "__cuda_stream__, or a torch.cuda.Stream")


def dlpack_number_of(address: int) -> int:
    """Returns a CUstream in DLPack's numbering, in which 1 is the default stream."""
    return address or 1
