// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs of the fake driver, by what cuStreamBeginCapture() and
// cuThreadExchangeStreamCaptureMode() document of the three modes.
#include "tests/fakes/cuda/driver_state.h"

#include <algorithm>
#include <thread>

namespace moejit::testing::fake {

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Streams that capture, or did until their capture was invalidated; under captures_mutex().
std::vector<Stream*>& capturing() {
  static auto& all = *new std::vector<Stream*>;
  return all;
}
std::atomic<int> captures{0};  // how many those are, for who has no reason to lock

// Whether a call of this thread that is not safe is prohibited because of a capture.
bool is_prohibited_by(const Stream& stream) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (stream.thread == this_thread()) return stream.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         stream.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool is_active(const Stream& stream) {
  return stream.status.load(std::memory_order_relaxed) == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Work on the legacy stream waits for all blocking streams, which one that captures cannot take.
Stream* capture_that_legacy_meets(const Stream& legacy) {
  for (Stream* const stream : capturing())
    if (stream->is_blocking && stream->context == legacy.context) return stream;
  return nullptr;
}

void release(UserObject& object) {
  if (--object.references != 0) return;
  count(control().user_objects_destroyed);
  // On a thread of the driver's, which may not call it.
  std::thread([&] {
    is_in_callback = true;
    object.destroy(object.payload);
  }).join();
}

void release_all(Graph& graph) {
  graph.is_alive = false;
  for (Library* const library : graph.nodes) --library->graphs;
  for (UserObject* const object : graph.user_objects) release(*object);
}

}  // namespace

std::mutex& captures_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

void invalidate(Stream& stream) {
  if (!is_active(stream)) return;
  stream.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  count(control().captures_invalidated);
}

CUresult check_unsafe_call() {
  if (captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(captures_mutex());
  CUresult result = CUDA_SUCCESS;
  for (Stream* const stream : capturing()) {
    if (!is_prohibited_by(*stream)) continue;
    invalidate(*stream);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult check_wait_for(const Context& context) {
  if (captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(captures_mutex());
  CUresult result = CUDA_SUCCESS;
  for (Stream* const stream : capturing()) {
    if (stream->context != &context) continue;
    invalidate(*stream);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult launch_or_capture(Library& library, Stream& stream) {
  if (captures.load(std::memory_order_relaxed) == 0) {
    start_launch(library, stream);
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(captures_mutex());
  if (stream.is_legacy) {
    if (Stream* const other = capture_that_legacy_meets(stream)) {
      invalidate(*other);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  switch (stream.status) {
    case CU_STREAM_CAPTURE_STATUS_NONE: start_launch(library, stream); return CUDA_SUCCESS;
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED: return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    default: break;
  }
  stream.graph->nodes.push_back(&library);
  ++library.graphs;
  count(control().nodes_captured);
  return CUDA_SUCCESS;
}

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_CALL(thread_exchange_capture_mode);
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

FAKE CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  FAKE_CALL(stream_begin_capture);
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(captures_mutex());
  if (stream->status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  stream->mode = mode;
  stream->thread = this_thread();
  stream->graph = new Graph;
  stream->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  capturing().push_back(stream);
  ++captures;
  return CUDA_SUCCESS;
}

FAKE CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  FAKE_CALL(stream_end_capture);
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(captures_mutex());
  if (stream->status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED && stream->thread != this_thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool is_whole = is_active(*stream);
  std::erase(capturing(), stream);
  --captures;
  stream->status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!is_whole) release_all(*stream->graph);
  *graph = is_whole ? reinterpret_cast<CUgraph>(stream->graph) : nullptr;
  return is_whole ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

FAKE CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  FAKE_CALL(stream_is_capturing);
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->is_legacy && captures.load(std::memory_order_relaxed) != 0) {
    const std::lock_guard lock(captures_mutex());
    if (capture_that_legacy_meets(*stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *status = stream->status.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

FAKE CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                        CUgraph* graph, const CUgraphNode**, std::size_t*) {
  FAKE_CALL(stream_get_capture_info);
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(captures_mutex());
  *status = stream->status;
  if (is_active(*stream)) *graph = reinterpret_cast<CUgraph>(stream->graph);
  return CUDA_SUCCESS;
}

FAKE CUresult cuUserObjectCreate(CUuserObject* handle, void* payload, CUhostFn destroy,
                                 unsigned references, unsigned flags) {
  FAKE_CALL(user_object_create);
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  auto* const object = new UserObject;
  object->payload = payload;
  object->destroy = destroy;
  object->references = references;
  count(control().user_objects_created);
  *handle = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

FAKE CUresult cuUserObjectRelease(CUuserObject handle, unsigned references) {
  FAKE_CALL(user_object_release);
  for (unsigned i = 0; i < references; ++i) release(*reinterpret_cast<UserObject*>(handle));
  return CUDA_SUCCESS;
}

FAKE CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned references,
                                      unsigned flags) {
  FAKE_CALL(graph_retain_user_object);
  if (references != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(captures_mutex());
  reinterpret_cast<Graph*>(handle)->user_objects.push_back(reinterpret_cast<UserObject*>(object));
  return CUDA_SUCCESS;
}

FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph handle,
                                          unsigned long long) {
  FAKE_CALL(graph_instantiate);
  const auto& graph = *reinterpret_cast<Graph*>(handle);
  if (!graph.is_alive) return CUDA_ERROR_INVALID_HANDLE;
  auto* const copy = new Graph;
  copy->nodes = graph.nodes;
  copy->user_objects = graph.user_objects;
  for (Library* const library : copy->nodes) ++library->graphs;
  for (UserObject* const object : copy->user_objects) ++object->references;
  *executable = reinterpret_cast<CUgraphExec>(copy);
  return CUDA_SUCCESS;
}

FAKE CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  FAKE_CALL(graph_launch);
  const auto& graph = *reinterpret_cast<Graph*>(handle);
  Stream* const stream = find_stream(stream_handle);
  if (stream == nullptr || !graph.is_alive) return CUDA_ERROR_INVALID_HANDLE;
  for (Library* const library : graph.nodes) {
    if (library->is_loaded) {
      start_launch(*library, *stream);
      continue;
    }
    count(control().launched_unloaded);
    stream->context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return stream->context->lost;
}

FAKE CUresult cuGraphExecDestroy(CUgraphExec handle) {
  FAKE_CALL(graph_exec_destroy);
  release_all(*reinterpret_cast<Graph*>(handle));
  return CUDA_SUCCESS;
}

FAKE CUresult cuGraphDestroy(CUgraph handle) {
  FAKE_CALL(graph_destroy);
  release_all(*reinterpret_cast<Graph*>(handle));
  return CUDA_SUCCESS;
}
