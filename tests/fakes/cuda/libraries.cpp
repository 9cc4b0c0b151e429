// SPDX-License-Identifier: Apache-2.0
// Images, kernels and launches of the fake driver. A launch checks what a driver checks; the kernel
// does not run.
#include "compiler/support/digest.h"
#include "tests/fakes/cuda/cubin_reader.h"
#include "tests/fakes/cuda/driver_state.h"

#include <cstring>

namespace moejit::testing::fake {
namespace {

constexpr std::size_t kPlaces = 1U << 16U;
constexpr unsigned kPlaceShift = 4, kGenerationShift = 24;

std::mutex& libraries_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::array<std::atomic<Library*>, kPlaces> places{};
std::vector<Library*> unused;  // under libraries_mutex()
std::size_t places_begun = 0;  // under libraries_mutex()

// A handle tells place and generation, so that a launch finds its kernel without a lock and knows
// one that was unloaded.
void* handle_of(const Library& library) {
  const uint64_t generation = library.generation.load(std::memory_order_relaxed);
  return reinterpret_cast<void*>(generation << kGenerationShift | (library.slot + 1)
                                                                      << kPlaceShift);
}

Library* take_place() {
  const std::lock_guard lock(libraries_mutex());
  if (!unused.empty()) {
    Library* const library = unused.back();
    unused.pop_back();
    return library;
  }
  if (places_begun == kPlaces) return nullptr;
  auto* const library = new Library;
  library->slot = places_begun++;
  places[library->slot].store(library, std::memory_order_relaxed);
  return library;
}

void note_image(const void* image, std::size_t bytes) {
  FakeCudaControl& all = control();
  const auto place = static_cast<std::size_t>(all.images.fetch_add(1, std::memory_order_relaxed));
  if (place >= FakeCudaControl::kImages) return;
  const moejit::Digest digest = moejit::sha256({static_cast<const std::byte*>(image), bytes});
  std::memcpy(all.image_digests[place].data(), digest.bytes.data(), digest.bytes.size());
}

// Whether the drivers of the test let code come to the device while something is captured.
CUresult check_load() {
  return control().prohibits_loads_in_capture != 0 ? check_unsafe_call() : CUDA_SUCCESS;
}

CUresult make_ready(Library& library, Context& context) {
  if (library.is_ready_in[context.index].load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  if (const CUresult result = check_load(); result != CUDA_SUCCESS) return result;
  if (!take_memory(context.device, library.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  library.is_ready_in[context.index] = true;
  library.devices.push_back(context.device);
  return CUDA_SUCCESS;
}

bool is_unsupported(const CUlaunchConfig& config, const Library& library) {
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  return config.gridDimX == 0 || config.gridDimX > 0x7fffffffU || config.gridDimY != 1 ||
         config.gridDimZ != 1 || threads == 0 || threads > kMostThreads ||
         config.sharedMemBytes + static_cast<unsigned>(library.static_shared_bytes) >
             kSharedBytesOptIn;
}

}  // namespace

Library* find_library(const void* handle) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  const std::size_t place = (value & ((1U << kGenerationShift) - 1)) >> kPlaceShift;
  if (place == 0 || place > kPlaces) return nullptr;
  Library* const library = places[place - 1].load(std::memory_order_relaxed);
  if (library == nullptr || !library->is_loaded.load(std::memory_order_relaxed)) return nullptr;
  return library->generation.load(std::memory_order_relaxed) == value >> kGenerationShift ? library
                                                                                          : nullptr;
}

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option*, void**,
                                unsigned, CUlibraryOption*, void**, unsigned) {
  FAKE_CALL(library_load_data);
  if (const CUresult result = check_load(); result != CUDA_SUCCESS) return result;
  const std::size_t bytes = elf_bytes(image);
  note_image(image, bytes);
  const auto cubin = read_cubin({static_cast<const char*>(image), bytes});
  if (!cubin) {
    count(control().images_refused);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Library* const library = take_place();
  if (library == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  library->entry = cubin->entry;
  library->bytes = bytes;
  library->param_bytes = cubin->param_bytes;
  library->static_shared_bytes = cubin->static_shared_bytes;
  for (auto& limit : library->most_dynamic_bytes)
    limit = kSharedBytesPerBlock - library->static_shared_bytes;
  library->is_loaded = true;
  *handle = static_cast<CUlibrary>(handle_of(*library));
  count(control().libraries_loaded);
  return CUDA_SUCCESS;
}

FAKE CUresult cuLibraryUnload(CUlibrary handle) {
  FAKE_CALL(library_unload);
  Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_load(); result != CUDA_SUCCESS) return result;
  count(control().libraries_unloaded);
  if (library->in_flight != 0) count(control().unloaded_in_flight);
  if (library->graphs != 0) count(control().unloaded_in_graph);
  const bool is_used = library->in_flight != 0 || library->graphs != 0;
  library->is_loaded = false;
  for (const CUdevice device : library->devices) give_memory(device, library->bytes);
  if (is_used) return CUDA_SUCCESS;  // so that later launches are known to be wrong
  ++library->generation;
  library->devices.clear();
  for (auto& is_ready : library->is_ready_in) is_ready = false;
  const std::lock_guard lock(libraries_mutex());
  unused.push_back(library);
  return CUDA_SUCCESS;
}

FAKE CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  FAKE_CALL(library_get_kernel);
  const Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (library->entry != name) return CUDA_ERROR_NOT_FOUND;
  *kernel = static_cast<CUkernel>(handle_of(*library));
  return CUDA_SUCCESS;
}

FAKE CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  FAKE_CALL(kernel_get_function);
  Library* const library = find_library(kernel);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult lost = context->lost; lost != CUDA_SUCCESS) return lost;
  if (const CUresult result = make_ready(*library, *context); result != CUDA_SUCCESS) return result;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

FAKE CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                   CUdevice device) {
  FAKE_CALL(kernel_get_attribute);
  const Library* const library = find_library(kernel);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = library->static_shared_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = kMostThreads; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                   CUdevice device) {
  FAKE_CALL(kernel_set_attribute);
  Library* const library = find_library(kernel);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value + library->static_shared_bytes > kSharedBytesOptIn)
    return CUDA_ERROR_INVALID_VALUE;
  library->most_dynamic_bytes[static_cast<std::size_t>(device)] = value;
  return CUDA_SUCCESS;
}

