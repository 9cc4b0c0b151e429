// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/tensor_core.h"

#include <cstdint>
#include <string>
#include <vector>

// What the tensor cores of a GPU computed, as tests/fixtures/tensor_cores/make_fixture.py wrote it:
// records of seven 32-bit integers (formats of A and B, rows, columns, bytes of a row, whether
// there are sums before and sums of chains), then a, b and the sums, little-endian.
namespace moejit::testing {

// One product. Numbers are bits; those of sums are bits of fp32.
struct ChipAnswer {
  reference::OperandFormat a_format, b_format;
  std::int64_t rows, columns, row_bytes;
  std::vector<std::uint8_t> a;        // [rows, row_bytes]
  std::vector<std::uint8_t> b;        // [columns, row_bytes]
  std::vector<std::uint32_t> before;  // [rows, columns], the sums that products are added to
  std::vector<std::uint32_t> after;   // [rows, columns]
  // The fp32 sums of chains of 128 FP8 products, in ascending order; empty if nobody asked.
  std::vector<std::uint32_t> of_chains;
};

// Returns the answers of a file in tests/fixtures/tensor_cores; none if it cannot be read, which
// fails the test.
std::vector<ChipAnswer> chip_answers(const std::string& name);

}  // namespace moejit::testing
