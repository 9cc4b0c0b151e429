// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_draft.h"
#include "compiler/support/file.h"
#include "tests/unit/operation/operation_examples.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

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

// The description with this flag turned on, which a description may refuse.
std::string with_true(OperationDescription operation, std::string_view key) {
  std::ranges::find(operation.fields, key, &OperationField::key)->value = true;
  return to_json(operation);
}

// The page tells of every operation all fields and tensors, or those beside another one's.
TEST(OperationDocs, NameEveryFieldAndTensor) {
  const std::string page =
      read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/operations-api.md").value();
  for (const std::string_view name : operation_names()) {
    SCOPED_TRACE(name);
    ASSERT_NE(section_of(page, name), "");
    OperationDescription operation = operation_of(example_text(name));
    for (OperationField& field : operation.fields) {
      EXPECT_NE(page.find(fmt::format("`{}`", field.key)), std::string::npos) << field.key;
      bool* const flag = std::get_if<bool>(&field.value);
      if (flag != nullptr) *flag = parse_operation(with_true(operation, field.key), "").has_value();
    }
    const auto plan = plan_operation(operation, Target{});
    ASSERT_TRUE(plan) << to_string(plan.error());
    for (const TensorPlan& tensor : plan->tensors)
      EXPECT_NE(page.find(fmt::format("`{}`", tensor.name)), std::string::npos) << tensor.name;
  }
}

}  // namespace
}  // namespace moejit::compiler
