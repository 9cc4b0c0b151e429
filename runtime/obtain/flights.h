// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/support/fork.h"
#include "runtime/engine.h"
#include "runtime/kernel_store.h"
#include "runtime/obtain/compile_service.h"

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <unordered_map>
#include <vector>

namespace moejit::runtime {

// Makes sure that a process makes a kernel once, however many threads ask: the first request begins
// a flight, which the others board. Made kernels stay in memory, and so do the errors of sources
// that do not compile. The child of a fork() has no flights, but everything that the parent had in
// memory.
class Flights final : private ForkHandler {
 public:
  // `store` has to outlive this object.
  Flights(KernelStore& store, int32_t compile_jobs);
  // Gives up the compiles in progress. Nobody may be waiting.
  ~Flights();

  // A seat in a flight, or a kernel that was there without a flight.
  class Seat;
  // Begins to make the kernel, unless it is there or on its way. Each seat needs a call of wait();
  // a seat that is destroyed without it gives up.
  Seat board(const compiler::KernelSource& source, const compiler::KernelKey& key);
  // Boards a flight for each kernel. Kernels that take less time together are compiled together.
  std::vector<Seat> board_all(std::span<const compiler::KernelSource> sources,
                              std::span<const compiler::KernelKey> keys);
  // Begins to make the kernel if need be. A flight on its way goes on though nobody waits for it.
  void prefetch(const compiler::KernelSource& source, const compiler::KernelKey& key);

  // Returns the kernel in memory, or null; it lives as long as this object.
  const compiler::KernelBinary* find(const Digest& key);
  int32_t compile_jobs() const { return service_->parallelism(); }
  EngineCounters counters() const;

 private:
  struct Flight;
  struct Job;
  using SharedFlight = std::shared_ptr<Flight>;
  struct Boarded;

  Boarded enter(const compiler::KernelSource& source, const compiler::KernelKey& key);
  bool find_nearby(const SharedFlight& flight);
  void begin(const SharedFlight& flight, Priority priority);
  std::vector<std::vector<SharedFlight>> units_of(std::span<const SharedFlight> flights) const;
  void begin_unit(std::vector<SharedFlight> flights);
  void submit_unit(std::span<const SharedFlight> flights, const Digest& unit);
  void make_unit(std::span<const SharedFlight> flights, const Digest& unit,
                 const std::stop_token& stop);
  bool is_wanted(const SharedFlight& flight) const;
  void submit(const SharedFlight& flight, Priority priority);
  void remember(const Digest& key, const ObtainedResult& result);
  void finish(const SharedFlight& flight, ObtainedResult result);
  void leave(const SharedFlight& flight);

  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

  KernelStore& store_;
  mutable std::mutex mutex_;  // while it is held no other lock is taken
  std::unordered_map<Digest, std::shared_ptr<const compiler::KernelBinary>, DigestHash> kernels_;
  std::unordered_map<Digest, SharedFlight, DigestHash> in_flight_;
  std::unordered_map<Digest, Error, DigestHash> failures_;
  int64_t from_memory_ = 0;  // requests for kernels that were there, or on their way
  int64_t remembered_failures_ = 0;
  std::unique_ptr<CompileService> service_;
};

class Flights::Seat {
 public:
  Seat(Seat&& other) noexcept = default;
  Seat& operator=(Seat&&) = delete;
  ~Seat();

  // Returns the kernel, or why there is none. Must be called only once.
  ObtainedResult wait(const ObtainOptions& options);

 private:
  friend class Flights;
  explicit Seat(ObtainedResult result) : result_(std::move(result)) {}
  Seat(Flights& flights, SharedFlight flight, bool is_first)
      : flights_(&flights), flight_(std::move(flight)), is_first_(is_first) {}

  std::optional<ObtainedResult> result_;
  Flights* flights_ = nullptr;
  SharedFlight flight_;  // null: not in a flight, or left
  bool is_first_ = false;
};

}  // namespace moejit::runtime
