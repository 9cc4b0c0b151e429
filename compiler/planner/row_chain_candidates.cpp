// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/planner/candidates.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace moejit::compiler {
namespace {

constexpr std::array kRowsThreads = {64, 128, 256};
constexpr std::array kSegmentsInFlight = {1, 2, 4};
constexpr std::array kRowsThreadsPerSm = {512, 768, 1024, 1536, 2048};
constexpr std::array<int64_t, 6> kBurstBytes = {0, 1 << 20, 2 << 20, 3 << 20, 4 << 20, 8 << 20};

bool is_permuted(const RowChainSpec& spec) {
  return spec.store == StoreStage::kPermuted || spec.store == StoreStage::kRowsAndPermuted;
}

// Returns whether L2 may be asked for rows in bursts.
bool may_have_bursts(const RowChainSpec& spec) {
  return spec.store == StoreStage::kPermuted && spec.quantize == QuantizeStage::kKeep &&
         input_row_bytes(spec) % 16 == 0;
}

bool touches_permuted_rows(const RowChainSpec& spec) {
  return walks_permuted_rows(spec) || is_permuted(spec) || spec.load == LoadStage::kCombinedRows;
}

// Returns a number of registers with which NVRTC spills none in chains of this load stage. It is
// more than a thread may have if NVRTC always spills. Activations are taken to need no more than
// SwiGLU.
int32_t enough_registers(const RowChainSpec& spec) {
  const int32_t segments = spec.segments_in_flight;
  const bool is_scattered =
      is_permuted(spec) && (spec.quantize != QuantizeStage::kKeep || spec.top_k > 8);
  const auto by_segments = [segments](int32_t one, int32_t two, int32_t four) {
    return segments == 1 ? one : segments == 2 ? two : four;
  };
  switch (spec.load) {
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows:
    case LoadStage::kMatrixRows:
      return is_scattered ? by_segments(32, 64, 80) : by_segments(32, 40, 64);
    case LoadStage::kGatedRows:
    case LoadStage::kUpRows: return by_segments(64, 64, 128);
    case LoadStage::kGatedGradientRows: return by_segments(80, 128, 256);
    case LoadStage::kUpGradientRows: return by_segments(64, 80, 256);
    case LoadStage::kCombinedRows:
      return spec.top_k <= 8 ? by_segments(64, 96, 128) : by_segments(80, 256, 256);
  }
  return 256;
}

int32_t step_segments(const RowChainSpec& spec) {
  return spec.threads / 8 * spec.segments_in_flight;
}

// Returns the spec with as many rows in a burst as fit into so many bytes. A burst is whole steps.
RowChainSpec with_burst(RowChainSpec spec, int64_t bytes) {
  const int64_t step = step_segments(spec);
  spec.rows_per_burst = static_cast<int32_t>(bytes / input_row_bytes(spec) / step * step);
  return spec;
}

// Returns the spec with whole steps in a burst, if it has bursts.
RowChainSpec with_whole_steps(RowChainSpec spec) {
  spec.rows_per_burst = spec.rows_per_burst / step_segments(spec) * step_segments(spec);
  return spec;
}

// Returns whether a spec differs from the usual one in two knobs at most. Chains that have bursts
// have one knob more, and fewer pairs of other knobs.
bool is_near(const RowChainSpec& usual, const RowChainSpec& spec) {
  const bool has_threads = spec.threads == usual.threads;
  const bool has_segments = spec.segments_in_flight == usual.segments_in_flight;
  if (has_threads || spec.threads_per_sm == usual.threads_per_sm) return true;
  return has_segments && !may_have_bursts(spec);
}

// Collects candidates that are legal and of use in calls within the bounds.
class ChainList {
 public:
  ChainList(const RowChainSpec& usual, const CallBounds& bounds) : usual_(usual), bounds_(bounds) {
    list_.add(usual);
  }

  void add(const RowChainSpec& spec) {
    if (registers_of_thread(spec) >= enough_registers(spec) && is_of_use(spec)) list_.add(spec);
  }
  // The usual spec stays first.
  std::vector<Candidate<RowChainSpec>> take() && {
    auto candidates = std::move(list_).take();
    std::ranges::stable_sort(candidates.begin() + 1, candidates.end(), {}, [](const auto& one) {
      const RowChainSpec& spec = one.spec;
      return std::tuple(spec.rows_per_burst, spec.segments_in_flight, threads_per_sm(spec),
                        spec.threads);
    });
    return candidates;
  }

