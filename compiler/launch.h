// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/kernel_spec.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A pointer or a tensor map in a parameter record (templates/moejit_device/params). `role` is the
// name of its field, as in KernelArgument::role and TensorMapPlan::role.
struct RecordTensor {
  std::string_view role;
  std::size_t offset = 0;
  Access access = Access::kRead;
};

// A number in a parameter record. `role` is the name of its field, as in KernelNumber::role.
struct RecordNumber {
  std::string_view role;
  std::size_t offset = 0;
};

// What the host has to know about a kernel's parameter record.
struct ParamRecord {
  std::string_view name;
  std::size_t bytes = 0;
  std::span<const RecordTensor> pointers;
  std::span<const RecordTensor> maps;
  std::span<const RecordNumber> numbers;
};

const ParamRecord& param_record(const KernelSpec& spec);

// Returns the layouts of all records as text, which changes whenever a field moves.
std::string param_record_layouts();

// Sets the access of each argument and tensor map of a kernel, as the record and the spec tell.
void set_access(KernelPlan& kernel);

// These pure functions tell how kernels are launched. The planner asks for the layer's largest
// call, the runtime for each call; neither knows the routing.

// Returns threads, shared memory and CTAs per SM of a kernel, and whether CTAs walk; max_ctas is
// left at 1.
LaunchShape launch_shape(const KernelSpec& spec);

// Returns the numbers of a kernel's parameter record.
std::vector<KernelNumber> kernel_numbers(const KernelSpec& spec, const CallBounds& bounds);

// Returns how many CTAs may have work in a call over T tokens: the most of all routings. Results
// never depend on this number.
int64_t busy_ctas(const KernelSpec& spec, const CallBounds& bounds, int64_t tokens);

// Checks that tensor copies accept this box of the tensor at `address` (CUDA driver API,
// cuTensorMapEncodeTiled). Error kInternal says what is wrong with the box, which the planner made,
// or with the address, which the caller bound.
Result<void> check_tensor_box(const TensorBox& box, const void* address);

}  // namespace moejit::compiler
