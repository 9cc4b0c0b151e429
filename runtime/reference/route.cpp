// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/route.h"

#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <functional>

namespace moejit::reference {
namespace {

bool is_routed(std::int64_t id, std::int64_t experts) { return id >= 0 && id < experts; }

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

Route route(std::span<const std::int32_t> topk_ids, std::int64_t tokens, const LayerShape& shape) {
  const std::vector<std::int64_t> wide(topk_ids.begin(), topk_ids.end());
  return route(wide, tokens, shape);
}

Route route(std::span<const std::int64_t> topk_ids, std::int64_t tokens, const LayerShape& shape) {
  Route result;
  result.counts.assign(shape.experts, 0);
  result.offs.assign(shape.experts + 1, 0);
  result.row_map.assign(tokens * shape.top_k, -1);

  for (const std::int64_t id : topk_ids) {
    if (id < -1) result.status |= kBadExpertId;
    if (id >= shape.experts && !shape.ignores_foreign) result.status |= kBadExpertId;
  }

  std::int64_t start = 0;  // first row of the expert, as if there were no bound
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    std::int64_t row = start;
    for (std::int64_t i = 0; i < tokens * shape.top_k; ++i) {
      if (!is_routed(topk_ids[i], shape.experts) || topk_ids[i] != expert) continue;
      if (row < shape.max_rows) {
        result.row_map[i] = narrow(row);
        ++result.counts[expert];
      } else {
        result.status |= kRowOverflow;
      }
      ++row;
    }
    start += align_up(row - start, shape.alignment);
    result.offs[expert + 1] = narrow(std::min(start, shape.max_rows));
  }
  return result;
}

Route route_map(std::span<const std::uint8_t> map, std::int64_t tokens, const LayerShape& shape) {
  std::vector<std::int64_t> ids(tokens * shape.top_k, -1);
  std::uint32_t status = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::int64_t choice = 0;
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
      if (map[token * shape.experts + expert] == 0) continue;
      if (choice < shape.top_k)
        ids[token * shape.top_k + choice++] = expert;
      else
        status |= kTooManyExperts;
    }
  }
  Route result = route(ids, tokens, shape);
  result.status |= status;
  return result;
}

Route split_rows(std::span<const std::int64_t> sizes, std::int64_t rows, const LayerShape& shape) {
  std::vector<std::int64_t> ids;
  std::uint32_t status = 0;
  for (std::size_t expert = 0; expert < sizes.size(); ++expert) {
    const std::int64_t left = rows - static_cast<std::int64_t>(ids.size());
    if (sizes[expert] < 0) status |= kBadExpertId;
    if (sizes[expert] > left) status |= kRowOverflow;
    ids.insert(ids.end(), std::clamp<std::int64_t>(sizes[expert], 0, left), expert);
  }
  ids.resize(rows, -1);
  Route result = route(ids, rows, shape);
  result.status |= status;
  return result;
}

std::vector<std::uint8_t> real_rows(const Route& route) {
  std::vector<std::uint8_t> result(route.rows(), 0);
  for (std::size_t expert = 0; expert < route.counts.size(); ++expert) {
    std::fill_n(result.begin() + route.offs[expert], route.counts[expert], std::uint8_t{1});
  }
  return result;
}

PermutedRows permute_pad(const QuantizedRows& x, std::span<const float> topk_probs,
                         const Route& route, std::int64_t top_k) {
  // A row has a scale for each block, or one.
  const std::int64_t blocks =
      x.rows > 0 ? static_cast<std::int64_t>(x.scale_inv.size()) / x.rows : block_count(x.cols);
  PermutedRows result{{route.rows(), x.cols, {}, {}}, {}};
  result.data.q.assign(route.rows() * x.cols, 0);
  result.data.scale_inv.assign(route.rows() * blocks, 0.0F);
  result.probs.assign(route.rows(), 0.0F);
  for (std::int64_t i = 0; i < x.rows * top_k; ++i) {
    const std::int64_t token = i / top_k;
    const std::int64_t row = route.row_map[i];
    if (row < 0) continue;
    result.probs[row] = topk_probs[i];
    for (std::int64_t block = 0; block < blocks; ++block) {
      result.data.scale_inv[row * blocks + block] = x.scale_inv[token * blocks + block];
    }
    if (topk_probs[i] == 0.0F) continue;
    for (std::int64_t col = 0; col < x.cols; ++col) {
      result.data.q[row * x.cols + col] = x.q[token * x.cols + col];
    }
  }
  return result;
}

QuantizedRows permute_pad(const QuantizedRows& x, const Route& route, std::int64_t top_k) {
  const std::vector<float> ones(x.rows * top_k, 1.0F);
  return permute_pad(x, ones, route, top_k).data;
}

std::vector<std::uint16_t> permute_pad_bf16(std::span<const std::uint16_t> x, std::int64_t cols,
                                            std::span<const float> topk_probs, const Route& route,
                                            std::int64_t top_k) {
  std::vector<std::uint16_t> permuted(route.rows() * cols, 0);
  for (std::size_t i = 0; i < route.row_map.size(); ++i) {
    const std::int64_t row = route.row_map[i];
    if (row < 0 || (!topk_probs.empty() && topk_probs[i] == 0.0F)) continue;
    const auto token = x.begin() + static_cast<std::int64_t>(i) / top_k * cols;
    std::copy_n(token, cols, permuted.begin() + row * cols);
  }
  return permuted;
}

std::vector<std::uint16_t> unpermute(std::span<const std::uint16_t> h2,
                                     std::span<const std::int32_t> row_map, std::int64_t tokens,
                                     std::int64_t top_k, std::int64_t hidden) {
  std::vector<std::uint16_t> y(tokens * hidden, 0);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto token_rows = row_map.subspan(token * top_k, top_k);
    std::vector<std::int64_t> rows(token_rows.begin(), token_rows.end());
    std::sort(rows.begin(), rows.end(), std::greater<>());
    for (std::int64_t col = 0; col < hidden; ++col) {
      float sum = 0.0F;
      for (const std::int64_t row : rows) {
        if (row >= 0) sum += float_from_bf16(h2[row * hidden + col]);
      }
      y[token * hidden + col] = bf16_from_float(sum);
    }
  }
  return y;
}

std::vector<float> unpermute_dprobs(std::span<const float> blocks,
                                    std::span<const std::int32_t> row_map, std::int64_t columns) {
  std::vector<float> dprobs(row_map.size(), 0.0F);
  for (std::size_t i = 0; i < row_map.size(); ++i) {
    if (row_map[i] < 0) continue;
    for (std::int64_t column = 0; column < columns; ++column)
      dprobs[i] += blocks[row_map[i] * columns + column];
  }
  return dprobs;
}

}  // namespace moejit::reference