FAKE CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                                   std::size_t* bytes) {
  FAKE_CALL(kernel_get_param_info);
  const Library* const library = find_library(kernel);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (index != 0 || library->param_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = library->param_bytes;
  return CUDA_SUCCESS;
}

FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void**) {
  FAKE_CALL(launch_kernel_ex);
  FakeCudaControl& all = control();
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult lost = context->lost; lost != CUDA_SUCCESS) return lost;
  Library* const library = find_library(function);
  if (library == nullptr) {
    count(all.launched_unloaded);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Stream* const stream = find_stream(config->hStream);
  if (stream == nullptr) {
    count(all.launches_elsewhere);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto device = static_cast<std::size_t>(context->device);
  if (is_unsupported(*config, *library)) {
    count(all.launches_refused);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (static_cast<int>(config->sharedMemBytes) > library->most_dynamic_bytes[device]) {
    count(all.launches_undersized);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!library->is_ready_in[context->index].load(std::memory_order_relaxed)) {
    count(all.launches_not_readied);
    if (const CUresult result = make_ready(*library, *context); result != CUDA_SUCCESS)
      return result;
  }
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0)
      count(all.launches_overlapping);
  }
  // The driver reads the parameters before it returns.
  static thread_local std::array<char, 4096> copy;
  std::memcpy(copy.data(), parameters[0], std::min(library->param_bytes, copy.size()));
  return launch_or_capture(*library, *stream);
}
