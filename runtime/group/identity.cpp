// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/identity.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::runtime {
namespace {

// Returns "name" and "value" of "name=value".
std::pair<std::string_view, std::string_view> parts_of(std::string_view field) {
  const std::size_t equals = std::min(field.find('='), field.size());
  return {field.substr(0, equals), field.substr(std::min(equals + 1, field.size()))};
}

std::string_view value_of(const RankIdentity& of, std::string_view name) {
  for (const std::string& field : of.fields)
    if (parts_of(field).first == name) return parts_of(field).second;
  return "nothing";
}

}  // namespace

Result<void> compare(const RankIdentity& first, const RankIdentity& second) {
  for (const RankIdentity* const named : {&first, &second})
    for (const std::string& field : named->fields) {
      const std::string_view name = parts_of(field).first;
      const std::string_view one = value_of(first, name), other = value_of(second, name);
      if (one != other)
        return fail(
            Stage::kLaunch, ErrorCode::kTensorMismatch,
            fmt::format("ranks {} and {} of a group differ in {}: {} and {}, wanted the same",
                        first.rank, second.rank, name, one, other),
            "give all ranks the same description and the same version of moejit");
    }
  return {};
}

}  // namespace moejit::runtime
