// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C interface of libmoejit.so, C11 and C++; docs/c-api.md. <moejit/moejit.hpp> is for C++17.
//
// Errors. A function that returns a moejit_error_code sets the last error of its thread (MOEJIT_OK
// if it did not fail); other functions leave it alone. A failed function sets handles that it would
// have made to NULL and does nothing else. Nothing throws, prints or aborts. NULL for something
// that is needed is MOEJIT_ERROR_INVALID_VALUE.
// Records. Set struct_size to sizeof() of the record and every byte that you do not use to 0, which
// is the default of each option. So programs run with older and newer libraries. The library takes
// fields that the program does not know as 0. Fields that the library does not know must be 0.
// Handles. They may be destroyed in any order, each once; NULL is fine.
// Threads. Any thread may call any function, also with the same handles at the same time. But while
// moejit_plan_prepare() or a function that destroys a handle runs, no other call may use that plan
// or handle.
// Strings are UTF-8 and end with 0. Strings that the library returns belong to it.

// NOLINTBEGIN: C, not C++

#include "moejit_errors.h"

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

// Tell the version of this header; the library has the same ABI version, and has it in its soname.
#define MOEJIT_VERSION_MAJOR 0
#define MOEJIT_VERSION_MINOR 1
#define MOEJIT_VERSION_PATCH 0
#define MOEJIT_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

// Return the version of the library: "0.1.0"; major * 10000 + minor * 100 + patch; its ABI version.
MOEJIT_API const char* moejit_version(void);
MOEJIT_API int32_t moejit_version_number(void);
MOEJIT_API int32_t moejit_abi_version(void);

// ---------------------------------------------------------------------------------------------
// Devices

typedef struct moejit_device moejit_device;

#define MOEJIT_CURRENT_GPU (-1)

// Opens the GPU `ordinal`, as CUDA counts the GPUs of this process. It uses the calling thread's
// current context if that belongs to this GPU. Else it retains the GPU's primary context until the
// device and its layers are destroyed. MOEJIT_CURRENT_GPU is the GPU of the current context, or the
// first one if no context is current. An adopted context has to outlive device and layers. Errors:
// MOEJIT_ERROR_DRIVER_MISSING, _NO_DEVICE, _UNSUPPORTED (no target is for its compute capability),
// _DRIVER.
MOEJIT_API moejit_error_code moejit_device_open_cuda(int32_t ordinal, moejit_device** device);

// Gives the name of the target that is made for GPUs of a compute capability: "cuda:sm_90a" for 9
// and 0. It asks no driver. The name is valid as long as the library. Errors:
// MOEJIT_ERROR_UNSUPPORTED (no target is for it; `*target` is NULL).
MOEJIT_API moejit_error_code moejit_target_of_capability(int32_t major, int32_t minor,
                                                         const char** target);

typedef struct moejit_simulator_options {
  size_t struct_size;
  uint64_t seed;    // order in which threads of the kernels run
  int64_t workers;  // host threads that run them; 0: one per core
} moejit_simulator_options;

// Opens the simulator on the CPU. It needs no GPU, but a C++ compiler to prepare layers. `options`
// may be NULL.
MOEJIT_API moejit_error_code moejit_device_open_simulator(const moejit_simulator_options* options,
                                                          moejit_device** device);
MOEJIT_API void moejit_device_destroy(moejit_device* device);

// Returns the device that all bindings in this process share: a GPU by its number (kDLCUDA), or the
// simulator (kDLCPU, 0). The first call for a place opens it as the functions above do. It lives
// until the process ends: do not destroy it. Any thread may call. Errors: as those functions.
MOEJIT_API moejit_error_code moejit_device_shared(DLDevice place, moejit_device** device);

typedef struct moejit_device_info {
  size_t struct_size;
  const char* name;    // "NVIDIA H200", "simulator"; valid as long as the device
  const char* target;  // of its plans: "cuda:sm_90a" of an H100, "sim"; valid as long as the device
  DLDevice dl_device;  // where tensors of its calls are
  int32_t sm_count;
} moejit_device_info;
MOEJIT_API moejit_error_code moejit_device_get_info(const moejit_device* device,
                                                    moejit_device_info* info);

