// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/wgmma.cuh. A WGMMA is issued here and carried out by the
// simulator at some time before the wait.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

using sim::OperandFormat;

enum class Major { kK, kMn };

struct MatrixDescriptor {
  uint64_t bits;
  MOEJIT_DEVICE MatrixDescriptor operator+(int32_t bytes) const {
    return {bits + static_cast<uint64_t>(bytes >> 4)};
  }
};

template <typename T>
MOEJIT_DEVICE MatrixDescriptor matrix_descriptor(SharedPtr<T> rows) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
  return {kSwizzle128 | kGroupStride | ((rows.address & 0x3ffffu) >> 4)};
}

template <typename T>
MOEJIT_DEVICE MatrixDescriptor mn_major_descriptor(SharedPtr<T> boxes) {
  constexpr uint64_t kBoxStride = uint64_t{8192 >> 4} << 16;
  return {matrix_descriptor(boxes).bits | kBoxStride};
}

struct WgmmaSumParts;

// Other copies of the words are nobody's operand.
struct RowFragments {
  uint32_t word[4][4];

  RowFragments() = default;
  RowFragments(const RowFragments& other) { *this = other; }
  RowFragments& operator=(const RowFragments& other) {
    __builtin_memcpy(word, other.word, sizeof(word));
    return *this;
  }
  MOEJIT_DEVICE ~RowFragments() {
    if (state_.in_flight == 0 && state_.is_pinned) return;
    Machine* m = machine();
    m->calls->misuse(m,
                     state_.in_flight > 0
                         ? "drops the registers of a WGMMA that no wgmma_wait has completed"
                         : "drops the registers of a WGMMA that the wgmma_wait which completed it "
                           "does not name",
                     state_.issued);
  }

 private:
  friend struct WgmmaSumParts;
  mutable sim::RegisterState state_;
};

template <int32_t kN>
class WgmmaSum {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256, "WGMMA has 8 to 256 columns");

 public:
  WgmmaSum() = default;
  // A WGMMA in flight writes to registers that have a place: no copies.
  WgmmaSum(const WgmmaSum&) = delete;
  WgmmaSum& operator=(const WgmmaSum&) = delete;
  MOEJIT_DEVICE ~WgmmaSum() {
    if (state_.in_flight > 0) {
      Machine* m = machine();
      m->calls->misuse(m, "drops the sums of a WGMMA that no wgmma_wait has completed",
                       state_.issued);
    }
  }

  MOEJIT_DEVICE float operator()(int32_t i, Site site = Site::here()) const {
    if (!state_.is_readable) refuse(site);
    state_.is_fenced = false;
    return value_[i];
  }

 private:
  MOEJIT_DEVICE void refuse(Site site) const {
    Machine* m = machine();
    const char* what = "reads a sum that no WGMMA has written";
    if (state_.in_flight > 0) {
      what = "reads a sum of a WGMMA that no wgmma_wait has completed";
    } else if (state_.is_defined) {
      what = "reads a sum that the wgmma_wait which completed it does not name";
    }
    m->calls->misuse(m, what, site);
  }

  friend struct WgmmaSumParts;
  float value_[kN / 2];
  mutable sim::SumState state_;
};

// Numbers of columns that moejit_device/ptx/wgmma.cuh has the instruction of.
template <int32_t kN>
inline constexpr bool kIsWgmmaShape =
    kN == 8 || kN == 16 || kN == 24 || kN == 32 || kN == 40 || kN == 48 || kN == 56 || kN == 64 ||
    kN == 96 || kN == 128 || kN == 192 || kN == 256;

// What the instructions do with a sum and kernels must not.
struct WgmmaSumParts {
  template <int32_t kN>
  MOEJIT_DEVICE static void fence(WgmmaSum<kN>& sum) {
    sum.state_.is_fenced = true;
  }
  template <int32_t kN>
  MOEJIT_DEVICE static void wait(WgmmaSum<kN>& sum) {
    sum.state_.is_readable = sum.state_.is_defined && sum.state_.in_flight == 0;
  }
  MOEJIT_DEVICE static void wait(RowFragments& a) { a.state_.is_pinned = a.state_.in_flight == 0; }
  MOEJIT_DEVICE static void fence(RowFragments&) {}
  // A comes from the registers of 32 bytes of each row, number `k`, where `registers` is not null.
  template <OperandFormat kFormatA, OperandFormat kFormatB, Major kA = Major::kK,
            Major kB = Major::kK, int32_t kN>
  MOEJIT_DEVICE static void issue(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                  bool accumulate, Site site,
                                  const RowFragments* registers = nullptr, int32_t k = 0) {
    static_assert(kIsWgmmaShape<kN>, "the device has no such instruction");
    static_assert((kFormatA == OperandFormat::kBf16) == (kFormatB == OperandFormat::kBf16),
                  "operands of 8 bits, or both of 16");
    const sim::WgmmaLane own{.sums = sum.value_,
                             .state = &sum.state_,
                             .a = a.bits,
                             .a_words = registers == nullptr ? nullptr : registers->word[k],
                             .a_state = registers == nullptr ? nullptr : &registers->state_,
                             .b = b.bits,
                             .columns = kN,
                             .a_format = kFormatA,
                             .b_format = kFormatB,
                             .accumulate = accumulate,
                             .is_a_mn_major = kA == Major::kMn,
                             .is_b_mn_major = kB == Major::kMn};
    Machine* m = machine();
    m->calls->issue_wgmma(m, &own, site);
  }
};

// Fences sums and registers of A.
template <typename... Named>
MOEJIT_DEVICE void fence_sums(Site site, Named&... sums) {
  Machine* m = machine();
  m->calls->fence_wgmma(m, site);
  (WgmmaSumParts::fence(sums), ...);
}

