// SPDX-License-Identifier: Apache-2.0
// A training step of a small layer from C++17, with the header-only wrapper of the C interface.
//   embed_wrapper [sim|cuda]
// docs/c-api.md explains it. A host framework brings its own memory and stream; this program
// borrows memory from moejit's device and uses the default stream.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <moejit/moejit.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr const char* kDescription = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "dtype": "bf16", "recipe": "fp8_flow", "splits_alignment": 16, "max_tokens": 64,
  "passes": ["forward", "backward"]
})";
constexpr std::int64_t kTokens = 3;
constexpr std::size_t kHidden = 256, kIntermediate = 128, kExperts = 4;

// Memory of the device that is released with its owner.
class Memory {
 public:
  Memory(moejit::Device& device, std::int64_t bytes)
      : address_(device.allocate(bytes), Release{&device}) {
    device.fill(address_.get(), 0, bytes);
  }
  void* get() const { return address_.get(); }

 private:
  struct Release {
    moejit::Device* device;
    void operator()(void* address) const { moejit_device_release(device->get(), address); }
  };
  std::unique_ptr<void, Release> address_;
};

// The tensors that the caller owns, in the order of the plan.
class CallerTensors {
 public:
  CallerTensors(moejit::Device& device, const moejit::Layer& layer) : device_(device) {
    for (const moejit_tensor_info& info : layer.tensors()) {
      if (info.role == MOEJIT_ROLE_SAVED || info.role == MOEJIT_ROLE_WORKSPACE) continue;
      Tensor& tensor = tensors_.emplace_back(Tensor{Memory(device, info.bytes), {}, {}});
      for (std::int32_t d = 0; d < info.ndim; ++d)
        tensor.shape.push_back(std::strcmp(info.symbols[d], "T") == 0 ? kTokens : info.shape[d]);
      tensor.dl.data = tensor.memory.get();
      tensor.dl.device = device.info().dl_device;
      tensor.dl.ndim = info.ndim;
      tensor.dl.dtype = info.dtype;
      tensor.dl.shape = tensor.shape.data();
      named_.push_back({info.name, &tensor.dl});
    }
  }

  const std::vector<moejit_tensor>& named() const { return named_; }

  template <typename Element>
  void write(const std::string& name, const std::vector<Element>& values) {
    device_.copy_to_device(data_of(name), values.data(), bytes_of(values));
  }
  template <typename Element>
  std::vector<Element> read(const std::string& name, std::size_t count) {
    std::vector<Element> values(count);
    device_.copy_to_host(values.data(), data_of(name), bytes_of(values));
    return values;
  }

 private:
  struct Tensor {
    Memory memory;
    std::vector<std::int64_t> shape;
    DLTensor dl;
  };
  template <typename Element>
  static std::int64_t bytes_of(const std::vector<Element>& values) {
    return static_cast<std::int64_t>(values.size() * sizeof(Element));
  }
  void* data_of(const std::string& name) const {
    for (const moejit_tensor& tensor : named_)
      if (name == tensor.name) return tensor.tensor->data;
    throw std::invalid_argument("the layer has no tensor " + name);
  }

  moejit::Device& device_;
  std::deque<Tensor> tensors_;  // whose addresses stay
  std::vector<moejit_tensor> named_;
};

// Every token and weight alike, so that results can be worked out by hand: gate = up = 1.
void set_inputs(CallerTensors& tensors) {
  constexpr std::uint16_t kOne = 0x3F80, kOne256th = 0x3B80, kOne128th = 0x3C00;  // bf16
  using Bf16 = std::vector<std::uint16_t>;
  tensors.write("x", Bf16(kTokens * kHidden, kOne));
  tensors.write("dy", Bf16(kTokens * kHidden, kOne));
  tensors.write("w1", Bf16(kExperts * 2 * kIntermediate * kHidden, kOne256th));
  tensors.write("w2", Bf16(kExperts * kHidden * kIntermediate, kOne128th));
  tensors.write("topk_ids", std::vector<std::int32_t>{0, 1, 2, 3, 1, 2});
  tensors.write("topk_probs", std::vector<float>(kTokens * 2, 0.5F));
}

bool is_near(const char* what, double got, double wanted) {
  std::printf("%-12s %8.4f, wanted %.4f +- 7 %%\n", what, got, wanted);
  return std::abs(got - wanted) <= 0.07 * std::abs(wanted);
}

// e4m3 keeps 3 bits behind the leading one: an element is off by at most 1/16, and here they are
// all off by the same.
bool are_results_right(CallerTensors& tensors) {
  moejit::check_status(tensors.read<std::uint32_t>("status", 1)[0]);
  const double silu = 1.0 / (1.0 + std::exp(-1.0));
  const std::uint32_t wide = std::uint32_t{tensors.read<std::uint16_t>("y", 1)[0]} << 16;
  float y = 0;
  std::memcpy(&y, &wide, sizeof(y));
  return is_near("y", y, silu) &&
         is_near("dprobs", tensors.read<float>("dprobs", 1)[0], kHidden * silu);
}

bool run(bool is_cuda) {
  moejit::Device device = is_cuda ? moejit::Device::open_cuda() : moejit::Device::open_simulator();
  moejit::Layer layer(kDescription, device.info().target);
  moejit::Engine engine;
  layer.prepare(engine, device);

  // From here on nothing is compiled, loaded or allocated by moejit.
  CallerTensors tensors(device, layer);
  const Memory workspace(device, layer.info().workspace_bytes);
  const Memory saved(device, layer.info().saved_bytes);
  set_inputs(tensors);
  auto call = moejit::make<moejit_call>();
  call.tensors = tensors.named().data();
  call.tensor_count = tensors.named().size();
  call.workspace = workspace.get();
  call.workspace_bytes = layer.info().workspace_bytes;
  call.saved = saved.get();
  call.saved_bytes = layer.info().saved_bytes;
  layer.update_weights(call);  // after each change of w1 and w2
  layer.forward(call);
  layer.backward(MOEJIT_GRADIENT_OVERWRITE, call);
  device.synchronize();
  return are_results_right(tensors);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (!run(argc > 1 && std::string(argv[1]) == "cuda")) return EXIT_FAILURE;
    std::printf("%d tokens forward and backward with moejit %s\n", static_cast<int>(kTokens),
                moejit_version());
    return EXIT_SUCCESS;
  } catch (const moejit::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", error.stage().c_str(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return EXIT_FAILURE;
}
