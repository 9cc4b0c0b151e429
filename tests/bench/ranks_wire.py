# SPDX-License-Identifier: Apache-2.0
"""Times what the links between the GPUs of one host carry: every GPU sends to all others at once, both ways.

  python3 tests/bench/ranks_wire.py RANKS [BYTES]

BYTES go from each GPU to each other one, by a kernel of 16-byte stores and by the copy engines. Prints JSON: the rate
at which the slowest GPU sends, in bytes a second, headers not counted.
"""
import json
import sys

import cupy

REPEATS = 20
PUSH = r"""
extern "C" __global__ void push(const uint4* from, uint4* const* peers, int count, long long values) {
  uint4* const to = peers[blockIdx.x % count];
  const long long first = blockIdx.x / count * (long long)blockDim.x + threadIdx.x;
  const long long step = gridDim.x / count * (long long)blockDim.x;
  for (long long i = first; i < values; i += step) to[i] = from[i];
}
"""


class Gpu:
    """One GPU, with memory that all others write: a part of `size` bytes for each of them."""

    def __init__(self, number, ranks, size):
        self.number, self.device = number, cupy.cuda.Device(number)
        with self.device:
            for peer in range(ranks):
                if peer != number:
                    cupy.cuda.runtime.deviceEnablePeerAccess(peer)
            self.source = cupy.random.randint(0, 256, size, dtype=cupy.uint8)
            self.slots = cupy.zeros((ranks, size), dtype=cupy.uint8)
            self.kernel = cupy.RawKernel(PUSH, "push")
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.to_peer = [cupy.cuda.Stream(non_blocking=True) for _ in range(ranks)]
            self.begin, self.end = cupy.cuda.Event(), cupy.cuda.Event()

    def slot(self, source):
        return self.slots.data.ptr + source * self.slots.shape[1]

    def push(self, peers):
        """Enqueues what a kernel with two CTAs an SM sends."""
        with self.device, self.stream:
            addresses = cupy.array([peer.slot(self.number) for peer in peers], dtype=cupy.uint64)
            self.begin.record()
            for _ in range(REPEATS):
                self.kernel((264 // len(peers) * len(peers),), (512,),
                            (self.source, addresses, cupy.int32(len(peers)), cupy.int64(self.source.size // 16)))
            self.end.record()

    def copy(self, peers):
        """Enqueues the same for copy engines, a stream for each peer."""
        with self.device:
            self.begin.record(self.stream)
            for peer in peers:
                stream = self.to_peer[peer.number]
                stream.wait_event(self.begin)
                for _ in range(REPEATS):
                    cupy.cuda.runtime.memcpyPeerAsync(peer.slot(self.number), peer.number, self.source.data.ptr,
                                                      self.number, self.source.size, stream.ptr)
                self.stream.wait_event(stream.record())
            self.end.record(self.stream)

    def rate(self, sent):
        self.end.synchronize()
        return sent * REPEATS / (cupy.cuda.get_elapsed_time(self.begin, self.end) * 1e-3)


def main():
    ranks = int(sys.argv[1])
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 64 << 20
    gpus = [Gpu(number, ranks, size) for number in range(ranks)]
    found = {"ranks": ranks, "bytes_to_each": size}
    for name in ("push", "copy"):
        rates = []
        for _ in range(3):
            for gpu in gpus:
                getattr(gpu, name)([peer for peer in gpus if peer is not gpu])
            rates.append(min(gpu.rate((ranks - 1) * size) for gpu in gpus))
        found[f"{name}_bytes_per_second"] = sorted(rates)[1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
