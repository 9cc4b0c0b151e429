// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"

namespace moejit::runtime {

// The hardware that works beside the threads. Tensor copies go one piece at a time and in any
// order, the WGMMAs of each warpgroup in their order. It takes a step now and then when a thread
// waits, and whenever no thread can go on. How often differs from CTA to CTA, so that both early
// and late completion are tried. Work that a wait of the program covers is carried out there at the
// latest.

int32_t Cta::add_agent(Agent::Kind kind, int32_t index) {
  agents_.push_back({kind, index});
  return order_.add_agent();
}

void Cta::maybe_progress() {
  if (tensor_copies_.pieces.empty() && wgmmas_under_way_ == 0) return;
  if (haste_ != 0 && fibers_.random().below(haste_) == 0) progress();
}

// Takes one step of the hardware. Returns false if nothing is under way.
bool Cta::progress() {
  std::vector<CopyPiece>& pieces = tensor_copies_.pieces;
  auto choices = static_cast<uint32_t>(pieces.size());
  for (const Warpgroup& group : warpgroups_) choices += group.done < group.wgmmas.size() ? 1 : 0;
  if (choices == 0) return false;
  uint32_t choice = fibers_.random().below(choices);
  if (choice < pieces.size()) {
    std::swap(pieces[choice], pieces.back());
    const CopyPiece piece = pieces.back();
    pieces.pop_back();
    land(piece);
    return true;
  }
  choice -= static_cast<uint32_t>(pieces.size());
  for (Warpgroup& group : warpgroups_) {
    if (group.done == group.wgmmas.size()) continue;
    if (choice-- == 0) {
      carry_out_next(group);
      return true;
    }
  }
  return false;
}

}  // namespace moejit::runtime
