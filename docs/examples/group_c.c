// SPDX-License-Identifier: Apache-2.0
// A layer whose experts two processes share, each on a GPU of its own.
//   group_c LAYER.json            starts a process for each rank, and waits for them
//   group_c LAYER.json RANK PATH  is one of them, and meets the others at PATH: start all by hand
// docs/expert-parallelism.md explains it; LAYER.json is docs/examples/layers/tiny-ep2.json or
// alike.
#define _POSIX_C_SOURCE 200809L
#include <dlpack/dlpack.h>
#include <math.h>
#include <moejit/moejit_group.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

enum { kTokens = 8, kMostTensors = 64, kMostDims = 4, kMostRanks = 8, kMostJson = 65536 };

// Every call of moejit goes through here: a code, and a sentence that says what is wrong.
static void check(moejit_error_code code) {
  if (code == MOEJIT_OK) return;
  const moejit_error* error = moejit_last_error();
  fprintf(stderr, "%s error [%s]: %s\n", error->stage, moejit_error_code_name(code),
          error->message);
  if (error->hint[0] != '\0') fprintf(stderr, "hint: %s\n", error->hint);
  exit(EXIT_FAILURE);
}

static void fail(const char* sentence) {
  fprintf(stderr, "%s\n", sentence);
  exit(EXIT_FAILURE);
}

static size_t read_file(const char* path, char* text) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) fail("cannot open the layer's description");
  const size_t bytes = fread(text, 1, kMostJson, file);
  fclose(file);
  return bytes;
}

// One rank: its layer, and the tensors of its calls in device memory.
typedef struct rank_of_layer {
  moejit_device* device;
  moejit_plan* layer;
  moejit_plan_info info;
  size_t count;
  moejit_tensor named[kMostTensors];
  DLTensor tensors[kMostTensors];
  int64_t shapes[kMostTensors][kMostDims];
  moejit_call call;
} rank_of_layer;

static int64_t elements_of(const DLTensor* tensor) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) elements *= tensor->shape[d];
  return elements;
}

// Tensors of a call over kTokens tokens, full of zeros, and its blocks.
static void allocate(rank_of_layer* rank) {
  moejit_device_info place = {.struct_size = sizeof(place)};
  check(moejit_device_get_info(rank->device, &place));
  for (size_t i = 0; i < rank->info.tensor_count; ++i) {
    moejit_tensor_info tensor = {.struct_size = sizeof(tensor)};
    check(moejit_plan_get_tensor(rank->layer, i, &tensor));
    if (tensor.is_optional || tensor.offset >= 0)
      continue; /* or it lies in a block, or in the group */
    if (rank->count == kMostTensors || tensor.ndim > kMostDims) fail("too many tensors");
    const size_t slot = rank->count++;
    for (int32_t d = 0; d < tensor.ndim; ++d)
      rank->shapes[slot][d] = strcmp(tensor.symbols[d], "T") == 0 ? kTokens : tensor.shape[d];
    void* data = NULL;
    check(moejit_device_allocate(rank->device, tensor.bytes, &data));
    check(moejit_device_fill(rank->device, data, 0, tensor.bytes, NULL));
    rank->tensors[slot] = (DLTensor){.data = data,
                                     .device = place.dl_device,
                                     .ndim = tensor.ndim,
                                     .dtype = tensor.dtype,
                                     .shape = rank->shapes[slot]};
    rank->named[slot] = (moejit_tensor){.name = tensor.name, .tensor = &rank->tensors[slot]};
  }
  rank->call = (moejit_call){.struct_size = sizeof(rank->call),
                             .tensors = rank->named,
                             .tensor_count = rank->count,
                             .workspace_bytes = rank->info.workspace_bytes,
                             .saved_bytes = rank->info.saved_bytes};
  check(moejit_device_allocate(rank->device, rank->call.workspace_bytes, &rank->call.workspace));
  check(moejit_device_allocate(rank->device, rank->call.saved_bytes, &rank->call.saved));
}

static DLTensor* tensor_of(rank_of_layer* rank, const char* name) {
  for (size_t i = 0; i < rank->count; ++i)
    if (strcmp(rank->named[i].name, name) == 0) return &rank->tensors[i];
  fprintf(stderr, "the layer has no tensor %s\n", name);
  exit(EXIT_FAILURE);
}

// Writes equal elements of `bytes` bytes each.
static void set_all(rank_of_layer* rank, const char* name, const void* element, size_t bytes) {
  DLTensor* tensor = tensor_of(rank, name);
  const size_t count = (size_t)elements_of(tensor);
  char* values = malloc(bytes * count);
  if (values == NULL) fail("no memory");
  for (size_t i = 0; i < count; ++i) memcpy(values + bytes * i, element, bytes);
  check(moejit_device_copy_to_device(rank->device, tensor->data, values, (int64_t)(bytes * count)));
  free(values);
}

// bf16 of a number whose bits behind the first 16 are 0.
static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)(bits >> 16);
}

