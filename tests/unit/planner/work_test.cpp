// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

const Layer kLayer{.local_experts = 3, .top_k = 4};

TEST(ChainWork, CountsBytesAndScalesOfWeightsTwiceWhereColwiseIsWritten) {
  TileChainSpec tiles{.sections = 2, .section_rows = 144, .columns = 272};
  const int64_t elements = 3 * 2 * 144 * 272, scales = 3 * 2 * 2 * 3;
  EXPECT_EQ(count_work({.spec = tiles}, kLayer, {}).min_bytes, 3 * elements + 4 * scales);
  tiles.writes_colwise = true;
  EXPECT_EQ(count_work({.spec = tiles}, kLayer, {}).min_bytes, 4 * elements + 8 * scales);
}

TEST(ChainWork, CountsTheBlocksOfRoutedRowsAndTheSumOfEveryChoice) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48};
  RowChainSpec unpermute{
      .load = LoadStage::kCombinedRows, .quantize = QuantizeStage::kNone, .columns = 272};
  const int64_t rows_alone = count_work({.spec = unpermute}, kLayer, rows).min_bytes;
  unpermute.store = StoreStage::kRowsAndProbs;
  unpermute.dprobs_columns = 5;
  EXPECT_EQ(count_work({.spec = unpermute}, kLayer, rows).min_bytes,
            rows_alone + 4 * (31 * 5 + 10 * 4));
}

}  // namespace
}  // namespace moejit::compiler
