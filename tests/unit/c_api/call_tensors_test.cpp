// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/call_tensors.h"

#include "runtime/bindings/c/dlpack_dtype.h"
#include "tests/support/matchers.h"
#include "tests/unit/c_api/tensor_fixture.h"

#include <optional>

namespace moejit::bindings {
namespace {

using compiler::DType;
using moejit::testing::succeeded;
using moejit::testing::TensorFixture;

class CallTensorsTest : public ::testing::Test {
 protected:
  Result<void> read() {
    got_.emplace();
    const moejit_call call = {.struct_size = sizeof(call),
                              .tensors = cuda_.named.data(),
                              .tensor_count = cuda_.named.size()};
    return read_call(cuda_.layer, cuda_.plan->calls[0], call, *got_);
  }
  bool takes(DLDeviceType type, int id) {
    cuda_.tensors[0].device = {type, id};
    return read().has_value();
  }

  TensorFixture cuda_{2, {kDLCUDA, 1}};
  std::optional<GivenCall> got_;
};

TEST_F(CallTensorsTest, ArePassedOnAsTheyAre) {
  cuda_.tensors[1].byte_offset = 16;
  ASSERT_TRUE(succeeded(read()));
  ASSERT_EQ(got_->tensors.span().size(), 2);
  EXPECT_EQ(got_->tensors.span()[0].name, "t0");
  EXPECT_EQ(got_->tensors.span()[0].data, cuda_.memory.data());
  EXPECT_EQ(got_->tensors.span()[0].shape.data(), cuda_.shape.data());
  EXPECT_EQ(got_->tensors.span()[0].shape.size(), 2);
  EXPECT_EQ(got_->tensors.span()[0].dtype, DType::kF32);
  EXPECT_EQ(got_->tensors.span()[1].data, cuda_.memory.data() + 16);
}

TEST_F(CallTensorsTest, LieOnTheGpuOfTheLayer) {
  EXPECT_TRUE(takes(kDLCUDA, 1));
  EXPECT_TRUE(takes(kDLCUDAManaged, 0));
  EXPECT_FALSE(takes(kDLCUDA, 0));
  EXPECT_FALSE(takes(kDLCPU, 0));
  EXPECT_FALSE(takes(kDLCUDAHost, 1));
  EXPECT_FALSE(takes(kDLROCM, 1));
  EXPECT_EQ(read().error().message,
            "tensor t0: it is on DLPack's device of type 10, id 1, wanted CUDA 1");
  cuda_.tensors[0].device = {kDLCUDA, 0};
  EXPECT_EQ(read().error().message, "tensor t0: it is on CUDA 0, wanted CUDA 1");
}

TEST_F(CallTensorsTest, LieInHostMemoryForTheSimulator) {
  cuda_.layer.place = {kDLCPU, 0};
  cuda_.tensors[1].device = {kDLCPU, 0};
  EXPECT_TRUE(takes(kDLCPU, 0));
  EXPECT_TRUE(takes(kDLCUDAHost, 3));
  EXPECT_FALSE(takes(kDLCUDA, 0));
  EXPECT_FALSE(takes(kDLCUDAManaged, 0));
}

TEST_F(CallTensorsTest, AreContiguousWhereSizesOfOneDoNotMatter) {
  const auto is_taken = [&](std::array<int64_t, 2> shape, std::array<int64_t, 2> strides) {
    cuda_.tensors[0].shape = shape.data();
    cuda_.tensors[0].strides = strides.data();
    return read().has_value();
  };
  EXPECT_TRUE(is_taken({4, 2}, {2, 1}));
  EXPECT_TRUE(is_taken({1, 2}, {77, 1}));
  EXPECT_TRUE(is_taken({4, 1}, {1, 77}));
  EXPECT_TRUE(is_taken({1, 1}, {-5, 0}));
  EXPECT_TRUE(is_taken({0, 2}, {77, 77}));  // without elements
  EXPECT_FALSE(is_taken({4, 2}, {1, 4}));
  EXPECT_FALSE(is_taken({4, 2}, {3, 1}));
  EXPECT_FALSE(is_taken({4, 2}, {0, 1}));
  EXPECT_FALSE(is_taken({4, 2}, {4, 2}));
}

TEST_F(CallTensorsTest, MayBeEmptyWithoutAnAddress) {
  cuda_.tensors[0].data = nullptr;
  cuda_.tensors[0].byte_offset = 64;
  ASSERT_TRUE(succeeded(read()));
  EXPECT_EQ(got_->tensors.span()[0].data, nullptr);
}

TEST_F(CallTensorsTest, AreLeftOutWhereTheCallDoesNotTouchThem) {
  cuda_.plan->calls[0].tensors.erase(cuda_.plan->calls[0].tensors.begin());
  cuda_.tensors[0].device = {kDLROCM, 0};
  ASSERT_TRUE(succeeded(read()));
  ASSERT_EQ(got_->tensors.span().size(), 1);
  EXPECT_EQ(got_->tensors.span()[0].name, "t1");
}

TEST(DlpackDtype, StandsForItselfAndIntegersForWhatFrameworksLack) {
  const auto one = [](uint8_t code, uint8_t bits) { return DLDataType{code, bits, 1}; };
  EXPECT_TRUE(stands_for(one(10, 8), DType::kF8E4M3));
  EXPECT_TRUE(stands_for(one(12, 8), DType::kF8E5M2));
  EXPECT_TRUE(stands_for(one(kDLUInt, 8), DType::kF8E4M3));
  EXPECT_TRUE(stands_for(one(kDLUInt, 32), DType::kU32));
  EXPECT_TRUE(stands_for(one(kDLInt, 32), DType::kU32));
  EXPECT_FALSE(stands_for(one(12, 8), DType::kF8E4M3));
  EXPECT_FALSE(stands_for(one(kDLInt, 8), DType::kF8E4M3));
  EXPECT_FALSE(stands_for(one(kDLUInt, 32), DType::kI32));
  EXPECT_FALSE(stands_for(one(kDLUInt, 16), DType::kBF16));
  EXPECT_FALSE(stands_for(one(kDLFloat, 16), DType::kBF16));
  EXPECT_FALSE(stands_for({kDLFloat, 32, 4}, DType::kF32));
  EXPECT_FALSE(stands_for({kDLFloat, 32, 0}, DType::kF32));
}

TEST(DlpackDtype, HasAName) {
  EXPECT_EQ(to_string(DLDataType{kDLBfloat, 16, 1}), "bfloat16");
  EXPECT_EQ(to_string(DLDataType{10, 8, 1}), "float8_e4m3fn");
  EXPECT_EQ(to_string(DLDataType{kDLInt, 32, 4}), "int32x4");
  EXPECT_EQ(to_string(DLDataType{99, 7, 1}), "DLPack's dtype of code 99 and 7 bits");
}

}  // namespace
}  // namespace moejit::bindings
