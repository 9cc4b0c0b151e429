// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/chains/cast_transpose_runner.h"

#include "compiler/launch.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/multi_cast_transpose_params.h"
#include "tests/kernels/chains/special_values.h"

#include <algorithm>
#include <cmath>

namespace moejit::testing {
namespace {

using compiler::DType;
using device::CastTransposeTensor;
using reference::bf16_from_float;
using reference::CastTransposed;

constexpr int64_t kLeastGap = 64;  // bytes, at least, between two outputs

// Of several sizes.
std::vector<float> random_values(int64_t count, DType input, uint64_t seed) {
  const reference::RandomStream random(seed, 1);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const auto value = static_cast<float>(
        std::ldexp(random.normal(at), 6 - static_cast<int>(random.below(~at, 20))));
    values.push_back(exact(value, input));
  }
  return values;
}

// Places of a list's outputs in the memory for all of them.
struct Arena {
  struct Place {
    int64_t output = 0, colwise = 0;
  };
  std::vector<Place> of;
  int64_t bytes = 0;
};

Arena lay_out(const CastList& list) {
  Arena arena;
  const auto take = [&](int64_t bytes, int64_t shift) {
    const int64_t at = (arena.bytes + kLeastGap + 15) / 16 * 16 + shift;
    arena.bytes = at + bytes;
    return at;
  };
  for (const CastTensor& tensor : list) {
    const int64_t bytes = tensor.rows * tensor.columns;
    const int64_t output = take(bytes, tensor.output_shift);
    arena.of.push_back({.output = output, .colwise = take(bytes, tensor.colwise_shift)});
  }
  arena.bytes += kLeastGap;
  return arena;
}

// What the tensors of a list share. Element i + 1 of `amax` and `scale_inv` is tensor i's.
struct Memory {
  DeviceBuffer arena, amax, scale_inv, scale;
};

CastTransposeTensor record_of(const CastTensor& tensor, size_t i, const uint8_t* values,
                              const Arena::Place& place, const Memory& memory) {
  const bool is_empty = tensor.values.empty();
  return {.input = is_empty ? nullptr : values,
          .output = is_empty ? nullptr : memory.arena.as<uint8_t>() + place.output,
          .output_colwise = is_empty ? nullptr : memory.arena.as<uint8_t>() + place.colwise,
          .scale = tensor.scale ? memory.scale.as<const float>() + i : nullptr,
          .amax = tensor.has_reports ? memory.amax.as<float>() + 1 + i : nullptr,
          .scale_inv = tensor.has_reports ? memory.scale_inv.as<float>() + 1 + i : nullptr,
          .rows = tensor.rows,
          .columns = tensor.columns};
}

CastOutputs outputs_in(const Memory& memory, const CastList& list, const Arena& places) {
  const auto count = static_cast<int64_t>(list.size());
  for (const DeviceBuffer* reports : {&memory.amax, &memory.scale_inv}) {
    EXPECT_TRUE(untouched_from(reports->download<float>(0, 1), 0));
    EXPECT_TRUE(untouched_from(reports->download<float>(), count + 1));
  }
  CastOutputs outputs{.tensors = {}, .arena = memory.arena.download<uint8_t>()};
  for (int64_t i = 0; i < count; ++i) {
    const CastTensor& tensor = list[static_cast<size_t>(i)];
    const Arena::Place& place = places.of[static_cast<size_t>(i)];
    const int64_t bytes = tensor.rows * tensor.columns;
    outputs.tensors.push_back({.bytes = memory.arena.download<uint8_t>(place.output, bytes),
                               .colwise = memory.arena.download<uint8_t>(place.colwise, bytes),
                               .amax = memory.amax.download<float>(i + 1, 1)[0],
                               .scale_inv = memory.scale_inv.download<float>(i + 1, 1)[0]});
  }
  return outputs;
}

}  // namespace

float exact(float value, DType input) {
  return input == DType::kBF16 ? reference::float_from_bf16(bf16_from_float(value)) : value;
}

CastTensor random_cast_tensor(int64_t rows, int64_t columns, DType input, uint64_t seed) {
  const reference::RandomStream random(seed, 2);
  return {.rows = rows,
          .columns = columns,
          .values = random_values(rows * columns, input, seed),
          .scale = static_cast<float>(
              std::ldexp(1.0 + random.uniform(0), 3 - static_cast<int>(random.below(1, 5))))};
}

