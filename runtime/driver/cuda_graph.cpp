// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/cuda_graph.h"

#include "runtime/driver/driver_api.h"

#include <utility>

namespace moejit::runtime {
namespace {

class CudaGraph final : public Recording {
 public:
  CudaGraph(std::shared_ptr<const Context> context, CUgraphExec graph)
      : context_(std::move(context)), graph_(graph) {}
  ~CudaGraph() override {
    const CurrentContext current(*context_);
    if (current.check(Stage::kLaunch)) context_->api().graph_exec_destroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  Result<void> launch(Stream stream) override {
    const CurrentContext current(*context_);
    MOEJIT_TRY(current.check(Stage::kLaunch));
    MOEJIT_TRY_DRIVER(context_->api(), Stage::kLaunch, graph_launch,
                      (graph_, static_cast<CUstream>(stream)));
    return {};
  }

 private:
  std::shared_ptr<const Context> context_;
  CUgraphExec graph_;
};

// Records on a stream, and returns the graph.
Result<CUgraph> capture(const DriverApi& api, CUstream stream,
                        const std::function<Result<void>(Stream)>& queue) {
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, stream_begin_capture,
                    (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const Result<void> queued = queue(stream);
  CUgraph graph = nullptr;
  const CUresult ended = api.stream_end_capture(stream, &graph);
  if (!queued) {
    if (graph != nullptr) api.graph_destroy(graph);
    return tl::make_unexpected(queued.error());
  }
  if (ended != CUDA_SUCCESS)
    return tl::make_unexpected(driver_error(api, Stage::kLaunch, "cuStreamEndCapture", ended));
  return graph;
}

}  // namespace

Result<std::unique_ptr<Recording>> record_cuda_graph(
    std::shared_ptr<const Context> context, const std::function<Result<void>(Stream)>& queue) {
  const DriverApi& api = context->api();
  CUstream stream = nullptr;
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, stream_create, (&stream, CU_STREAM_NON_BLOCKING));
  const Result<CUgraph> graph = capture(api, stream, queue);
  api.stream_destroy(stream);
  MOEJIT_TRY(graph);
  CUgraphExec executable = nullptr;
  const CUresult made = api.graph_instantiate(&executable, *graph, 0);
  api.graph_destroy(*graph);
  if (made != CUDA_SUCCESS)
    return tl::make_unexpected(driver_error(api, Stage::kLaunch, "cuGraphInstantiate", made));
  return std::make_unique<CudaGraph>(std::move(context), executable);
}

}  // namespace moejit::runtime
