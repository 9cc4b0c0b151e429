// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/call.h"
#include "runtime/device_memory.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::trial {

// The caller's tensors of a run, in device memory. The device must live longer.
class DeviceTensors {
 public:
  explicit DeviceTensors(runtime::Device& device) : device_(device) {}

  // Allocates a tensor of this name and fills it with `content`, repeated if that is shorter than
  // the tensor. Without content all its bytes are 255.
  Result<void> add(const std::string& name, compiler::DType dtype, std::vector<int64_t> shape,
                   const runtime::HostTensor* content);

  // Takes memory that holds a tensor of the plan with every dimension at its bound.
  void put(const compiler::TensorPlan& tensor, runtime::DeviceMemory memory);

  bool has(std::string_view name) const { return tensors_.contains(name); }
  // Returns a tensor's memory; null if no tensor has this name.
  void* address_of(std::string_view name) const;
  // Return a tensor for calls, and a tensor's contents. A tensor of this name must exist.
  runtime::TensorRef ref(std::string_view name) const;
  Result<runtime::HostTensor> read(std::string_view name) const;

 private:
  struct Tensor {
    compiler::DType dtype = compiler::DType::kU8;
    std::vector<int64_t> shape;
    runtime::DeviceMemory memory;
  };

  runtime::Device& device_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// The tensors that the operation multi_cast_transpose casts.
struct ListedTensors {
  const compiler::MultiCastTransposeSpec& spec;
  const std::vector<compiler::MatrixSize>& sizes;
};
// Returns the list of a plan; none if its operation has no list.
std::optional<ListedTensors> listed_tensors(const compiler::Plan& plan);

// Allocates the tensors of a list: "input.0", ... and, if present, "scale.0", ... of `inputs`. Also
// allocates "tensors" and "tile_ends", which multi_cast_transpose reads. Returns the names of the
// tensors that it writes: "output.0", "output_colwise.0", "amax.0", "scale_inv.0", ...
Result<std::vector<std::string>> add_list(const ListedTensors& list,
                                          const runtime::TensorMap& inputs, DeviceTensors& tensors);

}  // namespace moejit::trial
