// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/exchange.h"

#include "tests/sim/support/broken_kernel.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace moejit::runtime {
namespace {

constexpr int32_t kChunk = 4;
constexpr std::size_t kMostRanks = 8;
constexpr int64_t kRow = 16;

// The record of exchange_params.inc.
struct ExchangeParams {
  void* epochs;
  void* tokens;
  void* received;
  void* results;
  void* status;
  void* stage[kMostRanks];
  void* home[kMostRanks];
  void* data_flags[kMostRanks];
  void* home_flags[kMostRanks];
  int32_t tokens_of[kMostRanks];
  int32_t tokens_capacity;
  int32_t rank;
  int32_t ranks;
  uint32_t timeout;
};

class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options) : options_(options) {
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      const bool is_given = !options.tokens.empty();
      tokens_.push_back(is_given ? options.tokens[static_cast<std::size_t>(rank)] : 5 + 3 * rank);
      capacity_ = std::max(capacity_, (tokens_.back() + kChunk - 1) / kChunk * kChunk);
    }
  }

  Result<void> open() {
    MOEJIT_TRY_ASSIGN(group_, open_simulator_group(options_.ranks, {.seed = options_.seed,
                                                                    .heap_bytes = heap_bytes()}));
    for (const char* name : {"push", "receive", "send_home", "combine"}) {
      MOEJIT_TRY_ASSIGN(const auto binary,
                        compile_test_kernel(rank_kernel_text(name, options_.changes), name));
      MOEJIT_TRY_ASSIGN(kernels_[name], group_->device(0).load(*binary));
    }
    for (int32_t rank = 0; rank < options_.ranks; ++rank) MOEJIT_TRY(prepare(rank));
    if (options_.killed_rank >= 0) group_->kill(options_.killed_rank, options_.killed_after);
    return {};
  }

  Result<ExchangeResult> run() {
    for (int32_t epoch = 0; epoch < options_.epochs; ++epoch) {
      for (int32_t rank = 0; rank < options_.ranks; ++rank) {
        const bool is_over = !options_.epochs_of.empty() && epoch >= options_.epochs_of[at(rank)];
        if (rank != options_.silent_rank && !is_over) MOEJIT_TRY(enqueue(rank, epoch));
      }
    }
    MOEJIT_TRY(group_->synchronize());
    ExchangeResult result{.nanoseconds = group_->nanoseconds()};
    for (int32_t rank = 0; rank < options_.ranks; ++rank) {
      result.status.push_back(0);
      if (rank == options_.silent_rank || rank == options_.killed_rank) continue;
      MOEJIT_TRY(check(rank, result));
    }
    return result;
  }

 private:
  static std::size_t at(int32_t rank) { return static_cast<std::size_t>(rank); }
  int64_t stage_bytes() const { return kRow * options_.ranks * capacity_; }
  int64_t home_bytes() const { return kRow * capacity_; }
  int64_t data_flag_bytes() const { return int64_t{4} * options_.ranks * (capacity_ / kChunk); }
  int64_t home_flag_bytes() const { return int64_t{4} * options_.ranks; }
  int64_t heap_bytes() const {
    return stage_bytes() + home_bytes() + data_flag_bytes() + home_flag_bytes();
  }

  // Word `word` of token `token` in an epoch.
  static uint32_t value_of(int32_t rank, int32_t epoch, int32_t token, int32_t word) {
    return static_cast<uint32_t>(((epoch * 8 + rank) * 64 + token) * 4 + word + 1);
  }

  Result<void> prepare(int32_t rank) {
    Device& device = group_->device(rank);
    ExchangeParams& own = params_.emplace_back();
    const auto allocate = [&](void*& address, int64_t bytes) -> Result<void> {
      MOEJIT_TRY_ASSIGN(address, device.allocate(bytes));
      regions_[rank].push_back({"own memory", address, bytes, true});
      return {};
    };
    MOEJIT_TRY(allocate(own.epochs, 4));
    MOEJIT_TRY(allocate(own.tokens, home_bytes()));
    MOEJIT_TRY(allocate(own.received, stage_bytes()));
    MOEJIT_TRY(allocate(own.status, 4));
    MOEJIT_TRY(device.fill(own.epochs, std::byte{0}, 4, nullptr));
    MOEJIT_TRY(device.fill(own.status, std::byte{0}, 4, nullptr));
    void* results = nullptr;
    MOEJIT_TRY(allocate(results, home_bytes() * options_.epochs));
    own.results = results;
    for (int32_t peer = 0; peer < options_.ranks; ++peer) {
      std::byte* place = group_->heap(peer);
      const auto take = [&](const char* name, int64_t bytes) {
        regions_[rank].push_back({name, place, bytes, true});
        return std::exchange(place, place + bytes);
      };
      own.stage[peer] = take("stage", stage_bytes());
      own.home[peer] = take("home", home_bytes());
      own.data_flags[peer] = take("data_flags", data_flag_bytes());
      own.home_flags[peer] = take("home_flags", home_flag_bytes());
      own.tokens_of[peer] = tokens_[at(peer)];
    }
    own.tokens_capacity = capacity_;
    own.rank = rank;
    own.ranks = options_.ranks;
    own.timeout = options_.timeout;
    MOEJIT_TRY(device.fill(own.data_flags[rank], std::byte{0}, data_flag_bytes(), nullptr));
    return device.fill(own.home_flags[rank], std::byte{0}, home_flag_bytes(), nullptr);
  }

  Result<void> launch(int32_t rank, const std::string& kernel, int64_t ctas,
                      const ExchangeParams& params, Stream stream = nullptr) {
    return group_->device(rank).launch({.kernel = kernels_[kernel].get(),
                                        .ctas = ctas,
                                        .threads = 32,
                                        .shared_bytes = 1024,
                                        .params = std::as_bytes(std::span(&params, 1)),
                                        .regions = regions_[rank]},
                                       stream);
  }

  Result<void> enqueue(int32_t rank, int32_t epoch) {
    Device& device = group_->device(rank);
    ExchangeParams params = params_[at(rank)];
    params.results = static_cast<std::byte*>(params.results) + epoch * home_bytes();
    std::vector<uint32_t>& input = inputs_.emplace_back(static_cast<std::size_t>(capacity_) * 4);
    for (int32_t i = 0; i < capacity_ * 4; ++i) {
      input[static_cast<std::size_t>(i)] = value_of(rank, epoch, i / 4, i % 4);
    }
    Stream push_stream = options_.is_receive_first ? &options_ : nullptr;
    MOEJIT_TRY(device.copy_on_device(params.tokens, input.data(), home_bytes(), push_stream));
    if (options_.is_receive_first) {
      MOEJIT_TRY(launch(rank, "receive", options_.receive_ctas, params));
    }
    MOEJIT_TRY(launch(rank, "push", 2, params, push_stream));
    if (!options_.is_receive_first) {
      MOEJIT_TRY(launch(rank, "receive", options_.receive_ctas, params));
    }
    if (options_.expires) {
      MOEJIT_TRY(group_->expire(rank, params.stage[rank], stage_bytes(), nullptr));
    }
    MOEJIT_TRY(launch(rank, "send_home", 2, params));
    MOEJIT_TRY(launch(rank, "combine", 1, params));
    if (!options_.expires) return {};
    return group_->expire(rank, params.home[rank], home_bytes(), nullptr);
  }

  Result<void> check(int32_t rank, ExchangeResult& result) {
    Device& device = group_->device(rank);
    uint32_t& status = result.status.back();
    MOEJIT_TRY(device.copy_to_host(&status, params_[at(rank)].status, 4));
    std::vector<uint32_t> rows(static_cast<std::size_t>(capacity_ * options_.epochs) * 4);
    MOEJIT_TRY(device.copy_to_host(rows.data(), params_[at(rank)].results,
                                   home_bytes() * options_.epochs));
    for (int32_t epoch = 0; status == 0 && epoch < options_.epochs; ++epoch) {
      for (int32_t i = 0; i < tokens_[at(rank)] * 4; ++i) {
        const auto place = static_cast<std::size_t>(epoch * capacity_ * 4 + i);
        result.is_right &= rows[place] == 3 * value_of(rank, epoch, i / 4, i % 4);
      }
    }
    return {};
  }

  ExchangeOptions options_;
  std::vector<int32_t> tokens_;
  int32_t capacity_ = kChunk;
  std::unique_ptr<SimulatorGroup> group_;
  std::map<std::string, std::unique_ptr<LoadedKernel>> kernels_;
  std::vector<ExchangeParams> params_;
  std::map<int32_t, std::vector<MemoryRegion>> regions_;
  std::deque<std::vector<uint32_t>> inputs_;
};

}  // namespace

