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

}  // namespace

Result<void> read_call_tensors(const compiler::Plan& plan, const PlanHandle& handle,
                               uint32_t call_bit, std::span<const moejit_tensor> given,
                               CallTensors& tensors) {
  auto next = plan.tensors.begin();  // callers mostly give tensors in the order of the plan
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [name, tensor] = given[i];
    if (name == nullptr || tensor == nullptr) return null_tensor(i, name);
    const std::string_view wanted = name;
    auto found = std::find_if(next, plan.tensors.end(),
                              [&](const TensorPlan& one) { return one.name == wanted; });
    if (found == plan.tensors.end())
      found = std::ranges::find(plan.tensors, wanted, &TensorPlan::name);
    else
      next = found + 1;
    // For a name that is none of the caller's tensors, the runtime reports the error.
    TensorRef ref{.name = name};
    if (found != plan.tensors.end() && is_callers(found->role)) {
      const auto index = static_cast<std::size_t>(found - plan.tensors.begin());
      if ((handle.tensors[index].used_by & call_bit) == 0) continue;
      MOEJIT_TRY(check(*tensor, *found, handle.place));
      ref = {found->name, found->dtype, shape_of(*tensor), address_of(*tensor)};
    }
    if (!tensors.add(ref))
      return mismatch(ref.name, fmt::format("the call has more than {} tensors, so some are given "
                                            "twice",
                                            CallTensors::kMost));
  }
  return {};
}

Result<void> read_call(const compiler::Plan& plan, const PlanHandle& handle,
                       const moejit_call& call, uint32_t call_bit, const char* function,
                       GivenCall& given) {
  MOEJIT_TRY_ASSIGN(const moejit_call read, read_record(Stage::kLaunch, &call, "moejit_call"));
  if (read.tensors == nullptr && read.tensor_count > 0)
    return null_argument(Stage::kLaunch, "call->tensors", function);
  MOEJIT_TRY(read_call_tensors(plan, handle, call_bit, std::span(read.tensors, read.tensor_count),
                               given.tensors));
  given.memory = {.workspace = read.workspace,
                  .workspace_bytes = read.workspace_bytes,
                  .saved = read.saved,
                  .saved_bytes = read.saved_bytes,
                  .deferred = read.deferred,
                  .deferred_bytes = read.deferred_bytes};
  given.stream = read.stream;
  return {};
}

Result<compiler::GradientMode> read_mode(moejit_gradient_mode mode, const char* function) {
  if (mode == MOEJIT_GRADIENT_OVERWRITE) return compiler::GradientMode::kOverwrite;
  if (mode == MOEJIT_GRADIENT_ADD) return compiler::GradientMode::kAdd;
  return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
              fmt::format("mode of {}() is {}, wanted {} or {}", function, static_cast<int>(mode),
                          static_cast<int>(MOEJIT_GRADIENT_OVERWRITE),
                          static_cast<int>(MOEJIT_GRADIENT_ADD)));
}

Result<compiler::Pass> read_pass(moejit_pass pass, const char* function) {
  if (pass == MOEJIT_PASS_FORWARD) return compiler::Pass::kForward;
  if (pass == MOEJIT_PASS_BACKWARD) return compiler::Pass::kBackward;
  return fail(
      Stage::kLaunch, ErrorCode::kInvalidValue,
      fmt::format("pass of {}() is {}, wanted {} or {}", function, static_cast<int>(pass),
                  static_cast<int>(MOEJIT_PASS_FORWARD), static_cast<int>(MOEJIT_PASS_BACKWARD)));
}

}  // namespace moejit::bindings
