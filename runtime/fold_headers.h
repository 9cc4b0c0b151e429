// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Hexadecimal digits that a stored digest of a header has. They tell people which header changed;
// what makes kernels different is the key, of which the whole digests are part.
inline constexpr std::size_t kStoredHeaderDigits = 8;

// The fields of a key as metadata stores them: headers that follow each other, "header:<path>"
// (or "header <path>") with a digest of 64 digits, become one field "header:*" ("header *") whose
// text has folders, and after each its files and digests, separated by blanks:
//   core/ integer 20325dc7 math d974df2c moejit_sim/ machine.h 2d9cb79e
// A folder without "moejit_" is one of moejit_device, a file without a dot ends in ".cuh". What
// could not be told from that stays as it is.
std::vector<HashedField> fold_headers(std::span<const HashedField> fields);

// The fields again, with the digests as they are stored. What is no such field stays as it is.
std::vector<HashedField> unfold_headers(std::span<const HashedField> fields);

// Whether two values of the field `name` are the same as far as stored fields tell: of headers one
// may have all digits of its digest, as earlier versions stored them, and the other the first.
bool is_same_value(std::string_view name, std::string_view a, std::string_view b);

}  // namespace moejit::runtime
