// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/prepared_plan.h"
#include "runtime/trial/device_tensors.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// A layer of several ranks, and the tokens of each: small, with both passes, or large enough that
// rows are on the wire for most of a call.
struct ProcessLayer {
  compiler::Layer layer;
  std::vector<int64_t> tokens;
};
ProcessLayer process_layer(int32_t ranks, bool is_large);

// A rank that is the whole of a process, on the GPU of its number. Its inputs are those of
// GroupCase with seed 1.
class ProcessRank {
 public:
  // Opens the device.
  static Result<std::unique_ptr<ProcessRank>> open_device(int32_t rank);
  // Opens the group, and prepares the layer.
  Result<void> open_group(const ProcessLayer& of, const std::string& path, int64_t timeout_ms);

  // Does what a line says, and returns what to say to it:
  // - run: "status WORD MS", of forward, and backward if the layer has it, until the GPU is idle;
  // - loop: the same, of the first run whose status is not 0;
  // - flood: nothing more; launches runs for ever, 16 at a time;
  // - save: "saved", with the results in files FOLDER/RANK.TENSOR of save_to();
  // - alive: "alive" if the context works: memory, copies, a kernel of the layer;
  // - reset, reopen: "done".
  // All may say "failed CODE SENTENCE" instead.
  std::string obey(const std::string& line);
  void save_to(const std::string& folder) { folder_ = folder; }
  double open_ms() const { return open_ms_; }

 private:
  ProcessRank(std::unique_ptr<runtime::Device> device, int32_t rank)
      : device_(std::move(device)), rank_(rank), tensors_(*device_) {}
  Result<void> add_tensors(const runtime::TensorMap& inputs);
  Result<void> launch();
  Result<std::string> run();
  Result<std::string> save() const;
  Result<std::string> check_context();
  Result<std::string> answer(const std::string& line);

  std::unique_ptr<runtime::Device> device_;
  int32_t rank_;
  std::unique_ptr<runtime::Group> group_;
  std::unique_ptr<runtime::PreparedPlan> layer_;
  trial::DeviceTensors tensors_;
  runtime::DeviceMemory workspace_, saved_;
  runtime::CallMemory memory_;
  std::vector<runtime::TensorRef> refs_, weights_;
  std::string path_, folder_;
  double open_ms_ = 0.0;
  bool is_silent_ = false;
};

}  // namespace moejit::testing
