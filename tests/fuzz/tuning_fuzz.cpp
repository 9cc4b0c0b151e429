// SPDX-License-Identifier: Apache-2.0
// A tuning record of any bytes: read, written and read again, joined with itself, and planned with.
#include "compiler/compiler.h"
#include "compiler/operation.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit::compiler;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto record = parse_tuning(text, "record.json");
  if (!record) return 0;
  const std::string written = to_json(*record);
  const auto again = parse_tuning(written, "again.json");
  if (!again || to_json(*again) != written) std::abort();
  const auto merged = merge(*record, *again);
  if (!merged || merged->entries.size() != record->entries.size()) std::abort();
  const auto tuning = Tuning::make({*record});
  if (!tuning) std::abort();
  const OperationDescription gemm{
      "grouped_gemm",
      {{"local_experts", 8}, {"max_permuted_rows", 8192}, {"n", 4096}, {"k", 7168}}};
  const OperationDescription quantize{"quantize", {{"max_tokens", 8192}, {"columns", 7168}}};
  for (const OperationDescription& operation : {gemm, quantize})
    if (const auto plan = plan_operation(operation, Target{}, {.tuning = &*tuning}))
      print_plan(*plan, true);
  return 0;
}
