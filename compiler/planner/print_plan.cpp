// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <fmt/format.h>
#include <iterator>

namespace moejit::compiler {
namespace {

using Buffer = std::back_insert_iterator<std::string>;

std::string shape_text(const TensorPlan& tensor) {
  std::string text = "[";
  for (const Dim& dim : tensor.shape) {
    if (text.size() > 1) text += ", ";
    text += dim.symbol;
  }
  return text + "]";
}

// "5.5 MiB": binary units, as memory is bought.
std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string launch_text(const LaunchShape& launch) {
  if (launch.ctas_per_sm == 0)
    return fmt::format("{} CTA x {} threads", launch.max_ctas, launch.threads);
  return fmt::format("{}/SM x {} threads", launch.ctas_per_sm, launch.threads);
}

std::string offset_text(const TensorPlan& tensor) {
  if (tensor.role == TensorRole::kWorkspace) return std::to_string(tensor.workspace_offset);
  if (tensor.role == TensorRole::kSaved) return std::to_string(tensor.saved_offset);
  return "-";
}

bool is_of(const Layer& layer, const SavedMemory& saved) {
  return layer.recipe == saved.recipe && layer.recompute == saved.recompute;
}

std::string role_text(const TensorPlan& tensor) {
  return fmt::format("{}{}", to_string(tensor.role), tensor.is_optional ? ", optional" : "");
}

void print_header(Buffer out, const Plan& plan) {
  const Layer& layer = plan.layer;
  fmt::format_to(out, "layer \"{}\" for {}: recipe {}, {}\n", layer.name, to_string(plan.target),
                 to_string(layer.recipe), has_backward(layer) ? "forward and backward" : "forward");
  fmt::format_to(out, "T <= {}  K = {}  E = {} of {}  H = {}  I = {}  P = {}\n\n", layer.max_tokens,
                 layer.top_k, layer.local_experts, layer.experts, layer.hidden, layer.intermediate,
                 layer.max_permuted_rows);
}

void print_kernels(Buffer out, const Plan& plan, bool explain) {
  fmt::format_to(out, "{:<3}{:<9}{:<26}{:<26}{:>10} {:>12} {:>10}\n", "#", "phase", "kernel",
                 "launch", "shared", "least bytes", "GFLOP");
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan& kernel = plan.kernels[i];
    fmt::format_to(out, "{:<3}{:<9}{:<26}{:<26}{:>10} {:>12} {:>10.1f}\n", i,
                   to_string(kernel.phase), kernel.operation, launch_text(kernel.launch),
                   bytes_text(kernel.launch.shared_bytes), bytes_text(kernel.min_bytes),
                   2e-9 * static_cast<double>(kernel.multiply_adds));
    if (!explain) continue;
    fmt::format_to(out, "   {}\n", to_string(kernel.spec));
    for (const std::string& reason : kernel.reasons) fmt::format_to(out, "   - {}\n", reason);
  }
}

void print_tensors(Buffer out, const Plan& plan) {
  fmt::format_to(out, "\n{:<20}{:<9}{:<32}{:<11}{:<18}{:>10} {:>12}  {}\n", "tensor", "dtype",
                 "shape", "layout", "role", "bytes", "offset", "kernels");
  for (const TensorPlan& tensor : plan.tensors) {
    fmt::format_to(out, "{:<20}{:<9}{:<32}{:<11}{:<18}{:>10} {:>12}  {}..{}\n", tensor.name,
                   to_string(tensor.dtype), shape_text(tensor), to_string(tensor.layout),
                   role_text(tensor), bytes_text(tensor.bytes), offset_text(tensor),
                   tensor.first_use, tensor.last_use);
  }
  fmt::format_to(out, "\nworkspace {}, quantised weights {}\n", bytes_text(plan.workspace_bytes),
                 bytes_text(plan.quantized_weight_bytes));
  if (!has_backward(plan.layer)) return;
  fmt::format_to(out, "saved for backward {}\n", bytes_text(plan.saved_bytes));
  for (const SavedMemory& other : compare_saved_memory(plan))
    fmt::format_to(out, "  {:<10} with recompute {:<11}{:>10}{}\n", to_string(other.recipe),
                   to_string(other.recompute), bytes_text(other.bytes),
                   is_of(plan.layer, other) ? "  (this plan)" : "");
}

}  // namespace

std::string print_plan(const Plan& plan, bool explain) {
  std::string text;
  const Buffer out = std::back_inserter(text);
  print_header(out, plan);
  print_kernels(out, plan, explain);
  print_tensors(out, plan);
  if (explain)
    for (const std::string& reason : plan.reasons) fmt::format_to(out, "- {}\n", reason);
  return text;
}

}  // namespace moejit::compiler
