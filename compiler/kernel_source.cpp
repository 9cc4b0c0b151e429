// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernel_source.h"

#include "compiler/compiler.h"
#include "compiler/launch.h"

#include <fmt/core.h>
#include <string_view>

namespace moejit::compiler {
namespace {

// Raised when the meaning of a field, or of what is stored under a key, changes.
constexpr int kKeySchema = 1;

// Raised when a kernel has to be launched in another way although neither its source nor a record
// changes. An example is another meaning of the number of CTAs.
constexpr int kLaunchAbi = 2;

const std::string& launch_abi() {
  static const std::string abi = fmt::format("{}\n{}", kLaunchAbi, param_record_layouts());
  return abi;
}

}  // namespace

Result<KernelKey> kernel_key(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::string> toolchain, toolchain_identity(source));
  return kernel_key(source, toolchain);
}

KernelKey kernel_key(const KernelSource& source, std::span<const std::string> toolchain) {
  FieldHasher hasher;
  hasher.add("schema", kKeySchema)
      .add("artefact", "kernel")
      .add("target", to_string(source.target))
      .add("entry", source.entry)
      .add_digest_of("source", source.text)
      .add_digest_of("launch_abi", launch_abi())
      .add("toolchain_fields", std::ssize(toolchain));
  for (const std::string& field : toolchain) {
    const std::string_view text = field;
    const size_t equals = text.find('=');
    const bool has_name = equals != std::string_view::npos;
    hasher.add(has_name ? text.substr(0, equals) : "toolchain",
               has_name ? text.substr(equals + 1) : text);
  }
  return {.digest = hasher.digest(), .fields = hasher.fields()};
}

}  // namespace moejit::compiler
