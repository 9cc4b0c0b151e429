// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors_file.h"
#include "tests/support/matchers.h"

#include <fstream>
#include <gtest/gtest.h>

namespace moejit::checkpoint {
namespace {

using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;

TEST(Safetensors, ReadsBackWhatItWrote) {
  const testing::TestDir folder;
  const std::string path = folder / "a.safetensors";
  const TensorMap written = {{"b", make_tensor<uint8_t>(DType::kU8, {3}, {1, 2, 3})},
                             {"a", make_tensor<float>(DType::kF32, {1, 2}, {0.5F, -2.0F})},
                             {"empty", {DType::kBF16, {0, 7}, {}}},
                             {"scalar", make_tensor<int32_t>(DType::kI32, {}, {-9})}};
  ASSERT_TRUE(testing::succeeded(write_safetensors(path, written, {{"format", "pt"}})));

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(testing::succeeded(file));
  ASSERT_EQ(file->entries().size(), written.size());
  for (const auto& [name, tensor] : written) {
    const auto read = file->read(**file->at(name));
    ASSERT_TRUE(testing::succeeded(read));
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_EQ(read->bytes, tensor.bytes);
  }
}

TEST(Safetensors, AlignsEveryTensorToItsElements) {
  const std::string header =
      safetensors_header({{"a", make_tensor<uint8_t>(DType::kU8, {3}, {1, 2, 3})},
                          {"b", make_tensor<float>(DType::kF32, {1}, {1.0F})}},
                         {});
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_NE(header.find(R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
            std::string::npos);
  EXPECT_NE(header.find(R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]})"),
            std::string::npos);
}

TEST(Safetensors, NamesTheNearestTensorWhereOneIsMissing) {
  const testing::TestDir folder;
  const std::string path = folder / "a.safetensors";
  ASSERT_TRUE(write_safetensors(path, {{"topk_ids", make_tensor<int32_t>(DType::kI32, {1}, {0})}}));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(testing::succeeded(file));
  const auto missing = file->at("topk_idx");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kMissingTensor);
  EXPECT_NE(missing.error().hint.find("topk_ids"), std::string::npos);
}

TEST(Safetensors, TellsOfAFileThatWasShortenedMeanwhile) {
  const testing::TestDir folder;
  const std::string path = folder / "a.safetensors";
  ASSERT_TRUE(write_safetensors(path, {{"a", make_tensor<uint8_t>(DType::kU8, {3}, {1, 2, 3})}}));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(testing::succeeded(file));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto read = file->read(**file->at("a"));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidFile);
}

}  // namespace
}  // namespace moejit::checkpoint
