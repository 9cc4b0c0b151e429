// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/driver/context.h"
#include "runtime/prepared_plan.h"
#include "runtime/trial/device_tensors.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moejit::testing {

// A layer of two ranks over NCCL, and the tokens of each: "partial" and "rows" are the ways home,
// "empty" has a rank without tokens, "bf16" sends bf16 rows.
struct NcclCase {
  compiler::Layer layer;
  std::vector<int64_t> tokens;
};
NcclCase nccl_case(const std::string& name);

// A rank over NCCL that is the whole of a process, on the GPU of its number. Its inputs are those
// of GroupCase with the same seed.
class NcclRank {
 public:
  // Opens the device, and a stream that may be recorded.
  static Result<std::unique_ptr<NcclRank>> open_device(int32_t rank);
  ~NcclRank();
  // Opens the group, and prepares the layer. Rank 0 writes the id into the file, the other reads
  // it.
  Result<void> open_group(const NcclCase& of, const std::string& id_path, int64_t deadline_ms);

  // Does what a line says, and returns what to say to it:
  //   run SEED     "status WORD": forward and backward with these inputs
  //   record       "recorded": the same as a graph
  //   replay SEED  "status WORD": the graph, with these inputs
  //   save         "saved": the results, in files FOLDER/RANK.TENSOR of save_to()
  //   alone        "aborted MS": a call that no peer makes, the recorded one if there is one,
  //                aborted after half a second, and a
  //                context that lives
  // or "failed CODE SENTENCE".
  std::string obey(const std::string& line);
  void save_to(const std::string& folder) { folder_ = folder; }

 private:
  NcclRank(std::unique_ptr<runtime::Device> device, int32_t rank)
      : device_(std::move(device)), rank_(rank), tensors_(*device_) {}
  Result<void> set_inputs(uint64_t seed);
  Result<void> launch();
  Result<std::string> wait();
  Result<void> record();
  Result<std::string> save() const;
  Result<std::string> run_alone();
  Result<std::string> answer(const std::string& line);

  std::unique_ptr<runtime::Device> device_;
  int32_t rank_;
  const runtime::DriverApi* api_ = nullptr;
  std::shared_ptr<const runtime::Context> context_;
  std::optional<runtime::CurrentContext> current_;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
  NcclCase of_;
  std::unique_ptr<runtime::Group> group_;
  std::unique_ptr<runtime::PreparedPlan> layer_;
  trial::DeviceTensors tensors_;
  runtime::DeviceMemory workspace_, saved_;
  runtime::CallMemory memory_;
  std::vector<runtime::TensorRef> refs_, weights_;
  std::string folder_;
};

}  // namespace moejit::testing
