// SPDX-License-Identifier: Apache-2.0
// Measures the start of a process that takes all kernels from a pack:
//   cold_start_bench LAYER.json PACK [OTHER.json...]
// The program starts itself eleven times as each of the cases below, in turn, and tells the child
// the time of that start, so that loading the program counts. Prints medians and judges nothing.
// The files' pages are in the page cache. The pack needs the forward kernels of all layers.
#include "cache/pack.h"
#include "compiler/compiler.h"
#include "compiler/host/process.h"
#include "compiler/support/env.h"
#include "compiler/support/file.h"
#include "runtime/device.h"
#include "runtime/driver/driver_api.h"
#include "runtime/engine.h"
#include "runtime/prepared_plan.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace moejit::testing {
namespace {

constexpr int kRuns = 11, kWarmUps = 1;
constexpr int64_t kTokens = 16;
constexpr int64_t kMemoryAlignment = 256;

enum class Case {
  kDriver,  // libcuda opened and initialized, a primary context retained; nothing of moejit
  kLayer,   // the first layer prepared and run
  kPack,    // the same, with all kernels of the pack loaded before the run
  kLayers   // the same, with all layers prepared before the run
};
constexpr std::array kCases = {Case::kDriver, Case::kLayer, Case::kPack, Case::kLayers};

// Reads the clock that all processes of the machine share.
int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Arguments {
  std::string layer, pack;
  std::vector<std::string> others;
};

// ---- The child -------------------------------------------------------------------------------

// Prints "NAME NANOSECONDS" since the process was started.
class Stamps {
 public:
  explicit Stamps(int64_t start) : start_(start) {}
  void stamp(const char* name) { times_.emplace_back(name, now_ns() - start_); }
  void print() const {
    for (const auto& [name, time] : times_) fmt::print("{} {}\n", name, time);
  }

 private:
  int64_t start_;
  std::vector<std::pair<const char*, int64_t>> times_;
};

Result<void> driver_call(int result, const char* call) {
  if (result == 0) return {};
  return fail(Stage::kLoad, ErrorCode::kDriver, fmt::format("{} failed with {}", call, result));
}

// Starts the driver as any program would, with three functions of libcuda.
Result<void> initialise_driver() {
  const std::string path = environment(Variable::kCudaDriver).value_or("libcuda.so.1");
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(Stage::kLoad, ErrorCode::kDriverMissing, fmt::format("{} cannot be opened", path));
  const auto init = reinterpret_cast<decltype(&::cuInit)>(::dlsym(library, "cuInit"));
  const auto get = reinterpret_cast<decltype(&::cuDeviceGet)>(::dlsym(library, "cuDeviceGet"));
  const auto retain = reinterpret_cast<decltype(&::cuDevicePrimaryCtxRetain)>(
      ::dlsym(library, "cuDevicePrimaryCtxRetain"));
  CUdevice device = 0;
  CUcontext context = nullptr;
  MOEJIT_TRY(driver_call(init(0), "cuInit"));
  MOEJIT_TRY(driver_call(get(&device, 0), "cuDeviceGet"));
  return driver_call(retain(&context, device), "cuDevicePrimaryCtxRetain");
}

Result<std::unique_ptr<runtime::PreparedPlan>> prepare(const std::string& path,
                                                       runtime::Engine& engine,
                                                       runtime::Device& device) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  MOEJIT_TRY_ASSIGN(compiler::Layer layer, compiler::parse_layer(text, path));
  layer.passes = {compiler::Pass::kForward};
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, compiler::plan_layer(layer, device.target()));
  return runtime::PreparedPlan::prepare(plan, engine, device);
}

