// SPDX-License-Identifier: Apache-2.0
#pragma once

// WGMMA: a warpgroup multiplies matrices that lie in shared memory; the sums are in its registers.
// The instructions are asynchronous. A group is what was started between two wgmma_commit(); its
// sums may be read, and its operands overwritten, after wgmma_wait(). (PTX ISA, "Asynchronous
// Warpgroup Level Matrix Instructions".)

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

// Which dimension of an operand is contiguous: the contraction, or the rows of A and columns of B.
// MN-major operands are bf16.
enum class Major { kK, kMn };

// Where an operand lies, in boxes that tensor copies brought with the 128-byte swizzle, 1024-byte
// aligned.
//   K-major   a row has 128 bytes of the contraction. Groups of eight rows follow each other.
//   MN-major  a box has 64 elements of M or N (128 bytes) of each of 64 k: 8192 bytes. Further
//             elements of M or N are in boxes that follow.
struct MatrixDescriptor {
  uint64_t bits;
  // Returns the descriptor of the same matrix `bytes` further on: to the next K step 32, or 2048 if
  // MN-major; multiples of 1024 to other rows, of 8192 if MN-major.
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

// A thread's part of the sums of 64 rows and kN columns, in fp32. Element 4j + i is
//   i 0, 1: row 16 * (warp in the warpgroup) + lane / 4,     column 8j + 2 * (lane % 4) + i
//   i 2, 3: row 16 * (warp in the warpgroup) + lane / 4 + 8, column 8j + 2 * (lane % 4) + i - 2
// Neither initialized nor readable before a WGMMA into it is complete.
template <int32_t kN>
struct WgmmaSum {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256, "WGMMA has 8 to 256 columns");
  float value[kN / 2];
  MOEJIT_DEVICE float operator()(int32_t i) const { return value[i]; }
};

template <int32_t kN>
struct Wgmma;
template <int32_t kN>
struct WgmmaOfRegisters;

// Keeps the compiler from moving accesses to the sums across this point. One statement names them
// all, since each takes the compiler its time.
template <int32_t kN>
MOEJIT_DEVICE void pin(WgmmaSum<kN>& sum) {
  Wgmma<kN>::pin(sum.value);
}

// Before the first WGMMA of a chain, and whenever the sums were read or written in between.
template <int32_t... kN>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kN>&... sums) {
  (pin(sums), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

MOEJIT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all but the last `kPending` groups are complete. `sums` are those that become
// readable.
template <int32_t kPending, int32_t... kN>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kN>&... sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  (pin(sums), ...);
}

// sum[64, kN] (+)= a[64, 32] * b[kN, 32]^T on e4m3; without `accumulate` the old sums are dropped.
// All threads of a warpgroup call with the same operands.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate) {
  Wgmma<kN>::e4m3(sum.value, a.bits, b.bits, accumulate);
}

// sum[64, kN] (+)= a[64, 16] * b[kN, 16]^T on bf16.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate) {
  Wgmma<kN>::bf16(sum.value, a.bits, b.bits, accumulate);
}

// sum[64, kN] (+)= a[64, 128] * b[kN, 128]^T on e4m3: the four WGMMAs over whole rows of operands,
// as one statement.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                   bool accumulate) {
  Wgmma<kN>::rows_e4m3(sum.value, a.bits, b.bits, accumulate);
}

// A thread's part of a[64, 128] of e4m3, or of a[64, 64] of bf16, in registers, as WGMMA takes it
// (PTX ISA, "Register Fragments for wgmma.mma_async.m64k32", and "m64k16"). A row has 128 bytes.
// The words of each 32 of them are bytes c to c + 3 of rows r and r + 8, then the same rows 16
// bytes further on. r is 16 * (warp in the warpgroup) + lane / 4, c is 4 * (lane % 4).
struct RowFragments {
  uint32_t word[4][4];
};

// Keeps the compiler from moving accesses to the registers across this point.
MOEJIT_DEVICE void pin(RowFragments& a) {
#pragma unroll
  for (int32_t k = 0; k < 4; ++k)
    asm volatile(""
                 : "+r"(a.word[k][0]), "+r"(a.word[k][1]), "+r"(a.word[k][2]), "+r"(a.word[k][3]));
}

