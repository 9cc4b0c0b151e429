// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/weight_digest.h"

#include <algorithm>

namespace moejit::reference {
namespace {

constexpr std::size_t kProbe = 32;  // elements
constexpr std::size_t kPiece = 8;

// Finalizer of MurmurHash3.
std::uint64_t scattered(std::uint32_t number) {
  number ^= number >> 16;
  number *= 0x85ebca6bU;
  number ^= number >> 13;
  number *= 0xc2b2ae35U;
  number ^= number >> 16;
  return number;
}

// Appends the probes of a weight.
void append_probes(std::vector<std::span<const std::uint16_t>>& probes,
                   std::span<const std::uint16_t> weight, std::size_t window_probes) {
  for (std::uint32_t window = 0; !weight.empty(); ++window) {
    const std::size_t elements = std::min(weight.size(), window_probes * kProbe);
    const std::size_t probe = scattered(window) * (elements / kProbe) >> 32;
    probes.push_back(weight.subspan(probe * kProbe, kProbe));
    weight = weight.subspan(elements);
  }
}

}  // namespace

std::vector<std::uint32_t> weight_digest(std::span<const std::uint16_t> w1,
                                         std::span<const std::uint16_t> w2,
                                         std::int64_t window_probes) {
  std::vector<std::span<const std::uint16_t>> probes;
  append_probes(probes, w1, static_cast<std::size_t>(window_probes));
  append_probes(probes, w2, static_cast<std::size_t>(window_probes));
  const std::size_t pieces = probes.size() * (kProbe / kPiece);
  const std::size_t threads = (pieces + 1023) / 1024 * 256;  // four pieces each, or fewer
  std::vector<std::uint32_t> words(threads, 1);
  // Pieces beyond the last are zeros: a thread whose first piece exists has four.
  for (std::size_t piece = 0; piece < 4 * threads; ++piece) {
    if (piece % threads >= pieces) continue;
    std::uint32_t& word = words[piece % threads];
    for (std::size_t i = 0; i < kPiece; i += 2) {
      std::uint32_t data = 0;
      if (piece < pieces) {
        const std::size_t first = piece % (kProbe / kPiece) * kPiece + i;
        const auto& probe = probes[piece / (kProbe / kPiece)];
        data = probe[first] | static_cast<std::uint32_t>(probe[first + 1]) << 16;
      }
      word = (word ^ data) * 0x9e3779b1U + 0x85ebca6bU;
    }
  }
  for (std::uint32_t& word : words) word = std::max(word, std::uint32_t{1});
  return words;
}

}  // namespace moejit::reference