// Allocate and release memory, for programs without an allocator of their own. The memory is
// 256-byte aligned. Write it with copy and fill alone: the simulator sees no other writes of the
// host. Zero bytes give NULL. Release it once, before the device; NULL is fine. Another address,
// and a copy or fill beyond its memory, is MOEJIT_ERROR_INVALID_VALUE on the simulator and _DRIVER
// on a GPU, or goes unnoticed.
MOEJIT_API moejit_error_code moejit_device_allocate(moejit_device* device, int64_t bytes,
                                                    void** address);
MOEJIT_API moejit_error_code moejit_device_release(moejit_device* device, void* address);
// Copy and fill device memory. Copies wait for earlier work of the default stream and are complete
// when they return. A fill does not wait; it is in order with the other work of `stream`.
MOEJIT_API moejit_error_code moejit_device_copy_to_device(moejit_device* device, void* destination,
                                                          const void* source, int64_t bytes);
MOEJIT_API moejit_error_code moejit_device_copy_to_host(moejit_device* device, void* destination,
                                                        const void* source, int64_t bytes);
MOEJIT_API moejit_error_code moejit_device_fill(moejit_device* device, void* destination,
                                                uint8_t value, int64_t bytes, void* stream);
// Waits for the stream.
MOEJIT_API moejit_error_code moejit_device_synchronize(moejit_device* device, void* stream);

// ---------------------------------------------------------------------------------------------
// Engines make and keep kernels; one may serve any number of devices and layers.

typedef struct moejit_engine moejit_engine;

// How a cache folder on a network file system is used (docs/cache.md).
typedef enum moejit_cache_network {
  MOEJIT_CACHE_NETWORK_DEFAULT = 0,  // as the environment variable says, else only read
  MOEJIT_CACHE_NETWORK_READ = 1,
  MOEJIT_CACHE_NETWORK_WRITE = 2
} moejit_cache_network;

typedef struct moejit_engine_options {
  size_t struct_size;
  const char* cache_dir;  // folder of the kernel cache; NULL or "": the default one (docs/cache.md)
  // Gets warnings, each once, as one sentence, from any thread that prepares a layer. Must not
  // throw. NULL: warnings are dropped.
  void (*warn)(void* warn_context, const char* text);
  void* warn_context;
  int32_t memory_only;  // not 0: nothing is read from or written to disk
  int32_t frozen;       // not 0: a kernel that no cache holds is MOEJIT_ERROR_CACHE_MISS
  // Packs to take kernels from if the folder has none, separated by ':' (docs/cache.md); NULL: as
  // MOEJIT_PACKS says; "": none. A pack that cannot be used is an error.
  const char* packs;
  // Key ring whose signatures packs need: a file or folder of public keys; NULL or "": as
  // MOEJIT_PACK_KEYS says. If that is not set, packs need the right owner and mode instead.
  const char* pack_keys;
  // If a field below is 0 or NULL, the environment variable named behind it decides. If the
  // variable is not set, docs/environment.md has the default.
  int64_t cache_max_bytes;  // of all kernels in the folder; INT64_MAX: any (MOEJIT_CACHE_MAX_BYTES)
  int64_t cache_max_files;  // kernels in the folder; INT64_MAX: any number (MOEJIT_CACHE_MAX_FILES)
  const char* run_dir;      // of lock files, an absolute path (MOEJIT_RUN_DIR)
  const char* compile_worker;  // path of the program moejit, which runs NVRTC
                               // (MOEJIT_COMPILE_WORKER)
  const char* reproducer_dir;  // gets what reproduces a failed compile (MOEJIT_REPRODUCER_DIR)
  int64_t lock_patience_ms;    // to wait for another process that compiles the same kernel; less
                               // than 0: not at all (MOEJIT_LOCK_SECONDS)
  int32_t cache_network;       // a moejit_cache_network (MOEJIT_CACHE_NETWORK)
  int32_t compile_jobs;        // most kernels compiled at a time (MOEJIT_COMPILE_JOBS)
} moejit_engine_options;

// Creates an engine. `options` may be NULL.
MOEJIT_API moejit_error_code moejit_engine_create(const moejit_engine_options* options,
                                                  moejit_engine** engine);
MOEJIT_API void moejit_engine_destroy(moejit_engine* engine);

// Returns the engine that all bindings in this process share, so that each kernel is made once. The
// first call creates it; `options`, which may be NULL, count in that call alone. It lives until the
// process ends: do not destroy it. Any thread may call. Errors: as moejit_engine_create().
MOEJIT_API moejit_error_code moejit_engine_shared(const moejit_engine_options* options,
                                                  moejit_engine** engine);