// As wgmma_fence(), before WGMMAs that read registers which were written since the last one. With
// sums, these were touched as well.
MOEJIT_DEVICE void wgmma_fence(RowFragments& a) {
  pin(a);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_fence(WgmmaSum<kN>& sum, RowFragments& a) {
  pin(a);
  wgmma_fence(sum);
}

// Wait as wgmma_wait() does. `a` may be overwritten then: until then nothing else may have its
// registers, which WGMMAs read while they run.
template <int32_t kPending>
MOEJIT_DEVICE void wgmma_wait(RowFragments& a) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  pin(a);
}
template <int32_t kPending, int32_t kN>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kN>& sum, RowFragments& a) {
  wgmma_wait<kPending>(sum);
  pin(a);
}
template <int32_t kPending, int32_t kN>
MOEJIT_DEVICE void wgmma_wait(WgmmaSum<kN>& sum, RowFragments& a, RowFragments& b) {
  wgmma_wait<kPending>(sum, a);
  pin(b);
}

// sum[64, kN] (+)= a[64, 128] * b[kN, 128]^T on e4m3, with A in registers. `a` was written before
// wgmma_fence(), and is named in the wgmma_wait() that completes it.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate) {
#pragma unroll
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaOfRegisters<kN>::e4m3(sum.value, a.word[k], (b + 32 * k).bits, accumulate || k > 0);
  }
}

// sum[64, kN] (+)= a[64, 64] * b[kN, 64]^T on bf16, in the same way.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_bf16(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate) {
#pragma unroll
  for (int32_t k = 0; k < 4; ++k) {
    WgmmaOfRegisters<kN>::bf16(sum.value, a.word[k], (b + 32 * k).bits, accumulate || k > 0);
  }
}

// sum[64, kN] (+)= a[64, 128] * b[kN, 128]^T in the same way, where one of A and B is e5m2.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e5m2_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate) {
  Wgmma<kN>::rows_e5m2_e4m3(sum.value, a.bits, b.bits, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3_e5m2(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate) {
  Wgmma<kN>::rows_e4m3_e5m2(sum.value, a.bits, b.bits, accumulate);
}

// sum[64, kN] (+)= a[64, 64] * b[kN, 64]^T on bf16, in the same way, over whole rows or boxes.
template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_steps_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                    bool accumulate) {
  Wgmma<kN>::template steps_bf16<kA == Major::kMn, kB == Major::kMn>(sum.value, a.bits, b.bits,
                                                                     accumulate);
}

// Each shape is an instruction of its own whose text names every register: lists of the registers
// of 8 columns (4 to a thread), and longer ones made of these.
// clang-format off
#define MOEJIT_SUMS_8(d, i) "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3])
#define MOEJIT_SUMS_16(d, i) MOEJIT_SUMS_8(d, i), MOEJIT_SUMS_8(d, (i) + 4)
#define MOEJIT_SUMS_24(d, i) MOEJIT_SUMS_16(d, i), MOEJIT_SUMS_8(d, (i) + 8)
#define MOEJIT_SUMS_32(d, i) MOEJIT_SUMS_16(d, i), MOEJIT_SUMS_16(d, (i) + 8)
#define MOEJIT_SUMS_40(d, i) MOEJIT_SUMS_32(d, i), MOEJIT_SUMS_8(d, (i) + 16)
#define MOEJIT_SUMS_48(d, i) MOEJIT_SUMS_32(d, i), MOEJIT_SUMS_16(d, (i) + 16)
#define MOEJIT_SUMS_56(d, i) MOEJIT_SUMS_32(d, i), MOEJIT_SUMS_24(d, (i) + 16)
#define MOEJIT_SUMS_64(d, i) MOEJIT_SUMS_32(d, i), MOEJIT_SUMS_32(d, (i) + 16)
#define MOEJIT_SUMS_96(d, i) MOEJIT_SUMS_64(d, i), MOEJIT_SUMS_32(d, (i) + 32)
#define MOEJIT_SUMS_128(d, i) MOEJIT_SUMS_64(d, i), MOEJIT_SUMS_64(d, (i) + 32)
#define MOEJIT_SUMS_192(d, i) MOEJIT_SUMS_128(d, i), MOEJIT_SUMS_64(d, (i) + 64)
#define MOEJIT_SUMS_256(d, i) MOEJIT_SUMS_128(d, i), MOEJIT_SUMS_128(d, (i) + 64)

