// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the stages of a row chain promise each other. A stage is a struct template with static
// members; templates/README.md tells how to add one.
//
//   Load      fetch() starts the loads of a segment, unpack() turns what arrived into values: zeros
//             in rows that are not real. Between the two the chain starts the loads of other
//             segments.
//   Transform apply() maps values to values.
//   Quantize  apply() maps values to what is stored, with its scale. Of kSegmentsPerScale segments
//             that share one, a warp holds all.
//   Store     fetch() starts the loads that say where to, store() writes. Rows is the set of rows
//             that the chain walks over; finish() writes rows that have no input. With kHasPads
//             a warp that holds pad rows alone computes nothing and stores a record of zeros. Where
//             it has has_destination(), that tells whether a segment will be written anywhere: if
//             not, its data is not loaded.
//
// Lanes of a warp arrive together: all of them call every function, also for segments that do
// not exist, and functions may exchange between lanes.

#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

// A stage's fetch() result where there is nothing to fetch.
struct Nothing {};

namespace detail {
template <typename T>
MOEJIT_DEVICE T made();
}  // namespace detail

template <typename Stage>
concept LoadStage = requires(const RowChainParams& params) {
  Stage::kColumns;
  Stage::kSegmentsInFlight;
  Stage::kThreadsPerSm;
  typename Stage::Fetched;
  Stage::unpack(Stage::fetch(params, detail::made<SegmentPosition<Stage::kColumns>>()));
};

template <typename Stage, typename Load>
concept TransformStageAfter = requires(typename Load::Fetched fetched) {
  Stage::apply(Load::unpack(fetched));
};

template <typename Stage, typename Load, typename Transform>
concept QuantizeStageAfter = requires(typename Load::Fetched fetched) {
  Stage::kSegmentsPerScale;
  Stage::apply(Transform::apply(Load::unpack(fetched)));
};

template <typename Stage, typename Load, typename Transform, typename Quantize>
concept StoreStageAfter = requires(const RowChainParams& params, typename Load::Fetched fetched,
                                   SegmentPosition<Stage::kColumns> at,
                                   typename Stage::Fetched where) {
  typename Stage::Rows;
  Stage::kHasPads;
  Stage::fetch(params, at);
  Stage::store(params, at, where, Quantize::apply(Transform::apply(Load::unpack(fetched))));
  Stage::finish(params);
};

}  // namespace moejit::device
