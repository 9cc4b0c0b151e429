// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/random_values.h"

#include <fmt/core.h>
#include <span>

namespace moejit::cli {
namespace {

constexpr int32_t kThreads = 256;
constexpr int64_t kRun = 8;  // values that a thread makes

// Eight numbers from 0 to 65535 have the mean 262140 and the variance (2^32 - 1) 2 / 3.
constexpr const char* kText =
    "// random_values: numbers that are close to normal, each from the seed and its index\n"
    "#include \"moejit_device/ptx/convert.cuh\"\n"
    "#include \"moejit_device/ptx/memory.cuh\"\n"
    "\n"
    "using namespace moejit::device;\n"
    "\n"
    "constexpr int32_t kThreads = 256;\n"
    "constexpr int32_t kMean = 262140;\n"
    "constexpr float kInverseDeviation = 0x1.3988e2p-16f;\n"
    "\n"
    "struct RandomValuesParams {\n"
    "  Bytes16* values;  // 8 * runs numbers\n"
    "  int64_t runs;\n"
    "  uint64_t seed;\n"
    "};\n"
    "\n"
    "// The output function of SplitMix64.\n"
    "MOEJIT_DEVICE uint64_t mixed(uint64_t bits) {\n"
    "  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;\n"
    "  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;\n"
    "  return bits ^ (bits >> 31);\n"
    "}\n"
    "\n"
    "// Four numbers from 0 to 65535.\n"
    "MOEJIT_DEVICE int32_t sum_of_four(uint64_t bits) {\n"
    "  int32_t sum = 0;\n"
    "  for (int32_t i = 0; i < 4; ++i) sum += static_cast<int32_t>(bits >> (16 * i) & 0xffff);\n"
    "  return sum;\n"
    "}\n"
    "\n"
    "MOEJIT_DEVICE float normal(uint64_t seed, uint64_t index) {\n"
    "  const uint64_t state = mixed(seed) + 2 * index * 0x9e3779b97f4a7c15u;\n"
    "  const int32_t sum = sum_of_four(mixed(state)) +\n"
    "                      sum_of_four(mixed(state + 0x9e3779b97f4a7c15u));\n"
    "  return ptx::multiply(static_cast<float>(sum - kMean), kInverseDeviation);\n"
    "}\n";

// A thread's eight numbers, and how it stores them.
constexpr const char* kOpen =
    "\n"
    "MOEJIT_KERNEL(kThreads, 4, moejit_random_values, RandomValuesParams) {\n"
    "  const int64_t run = int64_t{ptx::cta_index()} * kThreads + ptx::thread_index();\n"
    "  if (run >= params.runs) return;\n"
    "  const uint64_t first = 8 * static_cast<uint64_t>(run);\n"
    "  float value[8];\n"
    "  for (uint32_t i = 0; i < 8; ++i) value[i] = normal(params.seed, first + i);\n";
constexpr const char* kStoreBf16 =
    "  Bytes16 bytes;\n"
    "  for (int32_t i = 0; i < 4; ++i)\n"
    "    bytes.word[i] = ptx::bf16_pair(value[2 * i], value[2 * i + 1]);\n"
    "  ptx::store(ptx::global(params.values) + run, bytes);\n"
    "}\n";
constexpr const char* kStoreE4m3 =
    "  for (int32_t i = 0; i < 8; ++i) value[i] = ptx::multiply(value[i], 64.0f);\n"
    "  Bytes8 bytes;\n"
    "  for (int32_t i = 0; i < 2; ++i) {\n"
    "    const uint32_t low = ptx::e4m3_pair(value[4 * i], value[4 * i + 1]);\n"
    "    const uint32_t high = ptx::e4m3_pair(value[4 * i + 2], value[4 * i + 3]);\n"
    "    bytes.word[i] = low | high << 16;\n"
    "  }\n"
    "  ptx::store(ptx::as<Bytes8>(ptx::global(params.values)) + run, bytes);\n"
    "}\n";

// As the text above declares it.
struct RandomValuesParams {
  void* values;
  int64_t runs;
  uint64_t seed;
};

}  // namespace

compiler::KernelSource random_values_source(compiler::DType dtype, const compiler::Target& target) {
  const bool is_bf16 = dtype == compiler::DType::kBF16;
  return {.entry = "moejit_random_values",
          .text = fmt::format("{}{}{}", kText, kOpen, is_bf16 ? kStoreBf16 : kStoreE4m3),
          .target = target};
}

Result<RandomValues> RandomValues::create(compiler::DType dtype, runtime::Engine& engine,
                                          runtime::Device& device) {
  RandomValues random;
  random.device_ = &device;
  random.dtype_ = dtype;
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(random_values_source(dtype, device.target())));
  MOEJIT_TRY_ASSIGN(random.kernel_, device.load(*binary));
  return random;
}

Result<void> RandomValues::fill(void* values, int64_t count, uint64_t seed) const {
  const int64_t runs = count / kRun;
  const RandomValuesParams params{values, runs, seed};
  const int64_t bytes = compiler::size_bytes(dtype_) * count;
  const runtime::MemoryRegion region{"values", values, bytes, true};
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = (runs + kThreads - 1) / kThreads,
                          .threads = kThreads,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = std::span(&region, 1)},
                         nullptr);
}

}  // namespace moejit::cli