std::string rank_kernel_text(const std::string& kernel, const std::vector<KernelChange>& changes) {
  std::string text = read_kernel("ranks/" + kernel + ".cu");
  for (const KernelChange& change : changes) {
    if (change.kernel != kernel) continue;
    const std::size_t place = text.find(change.from);
    EXPECT_NE(place, std::string::npos) << kernel << " has no " << change.from;
    if (place == std::string::npos) continue;
    text.replace(place, change.from.size(), change.to);
    EXPECT_EQ(text.find(change.from, place + change.to.size()), std::string::npos) << change.from;
  }
  return read_kernel("ranks/exchange_params.inc") + "#line 1 \"" + kernel + ".cu\"\n" + text;
}

int32_t line_of(const std::string& kernel, const std::vector<KernelChange>& changes,
                const std::string& snippet) {
  std::string text = rank_kernel_text(kernel, changes);
  const std::string start = "#line 1 \"" + kernel + ".cu\"\n";
  text.erase(0, text.find(start) + start.size());
  const std::size_t place = text.find(snippet);
  if (place == std::string::npos) return 0;
  return static_cast<int32_t>(
             std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n')) +
         1;
}

Result<ExchangeResult> run_exchange(const ExchangeOptions& options) {
  Exchange exchange(options);
  MOEJIT_TRY(exchange.open());
  return exchange.run();
}

}  // namespace moejit::runtime
