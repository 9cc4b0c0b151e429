// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/prepared_plan.h"
#include "tests/gpu/ranks.h"
#include "tests/support/exchange_plan.h"

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace moejit::testing {

// The steps of one rank, prepared, with the rank's tensors. With max_permuted_rows they are those
// that permute and combine rows on the way. Tensors that peers reach lie in the
// heap at the same offset on all ranks.
class ExchangedRank {
 public:
  ExchangedRank(Ranks& ranks, const compiler::Exchange& exchange);
  ~ExchangedRank();
  ExchangedRank(const ExchangedRank&) = delete;
  ExchangedRank& operator=(const ExchangedRank&) = delete;

  // Returns the bytes of heap that an exchange of this shape takes.
  static int64_t heap_bytes(const compiler::Exchange& exchange);

  // Launches a step of a call over so many tokens.
  void run(compiler::ExchangeStep step, int64_t tokens);

  // Writes and reads tensors of this rank by the names of the operations; "slots" and so on are the
  // rank's own.
  template <typename T>
  void set(const std::string& name, const std::vector<T>& values) {
    write(name, std::as_bytes(std::span(values)));
  }
  template <typename T>
  std::vector<T> get(const std::string& name) {
    const std::vector<std::byte> bytes = read(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  struct Memory {
    std::byte* address = nullptr;
    int64_t bytes = 0;
  };
  void add(const compiler::Plan& plan);
  std::byte* place(const std::string& name, int64_t bytes);
  void write(const std::string& name, std::span<const std::byte> bytes);
  std::vector<std::byte> read(const std::string& name);

  Ranks& ranks_;
  int32_t rank_;
  compiler::Exchange exchange_;
  std::map<compiler::ExchangeStep, std::unique_ptr<runtime::PreparedPlan>> steps_;
  std::map<std::string, Memory> tensors_;  // all that a plan names, peers' too
  std::vector<std::byte*> allocated_;
};

}  // namespace moejit::testing
