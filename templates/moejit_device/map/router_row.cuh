// SPDX-License-Identifier: Apache-2.0
#pragma once

// A token's logits in the registers of a warp. A lane holds kPerLane neighboring experts, so that
// the lowest of several lanes has the lowest experts, and a group of experts is some lanes.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/core/score.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// Returns the experts of a lane, as docs/router.md states for sums over experts.
MOEJIT_DEVICE constexpr int32_t router_experts_per_lane(int32_t experts, int32_t groups) {
  if (groups == 1) return ceil_div(experts, int32_t{32});
  int32_t lanes = 1;  // of a group
  while (experts / groups % (2 * lanes) == 0 && 2 * lanes * groups <= 32) lanes *= 2;
  return experts / groups / lanes;
}

namespace router {

// Returns the threads of an SM that registers are left for. Sums of scores take two registers for
// each expert of a lane.
MOEJIT_DEVICE constexpr int32_t threads_per_sm(int32_t per_lane, bool adds_up_scores) {
  if (per_lane <= 8) return 1024;
  return per_lane <= 16 || !adds_up_scores ? 512 : 256;
}

template <int32_t kBytes>
struct WordsOf {
  using Type = Bytes16;
};
template <>
struct WordsOf<8> {
  using Type = Bytes8;
};
template <>
struct WordsOf<4> {
  using Type = uint32_t;
};
template <>
struct WordsOf<2> {
  using Type = uint16_t;
};

// Rows and lanes consist of whole accesses.
MOEJIT_DEVICE constexpr int32_t experts_per_access(int32_t experts, int32_t per_lane,
                                                   int32_t logit_bytes) {
  int32_t count = 16 / logit_bytes;
  while (per_lane % count != 0 || experts % count != 0) count /= 2;
  return count;
}

}  // namespace router

// Neighboring values of logits that move in one access. Logit is float or Bf16; values are floats.
template <typename Logit, int32_t kCount_>
struct LogitVector {
  static constexpr int32_t kCount = kCount_;
  using Words = typename router::WordsOf<kCount* static_cast<int32_t>(sizeof(Logit))>::Type;

  // Pointer is of global or of shared memory.
  template <typename Pointer>
  MOEJIT_DEVICE static void load(Pointer from, float* value) {
    const Words words = ptx::load(ptx::as<Words>(from));
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      if constexpr (sizeof(Logit) == 4) {
        value[i] = ptx::float_from_bits(word_of(words, i));
      } else if constexpr (kCount == 1) {
        value[i] = ptx::float_from_bf16_low(words);
      } else {
        const uint32_t pair = word_of(words, i / 2);
        value[i] = i % 2 == 0 ? ptx::float_from_bf16_low(pair) : ptx::float_from_bf16_high(pair);
      }
    }
  }

  // bf16 is rounded to nearest even.
  template <typename Pointer>
  MOEJIT_DEVICE static void store(Pointer to, const float* value) {
    if constexpr (sizeof(Words) == 2) {
      ptx::store(ptx::as<Words>(to), static_cast<Words>(ptx::bf16_pair(value[0], 0.0f)));
    } else if constexpr (sizeof(Words) == 4) {
      ptx::store(ptx::as<Words>(to), stored_word(value));
    } else {
      Words words;
#pragma unroll
      for (int32_t i = 0; i < static_cast<int32_t>(sizeof(Words) / 4); ++i)
        words.word[i] = stored_word(value + i * static_cast<int32_t>(4 / sizeof(Logit)));
      store_words(ptx::as<Words>(to), words);
    }
  }

 private:
  MOEJIT_DEVICE static uint32_t word_of(const Words& words, int32_t i) {
    if constexpr (sizeof(Words) <= 4) {
      return words;
    } else {
      return words.word[i];
    }
  }

  MOEJIT_DEVICE static uint32_t stored_word(const float* value) {
    if constexpr (sizeof(Logit) == 4) {
      return ptx::bits_of(value[0]);
    } else {
      return ptx::bf16_pair(value[0], value[1]);
    }
  }

  // A store of a record to global memory would be several.
  MOEJIT_DEVICE static void store_words(ptx::GlobalPtr<Bytes16> to, const Bytes16& words) {
    ptx::store_streaming(to, words);
  }
  MOEJIT_DEVICE static void store_words(ptx::GlobalPtr<Bytes8> to, const Bytes8& words) {
    ptx::store(ptx::as<uint64_t>(to), uint64_t{words.word[1]} << 32 | words.word[0]);
  }
  template <typename Pointer>
  MOEJIT_DEVICE static void store_words(Pointer to, const Words& words) {
    ptx::store(to, words);
  }
};

