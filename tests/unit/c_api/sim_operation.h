// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "tests/unit/c_api/last_error.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <moejit/moejit_operation.h>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// The text of docs/examples/operations/NAME.json, in which `from` is replaced by `to`.
std::string example_operation(std::string_view name, std::string_view from = {},
                              std::string_view to = {});

// An operation on the simulator, through the C interface, with memory for the tensors that are
// given or wanted. What is wanted is uninitialised, which the simulator reports where it is read.
class SimOperation {
 public:
  explicit SimOperation(const std::string& json);
  ~SimOperation();
  SimOperation(const SimOperation&) = delete;
  SimOperation& operator=(const SimOperation&) = delete;

  template <typename Element>
  void give(const char* name, std::vector<int64_t> shape, const std::vector<Element>& values) {
    const DLTensor& tensor = want(name, std::move(shape));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(Element));
    EXPECT_EQ(bytes, bytes_of(tensor)) << name;
    EXPECT_TRUE(is_ok(moejit_device_copy_to_device(device(), tensor.data, values.data(), bytes)));
  }
  DLTensor& want(const char* name, std::vector<int64_t> shape);

  moejit_error_code run();

  template <typename Element>
  std::vector<Element> read(std::string_view name) const {
    const DLTensor& tensor = find(name);
    std::vector<Element> values(static_cast<std::size_t>(bytes_of(tensor)) / sizeof(Element));
    EXPECT_TRUE(
        is_ok(moejit_device_copy_to_host(device(), values.data(), tensor.data, bytes_of(tensor))));
    return values;
  }

  moejit_operation* get() const { return operation_; }
  static moejit_device* device();
  static moejit_engine* engine();

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    DLTensor dl{};
  };
  static int64_t bytes_of(const DLTensor& tensor);
  const DLTensor& find(std::string_view name) const;

  moejit_operation* operation_ = nullptr;
  std::deque<Tensor> tensors_;
};

}  // namespace moejit::testing
