// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/cache_sweep.h"

#include "templates/moejit_device/params/row_chain_params.h"

#include <span>

namespace moejit::cli {
namespace {

// 256 MiB: the L2 cache of the target's GPUs has 50 to 60.
constexpr int64_t kColumns = 8192;
constexpr int64_t kRows = 32768;
constexpr int64_t kScaleBytes = 4 * kRows * (kColumns / 128);
constexpr int32_t kThreads = 256;
constexpr int32_t kRowsOfLanes = kThreads / 8;  // 8 lanes read 128 columns

compiler::KernelPlan reader() {
  return {.operation = "cache_sweep",
          .spec = compiler::RowChainSpec{.load = compiler::LoadStage::kQuantizedRows,
                                         .quantize = compiler::QuantizeStage::kKeep,
                                         .store = compiler::StoreStage::kPermuted,
                                         .columns = kColumns,
                                         .local_experts = 1,
                                         .top_k = 1,
                                         .threads = kThreads,
                                         .segments_in_flight = 1},
          .launch = {.threads = kThreads, .max_ctas = kRows * (kColumns / 128) / kRowsOfLanes}};
}

Result<DeviceMemory> filled(runtime::Device& device, int64_t bytes, std::byte value) {
  MOEJIT_TRY_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device, bytes));
  MOEJIT_TRY(device.fill(memory.address(), value, bytes, nullptr));
  return memory;
}

}  // namespace

Result<CacheSweep> CacheSweep::create(runtime::Engine& engine, runtime::Device& device) {
  CacheSweep sweep;
  sweep.device_ = &device;
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(reader(), device.target()));
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(sweep.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(sweep.rows_, filled(device, kRows * kColumns, std::byte{0x5A}));
  MOEJIT_TRY_ASSIGN(sweep.scales_, filled(device, kScaleBytes, std::byte{0x5A}));
  // Destination -1: nowhere.
  MOEJIT_TRY_ASSIGN(sweep.row_map_, filled(device, 4 * kRows, std::byte{0xFF}));
  MOEJIT_TRY_ASSIGN(sweep.probs_, filled(device, 4 * kRows, std::byte{0x3F}));
  // counts [1] and offs [2] of one group without rows, each in 16 bytes of its own.
  MOEJIT_TRY_ASSIGN(sweep.groups_, filled(device, 32, std::byte{0}));
  return sweep;
}

Result<void> CacheSweep::run() {
  const auto* groups = static_cast<const int32_t*>(groups_.address());
  const device::RowChainParams params{
      .input = rows_.address(),
      .input_scale_inv = static_cast<const float*>(scales_.address()),
      .probs = static_cast<const float*>(probs_.address()),
      .row_map = static_cast<const int32_t*>(row_map_.address()),
      .counts = groups,
      .offs = groups + 4,
      .rows = kRows};
  const runtime::MemoryRegion regions[] = {{"rows", rows_.address(), kRows * kColumns},
                                           {"scale_inv", scales_.address(), kScaleBytes},
                                           {"probs", probs_.address(), 4 * kRows},
                                           {"row_map", row_map_.address(), 4 * kRows},
                                           {"groups", groups_.address(), 32}};
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = reader().launch.max_ctas,
                          .threads = kThreads,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = regions},
                         nullptr);
}

}  // namespace moejit::cli
