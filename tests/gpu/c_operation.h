// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "tests/unit/c_api/last_error.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// Returns the text of docs/examples/operations/NAME.json, in which `from` is replaced by `to`.
std::string example_operation(std::string_view name, std::string_view from = {},
                              std::string_view to = {});

// An operation on the device that this executable tests (tested_target()),
// through the C interface, with memory for the tensors that are given or wanted. What is wanted is
// uninitialized, which the simulator reports where it is read.
class COperation {
 public:
  explicit COperation(const std::string& json);
  ~COperation();
  COperation(const COperation&) = delete;
  COperation& operator=(const COperation&) = delete;

  template <typename Element>
  void give(const char* name, std::vector<int64_t> shape, const std::vector<Element>& values) {
    const Memory& memory = add(name, std::move(shape));
    EXPECT_EQ(std::ssize(std::as_bytes(std::span(values))), memory.bytes) << name;
    place(memory.address, std::as_bytes(std::span(values)));
  }
  void want(const char* name, std::vector<int64_t> shape) { add(name, std::move(shape)); }

  // Return memory that is no tensor of the call, but that one of its tensors points to.
  template <typename Element>
  void* give_memory(const std::vector<Element>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    void* const address = want_memory(std::ssize(bytes));
    place(address, bytes);
    return address;
  }
  void* want_memory(int64_t bytes) { return allocate(bytes).address; }

  // Runs the operation. On a GPU, whatever is wanted has the same bytes before, and the operation
  // runs once more, from the same beginning, in a CUDA graph, which has to leave the same bytes in
  // all of its memory.
  moejit_error_code run();

  template <typename Element>
  std::vector<Element> read(std::string_view name) const {
    const DLTensor& tensor = find(name);
    return read_at<Element>(tensor.data, bytes_of(tensor));
  }
  template <typename Element>
  static std::vector<Element> read_at(const void* address, int64_t bytes) {
    std::vector<Element> values(static_cast<std::size_t>(bytes) / sizeof(Element));
    EXPECT_TRUE(is_ok(
        moejit_device_copy_to_host(device(), values.data(), const_cast<void*>(address), bytes)));
    return values;
  }

  moejit_plan* get() const { return operation_; }
  // Null where there is no such device.
  static moejit_device* device();
  static moejit_engine* engine();

 private:
  struct Memory {
    void* address = nullptr;
    int64_t bytes = 0;
    std::vector<std::byte> given;  // empty: it is wanted
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    DLTensor dl{};
  };
  static int64_t bytes_of(const DLTensor& tensor);
  Memory& allocate(int64_t bytes);
  Memory& add(const char* name, std::vector<int64_t> shape);
  void place(const void* address, std::span<const std::byte> values);
  const DLTensor& find(std::string_view name) const;

  // Bring the memory to where a call begins, and say what it holds after one.
  void reset();
  std::vector<std::vector<std::byte>> contents() const;
  moejit_error_code call(void* stream);
  void run_in_a_graph();

  moejit_plan* operation_ = nullptr;
  std::deque<Memory> memory_;
  std::deque<Tensor> tensors_;
};

// Skips where the device is missing.
class COperationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (COperation::device() == nullptr) GTEST_SKIP() << moejit_last_error()->message;
  }
};

}  // namespace moejit::testing
