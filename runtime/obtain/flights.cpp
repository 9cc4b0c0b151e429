// SPDX-License-Identifier: Apache-2.0
#include "runtime/obtain/flights.h"

#include "compiler/compiler.h"
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

// What the service does for a flight, or for several whose kernels are compiled together.
struct Flights::Job {
  std::stop_source stop;  // stopped when nobody wants any of the kernels any more
  // The mutex of Flights guards these.
  std::size_t wanted = 1;  // flights
  std::optional<CompileService::Ticket> ticket;
};

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
  std::optional<OwnKey> own;  // from the caller that began it, for the store

  // The mutex of Flights guards these.
  std::shared_ptr<Job> job = std::make_shared<Job>();
  int waiters = 0;
  bool is_prefetch = false;  // wanted even if nobody waits

  std::mutex result_mutex;
  std::condition_variable_any has_result;
  std::optional<ObtainedResult> result;
};

Flights::Flights(KernelStore& store, int32_t compile_jobs)
    : store_(store), service_(std::make_unique<CompileService>(compile_jobs)) {
  register_for_fork();
}

Flights::~Flights() {
  unregister_for_fork();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, flight] : in_flight_) flight->job->stop.request_stop();
  }
  service_.reset();
}

// A seat, and the flight if the caller has to begin it.
struct Flights::Boarded {
  Seat seat;
  SharedFlight first;
};

Flights::Boarded Flights::enter(const compiler::KernelSource& source,
                                const compiler::KernelKey& key) {
  SharedFlight flight;
  std::optional<CompileService::Ticket> ticket;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    // Kernels enter the memory before their flight is over.
    if (const auto kernel = kernels_.find(key.digest); kernel != kernels_.end()) {
      ++from_memory_;
      return {Seat(ObtainedKernel{kernel->second, KernelOrigin::kMemory, std::nullopt}), nullptr};
    }
    if (const auto failure = failures_.find(key.digest); failure != failures_.end()) {
      ++remembered_failures_;
      return {Seat(tl::make_unexpected(failure->second)), nullptr};
    }
    const auto found = in_flight_.find(key.digest);
    is_first = found == in_flight_.end();
    flight = is_first ? std::make_shared<Flight>(source, key) : found->second;
    if (is_first) in_flight_.emplace(key.digest, flight);
    if (!is_first) ++from_memory_;
    ticket = flight->job->ticket;
    ++flight->waiters;
  }
  if (ticket) service_->raise(*ticket);
  return {Seat(*this, flight, is_first), is_first ? flight : nullptr};
}

Flights::Seat Flights::board(const compiler::KernelSource& source, const compiler::KernelKey& key) {
  Boarded boarded = enter(source, key);
  if (boarded.first) begin(boarded.first, Priority::kWaiting);
  return std::move(boarded.seat);
}

std::vector<Flights::Seat> Flights::board_all(std::span<const compiler::KernelSource> sources,
                                              std::span<const compiler::KernelKey> keys) {
  std::vector<Seat> seats;
  std::vector<SharedFlight> first;
  seats.reserve(sources.size());
  first.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    Boarded boarded = enter(sources[i], keys[i]);
    if (boarded.first) first.push_back(std::move(boarded.first));
    seats.push_back(std::move(boarded.seat));
  }
  for (std::vector<SharedFlight>& unit : units_of(first)) begin_unit(std::move(unit));
  return seats;
}

// Parts flights only by the sources, not by what a cache has. Thus processes which start with the
// same kernels make the same units, and wait for each other.
std::vector<std::vector<Flights::SharedFlight>> Flights::units_of(
    std::span<const SharedFlight> flights) const {
  std::vector<compiler::KernelSource> sources;
  for (const SharedFlight& flight : flights) sources.push_back(flight->source);
  std::vector<std::vector<SharedFlight>> units;
  for (const std::vector<std::size_t>& unit : compiler::compile_units(sources, compile_jobs())) {
    units.emplace_back();
    for (const std::size_t i : unit) units.back().push_back(flights[i]);
  }
  return units;
}

void Flights::prefetch(const compiler::KernelSource& source, const compiler::KernelKey& key) {
  SharedFlight flight;
  {
    const std::lock_guard lock(mutex_);
    if (kernels_.contains(key.digest) || failures_.contains(key.digest)) return;
    if (const auto found = in_flight_.find(key.digest); found != in_flight_.end()) {
      found->second->is_prefetch = true;
      return;
    }
    flight = std::make_shared<Flight>(source, key);
    flight->is_prefetch = true;
    in_flight_.emplace(key.digest, flight);
  }
  begin(flight, Priority::kPrefetch);
}

// Looks for the kernel where it need not be made. Returns whether the flight is over: kernels on
// disk need no turn among the compiles.
bool Flights::find_nearby(const SharedFlight& flight) {
  std::optional<ObtainedResult> nearby;
  const auto looked = guarded(flight->source, [&]() -> ObtainedResult {
    auto looked_up = store_.look_up(flight->source);
    nearby = std::move(looked_up.result);
    flight->own = std::move(looked_up.own);
    return ObtainedKernel{};
  });
  if (!looked) nearby = looked;
  if (nearby) finish(flight, std::move(*nearby));
  return nearby.has_value();
}

