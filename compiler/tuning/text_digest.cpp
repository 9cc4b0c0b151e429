// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/digest.h"
#include "compiler/tuning.h"
#include "templates/embedded_templates.h"

namespace moejit::compiler {

Result<std::string> text_digest(std::string_view text) {
  constexpr std::size_t kDigits = 32;
  MOEJIT_TRY_ASSIGN(const auto headers,
                    templates::include_closure(text, templates::Flavor::kDevice));
  FieldHasher hasher;
  hasher.add("text", text);
  for (const auto& header : headers) hasher.add(header.include_name, header.file->sha256);
  return hasher.digest().hex().substr(0, kDigits);
}

}  // namespace moejit::compiler
