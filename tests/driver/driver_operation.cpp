// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/driver_operation.h"

#include "compiler/support/file.h"
#include "tests/support/matchers.h"

#include <filesystem>
#include <set>

namespace moejit::testing {

std::vector<compiler::OperationDescription> example_operations() {
  std::set<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(MOEJIT_SOURCE_DIR "/docs/examples/operations"))
    paths.insert(entry.path().string());
  std::vector<compiler::OperationDescription> operations;
  for (const std::string& path : paths)
    operations.push_back(compiler::parse_operation(read_text_file(path).value(), path).value());
  return operations;
}

OperationTensors::OperationTensors(const compiler::Plan& plan, runtime::Device& device)
    : device_(device) {
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    std::vector<int64_t>& shape = shapes_.emplace_back();
    for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
    auto memory = device.allocate(tensor.bytes);
    EXPECT_TRUE(succeeded(memory));
    refs_.push_back({.name = tensor.name,
                     .dtype = tensor.dtype,
                     .shape = shape,
                     .data = memory.value_or(nullptr)});
  }
}

OperationTensors::~OperationTensors() {
  for (const runtime::TensorRef& tensor : refs_) device_.release(tensor.data);
}

}  // namespace moejit::testing