void Flights::begin(const SharedFlight& flight, Priority priority) {
  if (find_nearby(flight)) return;
  auto submitted = guarded(flight->source, [&]() -> ObtainedResult {
    submit(flight, priority);
    return ObtainedKernel{};
  });
  if (!submitted) finish(flight, std::move(submitted));
}

void Flights::begin_unit(std::vector<SharedFlight> flights) {
  if (flights.size() == 1) return begin(flights.front(), Priority::kWaiting);
  FieldHasher unit;
  for (const SharedFlight& flight : flights) unit.add("kernel", flight->key.digest.hex());
  std::erase_if(flights, [this](const SharedFlight& flight) { return find_nearby(flight); });
  if (flights.empty()) return;
  const auto submitted = guarded(flights.front()->source, [&]() -> ObtainedResult {
    submit_unit(flights, unit.digest());
    return ObtainedKernel{};
  });
  if (!submitted)
    for (const SharedFlight& flight : flights) finish(flight, submitted);
}

void Flights::submit_unit(std::span<const SharedFlight> flights, const Digest& unit) {
  const auto job = std::make_shared<Job>();
  {
    const std::lock_guard lock(mutex_);
    job->wanted = flights.size();
    for (const SharedFlight& flight : flights) flight->job = job;
  }
  std::vector<SharedFlight> all(flights.begin(), flights.end());
  const auto ticket = service_->submit(
      Priority::kWaiting, [this, all, unit, job] { make_unit(all, unit, job->stop.get_token()); });
  const std::lock_guard lock(mutex_);
  job->ticket = ticket;
}

void Flights::make_unit(std::span<const SharedFlight> flights, const Digest& unit,
                        const std::stop_token& stop) {
  std::vector<SharedFlight> wanted;
  std::vector<ObtainedResult> results;
  const auto made = guarded(flights.front()->source, [&]() -> ObtainedResult {
    std::vector<KernelStore::Wanted> kernels;
    for (const SharedFlight& flight : flights) {
      if (!is_wanted(flight)) continue;
      wanted.push_back(flight);
      kernels.push_back({flight->source, std::move(flight->own)});
    }
    results = store_.make_unit(std::move(kernels), unit, stop);
    return ObtainedKernel{};
  });
  if (!made)
    for (const SharedFlight& flight : flights) finish(flight, made);
  else
    for (std::size_t i = 0; i < wanted.size(); ++i) finish(wanted[i], std::move(results[i]));
}

bool Flights::is_wanted(const SharedFlight& flight) const {
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(flight->key.digest);
  return found != in_flight_.end() && found->second == flight;
}

void Flights::submit(const SharedFlight& flight, Priority priority) {
  const auto ticket = service_->submit(priority, [this, flight] {
    finish(flight, guarded(flight->source, [&] {
             return store_.make(flight->source, flight->key, std::move(flight->own),
                                flight->job->stop.get_token());
           }));
  });
  bool is_waited_for = false;
  {
    const std::lock_guard lock(mutex_);
    flight->job->ticket = ticket;
    is_waited_for = flight->waiters > 0;
  }
  if (priority == Priority::kPrefetch && is_waited_for) service_->raise(ticket);
}

// Keeps a kernel or a lasting failure in memory; forgets it if memory runs out.
void Flights::remember(const Digest& key, const ObtainedResult& result) {
  try {
    const std::lock_guard lock(mutex_);
    if (result) {
      kernels_.emplace(key, result->binary);
      return;
    }
    // The same source fails again. Any other error may go away.
    if (result.error().code != ErrorCode::kCompileFailed) return;
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
  std::shared_ptr<Job> unwanted;
  std::optional<CompileService::Ticket> ticket;
  {
    const std::lock_guard lock(mutex_);
    if (--flight->waiters > 0 || flight->is_prefetch) return;
    const auto found = in_flight_.find(flight->key.digest);
    if (found == in_flight_.end() || found->second != flight) return;  // the flight is over
    in_flight_.erase(found);
    if (--flight->job->wanted > 0) return;
    unwanted = flight->job;
    ticket = unwanted->ticket;
  }
  unwanted->stop.request_stop();
  if (ticket) service_->drop(*ticket);
}

const compiler::KernelBinary* Flights::find(const Digest& key) {
  const std::lock_guard lock(mutex_);
  const auto kernel = kernels_.find(key);
  if (kernel == kernels_.end()) return nullptr;
  ++from_memory_;
  return kernel->second.get();
}

EngineCounters Flights::counters() const {
  const std::lock_guard lock(mutex_);
  return {.from_memory = from_memory_, .remembered_failures = remembered_failures_};
}

void Flights::before_fork() { mutex_.lock(); }

void Flights::after_fork_in_parent() { mutex_.unlock(); }

void Flights::after_fork_in_child() {
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
