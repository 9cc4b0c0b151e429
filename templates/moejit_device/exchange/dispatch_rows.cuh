// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dispatch of rows: each token's row goes once to every rank that has one of its experts, this one
// too, into the slot of the token there. bf16 rows are quantized on the way. Each CTA takes a chunk
// of tokens and raises its flag at all ranks when the chunk's rows are written. No CTA waits.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/dispatch_rows.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Kernel = DispatchRows<LoadRows<kColumns>, Quantize1x128<kEpsilonBits>, Exchange,
//   kThreads,
//                               kSegmentsInFlight>;

#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/group.cuh"
#include "moejit_device/exchange/slots.cuh"
#include "moejit_device/exchange/token_ranks.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/quantize.cuh"

namespace moejit::device {

// The numbers of an exchange: R ranks with so many experts each, K choices of a token, T_max tokens
// of a rank, and how many neighboring tokens share a flag.
template <int32_t kRanks_, int32_t kRankExperts_, int32_t kTopK_, int32_t kMaxTokens_,
          int32_t kChunkTokens_, typename Id_ = int32_t>
struct TokenExchange {
  static_assert(kRanks_ > 0 && kRanks_ <= kMostRanks, "the records have a place for each rank");
  static constexpr int32_t kRanks = kRanks_, kRankExperts = kRankExperts_, kTopK = kTopK_;
  static constexpr int32_t kMaxTokens = kMaxTokens_, kChunkTokens = kChunkTokens_;
  static constexpr int32_t kChunks = ceil_div(kMaxTokens, kChunkTokens);
  using Id = Id_;

  // Returns how many tokens of `tokens` the chunk has.
  MOEJIT_DEVICE static int32_t tokens_in_chunk(int64_t chunk, int64_t tokens) {
    const int64_t left = tokens - chunk * kChunkTokens;
    return static_cast<int32_t>(larger(smaller(left, int64_t{kChunkTokens}), int64_t{0}));
  }
  MOEJIT_DEVICE static uint32_t ranks_of(const void* topk_ids, int64_t token, bool exists) {
    return ranks_of_token<kRanks, kRankExperts, kTopK, Id>(
        ptx::global(static_cast<const Id*>(topk_ids)), token, exists);
  }
};

template <typename Load, typename Quantize, typename Exchange, int32_t kThreads_,
          int32_t kSegments = Load::kSegmentsInFlight>
struct DispatchRows {
  static_assert(Quantize::kSegmentsPerScale == 1, "segments have scales of their own");

  static constexpr int32_t kColumns = Load::kColumns;
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(Load::kThreadsPerSm / kThreads, int32_t{32});
  using Position = SegmentPosition<kColumns>;

  MOEJIT_DEVICE static void run(const DispatchRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    group.check_tokens(params.saved_tokens, params.tokens);
    const RowChainParams rows{.input = params.input, .input_scale_inv = params.input_scale_inv};
    for (int64_t chunk = ptx::cta_index(); chunk < Exchange::kChunks; chunk += ptx::cta_count()) {
      for_each_segment<kColumns, kThreads, kSegments>(
          chunk * Exchange::kChunkTokens, Exchange::tokens_in_chunk(chunk, params.tokens),
          [&](const Position(&at)[kSegments]) { send(params, group, rows, at); });
      group.raise_everywhere<Exchange::kRanks>(params.row_flags,
                                               group.rank() * int64_t{Exchange::kChunks} + chunk);
    }
  }

 private:
  MOEJIT_DEVICE static void send(const DispatchRowsParams& params, const ExchangeGroup& group,
                                 const RowChainParams& rows, const Position (&at)[kSegments]) {
    typename Load::Fetched fetched[kSegments];
    uint32_t ranks[kSegments];
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) fetched[s] = Load::fetch(rows, at[s]);
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      ranks[s] = Exchange::ranks_of(params.topk_ids, at[s].row, at[s].is_real());
    }
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      const auto stored = Quantize::apply(Load::unpack(fetched[s]));
      Position slot = at[s];
      slot.row += group.rank() * int64_t{Exchange::kMaxTokens};
#pragma unroll
      for (int32_t to = 0; to < Exchange::kRanks; ++to) {
        slot.kind = ((ranks[s] >> to) & 1u) != 0 ? RowKind::kReal : RowKind::kAbsent;
        store_slot(params.slots[to], params.slot_scales[to], slot, stored);
      }
    }
  }
};

}  // namespace moejit::device