typedef struct moejit_engine_info {
  size_t struct_size;
  const char* cache;         // folder in use, or "memory only: ..."; valid as long as the engine
  int64_t compiled;          // kernels that a compiler made
  int64_t from_cache;        // kernels that the cache folder served
  int64_t from_memory;       // kernels that the engine already held
  int64_t corrupt;           // entries of folder and packs that failed verification
  int64_t unpublished;       // compiled kernels that no folder has, unless no cache is used
  int64_t from_packs;        // kernels that a pack served
  int64_t nondeterministic;  // compiles whose bytes differ from the cache's
} moejit_engine_info;
MOEJIT_API moejit_error_code moejit_engine_get_info(const moejit_engine* engine,
                                                    moejit_engine_info* info);

// ---------------------------------------------------------------------------------------------
// Plans: of a layer, of one rank of a layer that a group shares, or of a single operation. They are
// made of a description, and later prepared for a device or a group.

typedef struct moejit_plan moejit_plan;

// What a plan is of.
typedef enum moejit_kind {
  MOEJIT_KIND_ANY = 0,  // as an option: a layer of one rank, or an operation
  MOEJIT_KIND_LAYER = 1,
  MOEJIT_KIND_OPERATION = 2,   // docs/operations-api.md
  MOEJIT_KIND_GROUP_LAYER = 3  // docs/expert-parallelism.md, <moejit/moejit_group.h>
} moejit_kind;

typedef struct moejit_plan_options {
  size_t struct_size;
  const char* source_name;     // what errors call the description; NULL: "layer" or "operation"
  int32_t keep_intermediates;  // not 0: a layer's intermediates stay readable after a call
  int32_t measure_gemms;  // not 0: grouped GEMMs tell how long they ran, in outputs of their own
  const char* tuning;  // tuning records, separated by ':'; NULL: as MOEJIT_TUNING says; "": none.
                       // All ranks of a group need the same
  int64_t kind;        // a moejit_kind that the description has to be of
  int64_t rank;        // of a group's layer: whose plan this is
  int64_t timeout_ms;  // of a group's layer: of each wait for a peer; 0: 10000
} moejit_plan_options;

// Parses a description (docs/layer-description.md, docs/operations-api.md) of `json_bytes` bytes
// and plans it for a target: moejit_device_info::target, or one whose device is elsewhere. It needs
// no device. `options` may be NULL. Errors that name the place in the description:
// MOEJIT_ERROR_INVALID_JSON, _UNKNOWN_KEY, _MISSING_KEY, _WRONG_TYPE, _INVALID_VALUE. A description
// beyond 1 MiB is _INVALID_VALUE. The description is _UNSUPPORTED if the target cannot run it, or
// if the options want another kind. Tuning records have the same errors, _FILE_NOT_FOUND and
// _FILE_READ; records of two GPUs are _INVALID_VALUE.
MOEJIT_API moejit_error_code moejit_plan_create(const char* json, size_t json_bytes,
                                                const char* target,
                                                const moejit_plan_options* options,
                                                moejit_plan** plan);
MOEJIT_API void moejit_plan_destroy(moejit_plan* plan);

typedef struct moejit_plan_info {
  size_t struct_size;
  const char* name;    // the layer's, or "quantize", ...; valid as long as the plan, as all texts
  const char* target;  // "cuda:sm_90a", "sim"
  size_t tensor_count;
  size_t kernel_count;
  int64_t max_tokens;       // largest T of a call; of operations without T, the largest P or C
  int64_t workspace_bytes;  // that a call over max_tokens needs
  int64_t saved_bytes;      // that such a forward call leaves for backward; 0 without backward
  int64_t quantized_weight_bytes;  // of all tensors with MOEJIT_ROLE_QUANTIZED
  int32_t has_backward;
  int32_t is_prepared;
  // The saved block of a call over T tokens has saved_fixed_bytes + T * saved_bytes_per_token
  // bytes, but at most saved_bytes.
  int64_t saved_fixed_bytes;
  int64_t saved_bytes_per_token;
  // 32 hexadecimal digits over everything that decides the layout of blocks and tensors, and the
  // kernels. Plans with equal digests accept each other's saved blocks and quantized weights. The
  // digest is the same in all processes, on all machines and for all ranks of a group. The layer's
  // name is no part of it.
  const char* plan_digest;
  // Bytes that the data half of a backward call leaves for the weights half; 0 without halves. The
  // bytes of a call follow from T in the same way as the saved bytes.
  int64_t deferred_bytes;
  int64_t deferred_fixed_bytes;
  int64_t deferred_bytes_per_token;
  int64_t kind;  // a moejit_kind, never MOEJIT_KIND_ANY
  size_t call_count;
  const char* identity;  // of a group's layer: what all ranks have to agree on, a line "name=value"
                         // for each field; else NULL
  int64_t ranks;         // of a group's layer, like the next two fields; else 0
  int64_t rank;          // this rank
  int64_t memory_bytes;  // that each rank gives to the group
  int64_t quantized_rowwise_bytes;  // of block 0 and block 1 of quantized weights
  int64_t quantized_colwise_bytes;  // (moejit_tensor_info::quantized_block)
} moejit_plan_info;
MOEJIT_API moejit_error_code moejit_plan_get_info(const moejit_plan* plan, moejit_plan_info* info);

