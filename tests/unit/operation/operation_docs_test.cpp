// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/fields.h"
#include "compiler/support/file.h"
#include "tests/unit/operation/operation_examples.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Collects the keys of a description, and turns on what it may turn on.
class KeysOf final : public FieldVisitor {
 public:
  std::vector<std::string> keys;

  void required(std::string_view key, int64_t& value, const IntRange& range) override {
    keys.emplace_back(key);
    if (value == 0) value = range.lowest;
  }
  void integer(std::string_view key, int64_t& value, const IntRange& range) override {
    required(key, value, range);
  }
  void boolean(std::string_view key, bool& value) override {
    keys.emplace_back(key);
    value = true;
  }
  void activation(Activation& /*value*/) override { keys.emplace_back("activation"); }
  void sizes(std::string_view key, std::vector<MatrixSize>& value) override {
    keys.emplace_back(key);
    value = {{16, 16}};
  }
  void name(std::string_view key, std::size_t& /*index*/,
            std::span<const std::string_view> /*names*/) override {
    keys.emplace_back(key);
  }
};

// The section of the page whose heading names the operation.
std::string section_of(const std::string& page, std::string_view operation) {
  for (std::size_t at = page.find("\n### "); at != std::string::npos;) {
    const std::size_t next = page.find("\n### ", at + 1);
    const std::string section = page.substr(at, next - at);
    const std::string heading = section.substr(4, section.find('\n', 1) - 4) + ",";
    if (heading.find(fmt::format(" {},", operation)) != std::string::npos) return section;
    at = next;
  }
  return {};
}

// The page tells of every operation all fields and tensors, or those beside another one's.
TEST(OperationDocs, NameEveryFieldAndTensor) {
  const std::string page =
      read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/operations-api.md").value();
  for (OperationDescription operation : default_operations()) {
    const std::string_view name = operation_name(operation);
    SCOPED_TRACE(name);
    ASSERT_NE(section_of(page, name), "");
    KeysOf keys;
    visit_fields(operation, keys);
    for (const std::string& key : keys.keys)
      EXPECT_NE(page.find(fmt::format("`{}`", key)), std::string::npos) << key;
    const auto plan = plan_operation(operation, Target{});
    ASSERT_TRUE(plan) << to_string(plan.error());
    for (const TensorPlan& tensor : plan->tensors)
      EXPECT_NE(page.find(fmt::format("`{}`", tensor.name)), std::string::npos) << tensor.name;
  }
}

}  // namespace
}  // namespace moejit::compiler
