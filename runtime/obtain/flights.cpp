// SPDX-License-Identifier: Apache-2.0
#include "runtime/obtain/flights.h"

#include "compiler/support/exhausted.h"

#include <condition_variable>
#include <exception>
#include <fmt/core.h>
#include <utility>

namespace moejit::runtime {
namespace {

// The number is bounded because the details of failures hold the source.
constexpr std::size_t kMostFailures = 256;

// Turns exceptions of the standard library, such as for lack of memory, into an error. No exception
// may leave a thread of the service, and no caller may wait forever.
template <typename Function>
ObtainedResult guarded(const compiler::KernelSource& source, const Function& function) {
  try {
    return function();
  } catch (const std::exception& exception) {
    if (auto error = exhausted(Stage::kCompile, exception))
      return tl::make_unexpected(*std::move(error));
    return fail(Stage::kCompile, ErrorCode::kInternal,
                fmt::format("compiling {}: {}", source.entry, exception.what()));
  }
}

}  // namespace

// The making of one kernel, shared by all threads that wait for it.
struct Flights::Flight {
  // Returns none if the deadline or a request to stop came first.
  std::optional<ObtainedResult> wait(const ObtainOptions& options) {
    std::unique_lock lock(result_mutex);
    const auto is_done = [&] { return result.has_value(); };
    if (options.deadline)
      has_result.wait_until(lock, options.stop, *options.deadline, is_done);
    else
      has_result.wait(lock, options.stop, is_done);
    return result;
  }

  compiler::KernelSource source;
  compiler::KernelKey key;
  std::optional<OwnKey> own;  // from the caller that began it, for the maker
  std::stop_source stop;      // stopped when nobody wants the kernel any more

  // The mutex of Flights guards these.
  int waiters = 0;
  bool is_prefetch = false;  // wanted even if nobody waits
  std::optional<CompileService::Ticket> ticket;

  std::mutex result_mutex;
  std::condition_variable_any has_result;
  std::optional<ObtainedResult> result;
};

Flights::Flights(KernelMaker& maker, int32_t compile_jobs)
    : maker_(maker), service_(std::make_unique<CompileService>(compile_jobs)) {
  register_for_fork();
}

Flights::~Flights() {
  unregister_for_fork();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, flight] : in_flight_) flight->stop.request_stop();
  }
  service_.reset();
}

Flights::Seat Flights::board(const compiler::KernelSource& source, const compiler::KernelKey& key) {
  SharedFlight flight;
  std::optional<CompileService::Ticket> ticket;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    // Kernels enter the memory before their flight is over.
    if (const auto* kernel = memory_.find(key.digest))
      return Seat(ObtainedKernel{*kernel, KernelOrigin::kMemory, std::nullopt});
    if (const auto failure = failures_.find(key.digest); failure != failures_.end()) {
      ++remembered_failures_;
      return Seat(tl::make_unexpected(failure->second));
    }
    const auto found = in_flight_.find(key.digest);
    is_first = found == in_flight_.end();
    flight = is_first ? std::make_shared<Flight>(source, key) : found->second;
    if (is_first) in_flight_.emplace(key.digest, flight);
    if (!is_first) ++boarded_;
    ticket = flight->ticket;
    ++flight->waiters;
  }
  if (is_first) begin(flight, Priority::kWaiting);
  if (ticket) service_->raise(*ticket);
  return Seat(*this, std::move(flight), is_first);
}

void Flights::prefetch(const compiler::KernelSource& source, const compiler::KernelKey& key) {
  SharedFlight flight;
  {
    const std::lock_guard lock(mutex_);
    if (memory_.contains(key.digest) || failures_.contains(key.digest)) return;
    if (in_flight_.contains(key.digest)) return;
    flight = std::make_shared<Flight>(source, key);
    flight->is_prefetch = true;
    in_flight_.emplace(key.digest, flight);
  }
  begin(flight, Priority::kPrefetch);
}

