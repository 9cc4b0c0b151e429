// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"

#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

// Bulk stores are tensor stores of a box whose rows are 16 bytes each; only their end differs. What
// they read stays on its way to global memory until their thread waits for more than the reading.

void Cta::store_bulk(void* destination, uint32_t source, uint32_t bytes, sim::Site site) {
  const auto address = reinterpret_cast<uintptr_t>(destination);
  const auto rows = static_cast<int32_t>(bytes / 16);
  if (address % 16 != 0 || bytes % 16 != 0 || bytes == 0) {
    report(site, fmt::format("copies {} bytes to an address that is {} past a multiple of 16, "
                             "wanted multiples of 16",
                             bytes, address % 16));
  }
  if (!launch_->memory->is_writable(address, bytes)) {
    report(site, launch_->memory->explain(address, bytes, sim::Access::kWrite, global_actor()));
  }
  const SimTensorMap line{
      .address = address, .dims = {16, rows, 1, 1}, .strides = {16, 0, 0}, .box = {16, rows, 1, 1}};
  TensorCopy copy = place_copy(line, source, 16, "copies", site);
  TensorStores& own = stores_of_thread();
  copy.is_load = false;
  copy.is_bulk = true;
  copy.number = own.started++;
  copy.group = own.committed;
  own.not_waited.push_back({copy.number, own.committed, site});
  const Stamp done = Ordering::agent_stamp(own.agent, copy.number);
  for (int32_t row = 0; row < rows; ++row) {
    const Conflict conflict =
        shared_.read_async(copy.chunk_offset(row, 0), actor(), done, site, Arrangement::kAny, true);
    if (conflict != Conflict::kNone) {
      report(site, describe(conflict, "copies", SharedMemory::kChunk));
    }
  }
  start_pieces(copy);
}

// Reads a row of shared memory.
void Cta::take_bulk_row(const TensorCopy& copy, int32_t row) {
  BulkRow taken{.address = row_of_box(copy.map, copy.at, row).source,
                .thread = copy.thread,
                .group = copy.group,
                .site = copy.site};
  std::memcpy(taken.bytes.data(), shared_.at(copy.chunk_offset(row, 0)), taken.bytes.size());
  tensor_copies_.bulk_rows.push_back(taken);
}

// Writes a row to global memory, as if its thread wrote it now. Returns what is wrong with the
// write.
std::optional<std::string> Cta::land_bulk_row(const BulkRow& row) {
  if (rank_ != nullptr && is_symmetric(row.address)) return land_symmetric_row(row);
  const GlobalActor writer{first_cta_, order_.actor(row.thread)};
  constexpr uint32_t kBytes = 16;
  if (!launch_->memory->access(row.address, kBytes, sim::Access::kWrite, writer)) {
    return launch_->memory->explain(row.address, kBytes, sim::Access::kWrite, writer);
  }
  std::memcpy(reinterpret_cast<void*>(row.address), row.bytes.data(), kBytes);
  return std::nullopt;
}

// Lands the stores of this thread except for its last groups; the stores have been read.
void Cta::land_bulk_stores(int32_t pending_groups) {
  std::vector<BulkRow>& rows = tensor_copies_.bulk_rows;
  const TensorStores* const own = tensor_copies_.find(thread());
  if (rows.empty() || own == nullptr) return;  // this thread has started none
  const int64_t before = own->committed - pending_groups;
  for (std::size_t i = 0; i < rows.size();) {
    if (rows[i].thread != thread() || rows[i].group >= before) {
      ++i;
      continue;
    }
    const BulkRow row = rows[i];
    rows[i] = rows.back();
    rows.pop_back();
    if (std::optional<std::string> trouble = land_bulk_row(row))
      report_of(thread(), row.site, *trouble);
  }
}

// Lands what nobody has waited for, at the end of the CTA.
std::optional<std::string> Cta::land_all_bulk_rows() {
  for (const BulkRow& row : tensor_copies_.bulk_rows) {
    if (std::optional<std::string> trouble = land_bulk_row(row)) {
      return sentence(row.thread, row.site, *trouble);
    }
  }
  return std::nullopt;
}

}  // namespace moejit::runtime