DeviceBuffer MultiCastTransposeKernel::upload_values(const CastTensor& tensor, DType input_type) {
  const auto shift = static_cast<size_t>(tensor.input_shift);
  if (input_type == DType::kF32) {
    std::vector<float> values(shift, kNan);
    values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    return input("x", values);
  }
  std::vector<uint16_t> values(shift, 0x7fff);
  for (const float value : tensor.values) values.push_back(bf16_from_float(value));
  return input("x", values);
}

CastOutputs MultiCastTransposeKernel::cast(const CastList& list, const CastLaunch& launch) {
  const auto count = static_cast<int64_t>(list.size());
  const Arena places = lay_out(list);
  std::vector<float> scales, old_amax;
  for (const CastTensor& tensor : list) {
    scales.push_back(tensor.scale.value_or(kNan));
    old_amax.push_back(tensor.old_amax);
  }
  const Memory memory{.arena = output<uint8_t>("outputs", places.bytes),
                      .amax = output<float>("amax", count + 2),
                      .scale_inv = output<float>("scale_inv", count + 2),
                      .scale = input("scale", scales)};
  memory.amax.upload(1, old_amax);

  std::vector<DeviceBuffer> inputs;
  std::vector<CastTransposeTensor> records;
  std::vector<compiler::MatrixSize> sizes;
  for (size_t i = 0; i < list.size(); ++i) {
    inputs.push_back(upload_values(list[i], launch.formats.input));
    const int64_t shift = compiler::size_bytes(launch.formats.input) * list[i].input_shift;
    records.push_back(
        record_of(list[i], i, inputs.back().as<const uint8_t>() + shift, places.of[i], memory));
    sizes.push_back({list[i].rows, list[i].columns});
  }
  const DeviceBuffer tensors = input("tensors", records);
  const DeviceBuffer tile_ends = input("tile_ends", compiler::cast_transpose_tile_ends(sizes));
  const DeviceBuffer skip = input("skip", launch.skip);
  const device::MultiCastTransposeParams params{
      .tensors = tensors.as<const CastTransposeTensor>(),
      .tile_ends = tile_ends.as<const int64_t>(),
      .skip = launch.skip.empty() ? nullptr : skip.as<const uint32_t>(),
      .count = count};
  std::vector<const DeviceBuffer*> buffers = {
      &memory.arena, &memory.amax, &memory.scale_inv, &memory.scale, &skip, &tensors, &tile_ends};
  for (const DeviceBuffer& buffer : inputs) buffers.push_back(&buffer);
  run(compiler::MultiCastTransposeSpec{.input = launch.formats.input,
                                       .output = launch.formats.output},
      launch.ctas, params, buffers);
  return outputs_in(memory, list, places);
}

void MultiCastTransposeKernel::expect_equal(const CastList& list, const CastLaunch& launch) {
  const CastOutputs got = cast(list, launch);
  float untouched = 0.0f;
  std::memset(&untouched, kUntouched, sizeof(untouched));
  const Arena places = lay_out(list);
  std::vector<uint8_t> arena(static_cast<size_t>(places.bytes), kUntouched);
  for (size_t i = 0; i < list.size(); ++i) {
    const CastTensor& tensor = list[i];
    SCOPED_TRACE(::testing::Message()
                 << "tensor " << i << " [" << tensor.rows << ", " << tensor.columns << "]");
    const CastTransposed wanted = reference::cast_transpose(
        tensor.values, tensor.rows, tensor.columns, tensor.scale.value_or(1.0f),
        launch.formats.output == DType::kF8E4M3 ? reference::Fp8Format::kE4m3
                                                : reference::Fp8Format::kE5m2);
    const CastOutputs::Tensor& of = got.tensors[i];
    EXPECT_TRUE(matches(compare_e4m3({"q", tensor.columns}, of.bytes, wanted.bytes)));
    EXPECT_TRUE(matches(compare_e4m3({"colwise_q", tensor.rows}, of.colwise, wanted.colwise)));
    const bool has_reports = tensor.has_reports && !tensor.values.empty();
    EXPECT_EQ(of.amax, has_reports ? std::max(tensor.old_amax, wanted.amax) : tensor.old_amax);
    EXPECT_TRUE(matches(compare_f32({"scale_inv"}, std::vector{of.scale_inv},
                                    std::vector{has_reports ? wanted.scale_inv : untouched})));
    std::ranges::copy(wanted.bytes, arena.begin() + places.of[i].output);
    std::ranges::copy(wanted.colwise, arena.begin() + places.of[i].colwise);
  }
  EXPECT_TRUE(got.arena == arena) << "something was written between the outputs";
}

}  // namespace moejit::testing
