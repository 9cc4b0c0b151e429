// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/chip_answers.h"

#include <array>
#include <fstream>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

template <typename T>
std::vector<T> read(std::istream& file, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  file.read(reinterpret_cast<char*>(values.data()), count * static_cast<std::int64_t>(sizeof(T)));
  return values;
}

ChipAnswer read_answer(std::istream& file, const std::vector<std::int32_t>& header) {
  const std::int64_t rows = header[2], columns = header[3], row_bytes = header[4];
  const std::int64_t sums = rows * columns;
  ChipAnswer answer{.a_format = static_cast<reference::OperandFormat>(header[0]),
                    .b_format = static_cast<reference::OperandFormat>(header[1]),
                    .rows = rows,
                    .columns = columns,
                    .row_bytes = row_bytes};
  answer.a = read<std::uint8_t>(file, rows * row_bytes);
  answer.b = read<std::uint8_t>(file, columns * row_bytes);
  answer.before = header[5] != 0 ? read<std::uint32_t>(file, sums)
                                 : std::vector<std::uint32_t>(static_cast<std::size_t>(sums), 0);
  answer.after = read<std::uint32_t>(file, sums);
  if (header[6] != 0) answer.of_chains = read<std::uint32_t>(file, sums);
  return answer;
}

}  // namespace

std::vector<ChipAnswer> chip_answers(const std::string& name) {
  std::ifstream file(MOEJIT_SOURCE_DIR "/tests/fixtures/tensor_cores/" + name, std::ios::binary);
  std::vector<ChipAnswer> answers;
  while (file) {
    const auto header = read<std::int32_t>(file, 7);
    if (file.gcount() == 0) break;
    answers.push_back(read_answer(file, header));
    EXPECT_TRUE(file) << name << " ends in the middle";
  }
  EXPECT_FALSE(answers.empty()) << name << " cannot be read";
  return answers;
}

}  // namespace moejit::testing