// Reads, verifies and loads every kernel of the pack for this device, without a plan or a source.
Result<std::vector<std::unique_ptr<runtime::LoadedKernel>>> load_all(const std::string& path,
                                                                     runtime::Device& device) {
  std::vector<std::unique_ptr<runtime::LoadedKernel>> kernels;
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(path));
  MOEJIT_TRY_ASSIGN(const auto places, pack->places());
  for (const cache::Pack::Place& place : places) {
    MOEJIT_TRY_ASSIGN(auto entry, pack->get(place.key));
    const auto metadata = nlohmann::json::parse(entry->metadata, nullptr, false);
    if (metadata.value("target", "") != to_string(device.target())) continue;
    MOEJIT_TRY_ASSIGN(kernels.emplace_back(), device.load({.entry = metadata.value("entry", ""),
                                                           .target = device.target(),
                                                           .bytes = std::move(entry->payload),
                                                           .usage = {}}));
  }
  return kernels;
}

// Runs one forward of a few tokens on uninitialized memory; invalid expert ids are not routed.
Result<void> run_forward(runtime::PreparedPlan& layer, runtime::Device& device, Stamps& stamps) {
  const compiler::Plan& plan = layer.plan();
  std::deque<std::vector<int64_t>> shapes;
  std::vector<runtime::TensorRef> refs;
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  const auto take = [&](int64_t more) {
    const int64_t offset = bytes;
    bytes += (more + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
    return offset;
  };
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    if (tensor.role == compiler::TensorRole::kWorkspace) continue;
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const compiler::Dim& dim : tensor.shape)
      shape.push_back(dim.symbol == "T" ? std::min(kTokens, dim.value) : dim.value);
    refs.push_back({tensor.name, tensor.dtype, shape, nullptr});
    offsets.push_back(take(tensor.bytes));
  }
  const int64_t workspace = take(layer.plan().workspace_bytes);
  MOEJIT_TRY_ASSIGN(void* const memory, device.allocate(bytes));
  stamps.stamp("memory");  // the allocation is the host's part
  const auto at = [&](int64_t offset) { return static_cast<std::byte*>(memory) + offset; };
  for (std::size_t i = 0; i < refs.size(); ++i) refs[i].data = at(offsets[i]);
  MOEJIT_TRY(layer.call("forward", refs, {at(workspace), layer.plan().workspace_bytes}, nullptr));
  MOEJIT_TRY(device.synchronize(nullptr));
  stamps.stamp("forward");
  return {};
}

Result<void> run_child(Case which, const Arguments& arguments, const std::string& folder,
                       Stamps& stamps) {
  if (which == Case::kDriver) {
    MOEJIT_TRY(initialise_driver());
    stamps.stamp("whole");
    return {};
  }
  MOEJIT_TRY_ASSIGN(const auto device, runtime::open_cuda_device());
  stamps.stamp("device");
  MOEJIT_TRY_ASSIGN(
      const auto engine,
      runtime::Engine::create({.cache_dir = folder, .packs = {{arguments.pack}}, .frozen = true}));
  stamps.stamp("engine");
  MOEJIT_TRY_ASSIGN(const auto layer, prepare(arguments.layer, *engine, *device));
  stamps.stamp("prepare");
  std::vector<std::unique_ptr<runtime::LoadedKernel>> loaded;
  std::vector<std::unique_ptr<runtime::PreparedPlan>> layers;
  if (which == Case::kPack) {
    MOEJIT_TRY_ASSIGN(loaded, load_all(arguments.pack, *device));
    stamps.stamp("eager");
  } else if (which == Case::kLayers) {
    for (const std::string& other : arguments.others) {
      MOEJIT_TRY_ASSIGN(layers.emplace_back(), prepare(other, *engine, *device));
    }
    stamps.stamp("eager");
  }
  MOEJIT_TRY(run_forward(*layer, *device, stamps));
  stamps.stamp("whole");
  // Counts each kernel of the layers once, whether the engine or load_all() took it from the pack.
  const runtime::EngineCounters counters = engine->counters();
  fmt::print("kernels {}\n", std::max(counters.from_packs, std::ssize(loaded)));
  return {};
}

// ---- The parent ------------------------------------------------------------------------------

// Times in nanoseconds, by the stamp's name.
using Samples = std::map<std::string, std::vector<int64_t>>;

