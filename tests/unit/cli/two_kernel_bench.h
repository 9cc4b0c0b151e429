// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/bench_report.h"
#include "compiler/compiler.h"

#include <string>
#include <utility>
#include <vector>

namespace moejit::cli {

// Returns the plan of a layer with one expert that has two kernels: the one that quantizes w1, and
// the first GEMM.
inline compiler::Plan two_kernel_plan(const std::string& name = "made up") {
  const compiler::Layer layer{.name = name,
                              .experts = 1,
                              .local_experts = 1,
                              .top_k = 1,
                              .hidden = 1024,
                              .intermediate = 512,
                              .recipe = compiler::Recipe::kFp8Flow,
                              .splits_alignment = 128,
                              .max_tokens = 1000,
                              .max_permuted_rows = 1024,
                              .fuse_activation = false};
  compiler::Plan plan = plan_layer(layer, {}, {.measure_gemms = true}).value();
  std::erase_if(plan.kernels, [](const compiler::KernelPlan& kernel) {
    return kernel.operation != "quantize_w1" && kernel.operation != "gemm_fc1";
  });
  return plan;
}

// Returns made up times of these kernels, from which the rest of a report is known by hand: the
// GEMM multiplies 1000 x 1024 x 1024 = 1 048 576 000 times; 100 SMs at their peak do that in 2560
// cycles: 2 us at 1280 MHz.
inline BenchReport two_kernel_report(std::string command_line) {
  BenchReport report{.run = {.command_line = std::move(command_line),
                             .date = "2026-11-21T12:00:00Z",
                             .target = "cuda:sm_90a on NVIDIA H200",
                             .gpu = "NVIDIA H200",
                             .sm_count = 100,
                             .repeat = 20,
                             .hot_seconds = 0.35},
                     .rows = {.tokens = 1000,
                              .routed = 1000,
                              .padded = 1024,
                              .routed_tokens = 990,
                              .routed_experts = 1},
                     .copy_bytes_per_second = 4e12,
                     .read_bytes_per_second = 4.25e12};
  report.times.cool = {{.microseconds = 10.0, .megahertz = 1900.0},
                       {.microseconds = 4.0, .megahertz = 1280.0}};
  report.times.hot = {{.microseconds = 8.0, .megahertz = 1800.0, .launches = 7, .seconds = 0.4},
                      {.microseconds = 8.0, .megahertz = 640.0, .launches = 9, .seconds = 0.5}};
  report.forward = {.microseconds = 100.0, .megahertz = 1500.0};
  report.forward_graph = {.microseconds = 90.0, .megahertz = 1500.0};
  return report;
}

}  // namespace moejit::cli
