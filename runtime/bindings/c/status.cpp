// SPDX-License-Identifier: Apache-2.0
#include "moejit_device/params/route_map_status.h"
#include "moejit_device/params/router_params.h"
#include "moejit_device/params/status_bits.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/moejit_group.h"

#include <fmt/core.h>

namespace {

using moejit::ErrorCode;
using moejit::Stage;

static_assert(MOEJIT_STATUS_BAD_EXPERT_ID == moejit::device::kStatusBadExpertId);
static_assert(MOEJIT_STATUS_ROW_OVERFLOW == moejit::device::kStatusRowOverflow);
static_assert(MOEJIT_STATUS_BAD_SCALE == moejit::device::kStatusBadScale);
static_assert(MOEJIT_STATUS_OTHER_TOKENS == moejit::device::kStatusOtherTokens);
static_assert(MOEJIT_STATUS_TOO_MANY_EXPERTS == moejit::device::kStatusTooManyExperts);
static_assert(MOEJIT_STATUS_BAD_LOGIT == moejit::device::kStatusBadLogit);
static_assert(MOEJIT_STATUS_SILENT_RANK == moejit::device::kStatusSilentRank);
static_assert(MOEJIT_STATUS_FIRST_RANK == moejit::device::kStatusFirstRank);

std::string sentence(uint32_t status) {
  std::string text = fmt::format("the status word is {}", status);
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    if ((status & bit) == 0) continue;
    const char* const meaning = moejit_status_text(bit);
    text += meaning != nullptr ? fmt::format("; {}: {}", bit, meaning)
                               : fmt::format("; {}: no kernel sets this bit", bit);
  }
  return text;
}

const char* hint_for(uint32_t status) {
  if (status == MOEJIT_STATUS_OTHER_TOKENS)
    return "give backward the tensors and the saved block of the same forward call";
  if (status == MOEJIT_STATUS_TOO_MANY_EXPERTS)
    return "raise top_k to the most experts that a token of the map has";
  if (status == MOEJIT_STATUS_BAD_LOGIT)
    return "look for the first NaN or infinity in what makes the logits";
  return "correct topk_ids or tokens_per_expert, raise max_permuted_rows, or clear the word first";
}

}  // namespace

const char* moejit_status_text(uint32_t bit) {
  switch (bit) {
    case MOEJIT_STATUS_BAD_EXPERT_ID:
      return "expert ids, or an expert's number of rows, out of range: not routed";
    case MOEJIT_STATUS_ROW_OVERFLOW:
      return "more rows than max_permuted_rows or than x has, the rest dropped";
    case MOEJIT_STATUS_BAD_SCALE:
      return "scales that are neither powers of two nor 0, or too far apart to be packed";
    case MOEJIT_STATUS_OTHER_TOKENS:
      return "a backward call with another number of tokens than its forward call, not computed";
    case MOEJIT_STATUS_TOO_MANY_EXPERTS:
      return "a token with more experts in its routing map than top_k, the last ones not routed";
    case MOEJIT_STATUS_BAD_LOGIT:
      return "logits that are NaN or lead to probabilities that are not finite; routed all the "
             "same";
    case MOEJIT_STATUS_SILENT_RANK: return "a rank of the group was not heard of in time";
    default: return nullptr;
  }
}

moejit_error_code moejit_status_check(uint32_t status) {
  return moejit::bindings::guarded(Stage::kLaunch, [&]() -> moejit::Result<void> {
    if (status == 0) return {};
    return moejit::fail(Stage::kLaunch, ErrorCode::kDeviceStatus, sentence(status),
                        hint_for(status));
  });
}
