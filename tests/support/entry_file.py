# SPDX-License-Identifier: Apache-2.0
"""Makes cache entries byte by byte, from the description of their format alone."""
import ctypes
import struct


class _Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_128bits  # in the library of the package libxxhash-dev
_xxh3.argtypes, _xxh3.restype = [ctypes.c_char_p, ctypes.c_size_t], _Hash


def checksum(content):
    """Returns the 16 bytes that end an entry with this content."""
    value = _xxh3(bytes(content), len(content))
    return struct.pack(">QQ", value.high, value.low)


def entry(key, metadata, payload):
    offset = (80 + len(metadata) + 63) // 64 * 64
    header = (b"moejit\x1a\n" + struct.pack("<II", 2, 80) + key + bytes(8) +
              struct.pack("<QQQ", len(metadata), offset, len(payload)))
    content = (header + metadata).ljust(offset, b"\0") + payload
    return content + checksum(content)


def is_whole(content):
    return content[-16:] == checksum(content[:-16])