template <typename... Named>
MOEJIT_DEVICE void wait_for_sums(int32_t pending, Site site, Named&... sums) {
  Machine* m = machine();
  m->calls->wait_wgmma(m, pending, site);
  (WgmmaSumParts::wait(sums), ...);
}

// One function for each number of sums: behind a parameter pack no argument has a default.
MOEJIT_DEVICE void wgmma_fence(Site site = Site::here()) { fence_sums(site); }
template <int32_t kA>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kA>& a, Site site = Site::here()) {
  fence_sums(site, a);
}
template <int32_t kA, int32_t kB>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kA>& a, WgmmaSum<kB>& b, Site site = Site::here()) {
  fence_sums(site, a, b);
}
template <int32_t kA, int32_t kB, int32_t kC>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kA>& a, WgmmaSum<kB>& b, WgmmaSum<kC>& c,
                               Site site = Site::here()) {
  fence_sums(site, a, b, c);
}
template <int32_t kA, int32_t kB, int32_t kC, int32_t kD>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kA>& a, WgmmaSum<kB>& b, WgmmaSum<kC>& c, WgmmaSum<kD>& d,
                               Site site = Site::here()) {
  fence_sums(site, a, b, c, d);
}

MOEJIT_DEVICE void wgmma_commit(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->commit_wgmma(m, site);
}

template <int32_t kPending>
MOEJIT_DEVICE void wgmma_wait(Site site = Site::here()) {
  wait_for_sums(kPending, site);
}
template <int32_t kPending, int32_t kA>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kA>& a, Site site = Site::here()) {
  wait_for_sums(kPending, site, a);
}
template <int32_t kPending, int32_t kA, int32_t kB>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kA>& a, WgmmaSum<kB>& b, Site site = Site::here()) {
  wait_for_sums(kPending, site, a, b);
}
template <int32_t kPending, int32_t kA, int32_t kB, int32_t kC>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kA>& a, WgmmaSum<kB>& b, WgmmaSum<kC>& c,
                              Site site = Site::here()) {
  wait_for_sums(kPending, site, a, b, c);
}
template <int32_t kPending, int32_t kA, int32_t kB, int32_t kC, int32_t kD>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kA>& a, WgmmaSum<kB>& b, WgmmaSum<kC>& c, WgmmaSum<kD>& d,
                              Site site = Site::here()) {
  wait_for_sums(kPending, site, a, b, c, d);
}

template <int32_t kN>
MOEJIT_DEVICE void wgmma_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate, Site site = Site::here()) {
  WgmmaSumParts::issue<OperandFormat::kE4m3, OperandFormat::kE4m3>(sum, a, b, accumulate, site);
}

template <int32_t kN>
MOEJIT_DEVICE void wgmma_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate, Site site = Site::here()) {
  WgmmaSumParts::issue<OperandFormat::kBf16, OperandFormat::kBf16>(sum, a, b, accumulate, site);
}

template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                   bool accumulate, Site site = Site::here()) {
  for (int32_t k = 0; k < 4; ++k) {
    wgmma_e4m3(sum, a + 32 * k, b + 32 * k, accumulate || k > 0, site);
  }
}

MOEJIT_DEVICE void wgmma_fence(RowFragments& a, Site site = Site::here()) { fence_sums(site, a); }
template <int32_t kN>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kN>& sum, RowFragments& a, Site site = Site::here()) {
  fence_sums(site, sum, a);
}

template <int32_t kPending>
MOEJIT_DEVICE void wgmma_wait(RowFragments& a, Site site = Site::here()) {
  wait_for_sums(kPending, site, a);
}
template <int32_t kPending, int32_t kN>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kN>& sum, RowFragments& a, Site site = Site::here()) {
  wait_for_sums(kPending, site, sum, a);
}
template <int32_t kPending, int32_t kN>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kN>& sum, RowFragments& a, RowFragments& b,
                              Site site = Site::here()) {
  wait_for_sums(kPending, site, sum, a, b);
}

template <OperandFormat kFormat, int32_t kN>
MOEJIT_DEVICE void issue_rows(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                              bool accumulate, Site site) {
  static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 96 || kN == 128, "of swapped tiles");
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaSumParts::issue<kFormat, kFormat>(sum, MatrixDescriptor{}, b + 32 * k, accumulate || k > 0,
                                           site, &a, k);
  }
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate, Site site = Site::here()) {
  issue_rows<OperandFormat::kE4m3>(sum, a, b, accumulate, site);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_bf16(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate, Site site = Site::here()) {
  issue_rows<OperandFormat::kBf16>(sum, a, b, accumulate, site);
}

template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e5m2_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate, Site site = Site::here()) {
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaSumParts::issue<OperandFormat::kE5m2, OperandFormat::kE4m3>(sum, a + 32 * k, b + 32 * k,
                                                                     accumulate || k > 0, site);
  }
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3_e5m2(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate, Site site = Site::here()) {
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaSumParts::issue<OperandFormat::kE4m3, OperandFormat::kE5m2>(sum, a + 32 * k, b + 32 * k,
                                                                     accumulate || k > 0, site);
  }
}

template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_steps_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                    bool accumulate, Site site = Site::here()) {
  constexpr int32_t kStepA = kA == Major::kMn ? 2048 : 32;
  constexpr int32_t kStepB = kB == Major::kMn ? 2048 : 32;
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaSumParts::issue<OperandFormat::kBf16, OperandFormat::kBf16, kA, kB>(
        sum, a + kStepA * k, b + kStepB * k, accumulate || k > 0, site);
  }
}

}  // namespace moejit::device::ptx
