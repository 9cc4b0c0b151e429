// SPDX-License-Identifier: Apache-2.0
// Streams and events of the fake driver, and which launches are not over.
#include "tests/fakes/cuda/driver_state.h"

namespace moejit::testing::fake {
namespace {

void finish(Stream& stream) {
  for (Library* const library : stream.in_flight) --library->in_flight;
  stream.in_flight.clear();
}

}  // namespace

std::mutex& flights_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

Stream* find_stream(CUstream handle) {
  Context* const context = current_context();
  if (!is_alive(context)) return nullptr;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &context->legacy;
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return stream->is_alive && stream->context == context ? stream : nullptr;
}

void start_launch(Library& library, Stream& stream) {
  FakeCudaControl& all = control();
  count(all.launches);
  count(all.launches_on[static_cast<std::size_t>(stream.context->device)]);
  if (all.keeps_launches_in_flight == 0) return;
  const std::lock_guard lock(flights_mutex());
  ++library.in_flight;
  stream.in_flight.push_back(&library);
}

void finish_launches(Stream& stream) {
  const std::lock_guard lock(flights_mutex());
  finish(stream);
}

void finish_launches(Context& context) {
  const std::lock_guard lock(flights_mutex());
  finish(context.legacy);
  for (Stream* const stream : context.streams) finish(*stream);
}

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  FAKE_CALL(stream_create);
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  auto* const stream = new Stream;
  stream->context = context;
  stream->is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  const std::lock_guard lock(flights_mutex());
  context->streams.push_back(stream);
  *handle = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

// What is in flight goes on; nobody can wait for it but with its context.
FAKE CUresult cuStreamDestroy_v2(CUstream handle) {
  FAKE_CALL(stream_destroy);
  auto* const stream = reinterpret_cast<Stream*>(handle);
  if (stream == nullptr || !stream->is_alive) return CUDA_ERROR_INVALID_HANDLE;
  stream->is_alive = false;
  return CUDA_SUCCESS;
}

FAKE CUresult cuStreamSynchronize(CUstream handle) {
  FAKE_CALL(stream_synchronize);
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult lost = context->lost; lost != CUDA_SUCCESS) return lost;
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->status != CU_STREAM_CAPTURE_STATUS_NONE) {
    const std::lock_guard lock(captures_mutex());
    invalidate(*stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY) land_copies(context);
  finish_launches(*stream);
  return CUDA_SUCCESS;
}

// Events have no time: they are numbers.
FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CALL(event_create);
  if (!is_alive(current_context())) return CUDA_ERROR_INVALID_CONTEXT;
  static std::atomic<uint64_t> made{0};
  *event = reinterpret_cast<CUevent>(++made);
  return CUDA_SUCCESS;
}

FAKE CUresult cuEventDestroy_v2(CUevent) {
  FAKE_CALL(event_destroy);
  return CUDA_SUCCESS;
}

FAKE CUresult cuEventRecord(CUevent, CUstream handle) {
  FAKE_CALL(event_record);
  return find_stream(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

FAKE CUresult cuEventSynchronize(CUevent) {
  FAKE_CALL(event_synchronize);
  return CUDA_SUCCESS;
}

#undef cuEventElapsedTime  // the symbol that the product resolves has no suffix
FAKE CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  FAKE_CALL(event_elapsed_time);
  *milliseconds = 0.0F;
  return CUDA_SUCCESS;
}

FAKE CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t,
                                     void* address, const cuuint64_t*, const cuuint64_t*,
                                     const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                     CUtensorMapSwizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill) {
  FAKE_CALL(tensor_map_encode_tiled);
  *map = {};
  map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
  map->opaque[1] = promotion;
  return CUDA_SUCCESS;
}