#define MOEJIT_NAMES_8 "%0, %1, %2, %3"
#define MOEJIT_NAMES_16 MOEJIT_NAMES_8 \
  ", %4, %5, %6, %7"
#define MOEJIT_NAMES_24 MOEJIT_NAMES_16 \
  ", %8, %9, %10, %11"
#define MOEJIT_NAMES_32 MOEJIT_NAMES_24 \
  ", %12, %13, %14, %15"
#define MOEJIT_NAMES_40 MOEJIT_NAMES_32 \
  ", %16, %17, %18, %19"
#define MOEJIT_NAMES_48 MOEJIT_NAMES_40 \
  ", %20, %21, %22, %23"
#define MOEJIT_NAMES_56 MOEJIT_NAMES_48 \
  ", %24, %25, %26, %27"
#define MOEJIT_NAMES_64 MOEJIT_NAMES_56 \
  ", %28, %29, %30, %31"
#define MOEJIT_NAMES_96 MOEJIT_NAMES_64 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define MOEJIT_NAMES_128 MOEJIT_NAMES_96 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MOEJIT_NAMES_192 MOEJIT_NAMES_128 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MOEJIT_NAMES_256 MOEJIT_NAMES_192 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// `types`: the formats of A and B.
#define MOEJIT_WGMMA_FP8(n, types, a, b, add)                                                      \
  "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32." types " {" MOEJIT_NAMES_##n "}, " a ", " b     \
  ", " add ", 1, 1;\n"

// `ta`, `tb`: whether A and B are MN-major.
#define MOEJIT_WGMMA_BF16(n, a, b, add, ta, tb)                                                    \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" MOEJIT_NAMES_##n "}, " a ", " b     \
  ", " add ", 1, 1, " ta ", " tb ";\n"

// Descriptors count 16 bytes; what the first WGMMA made is added to by the others.
#define MOEJIT_WGMMA_ROWS(n, types, a, b)                                                          \
  MOEJIT_WGMMA_FP8(n, types, "%" a, "%" b, "p")                                                    \
  "add.s64 ka, %" a ", 2;\nadd.s64 kb, %" b ", 2;\n" MOEJIT_WGMMA_FP8(n, types, "ka", "kb", "1")   \
  "add.s64 ka, %" a ", 4;\nadd.s64 kb, %" b ", 4;\n" MOEJIT_WGMMA_FP8(n, types, "ka", "kb", "1")   \
  "add.s64 ka, %" a ", 6;\nadd.s64 kb, %" b ", 6;\n" MOEJIT_WGMMA_FP8(n, types, "ka", "kb", "1")

// A function that multiplies whole rows.
#define MOEJIT_WGMMA_ROWS_FUNCTION(name, n, types, a, b, accumulate)                               \
    MOEJIT_DEVICE static void name(float (&d)[(n) / 2], uint64_t a_bits, uint64_t b_bits,          \
                                   int32_t add) {                                                  \
      asm volatile("{\n.reg .pred p;\n.reg .b64 ka, kb;\nsetp.ne.b32 p, %" accumulate ", 0;\n"     \
                   MOEJIT_WGMMA_ROWS(n, types, a, b)                                               \
                   "}\n"                                                                           \
                   : MOEJIT_SUMS_##n(d, 0)                                                         \
                   : "l"(a_bits), "l"(b_bits), "r"(add));                                          \
    }

