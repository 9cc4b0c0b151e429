// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/tile_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/layer_inputs.h"

namespace moejit::testing {
namespace {

using device::Bf16;
using device::E4m3;
using reference::block_count;

struct WeightsShape {
  int64_t matrices = 1;
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t sharing = 1;
  bool is_interleaved = false;  // of two sections, in the kernel's input

  int64_t rows() const { return int64_t{sections} * section_rows; }
  int64_t elements() const { return matrices * rows() * columns; }
  // Of a section in a transposed row; of several, each is filled up.
  int32_t section_columns() const {
    return sections > 1 ? static_cast<int32_t>(128 * block_count(section_rows)) : section_rows;
  }
  int64_t colwise_elements() const { return matrices * columns * sections * section_columns(); }
  int64_t scales() const {
    return matrices * sections * block_count(section_rows) * block_count(columns);
  }
};

// An output with guards around it: what lies before and behind belongs to somebody else.
template <typename T>
class GuardedOutput {
 public:
  GuardedOutput(DeviceBuffer buffer, int64_t count) : buffer_(std::move(buffer)), count_(count) {}

  static constexpr int64_t kGuard = 256 / static_cast<int64_t>(sizeof(T));  // elements

  const DeviceBuffer& buffer() const { return buffer_; }
  template <typename U>
  U* as() const {
    return reinterpret_cast<U*>(buffer_.as<T>() + kGuard);
  }
  std::vector<T> download() const { return buffer_.download<T>(kGuard, count_); }
  ::testing::AssertionResult has_whole_guards() const {
    const auto before = untouched_from(buffer_.download<T>(0, kGuard), 0);
    return before ? untouched_from(buffer_.download<T>(), kGuard + count_) : before;
  }
  ::testing::AssertionResult is_untouched() const {
    return untouched_from(buffer_.download<T>(), 0);
  }

 private:
  DeviceBuffer buffer_;
  int64_t count_;
};

class ColwiseWeightsKernel : public Chains {
 protected:
  struct Outputs {
    GuardedOutput<uint8_t> q;
    GuardedOutput<float> scale_inv;
    GuardedOutput<uint8_t> colwise_q;
    GuardedOutput<float> colwise_scale_inv;
  };

  template <typename T>
  GuardedOutput<T> guarded_output(std::string name, int64_t count) {
    return {output<T>(std::move(name), count + 2 * GuardedOutput<T>::kGuard), count};
  }

  // `skip` is empty, or the word that says whether to. With `scales`, one for each matrix, tiles
  // have none of their own.
  Outputs quantize(const std::vector<uint16_t>& weights, const WeightsShape& shape, int64_t ctas,
                   const std::vector<uint32_t>& skip = {}, const std::vector<float>& scales = {}) {
    Outputs to{.q = guarded_output<uint8_t>("w_q", shape.elements()),
               .scale_inv = guarded_output<float>("w_scale_inv", shape.scales()),
               .colwise_q = guarded_output<uint8_t>("w_colwise_q", shape.colwise_elements()),
               .colwise_scale_inv = guarded_output<float>("w_colwise_scale_inv", shape.scales())};
    const DeviceBuffer w = input(
        "w", shape.is_interleaved
                 ? reference::interleaved<uint16_t>(weights, shape.section_rows, shape.columns)
                 : weights);
    const DeviceBuffer skip_word = input("skip", skip);
    const DeviceBuffer expert_scales = input("expert_scales", scales);
    const device::TileChainParams params{
        .input = w.as<const Bf16>(),
        .output = to.q.as<E4m3>(),
        .output_scale_inv = to.scale_inv.as<float>(),
        .matrices = shape.matrices,
        .output_colwise = to.colwise_q.as<E4m3>(),
        .output_colwise_scale_inv = to.colwise_scale_inv.as<float>(),
        .skip = skip.empty() ? nullptr : skip_word.as<const uint32_t>(),
        .expert_scales = scales.empty() ? nullptr : expert_scales.as<const float>()};
    const compiler::TileChainSpec spec{.sections = shape.sections,
                                       .section_rows = shape.section_rows,
                                       .columns = shape.columns,
                                       .tiles_per_scale = shape.sharing,
                                       .writes_colwise = true,
                                       .is_interleaved = shape.is_interleaved,
                                       .has_expert_scale = !scales.empty(),
                                       .threads = 256 * shape.sharing};
    run(spec, ctas, params,
        {&w, &skip_word, &expert_scales, &to.q.buffer(), &to.scale_inv.buffer(),
         &to.colwise_q.buffer(), &to.colwise_scale_inv.buffer()});
    return to;
  }