// Starts the program as one case and records the times that it prints.
Result<void> sample(const std::string& program, Case which, const Arguments& arguments,
                    const std::string& folder, Samples& samples) {
  std::vector<std::string> words = {program,
                                    "--child",
                                    std::to_string(static_cast<int>(which)),
                                    folder,
                                    std::to_string(now_ns()),
                                    arguments.layer,
                                    arguments.pack};
  words.insert(words.end(), arguments.others.begin(), arguments.others.end());
  MOEJIT_TRY_ASSIGN(const compiler::ProcessResult result, compiler::run_process(words, "."));
  if (result.exit_code != 0)
    return fail(Stage::kCommand, ErrorCode::kInternal, "a child failed", {}, result.output);
  std::istringstream lines(result.output);
  std::string name;
  int64_t value = 0;
  while (lines >> name >> value) samples[name].push_back(value);
  return {};
}

int64_t median(std::vector<int64_t> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

void print_case(const std::string& name, const Samples& samples, int64_t driver) {
  const std::vector<int64_t>& whole = samples.at("whole");
  fmt::print("{:<36}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}\n", name, milliseconds(median(whole)),
             milliseconds(std::ranges::min(whole)), milliseconds(std::ranges::max(whole)),
             milliseconds(median(whole) - driver));
  int64_t before = 0;
  for (const char* step : {"device", "engine", "prepare", "eager", "memory", "forward"}) {
    if (!samples.contains(step)) continue;
    const int64_t until = median(samples.at(step));
    fmt::print("    {:<8}{:>9.2f}\n", step, milliseconds(until - before));
    before = until;
  }
}

Result<void> run_parent(const std::string& program, const Arguments& arguments) {
  const TempDir folder("cold-start");  // an empty cache folder: all kernels come from the pack
  std::map<Case, Samples> samples;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    if (i == kWarmUps) samples.clear();
    for (const Case each : kCases)
      if (each != Case::kLayers || !arguments.others.empty())
        MOEJIT_TRY(sample(program, each, arguments, (folder / "cache").string(), samples[each]));
  }
  const int64_t driver = median(samples[Case::kDriver]["whole"]);
  fmt::print("{:<36}{:>9}{:>9}{:>9}{:>9}\n",
             fmt::format("from the start of the process, ms; {} runs", kRuns), "median", "least",
             "most", "-driver");
  print_case("driver", samples[Case::kDriver], driver);
  const auto kernels = [&](Case which) { return median(samples[which]["kernels"]); };
  print_case(fmt::format("a layer, {} kernels", kernels(Case::kLayer)), samples[Case::kLayer],
             driver);
  print_case(fmt::format("all kernels of the pack, {}", kernels(Case::kPack)), samples[Case::kPack],
             driver);
  if (samples.contains(Case::kLayers))
    print_case(
        fmt::format("{} layers, {} kernels", 1 + arguments.others.size(), kernels(Case::kLayers)),
        samples[Case::kLayers], driver);
  return {};
}

int run(std::vector<std::string> words) {
  constexpr std::size_t kChildWords = 4;  // --child CASE FOLDER START
  const bool is_child = words.size() > kChildWords && words[1] == "--child";
  std::size_t next = is_child ? 1 + kChildWords : 1;
  if (words.size() < next + 2) {
    fmt::print(stderr, "cold_start_bench LAYER.json PACK [OTHER.json...]\n");
    return 2;
  }
  Arguments arguments{.layer = words[next], .pack = words[next + 1], .others = {}};
  arguments.others.assign(words.begin() + static_cast<int64_t>(next) + 2, words.end());
  Result<void> result;
  if (is_child) {
    Stamps stamps(std::stoll(words[4]));
    result = run_child(static_cast<Case>(std::stoi(words[2])), arguments, words[3], stamps);
    stamps.print();
  } else {
    arguments.pack = std::filesystem::absolute(arguments.pack).string();
    result = run_parent("/proc/self/exe", arguments);
  }
  if (result) return 0;
  fmt::print(stderr, "{}\n", to_string(result.error()));
  return 1;
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) { return moejit::testing::run({argv, argv + argc}); }
