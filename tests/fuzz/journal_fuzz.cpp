// SPDX-License-Identifier: Apache-2.0
// A tuner's journal of any bytes: read, its races decided, its records made.
#include "runtime/tune/tuned_records.h"
#include "tests/fuzz/memory_file.h"

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto journal =
      moejit::tune::read_journal(moejit::testing::file_with(std::as_bytes(std::span(data, size))));
  if (journal) static_cast<void>(moejit::tune::tuned_records(*journal));
  return 0;
}