  // Zeros behind each section of a transposed row.
  static std::vector<uint8_t> filled_up(const std::vector<uint8_t>& sections,
                                        const WeightsShape& shape) {
    std::vector<uint8_t> all;
    for (auto section = sections.begin(); section != sections.end();
         section += shape.section_rows) {
      all.insert(all.end(), section, section + shape.section_rows);
      all.resize(all.size() + static_cast<size_t>(shape.section_columns() - shape.section_rows));
    }
    return all;
  }

  void expect_equal(const std::vector<uint16_t>& weights, const WeightsShape& shape, int64_t ctas,
                    const std::vector<uint32_t>& skip = {}) {
    const auto wanted = reference::quantize_128x128(weights, shape.matrices, shape.rows(),
                                                    shape.columns, shape.sections, shape.sharing);
    auto transposed = reference::transpose(wanted);
    if (shape.sections > 1) transposed.q = filled_up(transposed.q, shape);
    const Outputs got = quantize(weights, shape, ctas, skip);
    EXPECT_TRUE(matches(compare_e4m3({"w_q", shape.columns}, got.q.download(), wanted.q)));
    EXPECT_TRUE(matches(compare_f32({"w_scale_inv", block_count(shape.columns)},
                                    got.scale_inv.download(), wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_e4m3({"w_colwise_q", shape.sections * shape.section_columns()},
                                     got.colwise_q.download(), transposed.q)));
    EXPECT_TRUE(matches(compare_f32({"w_colwise_scale_inv", wanted.scale_rows()},
                                    got.colwise_scale_inv.download(), transposed.scale_inv)));
    EXPECT_TRUE(got.q.has_whole_guards());
    EXPECT_TRUE(got.scale_inv.has_whole_guards());
    EXPECT_TRUE(got.colwise_q.has_whole_guards());
    EXPECT_TRUE(got.colwise_scale_inv.has_whole_guards());
  }

  void expect_equal(const WeightsShape& shape, int64_t ctas) {
    SCOPED_TRACE(to_string(compiler::TileChainSpec{.sections = shape.sections,
                                                   .section_rows = shape.section_rows,
                                                   .columns = shape.columns,
                                                   .tiles_per_scale = shape.sharing}));
    expect_equal(reference::random_weights(shape.matrices, shape.rows(), shape.columns, 1), shape,
                 ctas);
  }
};

// Sections that end within a tile, and rows of a matrix that are no multiple of 128: the columns
// of the transposed matrix begin anywhere in a line.
TEST_F(ColwiseWeightsKernel, TakesSectionsAndRowsThatEndWithinATile) {
  for (const int32_t section_rows : {128, 176, 320}) {
    expect_equal({.section_rows = section_rows, .columns = 144}, 3);
    for (const int32_t columns : {128, 144, 272}) {
      expect_equal({.matrices = 3, .sections = 2, .section_rows = section_rows, .columns = columns},
                   7);
    }
  }
  expect_equal({.matrices = 3, .section_rows = 16, .columns = 16}, 2);
  expect_equal({.sections = 2, .section_rows = 2880, .columns = 80}, 5);
}

// Of several matrices, with sections of whole and of partial tiles.
TEST_F(ColwiseWeightsKernel, SortsRowsOfSectionsThatAlternate) {
  for (const int32_t section_rows : {16, 128, 176}) {
    for (const int32_t sharing : {1, 2}) {
      expect_equal({.matrices = 3,
                    .sections = 2,
                    .section_rows = section_rows,
                    .columns = 144,
                    .sharing = sharing,
                    .is_interleaved = true},
                   5);
    }
  }
}

// Odd and even numbers of tiles in a row of them.
TEST_F(ColwiseWeightsKernel, GivesPairsOfTilesTheScaleOfBoth) {
  for (const int32_t columns : {16, 128, 256, 272, 400}) {
    expect_equal(
        {.matrices = 2, .sections = 2, .section_rows = 176, .columns = columns, .sharing = 2}, 3);
  }
}

TEST_F(ColwiseWeightsKernel, GivesTheSameForAnyNumberOfCtasAndOrderOfThreads) {
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 5, 64}) {
    open(seed++);
    expect_equal({.matrices = 2, .sections = 2, .section_rows = 144, .columns = 272}, ctas);
  }
}

// One CTA takes tile after tile, through the same shared memory, and other CTAs one tile each. A
// matrix of the scale 1 has the values of its weights.
TEST_F(ColwiseWeightsKernel, TakesTheScaleOfItsMatrixForAnyNumberOfCtas) {
  const WeightsShape shape{.matrices = 2, .sections = 2, .section_rows = 144, .columns = 272};
  std::vector<uint16_t> weights =
      reference::random_weights(shape.matrices, shape.rows(), shape.columns, 1);
  const std::vector<float> scales = {1.0f, 64.0f};
  std::vector<uint8_t> wanted;
  for (size_t i = 0; i < weights.size(); ++i)
    wanted.push_back(reference::encode_fp8(
        reference::float_from_bf16(weights[i]) * scales[i / (weights.size() / 2)],
        reference::Fp8Format::kE4m3));
  uint64_t seed = 1;
  std::vector<uint8_t> transposed;
  for (const int64_t ctas : {64, 5, 1}) {
    open(seed++);
    const Outputs got = quantize(weights, shape, ctas, {}, scales);
    EXPECT_TRUE(matches(compare_e4m3({"w_q", shape.columns}, got.q.download(), wanted)));
    if (transposed.empty()) transposed = got.colwise_q.download();
    EXPECT_EQ(got.colwise_q.download(), transposed) << ctas << " CTAs";
    EXPECT_TRUE(got.q.has_whole_guards());
    EXPECT_TRUE(got.colwise_q.has_whole_guards());
    EXPECT_TRUE(got.scale_inv.is_untouched());
    EXPECT_TRUE(got.colwise_scale_inv.is_untouched());
  }
}

TEST_F(ColwiseWeightsKernel, EqualsTheReferenceOnSpecialValues) {
  for (const int32_t sharing : {1, 2}) {
    auto weights = reference::special_activations(288, 400, 3);
    std::fill_n(weights.begin(), 128 * 400, uint16_t{0});  // tiles of zeros: scale 1
    expect_equal(weights, {.sections = 2, .section_rows = 144, .columns = 400, .sharing = sharing},
                 3);
  }
}

TEST_F(ColwiseWeightsKernel, WritesWhereTheSkipWordIsZero) {
  const WeightsShape shape{.matrices = 2, .section_rows = 144, .columns = 144};
  expect_equal(reference::random_weights(2, 144, 144, 4), shape, 3, {0});
}

TEST_F(ColwiseWeightsKernel, WritesNothingWhereTheSkipWordIsNotZero) {
  const WeightsShape shape{.matrices = 2, .section_rows = 144, .columns = 144};
  for (const uint32_t word : {1u, 0x80000000u}) {
    const Outputs got = quantize(reference::random_weights(2, 144, 144, 4), shape, 3, {word});
    EXPECT_TRUE(got.q.is_untouched());
    EXPECT_TRUE(got.scale_inv.is_untouched());
    EXPECT_TRUE(got.colwise_q.is_untouched());
    EXPECT_TRUE(got.colwise_scale_inv.is_untouched());
  }
}

TEST_F(ColwiseWeightsKernel, TakesNoMatrices) {
  expect_equal({.matrices = 0, .sections = 2, .section_rows = 144, .columns = 272}, 2);
}

}  // namespace
}  // namespace moejit::testing