// A lane's part of a token's logits.
template <int32_t kExperts, int32_t kPerLane, typename Logit>
struct RouterRow {
  static constexpr int32_t kLanes = ceil_div(kExperts, kPerLane);
  static_assert(kLanes <= 32, "a warp holds a token");

  MOEJIT_DEVICE static int32_t first_expert() { return ptx::lane_index() * kPerLane; }
  // Whether this lane has the expert at `slot`.
  MOEJIT_DEVICE static bool has(int32_t slot) {
    return kExperts == 32 * kPerLane || first_expert() + slot < kExperts;
  }

  // Loads the logits of this lane's experts, and -inf where there is none.
  MOEJIT_DEVICE static void load(ptx::GlobalPtr<const Logit> row, float (&z)[kPerLane]) {
    using Vector =
        LogitVector<Logit, router::experts_per_access(kExperts, kPerLane, sizeof(Logit))>;
    const ptx::GlobalPtr<Logit> own{const_cast<Logit*>((row + first_expert()).address)};
#pragma unroll
    for (int32_t i = 0; i < kPerLane; i += Vector::kCount) {
#pragma unroll
      for (int32_t j = 0; j < Vector::kCount; ++j) z[i + j] = ptx::float_from_bits(0xff800000u);
      if (has(i)) Vector::load(own + i, &z[i]);
    }
  }

  // The logit of any expert.
  MOEJIT_DEVICE static float load_one(ptx::GlobalPtr<const Logit> logit) {
    if constexpr (sizeof(Logit) == 4) {
      return ptx::load(logit);
    } else {
      return ptx::float_from_bf16_low(ptx::load(ptx::as<const uint16_t>(logit)));
    }
  }
};

// The sum of the lanes' values in a fixed order, in which lanes 16, 8, 4, 2 and 1 apart are added.
// With fewer lanes the others hold 0, and only these lanes get the sum.
template <int32_t kLanes = 32>
MOEJIT_DEVICE float sum_of_lanes(float value) {
#pragma unroll
  for (int32_t distance = 16; distance > 0; distance /= 2) {
    if (distance < kLanes) value = ptx::add(value, ptx::shuffle_xor(value, distance));
  }
  return value;
}

// The sum over a token's experts: a lane's in ascending order, then the lanes'. Every lane gets it.
template <int32_t kCount>
MOEJIT_DEVICE float sum_of_row(const float (&value)[kCount]) {
  float sum = value[0];
#pragma unroll
  for (int32_t i = 1; i < kCount; ++i) sum = ptx::add(sum, value[i]);
  return sum_of_lanes(sum);
}

// The largest value of the lanes that is no NaN. With fewer lanes only these get it.
template <int32_t kLanes = 32>
MOEJIT_DEVICE float max_of_lanes(float value) {
#pragma unroll
  for (int32_t distance = 16; distance > 0; distance /= 2) {
    if (distance < kLanes) value = ptx::max_number(value, ptx::shuffle_xor(value, distance));
  }
  return value;
}

// The softmax of all logits of a token, in parts.
template <typename Row, int32_t kPerLane>
struct SoftmaxOfRow {
  float largest;          // of the logits that are no NaN
  float sum;              // of the exponentials
  float inverse;          // 1 / sum
  float power[kPerLane];  // e^(z - largest)

  MOEJIT_DEVICE explicit SoftmaxOfRow(const float (&z)[kPerLane]) {
    largest = z[0];
#pragma unroll
    for (int32_t i = 1; i < kPerLane; ++i) largest = ptx::max_number(largest, z[i]);
    largest = max_of_lanes(largest);
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i)
      power[i] = Row::has(i) ? score_exponential(ptx::add(z[i], -largest)) : 0.0f;
    sum = sum_of_row(power);
    inverse = ptx::reciprocal_from_one_on(sum);
  }

  MOEJIT_DEVICE float of_lane(int32_t i) const { return ptx::multiply(power[i], inverse); }
  MOEJIT_DEVICE float of_logit(float z) const {
    return ptx::multiply(score_exponential(ptx::add(z, -largest)), inverse);
  }
  // log(sum of e^z)
  MOEJIT_DEVICE float logsumexp() const { return ptx::add(largest, score_logarithm(sum)); }
};

// The softmax of one logit of each of the first kLanes lanes, in which these lanes share. `largest`
// is the largest one, or NaN if one of them is. Others get anything.
template <int32_t kLanes>
MOEJIT_DEVICE float softmax_of_lanes(float z, float largest, bool takes_part) {
  const float power = takes_part ? score_exponential(ptx::add(z, -largest)) : 0.0f;
  return ptx::multiply(power, ptx::reciprocal_from_one_on(sum_of_lanes<kLanes>(power)));
}

}  // namespace moejit::device
