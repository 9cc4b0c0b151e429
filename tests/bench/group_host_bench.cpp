// SPDX-License-Identifier: Apache-2.0
// Measures what a call of a group's layer costs the host through the C interface: the time until
// the function returns, on a stream that was idle, beside that of as many empty kernels with
// parameter records of the same sizes. All ranks are threads of this process, each with a GPU.
// Prints JSON and judges no times; the exit status is 1 if the kernels told that something is
// wrong.
//
//   group_host_bench [--fake] LAYER.json TOKENS[,TOKENS...] [CALLS]
//
// For each number of tokens and each pass, CALLS (300) times: a call of each rank while the others
// rest, one of all ranks at once, and the empty kernels. With --fake the driver is the fake
// libcuda, which runs nothing. If the fake or libmoejit_timed_cuda.so tells the time that calls
// spend in the driver, own_ns_per_kernel is the rest.
#include "compiler/launch.h"
#include "tests/bench/driver_time.h"
#include "tests/bench/empty_kernels.h"
#include "tests/driver/driver_layer.h"
#include "tests/driver/group_ranks.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace moejit::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Pass = GroupRank::Pass;

template <typename Value>
Value must(Result<Value> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", to_string(result.error()));
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}
void must(moejit_error_code code) {
  if (code == MOEJIT_OK) return;
  fmt::print(stderr, "{}\n", moejit_last_error()->message);
  std::_Exit(1);
}