// `sa`, `sb`: to the next step of A and B.
#define MOEJIT_WGMMA_STEPS(n, a, b, ta, tb, sa, sb)                                                \
  MOEJIT_WGMMA_BF16(n, "%" a, "%" b, "p", "%" ta, "%" tb)                                          \
  "add.s64 ka, %" a ", %" sa ";\nadd.s64 kb, %" b ", %" sb ";\n"                                   \
  MOEJIT_WGMMA_BF16(n, "ka", "kb", "1", "%" ta, "%" tb)                                            \
  "add.s64 ka, ka, %" sa ";\nadd.s64 kb, kb, %" sb ";\n"                                           \
  MOEJIT_WGMMA_BF16(n, "ka", "kb", "1", "%" ta, "%" tb)                                            \
  "add.s64 ka, ka, %" sa ";\nadd.s64 kb, kb, %" sb ";\n"                                           \
  MOEJIT_WGMMA_BF16(n, "ka", "kb", "1", "%" ta, "%" tb)

#define MOEJIT_WGMMA(n, a, b, accumulate, ta, tb, sa, sb)                                           \
  template <>                                                                                      \
  struct Wgmma<n> {                                                                                \
    MOEJIT_DEVICE static void pin(float (&d)[(n) / 2]) {                                           \
      asm volatile("" : MOEJIT_SUMS_##n(d, 0) : : "memory");                                       \
    }                                                                                              \
    MOEJIT_DEVICE static void e4m3(float (&d)[(n) / 2], uint64_t a_bits, uint64_t b_bits,          \
                                   int32_t add) {                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" accumulate ", 0;\n"                        \
                   MOEJIT_WGMMA_FP8(n, "e4m3.e4m3", "%" a, "%" b, "p")                             \
                   "}\n"                                                                           \
                   : MOEJIT_SUMS_##n(d, 0)                                                         \
                   : "l"(a_bits), "l"(b_bits), "r"(add));                                          \
    }                                                                                              \
    MOEJIT_DEVICE static void bf16(float (&d)[(n) / 2], uint64_t a_bits, uint64_t b_bits,          \
                                   int32_t add) {                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" accumulate ", 0;\n"                        \
                   MOEJIT_WGMMA_BF16(n, "%" a, "%" b, "p", "0", "0")                               \
                   "}\n"                                                                           \
                   : MOEJIT_SUMS_##n(d, 0)                                                         \
                   : "l"(a_bits), "l"(b_bits), "r"(add));                                          \
    }                                                                                              \
    MOEJIT_WGMMA_ROWS_FUNCTION(rows_e4m3, n, "e4m3.e4m3", a, b, accumulate)                        \
    MOEJIT_WGMMA_ROWS_FUNCTION(rows_e5m2_e4m3, n, "e5m2.e4m3", a, b, accumulate)                   \
    MOEJIT_WGMMA_ROWS_FUNCTION(rows_e4m3_e5m2, n, "e4m3.e5m2", a, b, accumulate)                   \
    template <bool kTransposesA, bool kTransposesB>                                                \
    MOEJIT_DEVICE static void steps_bf16(float (&d)[(n) / 2], uint64_t a_bits, uint64_t b_bits,    \
                                         int32_t add) {                                            \
      asm volatile("{\n.reg .pred p;\n.reg .b64 ka, kb;\nsetp.ne.b32 p, %" accumulate ", 0;\n"     \
                   MOEJIT_WGMMA_STEPS(n, a, b, ta, tb, sa, sb)                                     \
                   "}\n"                                                                           \
                   : MOEJIT_SUMS_##n(d, 0)                                                         \
                   : "l"(a_bits), "l"(b_bits), "r"(add), "n"(kTransposesA ? 1 : 0),                \
                     "n"(kTransposesB ? 1 : 0), "n"(kTransposesA ? 128 : 2),                       \
                     "n"(kTransposesB ? 128 : 2));                                                 \
    }                                                                                              \
  };

