// SPDX-License-Identifier: Apache-2.0
// A training step of a small layer from C: forward, backward, and a look at the results.
//   embed_c [sim|cuda]
// docs/c-api.md explains it. A host framework brings its own memory and stream; this program
// borrows memory from moejit's device and uses the default stream.
#include <dlpack/dlpack.h>
#include <math.h>
#include <moejit/moejit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kTokens = 3,
  kHidden = 256,
  kIntermediate = 128,
  kTopK = 2,
  kMostTensors = 64,
  kMostDims = 4
};

static const char kDescription[] =
    "{ \"name\": \"tiny\", \"experts\": 4, \"top_k\": 2, \"hidden\": 256, \"intermediate\": 128,"
    "  \"dtype\": \"bf16\", \"recipe\": \"fp8_flow\", \"splits_alignment\": 16, \"max_tokens\": 64,"
    "  \"passes\": [\"forward\", \"backward\"] }";

// Every call of moejit goes through here: a code, and a sentence that says what is wrong.
static void check(moejit_error_code code) {
  if (code == MOEJIT_OK) return;
  const moejit_error* error = moejit_last_error();
  fprintf(stderr, "%s error [%s]: %s\n", error->stage, moejit_error_code_name(code),
          error->message);
  if (error->hint[0] != '\0') fprintf(stderr, "hint: %s\n", error->hint);
  exit(EXIT_FAILURE);
}

static void expect(const char* what, double got, double wanted, double tolerance) {
  printf("%-12s %8.4f, wanted %.4f +- %.0f %%\n", what, got, wanted, 100 * tolerance);
  if (fabs(got - wanted) > tolerance * fabs(wanted)) exit(EXIT_FAILURE);
}

// The tensors that the caller owns, in device memory.
typedef struct caller_tensors {
  size_t count;
  moejit_tensor named[kMostTensors];
  DLTensor tensors[kMostTensors];
  int64_t shapes[kMostTensors][kMostDims];
} caller_tensors;

static void allocate(moejit_device* device, const moejit_plan* layer, caller_tensors* tensors) {
  moejit_device_info place = {.struct_size = sizeof(place)};
  moejit_plan_info info = {.struct_size = sizeof(info)};
  check(moejit_device_get_info(device, &place));
  check(moejit_plan_get_info(layer, &info));
  tensors->count = 0;
  for (size_t i = 0; i < info.tensor_count; ++i) {
    moejit_tensor_info tensor = {.struct_size = sizeof(tensor)};
    check(moejit_plan_get_tensor(layer, i, &tensor));
    if (tensor.role == MOEJIT_ROLE_SAVED || tensor.role == MOEJIT_ROLE_WORKSPACE) continue;
    if (tensors->count == kMostTensors || tensor.ndim > kMostDims) exit(EXIT_FAILURE);
    const size_t slot = tensors->count++;
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      const int is_tokens = strcmp(tensor.symbols[d], "T") == 0;
      tensors->shapes[slot][d] = is_tokens ? kTokens : tensor.shape[d];
    }
    void* data = NULL;
    check(moejit_device_allocate(device, tensor.bytes, &data));
    check(moejit_device_fill(device, data, 0, tensor.bytes, NULL));
    tensors->tensors[slot] = (DLTensor){.data = data,
                                        .device = place.dl_device,
                                        .ndim = tensor.ndim,
                                        .dtype = tensor.dtype,
                                        .shape = tensors->shapes[slot]};
    tensors->named[slot] = (moejit_tensor){.name = tensor.name, .tensor = &tensors->tensors[slot]};
  }
}

static void* data_of(const caller_tensors* tensors, const char* name) {
  for (size_t i = 0; i < tensors->count; ++i)
    if (strcmp(tensors->named[i].name, name) == 0) return tensors->tensors[i].data;
  fprintf(stderr, "the layer has no tensor %s\n", name);
  exit(EXIT_FAILURE);
}

// Writes `count` equal elements of `bytes` bytes each.
static void set_all(moejit_device* device, void* data, const void* element, size_t bytes,
                    size_t count) {
  char* values = malloc(bytes * count);
  if (values == NULL) exit(EXIT_FAILURE);
  for (size_t i = 0; i < count; ++i) memcpy(values + bytes * i, element, bytes);
  check(moejit_device_copy_to_device(device, data, values, (int64_t)(bytes * count)));
  free(values);
}

