// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/fields.h"
#include "tests/support/seeded_random.h"
#include "tests/unit/operation/operation_examples.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

// Gives each field a value that its range lets pass, mostly a small one.
class RandomFields final : public FieldVisitor {
 public:
  explicit RandomFields(uint32_t seed) : random_(seed) {}

  void required(std::string_view /*key*/, int64_t& value, const IntRange& range) override {
    const int64_t steps = (range.highest - range.lowest) / range.multiple_of;
    const int64_t most = below(4) == 0 ? steps : std::min<int64_t>(steps, 40);
    value = range.lowest + range.multiple_of * below(most + 1);
  }
  void integer(std::string_view key, int64_t& value, const IntRange& range) override {
    if (below(2) == 0) required(key, value, range);
  }
  void boolean(std::string_view /*key*/, bool& value) override { value = below(2) == 0; }
  void activation(Activation& value) override {
    const std::vector<std::string_view> names = preset_names();
    value = make_activation(names[static_cast<std::size_t>(below(std::ssize(names)))]).value();
  }
  void sizes(std::string_view /*key*/, std::vector<MatrixSize>& value) override {
    for (int64_t count = 1 + below(5); count > 0; --count)
      value.push_back({below(300), below(300)});
  }
  void name(std::string_view /*key*/, std::size_t& index,
            std::span<const std::string_view> names) override {
    index = static_cast<std::size_t>(below(std::ssize(names)));
  }

 private:
  int64_t below(int64_t count) { return random_.between(0, count - 1); }

  testing::SeededRandom random_;
};

// What is written is read back or refused with a sentence, and what is read is planned and emitted
// or refused with one.
TEST(RandomOperation, IsPlannedAndEmittedOrRefused) {
  int planned = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::vector<OperationDescription> all = default_operations();
    OperationDescription operation = all[seed % all.size()];
    RandomFields fields(seed);
    visit_fields(operation, fields);
    std::string json = to_json(operation);
    // Rows that are not given yet, as to_json() writes them.
    for (const std::string_view unknown : {R"(  "max_permuted_rows": 0,)", R"(  "experts": 0,)"})
      if (const auto at = json.find(unknown); at != std::string::npos)
        json.erase(at, unknown.size() + 1);
    SCOPED_TRACE(json);
    const auto read = parse_operation(json, "random");
    if (!read) {
      EXPECT_EQ(read.error().code, ErrorCode::kInvalidValue) << to_string(read.error());
      continue;
    }
    EXPECT_EQ(operation_of(to_json(*read)), *read);
    const auto plan = plan_operation(*read, Target{});
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported) << to_string(plan.error());
      continue;
    }
    ++planned;
    EXPECT_TRUE(emit_kernel(plan->kernels.front(), plan->target));
    EXPECT_GE(plan->kernels.front().min_bytes, 0);
  }
  EXPECT_GT(planned, 1500);
}

}  // namespace
}  // namespace moejit::compiler
