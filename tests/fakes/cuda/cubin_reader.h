// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::testing::fake {

// What the fake driver wants to know of an image.
struct Cubin {
  std::string entry;            // of its only kernel
  std::size_t param_bytes = 0;  // 0: the image does not say
  int static_shared_bytes = 0;
};

// As its header says; a driver is told no length.
std::size_t elf_bytes(const void* image);

// None: not an image of one kernel. Nothing outside of the bytes is read.
std::optional<Cubin> read_cubin(std::string_view image);

}  // namespace moejit::testing::fake
