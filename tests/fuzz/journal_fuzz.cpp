// SPDX-License-Identifier: Apache-2.0
// A tuner's journal of any bytes: read, its races decided, its records made, and what it
// decides taken out of them again.
#include "runtime/tune/decision/tuned_records.h"
#include "tests/fuzz/memory_file.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto journal =
      moejit::tune::read_journal(moejit::testing::file_with(std::as_bytes(std::span(data, size))));
  if (!journal) return 0;
  const auto records = moejit::tune::tuned_records(*journal);
  if (!records) return 0;
  for (const auto& record : *records) {
    const auto left = moejit::tune::without_decided(record, *journal);
    if (!left || !left->entries.empty()) std::abort();
  }
  return 0;
}
