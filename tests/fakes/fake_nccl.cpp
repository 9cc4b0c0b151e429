// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl.so.2 whose ranks are threads of one process, and whose GPUs have memory of
// the host (the fake libcuda). Communicators are whole when all ranks of an id have come; sends
// wait for nobody, and a group of calls ends when everything that it receives has come, or when its
// communicator is aborted. It orders nothing on streams, and recorded calls move nothing. What NCCL
// waits for when it frees a communicator, abort and destroy wait for here: the calls of all
// communicators of the GPU, as cudaFree() waits for kernels, and the graphs that the communicator's
// own were recorded into. Waits that NCCL would never end give up after kForever, so that tests
// tell of them.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Result {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

struct Comm;

// Where to put a communicator, and whose it is.
struct InSplit {
  Comm** place;
  int rank;
  int gpu;
};

// All communicators of one id, or of one split.
struct World {
  int ranks = 0;
  int come = 0;
  std::shared_ptr<World> split;
  std::vector<InSplit> in_split;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // by sender and receiver
};

struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
  int gpu = 0;
  int graphs = 0;  // that its calls are recorded in
  bool is_aborted = false;
};

struct Config {
  std::size_t size;
  unsigned int magic, version;
  int blocking;
};

struct Receive {
  Comm* comm;
  int from;
  std::byte* to;
  std::size_t bytes;
  CUstream stream;
};

struct UniqueId {
  std::array<char, 128> bytes;
};

std::mutex& mutex() {
  static std::mutex& one = *new std::mutex;
  return one;
}
std::condition_variable changed;
constexpr std::chrono::seconds kForever(15);
std::map<int, int> unfinished;  // groups of calls by GPU
std::map<std::string, std::shared_ptr<World>>& worlds() {
  static auto& all = *new std::map<std::string, std::shared_ptr<World>>;
  return all;
}
std::vector<std::unique_ptr<Comm>>& comms() {  // destroyed ones too, which are told apart so
  static auto& all = *new std::vector<std::unique_ptr<Comm>>;
  return all;
}

thread_local std::vector<Receive> receives;
thread_local bool is_in_group = false;

Comm* add(std::shared_ptr<World> world, int rank, int gpu) {
  comms().push_back(std::make_unique<Comm>(Comm{std::move(world), rank, gpu}));
  return comms().back().get();
}

template <typename Function>
Function* driver(const char* symbol) {
  static void* const cuda = ::dlopen(std::getenv("MOEJIT_CUDA_DRIVER"), RTLD_NOW);
  return reinterpret_cast<Function*>(::dlsym(cuda, symbol));
}

// Returns the GPU of the thread's context, or -1 without one, where NCCL would take GPU 0.
int current_gpu() {
  static auto* const get_device = driver<decltype(cuCtxGetDevice)>("cuCtxGetDevice");
  int gpu = 0;
  return get_device(&gpu) == CUDA_SUCCESS ? gpu : -1;
}

// Returns the graph that work of the stream is recorded into, or null.
CUgraph graph_of(CUstream stream) {
  using GetInfo = CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                           const CUgraphNode**, std::size_t*);
  static auto* const get_info = driver<GetInfo>("cuStreamGetCaptureInfo_v2");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUresult result = get_info(stream, &status, nullptr, &graph, nullptr, nullptr);
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr;
}