// Looks for the kernel before it submits a compile: kernels on disk need no turn among the
// compiles.
void Flights::begin(const SharedFlight& flight, Priority priority) {
  std::optional<ObtainedResult> nearby;
  const auto looked = guarded(flight->source, [&]() -> ObtainedResult {
    auto looked_up = maker_.look_up(flight->source);
    nearby = std::move(looked_up.result);
    flight->own = std::move(looked_up.own);
    return ObtainedKernel{};
  });
  if (!looked) nearby = looked;
  if (nearby) return finish(flight, std::move(*nearby));
  auto submitted = guarded(flight->source, [&]() -> ObtainedResult {
    submit(flight, priority);
    return ObtainedKernel{};
  });
  if (!submitted) finish(flight, std::move(submitted));
}

void Flights::submit(const SharedFlight& flight, Priority priority) {
  const auto ticket = service_->submit(priority, [this, flight] {
    finish(flight, guarded(flight->source, [&] {
             return maker_.make(flight->source, flight->key, std::move(flight->own),
                                flight->stop.get_token());
           }));
  });
  bool is_waited_for = false;
  {
    const std::lock_guard lock(mutex_);
    flight->ticket = ticket;
    is_waited_for = flight->waiters > 0;
  }
  if (priority == Priority::kPrefetch && is_waited_for) service_->raise(ticket);
}

// Keeps a kernel or a lasting failure in memory; forgets it if memory runs out.
void Flights::remember(const Digest& key, const ObtainedResult& result) {
  try {
    if (result) return memory_.add(key, result->binary);
    // The same source fails again. Any other error may go away.
    if (result.error().code != ErrorCode::kCompileFailed) return;
    const std::lock_guard lock(mutex_);
    if (failures_.size() >= kMostFailures) failures_.clear();
    failures_.emplace(key, result.error());
  } catch (const std::exception&) {
  }
}

void Flights::finish(const SharedFlight& flight, ObtainedResult result) {
  const Digest& key = flight->key.digest;
  remember(key, result);
  {
    const std::lock_guard lock(mutex_);
    const auto found = in_flight_.find(key);
    if (found != in_flight_.end() && found->second == flight) in_flight_.erase(found);
  }
  {
    const std::lock_guard lock(flight->result_mutex);
    flight->result = std::move(result);
  }
  flight->has_result.notify_all();
}

void Flights::leave(const SharedFlight& flight) {
  std::optional<CompileService::Ticket> ticket;
  {
    const std::lock_guard lock(mutex_);
    if (--flight->waiters > 0 || flight->is_prefetch) return;
    const auto found = in_flight_.find(flight->key.digest);
    if (found == in_flight_.end() || found->second != flight) return;  // the flight is over
    in_flight_.erase(found);
    ticket = flight->ticket;
  }
  flight->stop.request_stop();
  if (ticket) service_->drop(*ticket);
}

EngineCounters Flights::counters() const {
  const int64_t hits = memory_.hits();
  const std::lock_guard lock(mutex_);
  return {.from_memory = hits + boarded_, .remembered_failures = remembered_failures_};
}

void Flights::before_fork() {
  mutex_.lock();
  memory_.lock();
}

void Flights::after_fork_in_parent() {
  memory_.unlock();
  mutex_.unlock();
}

void Flights::after_fork_in_child() {
  memory_.unlock();
  // Nobody here will finish the flights that threads of the parent began, and those threads still
  // seem to wait for them. So the flights can be neither used nor destroyed.
  static_cast<void>(new auto(std::move(in_flight_)));
  in_flight_.clear();
  mutex_.unlock();
}

Flights::Seat::~Seat() {
  if (flight_) flights_->leave(flight_);
}

ObtainedResult Flights::Seat::wait(const ObtainOptions& options) {
  if (result_) return std::move(*result_);
  auto result = flight_->wait(options);
  const SharedFlight flight = std::exchange(flight_, nullptr);
  flights_->leave(flight);
  if (!result)
    return fail(Stage::kCompile, ErrorCode::kInterrupted,
                fmt::format("kernel {} was not there in time", flight->source.entry),
                "make it beforehand: moejit build");
  if (is_first_ || !*result) return std::move(*result);
  return ObtainedKernel{std::move((*result)->binary), KernelOrigin::kMemory, std::nullopt};
}

}  // namespace moejit::runtime
