# SPDX-License-Identifier: Apache-2.0
"""Packs to the byte, written from the description of their format alone."""
import hashlib
import json
import struct

from entry_file import entry

RECORDS = 64


def sha(content):
    return hashlib.sha256(content).digest()


def pad(content):
    return content + bytes(-len(content) % 64)


def pack(kernels, manifest=b"{}"):
    """The bytes of a pack of {key: (metadata, payload)}."""
    files = [(key, entry(key, *kernels[key])) for key in sorted(kernels)]
    pages = -(-len(files) // RECORDS)
    table_at = 256 + len(pad(manifest))
    index_at = table_at + 64 * pages
    entries_at = index_at + len(pad(bytes(80 * len(files))))
    index, entries = b"", b""
    for key, content in files:
        index += key + sha(content) + struct.pack("<QQ", entries_at + len(entries), len(content))
        entries += pad(content)
    index = pad(index)
    table = b""
    for page in range(pages):
        end = None if page == pages - 1 else (page + 1) * RECORDS * 80
        content = index[page * RECORDS * 80:end]
        table += content[:32] + sha(content)
    front = pad(manifest) + table
    header = (b"moejpk\x1a\n" + struct.pack("<II", 2, 256) + struct.pack("<QII", len(files), 80, 64) +
              struct.pack("<QQQQQQ", 256, len(manifest), table_at, index_at, entries_at,
                          entries_at + len(entries)) + sha(front)).ljust(160, b"\0")
    header = header.ljust(224, b"\0")
    return header + sha(header) + front + index + entries


def kernel(number, target="cuda:sm_90a"):
    """(key, (metadata, payload)) as a kernel has them."""
    fields = [["schema", "1"], ["compiler", "nvrtc 13.0"], ["compiler_build_id", "ab"],
              ["builtins_build_id", "cd"], ["option", "--std=c++20"]]
    metadata = {"entry": f"moejit_kernel_{number}", "key": fields, "target": target}
    return sha(b"%d" % number), (json.dumps(metadata, separators=(",", ":"), sort_keys=True).encode(),
                                 b"code %d" % number * (number + 1))


MANIFEST = (b'{"compilers":[["compiler=nvrtc 13.0","compiler_build_id=ab","builtins_build_id=cd"]],'
            b'"kernels":%d,"targets":["cuda:sm_90a"]}')


def pack_of(numbers):
    kernels = dict(kernel(number) for number in numbers)
    return pack(kernels, MANIFEST % len(kernels))
