// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit::cli {

// The style sheet of pages. It has none of the characters that HTML and XML read differently.
extern const char* const kPageStyle;

}  // namespace moejit::cli
