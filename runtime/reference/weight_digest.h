// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// Returns the words by which a check of weights tells whether they have changed. There is one for
// each thread of its kernel, in blocks of 256. A window is `window_probes` times 64 bytes of a
// weight. One probe of 64 bytes is read from each window, at the place that the window's number
// picks. The 16-byte pieces of all probes, w1's first, are dealt out to the threads in turn.
std::vector<std::uint32_t> weight_digest(std::span<const std::uint16_t> w1,
                                         std::span<const std::uint16_t> w2,
                                         std::int64_t window_probes);

}  // namespace moejit::reference