// Least bytes of the blocks of a call. They never fall as T grows. For max_tokens they equal the
// bytes in moejit_plan_info.
typedef struct moejit_plan_sizes {
  size_t struct_size;
  int64_t workspace_bytes;
  int64_t saved_bytes;     // 0 without backward
  int64_t deferred_bytes;  // 0 without halves
} moejit_plan_sizes;

// Tells the sizes of a call over `tokens` tokens. Where tensors have no T, `tokens` counts rows or
// columns. Needs no device. MOEJIT_ERROR_INVALID_VALUE: tokens less than 0, or more than
// max_tokens.
MOEJIT_API moejit_error_code moejit_plan_get_sizes(const moejit_plan* plan, int64_t tokens,
                                                   moejit_plan_sizes* sizes);

// Return the description with every field; the plan for tools; and the plan for people (with the
// reasons if `explain` is not 0). The texts are valid as long as the plan.
MOEJIT_API moejit_error_code moejit_plan_get_description(const moejit_plan* plan,
                                                         const char** json);
MOEJIT_API moejit_error_code moejit_plan_get_json(const moejit_plan* plan, const char** json);
MOEJIT_API moejit_error_code moejit_plan_get_text(const moejit_plan* plan, int32_t explain,
                                                  const char** text);

// The owner of a tensor's memory, which decides how long it lives (docs/embedding.md).
typedef enum moejit_role {
  MOEJIT_ROLE_INPUT = 0,
  MOEJIT_ROLE_WEIGHT = 1,
  MOEJIT_ROLE_QUANTIZED = 2,
  MOEJIT_ROLE_OUTPUT = 3,
  MOEJIT_ROLE_SAVED = 4,       // a slice of moejit_call::saved
  MOEJIT_ROLE_WORKSPACE = 5,   // a slice of moejit_call::workspace
  MOEJIT_ROLE_DEFERRED = 6,    // a slice of moejit_call::deferred
  MOEJIT_ROLE_DISPATCHED = 7,  // rows that the host moves between ranks
  MOEJIT_ROLE_STATE = 8,       // kept from step to step: moejit_layer_update_scales()
  MOEJIT_ROLE_GROUP = 9        // in the memory that a rank gives to its group
} moejit_role;

typedef struct moejit_tensor_info {
  size_t struct_size;
  const char* name;            // valid as long as the plan, as the other pointers
  const char* dtype_name;      // "BF16", "F8_E4M3", ...
  const int64_t* shape;        // bounds of the dimensions, row-major
  const char* const* symbols;  // their names in docs/glossary.md. In a call, a dimension "T" of a
                               // caller's tensor may be smaller. For operations so may "P", "C" and
                               // "C/128". All others have exactly this size
  int64_t bytes;               // with every dimension at its bound
  int64_t offset;              // in the call's block at max_tokens, or in the memory of a group;
                               // -1: it is the caller's
  DLDataType dtype;            // float8 as DLPack 1.1 counts it, also with older headers
  int32_t ndim;
  moejit_role role;
  uint32_t is_optional;              // 1: a call may leave it out
  uint32_t is_optional_in_backward;  // 1: backward calls may leave it out, the others may not
  uint32_t is_updated;  // 1: calls read what this output holds: bits are or-ed in, values added
  float first_value;    // of role MOEJIT_ROLE_STATE: of all elements, before the first step
  // The first and the last kernel that touch it, over all calls, in the order of
  // moejit_plan_get_text(); -1: none does. An input and an output may share memory if the input's
  // last kernel comes before the output's first.
  int32_t first_use;
  int32_t last_use;
  // The place of a tensor of role MOEJIT_ROLE_QUANTIZED, for hosts that keep quantized weights as
  // two blocks of bytes; -1 for other tensors. Block 0 has what forward reads, and the digest of
  // update_weights. Block 1 has what only backward reads. moejit_plan_info has their sizes.
  int64_t quantized_block;
  int64_t quantized_offset;  // of its first byte, a multiple of 256
} moejit_tensor_info;

