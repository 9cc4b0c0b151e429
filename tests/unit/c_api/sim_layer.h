// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/unit/c_api/last_error.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

inline constexpr int64_t kSimTokens = 11;  // of the calls of a SimLayer

// Returns options of an engine whose kernels are kept from run to run where other tests keep theirs
// (tests/support/test_engine.h), and with TEST_CACHE=off in a folder of these tests.
moejit_engine_options engine_options();

// Values of an input of kTinyLayer, always the same: random numbers for floating point, and for
// topk_ids experts in a fixed pattern with some that are not on this rank.
std::vector<std::byte> input_values(std::string_view name, std::string_view dtype,
                                    int64_t elements);

// kTinyLayer, or another layer, on a simulator with one worker if not told otherwise, through the C
// interface, with memory for all tensors that the caller owns, and blocks for any T. Inputs and
// weights have the values of input_values(), status is 0, a state is that of a first step; the rest
// is uninitialised, which the simulator reports where it is read.
class SimLayer {
 public:
  SimLayer();
  ~SimLayer();
  SimLayer(const SimLayer&) = delete;
  SimLayer& operator=(const SimLayer&) = delete;

  // Opens, creates, prepares and fills; the first code that is not MOEJIT_OK. `json` describes a
  // layer of four experts.
  moejit_error_code open(std::string_view json = kTinyLayer, int64_t tokens = kSimTokens,
                         int64_t workers = 1);

  moejit_plan* layer() const { return layer_; }
  moejit_device* device() const { return device_; }
  moejit_call call() const;  // with all tensors; as long as this object lives
  DLTensor& tensor(std::string_view name);
  std::vector<std::byte> read(std::string_view name);

 private:
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
    DLTensor dl{};
    int64_t bytes = 0;  // with the tokens of the calls
    moejit_role role = MOEJIT_ROLE_INPUT;
  };
  moejit_error_code add(std::size_t index, const moejit_device_info& place, int64_t tokens);
  moejit_error_code fill(Tensor& tensor);
  Tensor& find(std::string_view name);

  moejit_device* device_ = nullptr;
  moejit_engine* engine_ = nullptr;
  moejit_plan* layer_ = nullptr;
  std::deque<Tensor> tensors_;
  std::vector<moejit_tensor> named_;
  moejit_call call_{};
};

}  // namespace moejit::testing