MOEJIT_WGMMA(8, "4", "5", "6", "7", "8", "9", "10")
MOEJIT_WGMMA(16, "8", "9", "10", "11", "12", "13", "14")
MOEJIT_WGMMA(24, "12", "13", "14", "15", "16", "17", "18")
MOEJIT_WGMMA(32, "16", "17", "18", "19", "20", "21", "22")
MOEJIT_WGMMA(40, "20", "21", "22", "23", "24", "25", "26")
MOEJIT_WGMMA(48, "24", "25", "26", "27", "28", "29", "30")
MOEJIT_WGMMA(56, "28", "29", "30", "31", "32", "33", "34")
MOEJIT_WGMMA(64, "32", "33", "34", "35", "36", "37", "38")
MOEJIT_WGMMA(96, "48", "49", "50", "51", "52", "53", "54")
MOEJIT_WGMMA(128, "64", "65", "66", "67", "68", "69", "70")
MOEJIT_WGMMA(192, "96", "97", "98", "99", "100", "101", "102")
MOEJIT_WGMMA(256, "128", "129", "130", "131", "132", "133", "134")

// WGMMAs with A in registers have the widths of swapped tiles.
// `major`: of bf16, that B is K-major.
#define MOEJIT_WGMMA_REGISTERS_FUNCTION(name, n, depth, types, major, a0, a1, a2, a3, b, accumulate) \
    MOEJIT_DEVICE static void name(float (&d)[(n) / 2], const uint32_t (&a)[4], uint64_t b_bits,   \
                                   int32_t add) {                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" accumulate ", 0;\n"                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k" depth ".f32." types                  \
                   " {" MOEJIT_NAMES_##n "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b            \
                   ", p, 1, 1" major ";\n"                                                         \
                   "}\n"                                                                           \
                   : MOEJIT_SUMS_##n(d, 0)                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_bits), "r"(add));           \
    }
#define MOEJIT_WGMMA_REGISTERS(n, a0, a1, a2, a3, b, accumulate)                                   \
  template <>                                                                                      \
  struct WgmmaOfRegisters<n> {                                                                     \
    MOEJIT_WGMMA_REGISTERS_FUNCTION(e4m3, n, "32", "e4m3.e4m3", "", a0, a1, a2, a3, b, accumulate)   \
    MOEJIT_WGMMA_REGISTERS_FUNCTION(bf16, n, "16", "bf16.bf16", ", 0", a0, a1, a2, a3, b,            \
                                    accumulate)                                                    \
  };

MOEJIT_WGMMA_REGISTERS(16, "8", "9", "10", "11", "12", "13")
MOEJIT_WGMMA_REGISTERS(32, "16", "17", "18", "19", "20", "21")
MOEJIT_WGMMA_REGISTERS(64, "32", "33", "34", "35", "36", "37")
MOEJIT_WGMMA_REGISTERS(96, "48", "49", "50", "51", "52", "53")
MOEJIT_WGMMA_REGISTERS(128, "64", "65", "66", "67", "68", "69")

#undef MOEJIT_WGMMA_REGISTERS
#undef MOEJIT_WGMMA_REGISTERS_FUNCTION
#undef MOEJIT_WGMMA
#undef MOEJIT_WGMMA_STEPS
#undef MOEJIT_WGMMA_ROWS_FUNCTION
#undef MOEJIT_WGMMA_ROWS
#undef MOEJIT_WGMMA_BF16
#undef MOEJIT_WGMMA_FP8
#undef MOEJIT_SUMS_8
#undef MOEJIT_NAMES_8
#undef MOEJIT_SUMS_16
#undef MOEJIT_NAMES_16
#undef MOEJIT_SUMS_24
#undef MOEJIT_NAMES_24
#undef MOEJIT_SUMS_32
#undef MOEJIT_NAMES_32
#undef MOEJIT_SUMS_40
#undef MOEJIT_NAMES_40
#undef MOEJIT_SUMS_48
#undef MOEJIT_NAMES_48
#undef MOEJIT_SUMS_56
#undef MOEJIT_NAMES_56
#undef MOEJIT_SUMS_64
#undef MOEJIT_NAMES_64
#undef MOEJIT_SUMS_96
#undef MOEJIT_NAMES_96
#undef MOEJIT_SUMS_128
#undef MOEJIT_NAMES_128
#undef MOEJIT_SUMS_192
#undef MOEJIT_NAMES_192
#undef MOEJIT_SUMS_256
#undef MOEJIT_NAMES_256
// clang-format on

}  // namespace moejit::device::ptx