template <typename Work>
double microseconds_of(const Work& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The samples of one rank: times of a call, or of as many empty kernels, in microseconds.
struct Samples {
  std::vector<double> alone, together, functions, handles, own;
  int64_t driver_calls = 0;  // of one call
};

class Bench {
 public:
  Bench(std::string_view json, bool is_fake, int calls)
      : calls_(calls), driver_time_(DriverTime::find()) {
    moejit_engine_options options{};
    options.struct_size = sizeof(options);
    options.memory_only = is_fake ? 1 : 0;
    must(moejit_engine_create(&options, &engine_));
    ranks_ = must(open_group_ranks(json, engine_, !is_fake));
    all_ = std::make_unique<std::barrier<>>(std::ssize(ranks_));
    for (const auto& rank : ranks_) must(rank->call(Pass::kWeights));
    for (const auto& rank : ranks_) must(rank->device().synchronize(nullptr));
  }
  ~Bench() {
    ranks_.clear();
    moejit_engine_destroy(engine_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  runtime::Device& device() { return ranks_.front()->device(); }
  // Returns the status words of all ranks, or'ed: 0 if the kernels found nothing wrong.
  uint32_t status() {
    uint32_t all = 0;
    for (const auto& rank : ranks_) {
      uint32_t word = 0;
      must(moejit_group_status(rank->group(), &word));
      all |= word;
    }
    return all;
  }
  // Returns a JSON object for each number of tokens and each pass.
  std::string measure(int64_t tokens) {
    for (const auto& rank : ranks_) rank->set_tokens(tokens);
    const std::string forward = measure(tokens, Pass::kForward, "forward");
    return forward + ",\n  " + measure(tokens, Pass::kBackward, "backward");
  }

 private:
  // Waits for the GPUs of all ranks; called by all threads.
  void rest(std::size_t rank) {
    must(ranks_[rank]->device().synchronize(nullptr));
    all_->arrive_and_wait();
  }
  // Lets the threads do their work one after the other, each with idle GPUs of its own.
  template <typename Work>
  void in_turn(std::size_t rank, const Work& work) {
    rest(rank);
    for (std::size_t turn = 0; turn < ranks_.size(); ++turn) {
      if (turn == rank) work();
      all_->arrive_and_wait();
    }
  }
  void take_samples(std::size_t rank, Pass pass, Samples& samples);
  void call_alone(GroupRank& rank, Pass pass, Samples& samples) const;
  std::string measure(int64_t tokens, Pass pass, std::string_view name);

  int calls_;
  std::optional<DriverTime> driver_time_;
  moejit_engine* engine_ = nullptr;
  std::vector<std::unique_ptr<GroupRank>> ranks_;
  std::unique_ptr<runtime::Engine> empty_engine_ =
      must(runtime::Engine::create({.use_cache = false}));
  std::unique_ptr<std::barrier<>> all_;
};

void Bench::call_alone(GroupRank& rank, Pass pass, Samples& samples) const {
  const auto before = driver_time_ ? driver_time_->read() : DriverTime::Sum{};
  samples.alone.push_back(microseconds_of([&] { must(rank.call(pass)); }));
  if (!driver_time_) return;
  const auto after = driver_time_->read();
  samples.driver_calls = after.calls - before.calls;
  const double inside = after.nanoseconds - before.nanoseconds +
                        static_cast<double>(samples.driver_calls) * driver_time_->overhead_ns();
  samples.own.push_back(samples.alone.back() - inside * 1e-3);
}

void Bench::take_samples(std::size_t rank, Pass pass, Samples& samples) {
  GroupRank& own = *ranks_[rank];
  const bool is_entered = must(own.device().enter());
  std::vector<std::size_t> sizes;
  for (const compiler::KernelPlan* kernel : own.kernels(pass))
    sizes.push_back(compiler::param_record(kernel->spec).bytes);
  EmptyKernels empty = must(EmptyKernels::load(*empty_engine_, sizes));
  for (int i = -calls_ / 10; i < calls_; ++i) {
    if (i == 0) samples = {};  // the calls before were to warm up
    in_turn(rank, [&] { call_alone(own, pass, samples); });
    rest(rank);
    samples.together.push_back(microseconds_of([&] { must(own.call(pass)); }));
    in_turn(rank, [&] {
      samples.functions.push_back(microseconds_of([&] { empty.launch_functions(); }));
    });
    in_turn(rank,
            [&] { samples.handles.push_back(microseconds_of([&] { empty.launch_handles(); })); });
  }
  rest(rank);
  if (is_entered) own.device().leave();
}

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

std::string Bench::measure(int64_t tokens, Pass pass, std::string_view name) {
  std::vector<Samples> samples(ranks_.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      threads.emplace_back([&, rank] { take_samples(rank, pass, samples[rank]); });
  }
  // The slower rank.
  const auto slowest = [&](std::vector<double> Samples::*which, double part) {
    double most = 0.0;
    for (const Samples& of_rank : samples) most = std::max(most, quantile(of_rank.*which, part));
    return most;
  };
  const auto kernels = static_cast<double>(ranks_.front()->kernels(pass).size());
  std::string text = fmt::format(
      R"({{"pass": "{}", "tokens": {}, "kernels": {:.0f}, "call_us": {:.2f}, "call_p90_us": {:.2f}, )"
      R"("call_together_us": {:.2f}, "call_together_p90_us": {:.2f}, "empty_kernels_us": {:.2f}, )"
      R"("empty_kernels_by_handle_us": {:.2f}, "us_per_kernel": {:.3f}, "empty_us_per_kernel": {:.3f})",
      name, tokens, kernels, slowest(&Samples::alone, 0.5), slowest(&Samples::alone, 0.9),
      slowest(&Samples::together, 0.5), slowest(&Samples::together, 0.9),
      slowest(&Samples::functions, 0.5), slowest(&Samples::handles, 0.5),
      slowest(&Samples::alone, 0.5) / kernels, slowest(&Samples::functions, 0.5) / kernels);
  if (driver_time_)
    text += fmt::format(R"(, "own_ns_per_kernel": {:.0f}, "driver_calls": {})",
                        1e3 * slowest(&Samples::own, 0.5) / kernels, samples[0].driver_calls);
  return text + "}";
}

// What single calls of the driver take, in nanoseconds.
std::string driver_costs(runtime::Device& device) {
  const bool is_entered = must(device.enter());
  const runtime::DriverApi& api = *must(runtime::driver_api());
  constexpr int kCalls = 1000;
  const auto cost = [&](const auto& call) {
    std::vector<double> samples;
    for (int i = 0; i < 101; ++i)
      samples.push_back(microseconds_of([&] {
        for (int j = 0; j < kCalls; ++j) call();
      }));
    return 1e3 * quantile(samples, 0.5) / kCalls;
  };
  void* const memory = must(device.allocate(1 << 20));
  CUcontext context = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const compiler::TensorBox box{.dtype = compiler::DType::kU8,
                                .rank = 2,
                                .dims = {1024, 1024, 1, 1},
                                .strides_bytes = {1024, 0, 0},
                                .box = {128, 64, 1, 1},
                                .is_swizzled = true};
  const std::string text = fmt::format(
      R"({{"cuCtxGetCurrent": {:.0f}, "cuStreamIsCapturing": {:.0f}, "cuTensorMapEncodeTiled": {:.0f}}})",
      cost([&] { static_cast<void>(api.ctx_get_current(&context)); }),
      cost([&] { static_cast<void>(api.stream_is_capturing(nullptr, &status)); }),
      cost([&] { static_cast<void>(must(device.encode_tensor_map(box, memory))); }));
  must(device.release(memory));
  if (is_entered) device.leave();
  return text;
}

// Lets this process find the fake libcuda and the fake NVRTC, with the GPUs and kernels of a layer.
void use_fakes(const TempDir& folder, std::string_view json) {
  const std::string cuda_path = (folder / "cuda").string(),
                    nvrtc_path = (folder / "nvrtc").string();
  ::setenv("MOEJIT_CUDA_DRIVER", MOEJIT_FAKE_CUDA, 1);
  ::setenv("FAKE_CUDA_CONTROL", cuda_path.c_str(), 1);
  ::setenv("MOEJIT_NVRTC", MOEJIT_FAKE_NVRTC, 1);
  ::setenv("FAKE_NVRTC_CONTROL", nvrtc_path.c_str(), 1);
  static CudaControl cuda(cuda_path);
  static MappedControl nvrtc(nvrtc_path);
  const compiler::Layer layer = must(compiler::parse_layer(json, "layer"));
  cuda->devices = layer.expert_parallel.ranks;
  cuda->memory_bytes = int64_t{1} << 40;
  cuda->takes_time = 1;
  DriverLayer::describe_kernels(must(compiler::plan_layer(layer, {}, {.rank = 0})), *nvrtc);
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int run(std::vector<std::string> arguments) {
  const bool is_fake = !arguments.empty() && arguments[0] == "--fake";
  if (is_fake) arguments.erase(arguments.begin());
  if (arguments.size() < 2) {
    fmt::print(stderr, "usage: group_host_bench [--fake] LAYER.json TOKENS[,TOKENS...] [CALLS]\n");
    return 2;
  }
  const std::string json = read_file(arguments[0].c_str());
  const TempDir folder("group-host-bench");
  if (is_fake) use_fakes(folder, json);
  Bench bench(json, is_fake, arguments.size() > 2 ? std::atoi(arguments[2].c_str()) : 300);
  fmt::print("{{\"kind\": \"group_host\", \"gpu\": \"{}\", \"driver_ns\": {},\n \"calls\": [\n  ",
             bench.device().name(), driver_costs(bench.device()));
  std::istringstream numbers(arguments[1]);
  std::string_view separator;
  for (std::string tokens; std::getline(numbers, tokens, ',');) {
    fmt::print("{}{}", separator, bench.measure(std::atoll(tokens.c_str())));
    separator = ",\n  ";
  }
  const uint32_t status = bench.status();
  fmt::print("],\n \"status\": {}}}\n", status);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moejit::testing

int main(int count, char** arguments) {
  return moejit::testing::run({arguments + 1, arguments + count});
}