 private:
  // A step of more segments than the usual one must leave work for two CTAs, and the first burst is
  // not asked for.
  bool is_of_use(const RowChainSpec& spec) const {
    const bool has_steps = step_segments(spec) <= step_segments(usual_) ||
                           busy_ctas(KernelSpec(spec), bounds_, bounds_.max_tokens) > 1;
    const bool has_bursts = spec.rows_per_burst == 0 || spec.rows_per_burst < bounds_.max_tokens;
    return has_steps && has_bursts;
  }

  const RowChainSpec& usual_;
  const CallBounds& bounds_;
  CandidateList<RowChainSpec> list_;
};

// Returns a number of registers with which a lane holds its segments of a row.
int32_t registers_of_row(const RowChainSpec& spec) {
  const int32_t of_segment = spec.load == LoadStage::kGatedGradientRows ? 48
                             : has_activation(spec)                     ? 32
                                                                        : 12;
  return 24 + of_segment * spec.segments_in_flight;
}

// The segments of a lane decide how many threads hold a row, and so a CTA.
std::vector<Candidate<RowChainSpec>> whole_row_candidates(const RowChainSpec& usual) {
  CandidateList<RowChainSpec> list;
  list.add(usual);
  for (const int32_t segments : kSegmentsInFlight)
    for (const int32_t threads_of_sm : kRowsThreadsPerSm) {
      const RowChainSpec spec =
          with_whole_rows(with_threads_per_sm(usual, threads_of_sm), segments);
      if (registers_of_thread(spec) >= registers_of_row(spec) && spec.threads <= threads_of_sm)
        list.add(spec);
    }
  return std::move(list).take();
}

}  // namespace

std::string problem_name(const RowChainSpec& spec, const CallBounds& bounds) {
  ProblemName name("row_chain");
  name.add("load", to_string(spec.load));
  name.add("transform", to_string(spec.transform));
  if (has_activation(spec)) name.add("activation", to_string(spec.activation));
  name.add("quantize", to_string(spec.quantize));
  if (spec.quantize == QuantizeStage::kExpert) name.add("format", to_string(spec.format));
  name.add("store", to_string(spec.store));
  name.add("columns", spec.columns);
  if (spec.load == LoadStage::kMatrixRows) {
    name.add("sections", spec.sections);
    name.add("section_rows", spec.section_rows);
  }
  name.add_unless(0, "pitch", spec.pitch);
  name.add_unless(0, "dprobs_columns", spec.dprobs_columns);
  name.add_unless(0, "local_experts", spec.local_experts);
  name.add_unless(0, "top_k", spec.top_k);
  if (spec.local_experts > 0) name.add_unless(1, "splits_alignment", bounds.splits_alignment);
  name.add_unless(true, "moves_probs", spec.moves_probs);
  name.add_unless(false, "tells_tokens", spec.tells_tokens);
  name.add_unless(true, "tells_dprobs", spec.tells_dprobs);
  name.add_unless(false, "adds_bias_dprobs", spec.adds_bias_dprobs);
  name.add_unless(false, "interleaved", spec.is_interleaved);
  if (has_bf16_probs(spec)) name.add("probs", to_string(spec.probs));
  if (!walks_permuted_rows(spec) && spec.load != LoadStage::kMatrixRows)
    name.add("tokens", rows_class(std::max<int64_t>(bounds.max_tokens, 1)));
  if (touches_permuted_rows(spec)) name.add("rows", rows_class(mean_rows(bounds)));
  return std::move(name).take();
}

Choices choices_of(const RowChainSpec& spec) {
  Choices choices = {{"threads", spec.threads},
                     {"segments_in_flight", spec.segments_in_flight},
                     {"threads_per_sm", threads_per_sm(spec)}};
  if (may_have_bursts(spec)) choices["rows_per_burst"] = spec.rows_per_burst;
  return choices;
}

std::vector<Candidate<RowChainSpec>> candidates_of(const RowChainSpec& usual,
                                                   const CallBounds& bounds) {
  if (has_row_scale(usual)) return whole_row_candidates(usual);
  ChainList list(usual, bounds);
  for (const int32_t segments : kSegmentsInFlight)
    for (const int32_t threads : kRowsThreads)
      for (const int32_t threads_of_sm : kRowsThreadsPerSm) {
        RowChainSpec spec = with_threads_per_sm(usual, threads_of_sm);
        spec.segments_in_flight = segments;
        spec.threads = threads;
        if (is_near(usual, spec)) list.add(with_whole_steps(spec));
      }
  if (may_have_bursts(usual))
    for (const int64_t bytes : kBurstBytes) list.add(with_burst(usual, bytes));
  return std::move(list).take();
}

}  // namespace moejit::compiler
