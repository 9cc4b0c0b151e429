// SPDX-License-Identifier: Apache-2.0
// Times an exchange between GPUs of this machine, forward and backward: from bf16 tokens to
// permuted, padded rows of e4m3, and from the experts' rows back to tokens. One process, the
// medians of the slower rank. The GPUs are kept busy until all rounds are enqueued, so that they
// never wait for the host. Behind it come rows that are sent to slots and nothing else. Prints JSON
// and judges nothing.
//
//   exchange_bench RANKS TOKENS HIDDEN TOP_K EXPERTS [ROUNDS [SENDER_SMS COMBINE_SENDER_SMS
//   [SKEW [SMS]]]]
//
// With numbers other than 0, so many SMs send. With a skew, choices are drawn so many times as
// often from the experts of rank 0 as from those of another rank. With SMS the kernels take so many
// SMs.
#include "runtime/prepared_plan.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/ranks.h"
#include "tests/support/exchange_plan.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/core.h>
#include <map>

namespace moejit::testing {
namespace {

using namespace compiler;

template <typename Value>
Value must(Result<Value> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", result.error().message);
    std::exit(1);
  }
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

struct Sizes {
  int32_t ranks;
  int64_t tokens, hidden, top_k, experts;
  int32_t senders = 0, combine_senders = 0;
  int64_t skew = 1, sms = 0;
};

// An operation of one rank, with the tensors of its calls.
struct Step {
  std::string name;
  std::unique_ptr<runtime::PreparedPlan> prepared;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<runtime::TensorRef> tensors;
};

using Names = std::map<std::string, std::string>;  // of tensors, where they differ from a step's

class Rank {
 public:
  Rank(Ranks& ranks, int32_t rank, const std::map<std::string, int64_t>& offsets,
       runtime::Engine& engine)
      : ranks_(ranks), rank_(rank), offsets_(offsets), engine_(engine) {}

  void add(std::string name, ExchangeStep step, const Exchange& exchange, const Sizes& sizes,
           const Names& names = {}) {
    auto plan = std::make_shared<Plan>(must(plan_exchange(step, exchange, {})));
    set_senders(plan->kernels.front(), sizes);
    add(std::move(name), std::move(plan), names);
  }
  void add(std::string name, std::shared_ptr<Plan> plan, const Names& names) {
    Step& step = steps_.emplace_back();
    step.name = std::move(name);
    for (const TensorPlan& tensor : plan->tensors) {
      std::vector<int64_t>& shape = step.shapes.emplace_back();
      for (const Dim& dim : tensor.shape) shape.push_back(dim.value);
    }
    for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
      const TensorPlan& tensor = plan->tensors[i];
      const auto renamed = names.find(tensor.name);
      step.tensors.push_back(
          {tensor.name, tensor.dtype, step.shapes[i],
           address_of(renamed == names.end() ? tensor.name : renamed->second, tensor.bytes)});
    }
    step.prepared =
        must(runtime::PreparedPlan::prepare(std::move(plan), engine_, ranks_.device(rank_)));
  }
  void set(const std::string& name, const void* data, int64_t bytes) {
    must(ranks_.device(rank_).copy_to_device(tensors_.at(name), data, bytes));
  }
  void* mark() { return must(ranks_.device(rank_).record_mark(nullptr)); }
  void run(std::size_t step) {
    must(steps_[step].prepared->run(steps_[step].tensors, {}, nullptr));
  }
  const std::vector<Step>& steps() const { return steps_; }
  runtime::Device& device() { return ranks_.device(rank_); }

  // Enqueues work of some tens of milliseconds.
  void keep_busy() {
    constexpr int64_t kBytes = int64_t{1} << 30;
    void* const memory = address_of("busy", kBytes);
    for (int i = 0; i < 100; ++i) must(device().fill(memory, std::byte{0}, kBytes, nullptr));
  }

