// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface for layers whose experts a group of ranks shares: GPUs of one host
// that reach each other's memory, or of any hosts between which NCCL moves the bytes.
// docs/expert-parallelism.md explains them, <moejit/moejit.h> says what holds for all functions and
// records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// One rank's end of a group.
typedef struct moejit_group moejit_group;

// The plan of one rank's part of a layer, which moejit_plan_create() makes with
// MOEJIT_KIND_GROUP_LAYER of a description with "expert_parallel". Its tensors are those of this
// rank: its tokens, and the weights and gradients of its experts. Tensors with MOEJIT_ROLE_GROUP
// lie in the memory of the group.

// Plans rank `rank` of a group's layer: moejit_plan_create() with that kind and rank in the
// options, which may be NULL.
static inline moejit_error_code moejit_group_layer_create(const char* json, size_t json_bytes,
                                                          const char* target, int64_t rank,
                                                          const moejit_plan_options* options,
                                                          moejit_plan** layer) {
  moejit_plan_options given = {sizeof(moejit_plan_options), NULL, 0, 0, NULL, 0, 0, 0};
  if (options != NULL) given = *options;
  given.kind = MOEJIT_KIND_GROUP_LAYER;
  given.rank = rank;
  return moejit_plan_create(json, json_bytes, target, &given, layer);
}

// The memory of one rank, as this process reaches it: peer pointers of torch's symmetric memory, of
// NCCL windows, of NVSHMEM, or of another GPU of this process.
typedef struct moejit_group_member {
  void* base;     // a multiple of 256
  int64_t bytes;  // at least memory_bytes
  const char*
      identity;  // of the rank's layer; NULL in all members: the caller compares them itself
} moejit_group_member;

// Makes this rank's end of a group on a device: members[r] is the memory of rank r, which stays the
// caller's and must live until all ranks are done with it. Fills this rank's memory with zeros and
// waits for that: no rank may make a call before all have adopted. Layers whose exchanges are equal
// may share a group, and so may layers without some of its layer's passes or gradients. Errors:
// MOEJIT_ERROR_INVALID_VALUE for another number of members than ranks, and for memory that is null,
// unaligned, too small, or given twice; _TENSOR_MISMATCH, with the field and the ranks, for
// identities that differ.
MOEJIT_API moejit_error_code moejit_group_adopt(const moejit_plan* layer, moejit_device* device,
                                                const moejit_group_member* members,
                                                size_t member_count, moejit_group** group);

// Where and until when the processes of a group meet.
typedef struct moejit_rendezvous_place {
  size_t struct_size;
  const char* path;     // of a Unix socket, at most 107 bytes; nothing is there before
  int64_t deadline_ms;  // of the whole meeting; 0: 60000
} moejit_rendezvous_place;

// Makes this rank's end of a group on a GPU whose ranks are processes, with memory of its own:
// allocates this rank's, meets the others at the place, maps their memory. Returns when all ranks
// have come so far, and from then on each may make calls. Ends at the deadline, whatever the others
// do, and leaves nothing after an error. Errors, told on all ranks: MOEJIT_ERROR_INTERRUPTED names
// ranks that did not come in time, or left; _INVALID_VALUE for a path that cannot be used, two
// processes of one rank or on one GPU, another number of ranks; _TENSOR_MISMATCH, with the field
// and the ranks, for layers that differ; _FILE_WRITE if no socket can be made at the path;
// _UNSUPPORTED for GPUs that no link joins, and for the simulator; _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_open(const moejit_plan* layer, moejit_device* device,
                                               const moejit_rendezvous_place* place,
                                               moejit_group** group);
// Meets again, when a rank's process is gone and a new one opens the group in its place: the others
// reopen. Prepared layers and recorded graphs go on. Waits for the device; no rank may be in a
// call. Errors: those of moejit_group_open(), after which it may be tried again;
// MOEJIT_ERROR_INVALID_STATE for a group that was adopted.
MOEJIT_API moejit_error_code moejit_group_reopen(moejit_group* group,
                                                 const moejit_rendezvous_place* place);

// Bytes of what the ranks of a group over NCCL find each other by.
enum { MOEJIT_NCCL_ID_BYTES = 128 };
// Makes such an id. One rank does, and the caller brings its bytes to all others by means of its
// own. Opens libnccl.so.2, 2.18 or later, on first use. Errors: MOEJIT_ERROR_DRIVER_MISSING without
// it; _DRIVER in NCCL's words.
MOEJIT_API moejit_error_code moejit_nccl_make_id(uint8_t* id);