// Tell about a tensor of the plan, by its index, below tensor_count, or by its name.
// MOEJIT_ERROR_MISSING_TENSOR: no tensor has the name.
MOEJIT_API moejit_error_code moejit_plan_get_tensor(const moejit_plan* plan, size_t index,
                                                    moejit_tensor_info* info);
MOEJIT_API moejit_error_code moejit_plan_find_tensor(const moejit_plan* plan, const char* name,
                                                     moejit_tensor_info* info);

// The place and size of a tensor in a call over so many tokens.
typedef struct moejit_tensor_place {
  size_t struct_size;
  int64_t offset;    // in `saved`, `workspace` or `deferred`, a multiple of 256; -1: the caller's
  int64_t bytes;     // of the shape
  int64_t shape[4];  // of the tensor's ndim dimensions; then 0
} moejit_tensor_place;

// Tells the place of a tensor, by its index, in a call over `tokens` tokens. Where tensors have no
// T, `tokens` counts rows or columns. P and C are the most that such a call may need.
// MOEJIT_ERROR_INVALID_VALUE: no such tensor; tokens less than 0, or more than max_tokens.
MOEJIT_API moejit_error_code moejit_plan_get_tensor_place(const moejit_plan* plan, size_t index,
                                                          int64_t tokens,
                                                          moejit_tensor_place* place);

// What a call does with a tensor or a block. A block that a call writes may hold anything before.
enum { MOEJIT_ACCESS_NONE = 0, MOEJIT_ACCESS_READ = 1, MOEJIT_ACCESS_WRITE = 2 };

// A tensor that the caller gives to a call.
typedef struct moejit_call_tensor {
  size_t index;           // below tensor_count
  uint32_t access;        // MOEJIT_ACCESS_..., or-ed
  int32_t is_optional;    // 1: the call may leave it out
  int32_t is_shape_only;  // 1: it only tells T; its data may be NULL, or freed
  int32_t padding;        // 0
} moejit_call_tensor;

// A call of the plan. All pointers are valid as long as the plan.
typedef struct moejit_call_info {
  size_t struct_size;
  const char* name;                   // "forward", "backward+add", "run", ...
  const moejit_call_tensor* tensors;  // in the order of the plan
  size_t tensor_count;
  size_t kernel_count;  // kernels that the call launches; 0: it does nothing
  uint32_t workspace;   // MOEJIT_ACCESS_..., of each block
  uint32_t saved;
  uint32_t deferred;
  int32_t adds;             // 1: it adds to the gradients of weights and biases; 0: overwrites them
  int32_t is_of_all_ranks;  // 1: all ranks of a group make it together
  int32_t padding;          // 0
  int64_t workspace_bytes;  // of the workspace that the call needs over max_tokens, and not more
                            // over fewer tokens; of moejit_plan_sizes the lesser one suffices
} moejit_call_info;

// Tells about a call of the plan, by its index, below call_count. MOEJIT_ERROR_INVALID_VALUE: no
// such call.
MOEJIT_API moejit_error_code moejit_plan_get_call(const moejit_plan* plan, size_t index,
                                                  moejit_call_info* info);

// Compiles the plan's kernels, or fetches them from the engine's cache, and loads them. Call it
// once per plan; if it fails it may be tried again. The engine is not needed afterwards. Errors of
// the compiler: MOEJIT_ERROR_COMPILER_MISSING, _COMPILE_FAILED, _COMPILER_FAULT. Errors of the
// cache: _CACHE_MISS, _CACHE_UNUSABLE. Errors of the device: _DRIVER, _OUT_OF_MEMORY,
// _STREAM_CAPTURE. _UNSUPPORTED: the plan is for another target, or for a group.
MOEJIT_API moejit_error_code moejit_plan_prepare(moejit_plan* plan, moejit_engine* engine,
                                                 moejit_device* device);

#ifdef __cplusplus
}
#endif

#include "moejit_calls.h"

// NOLINTEND
