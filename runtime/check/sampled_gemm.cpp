// SPDX-License-Identifier: Apache-2.0

#include "runtime/check/sampled_gemm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moejit::check {

namespace {

// Returns `wanted` of the `count` rows, spread evenly. The first row is among them, and the last
// one too if `wanted` is above 1.
std::vector<int64_t> spread(int64_t first, int64_t count, int64_t wanted) {
  std::vector<int64_t> rows;
  if (wanted >= count) {
    for (int64_t i = 0; i < count; ++i) rows.push_back(first + i);
    return rows;
  }
  for (int64_t i = 0; i < wanted; ++i)
    rows.push_back(first + i * (count - 1) / std::max<int64_t>(wanted - 1, 1));
  return rows;
}

}  // namespace

RowSample sample_rows(const reference::Route& route, int64_t most_rows) {
  const auto real_rows = static_cast<double>(std::max<int64_t>(1, route.routed_rows()));
  const double share = std::min(1.0, static_cast<double>(most_rows) / real_rows);

  RowSample sample;
  sample.route.offs.push_back(0);
  for (size_t expert = 0; expert < route.counts.size(); ++expert) {
    const int64_t count = route.counts[expert];
    const auto share_of_count = static_cast<int64_t>(share * static_cast<double>(count));
    const int64_t wanted = std::clamp<int64_t>(share_of_count, std::min<int64_t>(count, 2), count);
    const std::vector<int64_t> chosen = spread(route.offs[expert], count, wanted);
    sample.source_rows.insert(sample.source_rows.end(), chosen.begin(), chosen.end());
    sample.route.counts.push_back(static_cast<int32_t>(chosen.size()));
    sample.route.offs.push_back(static_cast<int32_t>(sample.source_rows.size()));
  }
  return sample;
}

GemmSample sample_gemm(const reference::QuantizedRows& rows, const reference::Route& route,
                       int64_t columns, int64_t max_multiply_adds) {
  GemmSample sample;
  static_cast<RowSample&>(sample) =
      sample_rows(route, max_multiply_adds / std::max<int64_t>(1, columns * rows.cols));
  const int64_t blocks = reference::block_count(rows.cols);
  sample.rows.rows = static_cast<int64_t>(sample.source_rows.size());
  sample.rows.cols = rows.cols;
  sample.rows.rule = rows.rule;
  for (const int64_t row : sample.source_rows) {
    const auto q = rows.q.begin() + row * rows.cols;
    sample.rows.q.insert(sample.rows.q.end(), q, q + rows.cols);
    const auto scale = rows.scale_inv.begin() + row * blocks;
    sample.rows.scale_inv.insert(sample.rows.scale_inv.end(), scale, scale + blocks);
  }
  return sample;
}

std::vector<uint16_t> gather_rows(std::span<const uint16_t> matrix, int64_t columns,
                                  std::span<const int64_t> rows) {
  std::vector<uint16_t> gathered;
  gathered.reserve(rows.size() * static_cast<size_t>(columns));
  for (const int64_t row : rows) {
    const auto part =
        matrix.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns));
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  return gathered;
}

std::vector<int64_t> choose(const reference::RandomStream& random, int64_t wanted, int64_t count) {
  std::vector<int64_t> chosen = {0, count - 1};
  for (int64_t i = 2; i < wanted; ++i)
    chosen.push_back(random.below(static_cast<uint64_t>(i), count));
  chosen.resize(static_cast<size_t>(wanted));
  return chosen;
}

std::vector<int64_t> choose_affordable(const reference::RandomStream& random, double affordable,
                                       int64_t count) {
  if (affordable < static_cast<double>(count))
    return choose(random, std::max<int64_t>(2, std::llround(affordable)), count);
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace moejit::check