// Lets the graph tell the communicator when it is gone.
Result keep_until_gone(Comm& comm, CUgraph graph) {
  static auto* const create = driver<decltype(cuUserObjectCreate)>("cuUserObjectCreate");
  static auto* const retain = driver<decltype(cuGraphRetainUserObject)>("cuGraphRetainUserObject");
  const auto forget = [](void* of) {
    const std::lock_guard lock(mutex());
    --static_cast<Comm*>(of)->graphs;
    changed.notify_all();
  };
  CUuserObject object = nullptr;
  if (create(&object, &comm, forget, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS ||
      retain(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) != CUDA_SUCCESS)
    return kUnhandledCudaError;
  const std::lock_guard lock(mutex());
  ++comm.graphs;
  return kSuccess;
}

bool is_valid(const Config* config) {
  return config != nullptr && config->size >= sizeof(Config) && config->magic == 0xcafebeef &&
         config->version >= 21800;
}

// Returns what the wait for these receives came to.
Result await_mail(std::vector<Receive>& wanted, std::unique_lock<std::mutex>& lock) {
  for (const Receive& receive : wanted) {
    auto& box = receive.comm->world->mail[{receive.from, receive.comm->rank}];
    const auto has_ended = [&] { return !box.empty() || receive.comm->is_aborted; };
    if (!changed.wait_for(lock, kForever, has_ended) || receive.comm->is_aborted)
      return kRemoteError;
    if (box.front().size() != receive.bytes) return kInvalidUsage;
    std::memcpy(receive.to, box.front().data(), receive.bytes);
    box.pop_front();
  }
  return kSuccess;
}

Result finish(std::vector<Receive>& wanted) {
  if (wanted.empty()) return kSuccess;
  if (const CUgraph graph = graph_of(wanted.front().stream); graph != nullptr)
    return keep_until_gone(*wanted.front().comm, graph);
  std::unique_lock lock(mutex());
  int& of_gpu = unfinished[wanted.front().comm->gpu];
  ++of_gpu;
  const Result result = await_mail(wanted, lock);
  --of_gpu;
  changed.notify_all();
  return result;
}

Result free_memory(const Comm& comm, std::unique_lock<std::mutex>& lock) {
  changed.wait_for(lock, kForever, [&] { return unfinished[comm.gpu] == 0 && comm.graphs == 0; });
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  static char next = 1;
  const std::lock_guard lock(mutex());
  id->bytes.fill(0);
  id->bytes[0] = next++;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited or there was a network error"
                                : "invalid usage";
}
const char* ncclGetLastError(void*) { return ""; }

int ncclCommInitRankConfig(Comm** made, int ranks, UniqueId id, int rank, const Config* config) {
  if (!is_valid(config) || config->blocking != 0) return kInvalidArgument;
  const int gpu = current_gpu();
  if (gpu < 0) return kUnhandledCudaError;
  const std::lock_guard lock(mutex());
  auto& world = worlds()[std::string(id.bytes.data(), id.bytes.size())];
  if (world == nullptr) world = std::make_shared<World>();
  world->ranks = ranks;
  ++world->come;
  *made = add(world, rank, gpu);
  return kInProgress;
}

// A rank's communicator of the split is there some time after all have asked for it. Until then it
// is null, and its parent tells of success, as NCCL's does.
int ncclCommSplit(Comm* comm, int, int key, Comm** made, const Config* config) {
  if (!is_valid(config) || config->blocking != 1) return kInvalidArgument;
  const std::lock_guard lock(mutex());
  World& world = *comm->world;
  if (world.come != world.ranks) return kInvalidUsage;
  if (world.split == nullptr) {
    world.split = std::make_shared<World>();
    world.split->ranks = world.ranks;
  }
  *made = nullptr;
  world.in_split.push_back({made, key, comm->gpu});
  if (std::ssize(world.in_split) < world.ranks) return kInProgress;
  std::thread([of = comm->world] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::lock_guard in_time(mutex());
    for (const auto& [place, rank, gpu] : of->in_split)
      std::atomic_ref(*place).store(add(of->split, rank, gpu), std::memory_order_release);
  }).detach();
  return kInProgress;
}

int ncclCommGetAsyncError(Comm* comm, int* error) {
  if (comm == nullptr) return kInvalidArgument;
  const std::lock_guard lock(mutex());
  const World& world = *comm->world;
  const bool is_whole = world.come == 0 || world.come == world.ranks;
  *error = comm->is_aborted ? kRemoteError : is_whole ? kSuccess : kInProgress;
  return kSuccess;
}

int ncclCommCount(const Comm* comm, int* count) {
  *count = comm->world->ranks;
  return kSuccess;
}
int ncclCommUserRank(const Comm* comm, int* rank) {
  *rank = comm->rank;
  return kSuccess;
}

int ncclCommAbort(Comm* comm) {
  if (current_gpu() != comm->gpu) return kUnhandledCudaError;
  std::unique_lock lock(mutex());
  comm->is_aborted = true;
  changed.notify_all();
  return free_memory(*comm, lock);
}
int ncclCommDestroy(Comm* comm) { return ncclCommAbort(comm); }

int ncclGroupStart() {
  is_in_group = true;
  receives.clear();
  return kSuccess;
}
int ncclGroupEnd() {
  is_in_group = false;
  return finish(receives);
}

int ncclSend(const void* from, std::size_t count, int type, int peer, Comm* comm, CUstream stream) {
  if (!is_in_group || type != 0) return kInvalidUsage;
  if (graph_of(stream) != nullptr) return kSuccess;
  const std::lock_guard lock(mutex());
  const auto* const bytes = static_cast<const std::byte*>(from);
  comm->world->mail[{comm->rank, peer}].emplace_back(bytes, bytes + count);
  changed.notify_all();
  return kSuccess;
}
int ncclRecv(void* to, std::size_t count, int type, int peer, Comm* comm, CUstream stream) {
  if (!is_in_group || type != 0) return kInvalidUsage;
  receives.push_back({comm, peer, static_cast<std::byte*>(to), count, stream});
  return kSuccess;
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, Comm* comm,
                  CUstream stream) {
  for (int peer = 0; peer < comm->world->ranks; ++peer) {
    int result = ncclSend(from, count, type, peer, comm, stream);
    if (result == kSuccess)
      result = ncclRecv(static_cast<std::byte*>(to) + static_cast<std::size_t>(peer) * count, count,
                        type, peer, comm, stream);
    if (result != kSuccess) return result;
  }
  return kSuccess;
}

}  // extern "C"