// Makes this rank's end of a group whose bytes NCCL moves, between GPUs of any hosts, of a layer
// with "transport": "nccl". `id` has MOEJIT_NCCL_ID_BYTES. Waits until all ranks have come and have
// told what their layers are, for so many milliseconds each at most (0: 60000). Devices of
// moejit_device_open_simulator_group() meet by an id too, any bytes that are those of one group
// alone: the simulator moves the bytes then, and nothing waits. Errors: MOEJIT_ERROR_INTERRUPTED
// for ranks that did not come in time; _TENSOR_MISMATCH, with the field and the ranks, for layers
// that differ; _UNSUPPORTED for a layer with another transport, and for a simulator of one GPU;
// _INVALID_VALUE for an id that a simulated rank has come with before; those of
// moejit_nccl_make_id(); _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_open_nccl(const moejit_plan* layer, moejit_device* device,
                                                    const uint8_t* id, int64_t deadline_ms,
                                                    moejit_group** group);
// Makes such a group of a communicator that the caller has: an ncclComm_t of the libnccl.so.2 that
// this process has, with the ranks of the layer, on the device's GPU. The caller makes no other
// call with it while calls of the group may be under way, and destroys it behind the group. Waits
// until all ranks have told what their layers are; a wait for a rank that is lost ends by
// ncclCommAbort() of the caller alone, which moejit_group_abort() does not call. Errors:
// MOEJIT_ERROR_INVALID_VALUE for NULL, and for a communicator of other ranks; _TENSOR_MISMATCH;
// _UNSUPPORTED as above, and for any simulator; _DRIVER_MISSING, _DRIVER; _OUT_OF_MEMORY.
MOEJIT_API moejit_error_code moejit_group_adopt_nccl(const moejit_plan* layer,
                                                     moejit_device* device, void* communicator,
                                                     moejit_group** group);
// Ends calls of a group over NCCL that wait for a rank which does not come; any thread may. What
// they computed means nothing, and further calls are MOEJIT_ERROR_INVALID_STATE: open another group
// on all ranks. Returns after 3 s at most: NCCL may still wait for recorded graphs of such calls to
// be destroyed, which it does in a thread of its own then. Does nothing to other groups.
MOEJIT_API moejit_error_code moejit_group_abort(moejit_group* group);

typedef struct moejit_group_info {
  size_t struct_size;
  int64_t ranks;
  int64_t rank;
  int64_t memory_bytes;     // of each rank, memory_bytes of the plan
  int64_t allocated_bytes;  // for this rank, in the driver's steps (2 MiB); 0 if adopted
} moejit_group_info;
MOEJIT_API moejit_error_code moejit_group_get_info(moejit_group* group, moejit_group_info* info);

// Destroys a group, and lets go of memory that it has itself; waits for the device then. Calls
// of layers that still have it are MOEJIT_ERROR_INVALID_STATE.
MOEJIT_API void moejit_group_destroy(moejit_group* group);

// Bits of the status word of a group, beside those of moejit.h: a rank was not heard of in time,
// and which; rank r has the bit MOEJIT_STATUS_FIRST_RANK << r.
enum { MOEJIT_STATUS_SILENT_RANK = 256, MOEJIT_STATUS_FIRST_RANK = 65536 };

// Returns the status word after the calls before it on the default stream; wait for other streams
// before. All ranks have the same word after a call, but for silent ranks. After a silent rank
// calls are MOEJIT_ERROR_INVALID_STATE until moejit_group_reset().
MOEJIT_API moejit_error_code moejit_group_status(moejit_group* group, uint32_t* status);
// Clears the word in the order of the stream; all ranks do so between the same two calls.
MOEJIT_API moejit_error_code moejit_group_clear_status(moejit_group* group, void* stream);
// Makes a group work again after a silent rank or a call that failed in the middle. No rank may be
// in a call, and none may make one before all are reset.
MOEJIT_API moejit_error_code moejit_group_reset(moejit_group* group);

// Compiles and loads the plan's kernels for the group's device, as moejit_plan_prepare() does.
// MOEJIT_ERROR_INVALID_VALUE: the group was adopted for another rank or another exchange;
// _UNSUPPORTED for a plan that is not of a group.
//
// All ranks make the calls that are is_of_all_ranks in the same order, each with a T of its own
// from 0 to max_tokens, on one stream or streams that wait for each other. Updates of weights and
// scales need no other rank. "topk_ids" are ids of all experts; backward takes those of its forward
// call again. Bits go to the group's word instead of a tensor "status". Errors of calls are those
// of other plans, and MOEJIT_ERROR_INVALID_STATE for backward before any forward and for a group
// that is destroyed, was left by a rank, or is in a call of another thread.
MOEJIT_API moejit_error_code moejit_plan_prepare_in_group(moejit_plan* plan, moejit_engine* engine,
                                                          moejit_group* group);

// Opens 1 to 8 simulated GPUs that reach each other's memory, and tells the memory of each, of so
// many bytes. Kernels run when somebody waits for a device: make the calls of all ranks before. The
// memory lives as long as one of the devices. `seed` decides every order.
MOEJIT_API moejit_error_code moejit_device_open_simulator_group(size_t ranks, int64_t memory_bytes,
                                                                uint64_t seed,
                                                                moejit_device** devices,
                                                                void** memory);

#ifdef __cplusplus
}
#endif

// NOLINTEND
