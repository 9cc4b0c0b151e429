// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_gemm.h"

#include "cli/check/check_gradient.h"
#include "cli/check/choose.h"
#include "tests/support/reference/gemm.h"
#include "tests/support/reference/random_inputs.h"

#include <algorithm>

namespace moejit::cli {
namespace {

using reference::block_count;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::RandomStream;

constexpr int64_t kSampledRows = 256;  // of all groups together
constexpr int64_t kSampledColumns = 64;

template <typename T>
Result<void> append(GemmSession& session, const NamedMemory& from, int64_t first, int64_t count,
                    std::vector<T>& to) {
  MOEJIT_TRY_ASSIGN(const std::vector<T> values, session.read<T>(from, first, count));
  to.insert(to.end(), values.begin(), values.end());
  return {};
}

// A GEMM of its own: the chosen rows of A, and as B the chosen columns, each a section of one row
// so that it has scales of its own.
class Sample {
 public:
  Sample(GemmSession& session, uint64_t seed)
      : session_(session),
        gemm_(session.gemm()),
        seed_(seed),
        rows_{.rows = 0, .cols = gemm_.k, .q = {}, .scale_inv = {}},
        weights_{.experts = gemm_.groups,
                 .rows = kSampledColumns,
                 .cols = gemm_.k,
                 .sections = kSampledColumns,
                 .q = {},
                 .scale_inv = {}} {}

  Result<void> add_group(int64_t group) {
    const GemmGroups& groups = session_.groups();
    const int64_t count = groups.counts[static_cast<size_t>(group)];
    const int64_t start = groups.offs[static_cast<size_t>(group)];
    const int64_t end = groups.offs[static_cast<size_t>(group) + 1];
    const std::vector<int64_t> columns =
        choose(RandomStream(seed_, 2 * static_cast<uint64_t>(group)), kSampledColumns, gemm_.n);
    for (const int64_t column : columns) MOEJIT_TRY(add_column(group, column));
    const int64_t wanted = std::min(std::max<int64_t>(2, kSampledRows / gemm_.groups), count);
    const RandomStream random(seed_, 2 * static_cast<uint64_t>(group) + 1);
    for (const int64_t row : choose(random, wanted, count))
      MOEJIT_TRY(add_row(start + row, columns));
    if (start + count < end) MOEJIT_TRY(add_row(start + count, columns));
    route_.counts.push_back(static_cast<int32_t>(wanted));
    route_.offs.push_back(static_cast<int32_t>(rows_.rows));
    return {};
  }

  testing::Comparison compare() const {
    const reference::GemmExact wanted =
        reference::grouped_gemm_exact(rows_, weights_, route_, gemm_.scale_sharing_k);
    return testing::compare_bf16_within({"d", kSampledColumns}, got_, wanted.value, wanted.bound);
  }

 private:
  Result<void> add_row(int64_t row, const std::vector<int64_t>& columns) {
    const GemmOperands& operands = session_.operands();
    const int64_t blocks = block_count(gemm_.k);
    MOEJIT_TRY(append(session_, operands.a, row * gemm_.k, gemm_.k, rows_.q));
    MOEJIT_TRY(append(session_, operands.a_scale_inv, row * blocks, blocks, rows_.scale_inv));
    MOEJIT_TRY_ASSIGN(const auto result,
                      session_.read<uint16_t>(session_.result(), row * gemm_.n, gemm_.n));
    for (const int64_t column : columns) got_.push_back(result[static_cast<size_t>(column)]);
    ++rows_.rows;
    return {};
  }

  Result<void> add_column(int64_t group, int64_t column) {
    const GemmOperands& operands = session_.operands();
    const int64_t blocks = block_count(gemm_.k);
    const QuantizedWeights whole{
        .rows = gemm_.n, .sections = gemm_.sections, .q = {}, .scale_inv = {}};
    const int64_t scale_row = group * whole.scale_rows() + whole.scale_row_of(column);
    MOEJIT_TRY(
        append(session_, operands.b, (group * gemm_.n + column) * gemm_.k, gemm_.k, weights_.q));
    return append(session_, operands.b_scale_inv, scale_row * blocks, blocks, weights_.scale_inv);
  }

  GemmSession& session_;
  const GemmCase& gemm_;
  uint64_t seed_;
  QuantizedRows rows_;
  QuantizedWeights weights_;
  reference::Route route_{.counts = {}, .offs = {0}, .row_map = {}};
  std::vector<uint16_t> got_;
};

}  // namespace

Result<testing::Comparison> check_gemm(GemmSession& session, uint64_t seed) {
  if (session.gemm().operation == GemmOperation::kContractionGroupedGemm)
    return check_gradient(session, seed);
  Sample sample(session, seed);
  for (int64_t group = 0; group < session.gemm().groups; ++group)
    MOEJIT_TRY(sample.add_group(group));
  return sample.compare();
}

}  // namespace moejit::cli
