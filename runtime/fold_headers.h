// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Number of stored hexadecimal digits of a header's digest. They tell people which header changed;
// kernels differ by the key, which holds the whole digests.
inline constexpr std::size_t kStoredHeaderDigits = 8;

// Returns the fields of a key as metadata stores them. Consecutive headers, "header:<path>" (or
// "header <path>") with a digest of 64 digits, become one field "header:*" ("header *"). Its text
// has folders, and after each its files and digests, separated by blanks:
//   core/ integer 20325dc7 math d974df2c moejit_sim/ machine.h 2d9cb79e
// A folder without "moejit_" is a folder of moejit_device, a file without a dot ends in ".cuh".
// Fields that this form cannot express stay as they are.
std::vector<HashedField> fold_headers(std::span<const HashedField> fields);

// Returns the unfolded fields, with the digests as they are stored. Other fields are not changed.
std::vector<HashedField> unfold_headers(std::span<const HashedField> fields);

// Returns whether two values of the field `name` are the same as far as stored fields tell. One
// digest of a header may have all its digits, as earlier versions stored them, and the other only
// the first digits.
bool is_same_value(std::string_view name, std::string_view a, std::string_view b);

}  // namespace moejit::runtime
