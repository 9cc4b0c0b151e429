// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"
#include "runtime/simulator/wgmma_arithmetic.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

namespace moejit::runtime {

inline constexpr int32_t kWarpgroupWarps = sim::kWarpgroupThreads / sim::kWarpLanes;

// An operand of 64 rows and 32 bytes of the contraction that came in registers. `bytes` are what it
// was when the WGMMA was issued, `words` where each thread has its four words.
struct alignas(64) RegisterOperand {
  std::array<unsigned char, 64 * 32> bytes;
  std::array<const uint32_t*, sim::kWarpgroupThreads> words;
  std::array<sim::RegisterState*, sim::kWarpgroupThreads> states;

  // Returns where `bytes` has a word of a thread (PTX ISA, "Register Fragments for
  // wgmma.mma_async.m64k32").
  static std::size_t place(std::size_t thread, std::size_t word) {
    const std::size_t row = thread / 32 * 16 + thread % 32 / 4 + word % 2 * 8;
    return 32 * row + thread % 4 * 4 + word / 2 * 16;
  }
};

// A WGMMA that a warpgroup has issued and for which not all of its warps have waited.
struct Wgmma {
  sim::WgmmaLane lane{};  // of the first thread; only the sums differ in the others
  std::array<float*, sim::kWarpgroupThreads> sums{};
  std::array<sim::SumState*, sim::kWarpgroupThreads> states{};
  std::unique_ptr<RegisterOperand> a = {};  // null: A is in shared memory
  int64_t group = 0;
  sim::Site site{};
  uint32_t waited_warps = 0;
};

// Instructions that a whole warpgroup executes together.
enum class WarpgroupStep : uint8_t { kWgmma, kReleaseRegisters, kClaimRegisters };

struct Warpgroup {
  // Number of threads that wait at one instruction for the others.
  int32_t met = 0;
  WarpgroupStep step{};
  sim::Site site{};
  std::array<const void*, sim::kWarpgroupThreads> operands{};

  int32_t registers = 0;         // of a thread
  int32_t wanted_registers = 0;  // number that a waiting claim wants; else 0

  int32_t agent = -1;  // agent of its WGMMAs, whose numbers are its epochs
  std::deque<Wgmma> wgmmas;
  uint32_t first = 0;                                // number of the first of `wgmmas`
  std::size_t done = 0;                              // how many of `wgmmas` have been carried out
  std::array<int64_t, kWarpgroupWarps> committed{};  // groups of each warp
};

// Memory that one WGMMA works in.
struct WgmmaBuffers {
  alignas(64) std::array<std::byte, kWgmmaScratchBytes> scratch;
  alignas(64) std::array<unsigned char, 64 * 32> a;
  alignas(64) std::array<unsigned char, 256 * 32> b;
};

// An operand of WGMMA, read from its descriptor (PTX ISA, "Matrix descriptor format"). K-major: the
// lines are the rows of A or columns of B, and a WGMMA takes 32 bytes of each. MN-major: a line is
// one k, and a WGMMA takes all of its elements of M or N. Each 128 bytes of them are in a box.
struct MatrixOperand {
  bool is_mn_major = false;
  int32_t elements = 0;       // of M or N
  uint32_t address = 0;       // in shared memory
  uint32_t group_stride = 0;  // from eight lines to the next
  uint32_t box_stride = 0;    // of MN-major operands

  int32_t lines() const { return is_mn_major ? kDepth : elements; }
  uint32_t chunks() const { return is_mn_major ? static_cast<uint32_t>(elements) / 8 : 2; }

  // Returns the address in shared memory of 16 bytes of a line.
  uint32_t chunk_address(int32_t line, uint32_t chunk) const {
    const auto r = static_cast<uint32_t>(line);
    const uint32_t linear =
        address + chunk / 8 * box_stride + r / 8 * group_stride + r % 8 * 128 + chunk % 8 * 16;
    return linear ^ (linear >> 7 & 7u) << 4;
  }

 private:
  static constexpr int32_t kDepth = 16;  // of bf16; no other type may be MN-major
};

}  // namespace moejit::runtime
