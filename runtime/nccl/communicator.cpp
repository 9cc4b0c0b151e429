// SPDX-License-Identifier: Apache-2.0
#include "runtime/nccl/communicator.h"

#include "runtime/driver/driver_api.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fmt/core.h>
#include <future>
#include <thread>
#include <unistd.h>

namespace moejit::runtime {
namespace {

// How long a call of another thread may take before it is aborted, and how long NCCL may take to
// free what it has.
constexpr std::chrono::milliseconds kCallTime(500), kFreeTime(2000);

}  // namespace

Communicator::Communicator(const NcclApi& api, int64_t deadline_ms)
    : api_(api), deadline_ms_(deadline_ms), process_(::getpid()) {}

Result<void> Communicator::settle(NcclComm comm, const char* call, NcclResult result) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms_);
  while (result == kNcclInProgress) {
    if (std::chrono::steady_clock::now() > deadline) return not_done(call);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (const NcclResult asked = api_.comm_get_async_error(comm, &result); asked != kNcclSuccess)
      result = asked;
  }
  if (result == kNcclSuccess) return {};
  return tl::make_unexpected(nccl_error(api_, Stage::kLoad, call, result));
}

// The ranks meet by a communicator whose calls do not block, so that waiting for a missing rank
// ends. Steps use a second one, whose calls block: they only enqueue. NCCL's calls that do not
// block make a thread each time.
Result<void> Communicator::join(const NcclPlace& place) {
  rank_ = place.rank;
  ranks_ = place.ranks;
  NcclUniqueId id;
  std::memcpy(id.internal, place.id.data(), sizeof(id.internal));
  NcclConfig meeting{.blocking = 0}, steps{.blocking = 1};
  Handles& handles = *handles_;
  NcclResult result = api_.comm_init_rank_config(&handles.parent, ranks_, id, rank_, &meeting);
  MOEJIT_TRY(settle(handles.parent, "ncclCommInitRankConfig", result));
  result = api_.comm_split(handles.parent, 0, rank_, &handles.split, &steps);
  MOEJIT_TRY(settle(handles.parent, "ncclCommSplit", result));
  MOEJIT_TRY_ASSIGN(const NcclComm made, await_split());
  MOEJIT_TRY(settle(made, "ncclCommSplit", kNcclInProgress));
  handles.steps = made;
  return {};
}

// The parent may report success while the communicator is still being made: it is null until then
// (NCCL 2.28, ncclCommInitChildComm in src/init.cc).
Result<NcclComm> Communicator::await_split() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms_);
  const std::atomic_ref<NcclComm> split(handles_->split);
  NcclComm made = nullptr;
  while ((made = split.load(std::memory_order_acquire)) == nullptr) {
    NcclResult state = kNcclSuccess;
    const NcclResult asked = api_.comm_get_async_error(handles_->parent, &state);
    const NcclResult result = asked == kNcclSuccess ? state : asked;
    if (result != kNcclSuccess && result != kNcclInProgress)
      return tl::make_unexpected(nccl_error(api_, Stage::kLoad, "ncclCommSplit", result));
    if (std::chrono::steady_clock::now() > deadline) return not_done("ncclCommSplit");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return made;
}

tl::unexpected<Error> Communicator::not_done(const char* call) const {
  return fail(
      Stage::kLoad, ErrorCode::kInterrupted,
      fmt::format("{} was not done within {} ms, wanted all {} ranks", call, deadline_ms_, ranks_),
      "start all ranks, with the id that one of them made, and let their hosts reach each "
      "other: NCCL_SOCKET_IFNAME names the interface");
}

Result<void> Communicator::take_context() {
  MOEJIT_TRY_ASSIGN(const DriverApi* const driver, driver_api());
  MOEJIT_TRY_ASSIGN(context_, Context::adopt(*driver, kCurrentGpu));
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::open(const NcclApi& api,
                                                         const NcclPlace& place) {
  std::unique_ptr<Communicator> opened(new Communicator(api, place.deadline_ms));
  MOEJIT_TRY(opened->take_context());
  auto joined = opened->join(place);
  if (!joined) {
    opened->abort();
    return tl::make_unexpected(std::move(joined).error());
  }
  return opened;
}

Result<std::unique_ptr<Communicator>> Communicator::adopt(const NcclApi& api, NcclComm comm,
                                                          int64_t deadline_ms) {
  std::unique_ptr<Communicator> adopted(new Communicator(api, deadline_ms));
  adopted->handles_->steps = comm;
  adopted->is_own_ = false;
  if (const NcclResult result = api.comm_count(comm, &adopted->ranks_); result != kNcclSuccess)
    return tl::make_unexpected(nccl_error(api, Stage::kLoad, "ncclCommCount", result));
  if (const NcclResult result = api.comm_user_rank(comm, &adopted->rank_); result != kNcclSuccess)
    return tl::make_unexpected(nccl_error(api, Stage::kLoad, "ncclCommUserRank", result));
  return adopted;
}

Communicator::~Communicator() {
  if (!is_own_ || is_aborted_ || ::getpid() != process_ || is_process_ending()) return;
  // Otherwise it would wait for what a lost rank has left unfinished.
  const bool is_whole = steps() != nullptr && check();
  end(is_whole ? api_.comm_destroy : api_.comm_abort);
}

// Ending a communicator frees memory, which waits for all work of the GPU. So what steps wait for
// has to end first (NCCL 2.28, commFree in src/init.cc). While a split is being made its parent
// reports an abort to it, by a flag that both have to live for. So the parent goes first: NCCL 2.30
// documentation, "Creating more communicators". The parent's flag is no longer the split's flag
// once the split is whole.
void Communicator::end(NcclResult (*end_one)(NcclComm)) {
  const auto is_over = std::make_shared<std::promise<void>>();
  const std::future<void> over = is_over->get_future();
  std::thread([=, handles = handles_, context = context_] {
    {
      const CurrentContext current(*context);
      const RelaxedCapture relaxed(context->api());  // another thread may be recording
      if (handles->steps != nullptr) end_one(handles->steps);
      if (handles->parent != nullptr) end_one(handles->parent);
      if (handles->steps == nullptr && handles->split != nullptr) end_one(handles->split);
    }
    is_over->set_value();
  }).detach();
  over.wait_for(kFreeTime);
}

Result<void> Communicator::check_usable() const {
  if (!is_aborted_) return {};
  return fail(Stage::kLaunch, ErrorCode::kInvalidState,
              "the transport was aborted, wanted one that is whole",
              "open another group on all ranks");
}

Result<void> Communicator::check() {
  const std::lock_guard one_call(calls_);
  MOEJIT_TRY(check_usable());
  NcclResult error = kNcclSuccess;
  NcclResult result = api_.comm_get_async_error(steps(), &error);
  if (result == kNcclSuccess && error != kNcclInProgress) result = error;
  if (result == kNcclSuccess) return {};
  return tl::make_unexpected(nccl_error(api_, Stage::kLaunch, "a step of NCCL", result));
}

void Communicator::abort() {
  if (is_aborted_.exchange(true) || !is_own_) return;
  if (::getpid() != process_ || is_process_ending()) return;
  // NCCL wants no other call meanwhile. But a call that does not end, such as connecting ranks, is
  // not waited for any longer.
  const std::unique_lock one_call(calls_, kCallTime);
  end(api_.comm_abort);
}

}  // namespace moejit::runtime
