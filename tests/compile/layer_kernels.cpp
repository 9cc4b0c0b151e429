// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/layer_kernels.h"

#include "compiler/launch.h"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <thread>

namespace moejit::testing {
namespace {

using compiler::KernelPlan;
using compiler::KernelSource;
using compiler::Plan;

// What a launch breaks of the limits of CUDA and of an SM; empty if nothing.
std::string limit_broken(const KernelPlan& kernel, const compiler::Target& target) {
  const compiler::LaunchShape& launch = kernel.launch;
  if (launch.threads < 32 || launch.threads > target.max_threads_per_cta)
    return fmt::format("{} threads", launch.threads);
  if (launch.shared_bytes < 0 || launch.shared_bytes > target.shared_memory_bytes)
    return fmt::format("{} bytes of shared memory", launch.shared_bytes);
  if (launch.max_ctas < 1 || launch.max_ctas > INT32_MAX)
    return fmt::format("{} CTAs", launch.max_ctas);
  for (const compiler::TensorMapPlan& map : kernel.tensor_maps) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(map.box.rank); ++i) {
      const bool is_box = map.box.box[i] >= 1 && map.box.box[i] <= 256;
      const bool is_tensor = map.box.dims[i] >= 1 && map.box.dims[i] <= int64_t{1} << 32;
      if (!is_box || !is_tensor)
        return fmt::format("{} of {} in boxes of {}", map.role, map.box.dims[i], map.box.box[i]);
      if (i > 0 && map.box.strides_bytes[i - 1] % 16 != 0)
        return fmt::format("{} with a stride of {}", map.role, map.box.strides_bytes[i - 1]);
    }
  }
  return {};
}

Result<void> add_kernels(const Plan& plan, LayerKernels& kernels) {
  for (const KernelPlan& kernel : plan.kernels) {
    if (const std::string broken = limit_broken(kernel, plan.target); !broken.empty())
      return fail(Stage::kPlan, ErrorCode::kInternal,
                  fmt::format("{} is launched with {}", kernel.operation, broken));
    MOEJIT_TRY_ASSIGN(KernelSource source, emit_kernel(kernel, plan.target));
    const std::string entry = source.entry;
    kernels.emplace(entry, with_launch_asserted(std::move(source), kernel.launch));
  }
  return {};
}

}  // namespace

KernelSource with_launch_asserted(KernelSource source, const compiler::LaunchShape& launch) {
  source.text += fmt::format(
      "static_assert(Kernel::kThreads == {});\nstatic_assert(Kernel::kSharedBytes == {});\n",
      launch.threads, launch.shared_bytes);
  if (launch.walking_threads_per_sm > 0)
    source.text += fmt::format("static_assert(Kernel::kCtasPerSm == {});\n",
                               std::max(launch.walking_threads_per_sm / launch.threads, 1));
  return source;
}

Result<LayerKernels> layer_kernels(const std::string& json) {
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, compiler::parse_layer(json, "layer"));
  LayerKernels kernels;
  for (const bool keeps : {false, true}) {
    MOEJIT_TRY_ASSIGN(const Plan plan,
                      compiler::plan_layer(layer, {}, {.keep_intermediates = keeps}));
    MOEJIT_TRY(add_kernels(plan, kernels));
  }
  return kernels;
}

CompileOutcome compile(const KernelSource& source) {
  const auto kernel = compiler::compile_kernel_and_time(source);
  if (!kernel) return {.complaint = kernel.error().message};
  return {.complaint = kernel->loss ? kernel->loss->message : std::string(),
          .cpu_seconds = kernel->time.cpu.value_or(0)};
}

void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& task) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) others.emplace_back(work);
  work();
}

}  // namespace moejit::testing