// Every token and weight is alike, so that results can be worked out by hand. With gate = up = 1
// each expert makes y = silu(1) of a token, of which it has 1/K. A token's experts are spread over
// all ranks, another choice for each token.
static void set_inputs(rank_of_layer* rank) {
  const DLTensor *w1 = tensor_of(rank, "w1"), *w2 = tensor_of(rank, "w2");
  DLTensor* ids = tensor_of(rank, "topk_ids");
  const int64_t top_k = ids->shape[1], experts = w1->shape[0] * rank->info.ranks;
  const uint16_t one = to_bf16(1.0F), first = to_bf16(1.0F / (float)w1->shape[2]),
                 second = to_bf16(1.0F / (float)w2->shape[2]);
  const float part = 1.0F / (float)top_k;
  set_all(rank, "x", &one, sizeof(one));
  set_all(rank, "w1", &first, sizeof(first));
  set_all(rank, "w2", &second, sizeof(second));
  set_all(rank, "topk_probs", &part, sizeof(part));
  if (ids->dtype.bits != 32) fail("wanted a layer with ids of 32 bits");
  int32_t* values = malloc((size_t)(kTokens * top_k) * sizeof(int32_t));
  if (values == NULL) fail("no memory");
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t k = 0; k < top_k; ++k)
      values[t * top_k + k] = (int32_t)((t + rank->info.rank + k * experts / top_k) % experts);
  check(moejit_device_copy_to_device(rank->device, ids->data, values,
                                     kTokens * top_k * (int64_t)sizeof(int32_t)));
  free(values);
}

// e4m3 keeps 3 bits behind the leading one: an element is off by at most 1/16.
static void check_results(rank_of_layer* rank) {
  DLTensor* y = tensor_of(rank, "y");
  const int64_t count = elements_of(y);
  uint16_t* values = malloc((size_t)count * sizeof(uint16_t));
  if (values == NULL) fail("no memory");
  check(moejit_device_copy_to_host(rank->device, values, y->data, 2 * count));
  const double wanted = 1.0 / (1.0 + exp(-1.0));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t wide = (uint32_t)values[i] << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    if (!(fabs(value - wanted) <= 0.07 * wanted)) {
      fprintf(stderr, "element %d of y is %f, wanted %f\n", (int)i, (double)value, wanted);
      exit(EXIT_FAILURE);
    }
  }
  printf("rank %d of %d: %d tokens forward, y is %.2f +- 7 %%\n", (int)rank->info.rank,
         (int)rank->info.ranks, (int)kTokens, wanted);
  free(values);
}

static void run_rank(const char* json, size_t json_bytes, int32_t number, const char* path) {
  static rank_of_layer rank = {.info = {.struct_size = sizeof(rank.info)}};
  moejit_engine* engine = NULL;
  moejit_group* group = NULL;
  moejit_rendezvous_place place = {
      .struct_size = sizeof(place), .path = path, .deadline_ms = 20000};
  check(moejit_device_open_cuda(number, &rank.device));
  check(moejit_engine_create(NULL, &engine));
  // One rank may have compiled the kernels while others still do.
  const moejit_plan_options options = {.struct_size = sizeof(options), .timeout_ms = 120000};
  check(moejit_group_layer_create(json, json_bytes, "cuda", number, &options, &rank.layer));
  check(moejit_plan_get_info(rank.layer, &rank.info));
  check(moejit_group_open(rank.layer, rank.device, &place, &group));  // all ranks are there now
  check(moejit_plan_prepare_in_group(rank.layer, engine, group));
  allocate(&rank);
  set_inputs(&rank);

  check(moejit_layer_update_weights(rank.layer, &rank.call));
  check(moejit_layer_forward(rank.layer, &rank.call));
  uint32_t status = 0;
  check(moejit_group_status(group, &status));
  if (status != 0) {
    fprintf(stderr, "rank %d: status %u\n", (int)number, (unsigned)status);
    exit(EXIT_FAILURE);
  }
  check_results(&rank);

  for (size_t i = 0; i < rank.count; ++i)
    check(moejit_device_release(rank.device, rank.tensors[i].data));
  check(moejit_device_release(rank.device, rank.call.workspace));
  check(moejit_device_release(rank.device, rank.call.saved));
  moejit_plan_destroy(rank.layer);
  moejit_group_destroy(group);
  moejit_engine_destroy(engine);
  moejit_device_destroy(rank.device);
}

// Starts a program for each rank. This process has not used CUDA, and never does.
static int start_ranks(char* program, char* file, int32_t ranks) {
  char folder[] = "/tmp/group_c-XXXXXX", path[64], number[16];
  pid_t processes[kMostRanks];
  int failures = 0;
  if (mkdtemp(folder) == NULL) fail("cannot make a folder in /tmp");
  snprintf(path, sizeof(path), "%s/group", folder);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    snprintf(number, sizeof(number), "%d", (int)rank);
    char* arguments[] = {program, file, number, path, NULL};
    if (posix_spawn(&processes[rank], "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
      processes[rank] = -1;
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int status = 1;
    if (processes[rank] < 0 || waitpid(processes[rank], &status, 0) < 0 || status != 0) ++failures;
  }
  rmdir(folder);
  if (failures == 0) printf("%d ranks ran with moejit %s\n", (int)ranks, moejit_version());
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char** argv) {
  static char json[kMostJson];
  if (argc != 2 && argc != 4) fail("usage: group_c LAYER.json [RANK PATH]");
  const size_t json_bytes = read_file(argv[1], json);
  if (argc == 4) {
    run_rank(json, json_bytes, (int32_t)strtol(argv[2], NULL, 10), argv[3]);
    return EXIT_SUCCESS;
  }
  moejit_plan* layer = NULL;
  moejit_plan_info info = {.struct_size = sizeof(info)};
  check(moejit_group_layer_create(json, json_bytes, "cuda", 0, NULL, &layer));
  check(moejit_plan_get_info(layer, &info));
  const int32_t ranks = (int32_t)info.ranks;
  moejit_plan_destroy(layer);
  return start_ranks(argv[0], argv[1], ranks);
}
