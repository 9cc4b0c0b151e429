// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_operation.h"

#include "tests/support/seeded_random.h"
#include "tests/unit/operation/operation_examples.h"

namespace moejit::compiler {
namespace {

// Makes some sizes far larger than those of a simulator's operation.
void enlarge(OperationDescription& operation, testing::SeededRandom& random) {
  for (OperationField& field : operation.fields)
    if (auto* const number = std::get_if<int64_t>(&field.value); number && random.in_percent(15))
      *number <<= random.between(1, 20);
}

// What is written is read back or refused with a sentence, and what is read is planned and emitted
// or refused with one.
TEST(RandomOperation, IsPlannedAndEmittedOrRefused) {
  int planned = 0, enlarged = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::string some = testing::random_operation(seed);
    SCOPED_TRACE(some);
    auto read = parse_operation(some, "random");
    const bool is_enlarged = read && seed % 2 == 0;
    if (is_enlarged) {
      testing::SeededRandom random(seed);
      enlarge(*read, random);
      read = parse_operation(to_json(*read), "random");
    }
    if (!read) {
      const ErrorCode code = read.error().code;
      EXPECT_TRUE(code == ErrorCode::kInvalidValue || code == ErrorCode::kUnsupported)
          << to_string(read.error());
      continue;
    }
    EXPECT_EQ(operation_of(to_json(*read)), *read);
    const auto plan = plan_operation(*read, Target{});
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported) << to_string(plan.error());
      continue;
    }
    ++planned;
    enlarged += is_enlarged;
    EXPECT_TRUE(emit_kernel(plan->kernels.front(), plan->target));
    EXPECT_GE(plan->kernels.front().min_bytes, 0);
  }
  EXPECT_GT(planned, 1200);
  EXPECT_GT(enlarged, 300);
}

}  // namespace
}  // namespace moejit::compiler