 private:
  static void set_senders(KernelPlan& kernel, const Sizes& sizes) {
    if (sizes.senders <= 0) return;
    if (auto* const spec = std::get_if<RouteDispatchPermuteSpec>(&kernel.spec))
      spec->dispatch.sender_sms = sizes.senders;
    if (auto* const spec = std::get_if<DispatchPermuteSpec>(&kernel.spec))
      spec->sender_sms = sizes.senders;
    if (auto* const spec = std::get_if<CombineRowsSpec>(&kernel.spec))
      spec->sender_sms = sizes.combine_senders;
  }
  void* address_of(const std::string& name, int64_t bytes) {
    void*& address = tensors_[name];
    if (address != nullptr) return address;
    const std::size_t last = name.rfind('_');
    const std::string base = last == std::string::npos ? name : name.substr(0, last);
    if (const auto offset = offsets_.find(base); offset != offsets_.end())
      return address = ranks_.heap(name.back() - '0') + offset->second;
    address = must(device().allocate(bytes));
    must(device().fill(address, std::byte{0}, bytes, nullptr));
    return address;
  }

  Ranks& ranks_;
  int32_t rank_;
  const std::map<std::string, int64_t>& offsets_;
  runtime::Engine& engine_;
  std::vector<Step> steps_;
  std::map<std::string, void*> tensors_;
};

int64_t permuted_rows(const Sizes& sizes) {
  return (sizes.tokens * sizes.top_k * 7 / 4 + sizes.experts * 16) / 16 * 16;
}

Exchange exchange(const Sizes& sizes, int32_t rank) {
  return {.ranks = sizes.ranks,
          .rank = rank,
          .experts = sizes.experts,
          .top_k = sizes.top_k,
          .max_tokens = sizes.tokens,
          .columns = sizes.hidden,
          .epsilon = 1e-10f,
          .sms = sizes.sms,
          .max_permuted_rows = permuted_rows(sizes),
          .splits_alignment = 16};
}
Exchange backward_exchange(const Sizes& sizes, int32_t rank) {
  Exchange of_backward = exchange(sizes, rank);
  of_backward.moves_probs = false;
  of_backward.has_dprobs = true;
  return of_backward;
}

constexpr std::array kExchange{ExchangeStep::kRouteDispatchPermute, ExchangeStep::kCombineRows};

// Returns where the tensors lie that peers reach, and behind them the end.
std::map<std::string, int64_t> heap_of(const Sizes& sizes) {
  std::map<std::string, int64_t> offsets;
  int64_t end = 0;
  for (const ExchangeStep step : kExchange)
    for (const TensorPlan& tensor :
         must(plan_exchange(step, backward_exchange(sizes, 0), {})).tensors)
      if (tensor.name.ends_with("_0") &&
          offsets.emplace(tensor.name.substr(0, tensor.name.size() - 2), end).second)
        end += (tensor.bytes + 255) / 256 * 256;
  offsets[""] = end;
  return offsets;
}

void add_steps(Rank& rank, const Sizes& sizes, int32_t number) {
  const Exchange forward = exchange(sizes, number), backward = backward_exchange(sizes, number);
  rank.add("dispatch", ExchangeStep::kRouteDispatchPermute, forward, sizes);
  rank.add("combine", ExchangeStep::kCombineRows, forward, sizes, {{"expert_rows", "h2"}});
  rank.add("dispatch_grad", ExchangeStep::kDispatchPermute, backward, sizes);
  rank.add("combine_grad", ExchangeStep::kCombineRows, backward, sizes, {{"expert_rows", "h2"}});
  rank.add("dispatch_rows", ExchangeStep::kDispatch, forward, sizes);
  rank.add("await_rows", ExchangeStep::kAwait, forward, sizes);
  rank.add("combine_again", ExchangeStep::kCombineRows, forward, sizes, {{"expert_rows", "h2"}});
}

void set_inputs(Rank& rank, const Sizes& sizes, int32_t number) {
  const auto seed = static_cast<uint64_t>(number);
  const auto x = reference::random_activations(sizes.tokens, sizes.hidden, seed);
  const reference::RandomStream random(seed, 5);
  std::vector<int32_t> ids;  // K different experts of each token, uniformly
  for (int64_t token = 0; token < sizes.tokens; ++token) {
    std::vector<int32_t> of_token;
    for (uint64_t draw = 0; std::ssize(of_token) < sizes.top_k; ++draw) {
      const auto of = [&](uint64_t what, int64_t below) {
        return random.below((static_cast<uint64_t>(token) * 1000 + draw) * 2 + what, below);
      };
      const int64_t of_rank = sizes.experts / sizes.ranks;
      const int64_t weighted = of(0, (sizes.skew + sizes.ranks - 1) * of_rank);
      const auto id = static_cast<int32_t>(weighted < sizes.skew * of_rank
                                               ? weighted % of_rank
                                               : weighted - (sizes.skew - 1) * of_rank);
      if (std::ranges::find(of_token, id) == of_token.end()) of_token.push_back(id);
    }
    ids.insert(ids.end(), of_token.begin(), of_token.end());
  }
  const auto probs = reference::random_probs(sizes.tokens, sizes.top_k, seed);
  rank.set("input", x.data(), std::ssize(x) * 2);
  rank.set("topk_ids", ids.data(), std::ssize(ids) * 4);
  rank.set("topk_probs", probs.data(), std::ssize(probs) * 4);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int run(const Sizes& sizes, int rounds) {
  const auto offsets = heap_of(sizes);
  std::string why_not;
  const auto ranks = Ranks::open(sizes.ranks, offsets.at(""), 0, why_not);
  if (ranks == nullptr) {
    fmt::print(stderr, "{}\n", why_not);
    return 1;
  }
  const auto engine = must(make_test_engine());
  std::vector<std::unique_ptr<Rank>> each;
  for (int32_t number = 0; number < sizes.ranks; ++number) {
    each.push_back(std::make_unique<Rank>(*ranks, number, offsets, *engine));
    add_steps(*each.back(), sizes, number);
    set_inputs(*each.back(), sizes, number);
  }
  const std::size_t steps = each[0]->steps().size();
  // marks[round][rank][step]
  std::vector<std::vector<std::vector<void*>>> marks;
  for (const auto& rank : each) rank->keep_busy();
  for (int round = 0; round < rounds; ++round) {
    auto& of_round = marks.emplace_back(each.size());
    // Step by step, so that no rank is a whole round ahead in its queue.
    for (std::size_t r = 0; r < each.size(); ++r) of_round[r].push_back(each[r]->mark());
    for (std::size_t step = 0; step < steps; ++step)
      for (std::size_t r = 0; r < each.size(); ++r) {
        each[r]->run(step);
        of_round[r].push_back(each[r]->mark());
      }
  }
  must(ranks->synchronize());
  fmt::print(
      "{{\"ranks\": {}, \"tokens\": {}, \"hidden\": {}, \"top_k\": {}, "
      "\"experts\": {}, "
      "\"heap_bytes\": {}",
      sizes.ranks, sizes.tokens, sizes.hidden, sizes.top_k, sizes.experts, offsets.at(""));
  const auto time = [&](std::size_t from, std::size_t to) {
    double slowest = 0.0;
    for (std::size_t r = 0; r < each.size(); ++r) {
      std::vector<double> times;
      for (int round = rounds / 4; round < rounds; ++round) {
        auto& of_rank = marks[static_cast<std::size_t>(round)][r];
        times.push_back(must(each[r]->device().microseconds_between(of_rank[from], of_rank[to])));
      }
      slowest = std::max(slowest, median(times));
    }
    return slowest;
  };
  for (std::size_t step = 0; step < steps; ++step)
    fmt::print(", \"{}_us\": {:.1f}", each[0]->steps()[step].name, time(step, step + 1));
  fmt::print("}}\n");
  return 0;
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  using namespace moejit::testing;
  if (argc < 6) return 2;
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  Sizes sizes{static_cast<int32_t>(number(1)), number(2), number(3), number(4), number(5)};
  if (argc > 8) {
    sizes.senders = static_cast<int32_t>(number(7));
    sizes.combine_senders = static_cast<int32_t>(number(8));
  }
  if (argc > 9) sizes.skew = number(9);
  if (argc > 10) sizes.sms = number(10);
  const int rounds = argc > 6 ? std::atoi(argv[6]) : 40;
  return run(sizes, rounds);
}
