// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"

namespace moejit::compiler {

int32_t usual_threads_per_sm(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kGatedGradientRows: return 768;
    case LoadStage::kCombinedRows: return spec.top_k <= 8 ? 1024 : 768;
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows:
    case LoadStage::kMatrixRows:
    case LoadStage::kGatedRows:
    case LoadStage::kUpRows:
    case LoadStage::kUpGradientRows: break;
  }
  return 1024;
}

int32_t usual_threads_per_sm(const TransposeSpec& spec) { return spec.counts_flushed ? 256 : 512; }

int32_t usual_threads_per_sm(const ColumnCastSpec&) { return 512; }

int32_t usual_threads_per_sm(const GatedGradientSpec&) { return 512; }

int32_t usual_threads_per_sm(const GroupColumnsSpec&) { return 512; }

}  // namespace moejit::compiler
