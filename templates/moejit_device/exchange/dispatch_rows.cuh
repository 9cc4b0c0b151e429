// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dispatch of rows: each token's row goes once to every rank that has one of its experts, this one
// too, into the slot of the token there. bf16 rows are quantized on the way. Each CTA takes a chunk
// of tokens and raises its flag at all ranks when the chunk's rows are written. No CTA waits.
//
// Emitted kernels look like this:
//
//   //
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Send = SendThroughShared<LoadRows<kColumns>, Quantize1x128<kEpsilonBits>, Exchange,
//                                  kThreads, kRowsInShared, kFirstByte, kSegmentsInFlight>;
//   using Kernel = DispatchRows<Send, Exchange, Sms, kThreads>;

#include "moejit_device/exchange/send_rows.cuh"
#include "moejit_device/exchange/unit_walk.cuh"

namespace moejit::device {

template <typename Send, typename Exchange, typename Sms, int32_t kThreads_>
struct DispatchRows {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = smaller(Send::Load::kThreadsPerSm / kThreads, int32_t{32});

  MOEJIT_DEVICE static void run(const DispatchRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    group.check_tokens(params.saved_tokens, params.tokens);
    const RowChainParams rows{.input = params.input, .input_scale_inv = params.input_scale_inv};
    const auto raise = [&](int64_t chunk) {
      group.raise_everywhere<Exchange::kRanks>(params.row_flags,
                                               group.rank() * int64_t{Exchange::kChunks} + chunk);
    };
    Send send;
    OwnRowsToSlots own;
    const UnitWalk<Sms> walk(params.tickets);
    if (walk.works()) {
      walk.send(Exchange::kChunks,
                [&](int64_t chunk) { send.send(params, group, rows, chunk, own, raise); });
      send.end(raise);
    }
    walk.end([] {});
  }
};

}  // namespace moejit::device
