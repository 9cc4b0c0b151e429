// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/broken_kernel.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>

namespace moejit::runtime {
namespace {

// Is "test_kernel.cu:<line>" of the message the number of a line marked FAULT?
bool names_a_marked_line(const std::string& message, const std::string& text) {
  int32_t line = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++line;
    const bool marked = text.substr(begin, end - begin).find("// FAULT") != std::string::npos;
    const std::string place = "test_kernel.cu:" + std::to_string(line);
    const std::size_t found = message.find(place);
    const bool whole =
        found != std::string::npos &&
        (found + place.size() == message.size() ||
         std::isdigit(static_cast<unsigned char>(message[found + place.size()])) == 0);
    if (marked && whole) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const BrokenKernel& kernel) {
  return out << kernel.name;
}

std::string read_kernel(const std::string& name) {
  std::ifstream file(std::string(MOEJIT_SOURCE_DIR) + "/tests/sim/kernels/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string variant(const std::string& text, bool broken) {
  return std::string("#define BROKEN ") + (broken ? "1" : "0") + "\n#line 1 \"test_kernel.cu\"\n" +
         text;
}

void expect_report(const Error& error, const std::string& wanted, const std::string& text) {
  ASSERT_EQ(error.code, ErrorCode::kSimulatorFault) << to_string(error);
  EXPECT_EQ(error.stage, Stage::kLaunch);
  EXPECT_TRUE(std::regex_search(error.message, std::regex(wanted))) << error.message;
  EXPECT_NE(error.message.find("kernel test_kernel, CTA "), std::string::npos) << error.message;
  EXPECT_TRUE(names_a_marked_line(error.message, text)) << error.message;
}

}  // namespace moejit::runtime
