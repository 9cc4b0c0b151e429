// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/call_tensors.h"

#include "runtime/bindings/c/dlpack_dtype.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::bindings {
namespace {

using compiler::CallPlan;
using compiler::TensorPlan;
using runtime::TensorRef;

tl::unexpected<Error> mismatch(std::string_view name, const std::string& what) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch, fmt::format("tensor {}: {}", name, what));
}

tl::unexpected<Error> wrong_dtype(const TensorPlan& plan, DLDataType given) {
  auto error =
      mismatch(plan.name, fmt::format("its dtype is {}, wanted {} ({})", to_string(given),
                                      to_string(plan.dtype), to_string(dl_data_type(plan.dtype))));
  using enum compiler::DType;
  for (const compiler::DType dtype : {kI32, kI64, kF32, kBF16})  // types that some tensors may have
    if (stands_for(given, dtype)) error.value().hint = compiler::dtype_hint(plan.name, dtype);
  return error;
}

std::span<const int64_t> shape_of(const DLTensor& tensor) {
  return {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
}

std::string name_of(DLDevice place) {
  switch (place.device_type) {
    case kDLCPU: return "the CPU";
    case kDLCUDA: return fmt::format("CUDA {}", place.device_id);
    case kDLCUDAHost: return "the CPU, pinned";
    case kDLCUDAManaged: return "CUDA's managed memory";
    default:
      return fmt::format("DLPack's device of type {}, id {}", static_cast<int>(place.device_type),
                         place.device_id);
  }
}

// Returns whether the layer's device can reach the memory. The device id is compared only for CUDA
// memory; for CPU, pinned and managed memory it means nothing.
bool is_reachable(DLDevice given, DLDevice layers) {
  if (layers.device_type == kDLCPU)
    return given.device_type == kDLCPU || given.device_type == kDLCUDAHost;
  return given.device_type == kDLCUDAManaged ||
         (given.device_type == kDLCUDA && given.device_id == layers.device_id);
}

// Returns whether the tensor is row-major without gaps. The products may wrap only for shapes that
// no plan has, which does no harm.
bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr || std::ranges::count(shape_of(tensor), 0) > 0) return true;
  uint64_t wanted = 1;
  for (auto i = static_cast<std::size_t>(tensor.ndim); i-- > 0;) {
    const auto size = static_cast<uint64_t>(tensor.shape[i]);
    if (size != 1 && static_cast<uint64_t>(tensor.strides[i]) != wanted) return false;
    wanted *= size;
  }
  return true;
}

Result<void> check(const DLTensor& tensor, const TensorPlan& plan, DLDevice place) {
  // This is checked first: it says how much of shape and strides may be read.
  if (tensor.ndim != static_cast<int64_t>(plan.shape.size()))
    return mismatch(plan.name,
                    fmt::format("it has {} dimensions, wanted {}", tensor.ndim, plan.shape.size()));
  if (tensor.ndim > 0 && tensor.shape == nullptr)
    return mismatch(plan.name, fmt::format("it has {} dimensions and no shape", tensor.ndim));
  if (!stands_for(tensor.dtype, plan.dtype)) return wrong_dtype(plan, tensor.dtype);
  if (!is_reachable(tensor.device, place))
    return mismatch(plan.name,
                    fmt::format("it is on {}, wanted {}", name_of(tensor.device), name_of(place)));
  if (!is_contiguous(tensor))
    return mismatch(
        plan.name,
        fmt::format("its strides are [{}] with the shape [{}], wanted row-major without gaps",
                    fmt::join(std::span(tensor.strides, shape_of(tensor).size()), ", "),
                    fmt::join(shape_of(tensor), ", ")));
  return {};
}

void* address_of(const DLTensor& tensor) {
  if (tensor.data == nullptr) return nullptr;
  return static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
}

tl::unexpected<Error> null_tensor(std::size_t index, const char* name) {
  if (name == nullptr)
    return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                fmt::format("the name of tensor {} of the call is NULL", index));
  return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
              fmt::format("tensor {}: its DLTensor is NULL", name));
}

// Reads the tensors that the call takes.
Result<void> read_tensors(const moejit_plan& plan, const CallPlan& wanted,
                          std::span<const moejit_tensor> given, CallTensors& tensors) {
  const std::vector<TensorPlan>& planned = plan.plan->tensors;
  runtime::CallTensorSearch search(*plan.plan, wanted);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [name, tensor] = given[i];
    if (name == nullptr || tensor == nullptr) return null_tensor(i, name);
    const std::size_t found = search.find(name);
    TensorRef ref{.name = name};
    if (found < wanted.tensors.size()) {
      const TensorPlan& meant = planned[wanted.tensors[found].slot];
      MOEJIT_TRY(check(*tensor, meant, plan.place));
      ref = {meant.name, meant.dtype, shape_of(*tensor), address_of(*tensor)};
    } else if (const TensorPlan* other = find_tensor(*plan.plan, name);
               other != nullptr && is_callers(other->role)) {
      continue;
    }  // for a name that is none of the caller's tensors, the runtime reports the error
    if (!tensors.add(ref))
      return mismatch(ref.name, fmt::format("the call has more than {} tensors, so some are given "
                                            "twice",
                                            CallTensors::kMost));
  }
  return {};
}

}  // namespace

Result<void> read_call(const moejit_plan& plan, const CallPlan& wanted, const moejit_call& call,
                       GivenCall& given) {
  MOEJIT_TRY_ASSIGN(const moejit_call read, read_record(Stage::kLaunch, &call, "moejit_call"));
  if (read.tensors == nullptr && read.tensor_count > 0)
    return null_argument(Stage::kLaunch, "call->tensors", "moejit_plan_call");
  MOEJIT_TRY(read_tensors(plan, wanted, std::span(read.tensors, read.tensor_count), given.tensors));
  given.memory = {.workspace = read.workspace,
                  .workspace_bytes = read.workspace_bytes,
                  .saved = read.saved,
                  .saved_bytes = read.saved_bytes,
                  .deferred = read.deferred,
                  .deferred_bytes = read.deferred_bytes};
  given.stream = read.stream;
  return {};
}

}  // namespace moejit::bindings