// Every token and weight alike, so that results can be worked out by hand: gate = up = 1.
static void set_inputs(moejit_device* device, const caller_tensors* tensors) {
  const uint16_t one = 0x3F80, one_256th = 0x3B80, one_128th = 0x3C00;  // bf16
  const float half = 0.5F;
  const int32_t ids[kTokens][kTopK] = {{0, 1}, {2, 3}, {1, 2}};
  set_all(device, data_of(tensors, "x"), &one, 2, kTokens * kHidden);
  set_all(device, data_of(tensors, "dy"), &one, 2, kTokens * kHidden);
  set_all(device, data_of(tensors, "w1"), &one_256th, 2, 4 * 2 * kIntermediate * kHidden);
  set_all(device, data_of(tensors, "w2"), &one_128th, 2, 4 * kHidden * kIntermediate);
  set_all(device, data_of(tensors, "topk_probs"), &half, 4, kTokens * kTopK);
  check(moejit_device_copy_to_device(device, data_of(tensors, "topk_ids"), ids, sizeof(ids)));
}

static float bf16_to_float(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

// e4m3 keeps 3 bits behind the leading one: an element is off by at most 1/16, and here they are
// all off by the same.
static void check_results(moejit_device* device, const caller_tensors* tensors) {
  uint32_t status = 0;
  uint16_t y[kTokens * kHidden];
  float dprobs[kTokens * kTopK];
  check(moejit_device_synchronize(device, NULL));
  check(moejit_device_copy_to_host(device, &status, data_of(tensors, "status"), sizeof(status)));
  check(moejit_device_copy_to_host(device, y, data_of(tensors, "y"), sizeof(y)));
  check(moejit_device_copy_to_host(device, dprobs, data_of(tensors, "dprobs"), sizeof(dprobs)));
  check(moejit_status_check(status));
  const double silu = 1.0 / (1.0 + exp(-1.0));
  expect("y", bf16_to_float(y[0]), silu, 0.07);
  expect("y, last", bf16_to_float(y[kTokens * kHidden - 1]), silu, 0.07);
  expect("dprobs", dprobs[0], kHidden * silu, 0.07);
}

int main(int argc, char** argv) {
  const int is_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
  moejit_device* device = NULL;
  moejit_engine* engine = NULL;
  moejit_plan* layer = NULL;
  check(is_cuda ? moejit_device_open_cuda(MOEJIT_CURRENT_GPU, &device)
                : moejit_device_open_simulator(NULL, &device));
  check(moejit_engine_create(NULL, &engine));
  moejit_device_info place = {.struct_size = sizeof(place)};
  check(moejit_device_get_info(device, &place));
  check(moejit_plan_create(kDescription, sizeof(kDescription) - 1, place.target, NULL, &layer));
  check(moejit_plan_prepare(layer, engine, device));

  // From here on nothing is compiled, loaded or allocated by moejit.
  static caller_tensors tensors;
  moejit_plan_info info = {.struct_size = sizeof(info)};
  moejit_call call = {.struct_size = sizeof(call)};
  check(moejit_plan_get_info(layer, &info));
  allocate(device, layer, &tensors);
  call.tensors = tensors.named;
  call.tensor_count = tensors.count;
  call.workspace_bytes = info.workspace_bytes;
  call.saved_bytes = info.saved_bytes;
  check(moejit_device_allocate(device, call.workspace_bytes, &call.workspace));
  check(moejit_device_allocate(device, call.saved_bytes, &call.saved));
  set_inputs(device, &tensors);

  check(moejit_layer_update_weights(layer, &call));  // after each change of w1 and w2
  check(moejit_layer_forward(layer, &call));
  check(moejit_layer_backward(layer, MOEJIT_GRADIENT_OVERWRITE, &call));
  check_results(device, &tensors);

  check(moejit_device_release(device, call.workspace));
  check(moejit_device_release(device, call.saved));
  for (size_t i = 0; i < tensors.count; ++i)
    check(moejit_device_release(device, tensors.tensors[i].data));
  moejit_plan_destroy(layer);
  moejit_engine_destroy(engine);
  moejit_device_destroy(device);
  printf("%d tokens forward and backward with moejit %s\n", (int)kTokens, moejit_version());
  return EXIT_SUCCESS;
}
