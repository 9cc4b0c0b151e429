// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/rank_words.h"

namespace moejit::runtime {
namespace {

constexpr int64_t kBytes = 64, kHeapBytes = 4096;
constexpr std::string_view kParams =
    "struct Params {\n"
    "  uint32_t* words[2];\n"
    "  uint32_t* own;\n"
    "  int32_t rank;\n"
    "};\n"
    "#line 1 \"test_kernel.cu\"\n";

struct WordsParams {
  void* words[2];
  void* own;
  int32_t rank;
};

}  // namespace

Result<RankWords> run_on_two_ranks(const std::string& body, uint64_t seed, int64_t ctas,
                                   int32_t threads) {
  MOEJIT_TRY_ASSIGN(const auto binary, compile_test_kernel(std::string(kParams) + body));
  MOEJIT_TRY_ASSIGN(const auto group, open_simulator_group(2, {.seed = seed}));
  MOEJIT_TRY_ASSIGN(const auto kernel, group->device(0).load(*binary));
  std::array<void*, 2> own{};
  for (int32_t rank = 0; rank < 2; ++rank) {
    Device& device = group->device(rank);
    MOEJIT_TRY_ASSIGN(own[static_cast<std::size_t>(rank)], device.allocate(kBytes));
    MOEJIT_TRY(device.fill(own[static_cast<std::size_t>(rank)], std::byte{0}, kBytes, nullptr));
    MOEJIT_TRY(device.fill(group->heap(rank), std::byte{0}, kHeapBytes, nullptr));
  }
  MOEJIT_TRY(group->synchronize());
  for (int32_t rank = 0; rank < 2; ++rank) {
    const WordsParams params{
        {group->heap(0), group->heap(1)}, own[static_cast<std::size_t>(rank)], rank};
    const std::array<MemoryRegion, 3> regions{
        MemoryRegion{"words", group->heap(0), kHeapBytes, true},
        MemoryRegion{"words", group->heap(1), kHeapBytes, true},
        MemoryRegion{"own", params.own, kBytes, true}};
    MOEJIT_TRY(group->device(rank).launch({.kernel = kernel.get(),
                                           .ctas = ctas,
                                           .threads = threads,
                                           .shared_bytes = 1024,
                                           .params = std::as_bytes(std::span(&params, 1)),
                                           .regions = regions},
                                          nullptr));
  }
  MOEJIT_TRY(group->synchronize());
  RankWords result;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    result.words[index].resize(kHeapBytes / 4);
    result.own[index].resize(kBytes / 4);
    MOEJIT_TRY(group->device(rank).copy_to_host(result.words[index].data(), group->heap(rank),
                                                kHeapBytes));
    MOEJIT_TRY(group->device(rank).copy_to_host(result.own[index].data(), own[index], kBytes));
  }
  result.nanoseconds = group->nanoseconds();
  return result;
}

}  // namespace moejit::runtime
