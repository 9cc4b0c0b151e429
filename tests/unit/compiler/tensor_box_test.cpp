// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

alignas(256) char memory[256];

TensorBox good_box() {
  return {.dtype = DType::kBF16,
          .rank = 3,
          .dims = {7168, 4096, 8},
          .strides_bytes = {2 * 7168, int64_t{2} * 7168 * 4096},
          .box = {64, 128, 1},
          .is_swizzled = true};
}

std::string message_of(const TensorBox& box, const void* address = memory) {
  const auto checked = check_tensor_box(box, address);
  if (checked) return "";
  EXPECT_EQ(checked.error().code, ErrorCode::kInternal);
  return checked.error().message;
}

TEST(TensorBox, IsTakenWhereTheHardwareTakesIt) {
  EXPECT_EQ(message_of(good_box()), "");
  TensorBox unused_dimension = good_box();
  unused_dimension.rank = 2;
  unused_dimension.box[2] = 0;
  EXPECT_EQ(message_of(unused_dimension), "");
}

TEST(TensorBox, WantsAnAlignedAddress) {
  EXPECT_NE(message_of(good_box(), memory + 8).find("wanted a multiple of 16"), std::string::npos);
  EXPECT_NE(message_of(good_box(), nullptr).find("that is not 0"), std::string::npos);
}

TEST(TensorBox, WantsTwoOrThreeDimensions) {
  TensorBox box = good_box();
  box.rank = 1;
  EXPECT_EQ(message_of(box), "tensor map: the tensor has rank 1, wanted 2 to 4");
}

TEST(TensorBox, WantsElements) {
  TensorBox box = good_box();
  box.dims[1] = 0;
  EXPECT_EQ(message_of(box), "tensor map: dimension 1 is 0, wanted 1 to 2^32");
}

TEST(TensorBox, HasAtMost256ElementsOfADimension) {
  TensorBox box = good_box();
  box.box[1] = 257;
  EXPECT_EQ(message_of(box),
            "tensor map: the box has 257 elements of dimension 1, wanted 1 to 256");
}

TEST(TensorBox, WantsStridesOfWholeChunksThatHoldARow) {
  TensorBox box = good_box();
  box.strides_bytes[0] += 8;
  EXPECT_EQ(message_of(box),
            "tensor map: the stride of dimension 1 is 14344 bytes, wanted a multiple of 16 from "
            "14336 up to 2^40");
  box.strides_bytes[0] = 14320;
  EXPECT_NE(message_of(box).find("the stride of dimension 1 is 14320"), std::string::npos);
  box = good_box();
  box.strides_bytes[1] = 14320;
  EXPECT_NE(message_of(box).find("the stride of dimension 2 is 14320"), std::string::npos);
  box.strides_bytes = {int64_t{2} * 7168 * 4096, 2 * 7168};  // in any order
  EXPECT_EQ(message_of(box), "");
}

TEST(TensorBox, WantsRowsOfWholeChunks) {
  TensorBox box = good_box();
  box.box[0] = 12;
  EXPECT_EQ(message_of(box), "tensor map: a row of the box has 24 bytes, wanted a multiple of 16");
}

TEST(TensorBox, SwizzlesRowsOfAtMost128Bytes) {
  TensorBox box = good_box();
  box.box[0] = 72;
  EXPECT_EQ(message_of(box),
            "tensor map: a row of the swizzled box has 144 bytes, wanted at most 128");
  box.is_swizzled = false;
  EXPECT_EQ(message_of(box), "");
}

}  // namespace
}  // namespace moejit::compiler
