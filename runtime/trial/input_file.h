// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/call.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/host_tensor.h"

#include <string>
#include <string_view>
#include <utility>

namespace moejit::trial {

// A safetensors file whose tensors have the names of a plan's tensors, behind a prefix.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path, std::string prefix = {});

  const std::string& path() const { return file_.path(); }
  bool has(std::string_view name) const {
    return file_.find(prefix_ + std::string(name)) != nullptr;
  }
  // Returns what the file says of a tensor. Error kMissingTensor.
  auto at(std::string_view name) const { return file_.at(prefix_ + std::string(name)); }

  // Reads a tensor. The first with a dimension that changes per call tells its size in `told`, and
  // later ones must agree. Errors tell what is wanted: kMissingTensor, kTensorMismatch.
  Result<void> read(const compiler::TensorPlan& plan, runtime::ToldDims& told,
                    runtime::TensorMap& tensors) const;

 private:
  InputFile(checkpoint::SafetensorsFile file, std::string prefix)
      : file_(std::move(file)), prefix_(std::move(prefix)) {}

  checkpoint::SafetensorsFile file_;
  std::string prefix_;
};

}  // namespace moejit::trial
