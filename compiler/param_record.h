// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "compiler/plan.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

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

}  // namespace moejit::compiler
