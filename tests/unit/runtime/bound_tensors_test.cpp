// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/bound_tensors.h"

#include "tests/support/matchers.h"

#include <array>
#include <gtest/gtest.h>
#include <utility>

namespace moejit::runtime {
namespace {

using compiler::Access;
using compiler::BlockUse;
using compiler::CallPlan;
using compiler::DType;
using compiler::TensorPlan;
using compiler::TensorRole;

compiler::Plan small_plan() {
  const auto tensor = [](const char* name, DType dtype, TensorRole role,
                         std::vector<compiler::Dim> shape) {
    return TensorPlan{.name = name, .dtype = dtype, .shape = std::move(shape), .role = role};
  };
  compiler::Plan plan;
  plan.subject = "the layer small";
  plan.tensors = {tensor("x", DType::kBF16, TensorRole::kInput, {{"T", 64}, {"H", 32}}),
                  tensor("topk_ids", DType::kI32, TensorRole::kInput, {{"T", 64}, {"K", 2}}),
                  tensor("w1", DType::kBF16, TensorRole::kWeight, {{"E", 4}, {"H", 32}}),
                  tensor("y", DType::kBF16, TensorRole::kOutput, {{"T", 64}, {"H", 32}}),
                  tensor("x_q", DType::kF8E4M3, TensorRole::kWorkspace, {{"T", 64}, {"H", 32}})};
  plan.bounds = {.max_tokens = 64, .top_k = 2, .groups = 4, .max_permuted_rows = 1024};
  plan.tensors.push_back(tensor("counts", DType::kI32, TensorRole::kWorkspace, {{"E", 4}}));
  plan.tensors[4].workspace_offset = 256;
  plan.tensors[4].bytes = 64 * 32;
  plan.tensors[5].workspace_offset = 0;
  plan.tensors[5].bytes = 4 * 4;
  plan.workspace_bytes = 256 + 64 * 32;
  return plan;
}

// A forward call of x, topk_ids and y.
CallPlan small_call() {
  return {.name = "forward",
          .steps = {{.index = 0}},
          .tensors = {{.slot = 0}, {.slot = 1}, {.slot = 3, .access = Access::kWrite}},
          .workspace = BlockUse::kWrite,
          .saved = BlockUse::kWrite,
          .workspace_bytes = 256 + 64 * 32};
}

class BoundTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tensors_ = {{"x", DType::kBF16, x_shape_, memory_.data()},
                {"topk_ids", DType::kI32, ids_shape_, memory_.data()},
                {"y", DType::kBF16, y_shape_, memory_.data()}};
  }
  Result<void> bind() {
    bound_ = {};
    return bind_tensors(plan_, call_, tensors_, bound_);
  }
  std::string bind_blocks(const CallMemory& memory, int64_t alignment = 256) {
    const auto layout = compiler::MemoryLayout::make(plan_);
    const auto result = bind_memory(plan_, *layout, layout->at(bound_.dims.tokens), call_,
                                    alignment, memory, bound_);
    return result ? "ok" : std::string(to_string(result.error().code));
  }
  void expect_error(ErrorCode code, std::string_view message) {
    const auto result = bind();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().message, message);
  }

  alignas(256) std::array<std::byte, 8192> memory_{};
  std::array<int64_t, 2> x_shape_ = {5, 32}, ids_shape_ = {5, 2}, y_shape_ = {5, 32};
  compiler::Plan plan_ = small_plan();
  CallPlan call_ = small_call();
  std::vector<TensorRef> tensors_;
  BoundTensors bound_;
};

TEST_F(BoundTensorsTest, BindsTensorsInAnyOrderWithTheirBytes) {
  std::swap(tensors_[0], tensors_[2]);
  ASSERT_TRUE(moejit::testing::succeeded(bind()));
  EXPECT_EQ(bound_.dims.tokens, 5);
  EXPECT_EQ(bound_.address[0], memory_.data());
  EXPECT_EQ(bound_.bytes[0], 2 * 5 * 32);
  EXPECT_EQ(bound_.bytes[1], 4 * 5 * 2);
}

TEST_F(BoundTensorsTest, TakesNoTokensWithoutAddresses) {
  x_shape_[0] = ids_shape_[0] = y_shape_[0] = 0;
  for (TensorRef& tensor : tensors_) tensor.data = nullptr;
  ASSERT_TRUE(moejit::testing::succeeded(bind()));
  EXPECT_EQ(bound_.dims.tokens, 0);
}

TEST_F(BoundTensorsTest, IgnoresTensorsOfTheOtherCall) {
  tensors_.push_back({"w1", DType::kI32, {}, nullptr});
  EXPECT_TRUE(moejit::testing::succeeded(bind()));
}

TEST_F(BoundTensorsTest, NamesAMissingTensor) {
  tensors_.pop_back();
  expect_error(ErrorCode::kMissingTensor, "tensor y is missing, wanted BF16 [T <= 64, 32]");
}

TEST_F(BoundTensorsTest, LetsOptionalTensorsOutOnly) {
  call_.tensors[1].is_optional = true;
  tensors_.erase(tensors_.begin() + 1);
  ASSERT_TRUE(moejit::testing::succeeded(bind()));
  EXPECT_EQ(bound_.address[1], nullptr);
  EXPECT_EQ(bound_.bytes[1], 0);
  tensors_.pop_back();
  expect_error(ErrorCode::kMissingTensor, "tensor y is missing, wanted BF16 [T <= 64, 32]");
}

TEST_F(BoundTensorsTest, ChecksAnOptionalTensorThatIsGiven) {
  call_.tensors[1].is_optional = true;
  ASSERT_TRUE(moejit::testing::succeeded(bind()));
  EXPECT_EQ(bound_.address[1], memory_.data());
  tensors_[1].dtype = DType::kF32;
  expect_error(ErrorCode::kTensorMismatch, "tensor topk_ids: its dtype is F32, wanted I32");
}

TEST_F(BoundTensorsTest, NamesATensorThatThePlanDoesNotHave) {
  tensors_.push_back({"z", DType::kBF16, x_shape_, memory_.data()});
  expect_error(ErrorCode::kTensorMismatch,
               "tensor z: the layer small has no caller's tensor of this name, wanted x, "
               "topk_ids, y");
  tensors_.back().name = "x_q";
  expect_error(ErrorCode::kTensorMismatch,
               "tensor x_q: the layer small has no caller's tensor of this name, wanted x, "
               "topk_ids, y");
  plan_.subject = "the layer";
  expect_error(ErrorCode::kTensorMismatch,
               "tensor x_q: the layer has no caller's tensor of this name, wanted x, "
               "topk_ids, y");
}

TEST_F(BoundTensorsTest, NamesATensorGivenTwice) {
  tensors_.push_back(tensors_[0]);
  expect_error(ErrorCode::kTensorMismatch, "tensor x: it is given twice");
}

TEST_F(BoundTensorsTest, NamesAWrongDtype) {
  tensors_[1].dtype = DType::kI64;
  expect_error(ErrorCode::kTensorMismatch, "tensor topk_ids: its dtype is I64, wanted I32");
}

TEST_F(BoundTensorsTest, NamesAWrongShape) {
  x_shape_[1] = 31;
  expect_error(ErrorCode::kTensorMismatch, "tensor x: its shape is [5, 31], wanted [T <= 64, 32]");
  x_shape_ = {65, 32};
  expect_error(ErrorCode::kTensorMismatch, "tensor x: its shape is [65, 32], wanted [T <= 64, 32]");
  x_shape_ = {-1, 32};
  expect_error(ErrorCode::kTensorMismatch, "tensor x: its shape is [-1, 32], wanted [T <= 64, 32]");
  tensors_[0].shape = std::span(x_shape_).first(1);
  expect_error(ErrorCode::kTensorMismatch, "tensor x: its shape is [-1], wanted [T <= 64, 32]");
}

TEST_F(BoundTensorsTest, NamesATensorWithAnotherNumberOfTokens) {
  y_shape_[0] = 6;
  expect_error(ErrorCode::kTensorMismatch, "tensor y: it has 6 tokens, tensors before it have 5");
}

TEST_F(BoundTensorsTest, NamesABadAddress) {
  tensors_[2].data = nullptr;
  expect_error(ErrorCode::kTensorMismatch, "tensor y: its address is null, wanted 320 bytes");
  tensors_[2].data = memory_.data() + 8;
  const auto result = bind();
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.ends_with("is not a multiple of 16"))
      << result.error().message;
}

TEST_F(BoundTensorsTest, ChecksTheWorkspace) {
  ASSERT_TRUE(bind());
  const int64_t bytes = 256 + 256;  // counts, and 5 rows of 32
  EXPECT_EQ(bind_blocks({memory_.data(), bytes}), "ok");
  EXPECT_EQ(bound_.address[4], memory_.data() + 256);
  EXPECT_EQ(bound_.bytes[4], 5 * 32);
  EXPECT_EQ(bound_.address[5], memory_.data());
  EXPECT_EQ(bound_.bytes[5], 4 * 4);
  EXPECT_EQ(bind_blocks({memory_.data(), bytes - 1}), "workspace_too_small");
  EXPECT_EQ(bind_blocks({nullptr, bytes}), "tensor_mismatch");
}

TEST_F(BoundTensorsTest, TakesTheWorkspaceThatTheCallNeeds) {
  call_.workspace_bytes = 256;  // for counts alone
  ASSERT_TRUE(bind());
  EXPECT_EQ(bind_blocks({memory_.data(), 256}), "ok");
  EXPECT_EQ(bind_blocks({memory_.data(), 255}), "workspace_too_small");
}

TEST_F(BoundTensorsTest, ChecksWhatIsSaved) {
  for (TensorPlan& tensor : plan_.tensors) {
    if (tensor.role != TensorRole::kWorkspace) continue;
    tensor.role = TensorRole::kSaved;
    tensor.saved_offset = std::exchange(tensor.workspace_offset, -1);
  }
  plan_.saved_bytes = std::exchange(plan_.workspace_bytes, 0);
  ASSERT_TRUE(bind());
  const int64_t bytes = 256 + 256 + 5 * 32;  // counts, what alignment may take, 5 rows
  EXPECT_EQ(bind_blocks({.saved = memory_.data(), .saved_bytes = bytes}), "ok");
  EXPECT_EQ(bound_.address[4], memory_.data() + 256);
  EXPECT_EQ(bound_.bytes[4], 5 * 32);
  EXPECT_EQ(bind_blocks({.saved = memory_.data(), .saved_bytes = bytes - 1}),
            "workspace_too_small");
  EXPECT_EQ(bind_blocks({.saved = nullptr, .saved_bytes = bytes}), "tensor_mismatch");
}

TEST_F(BoundTensorsTest, TakesBlocksAtTheAlignmentOfTheDevice) {
  ASSERT_TRUE(bind());
  EXPECT_EQ(bind_blocks({memory_.data() + 64, 512}, 64), "ok");
  EXPECT_EQ(bound_.address[4], memory_.data() + 64 + 256);
  EXPECT_EQ(bind_blocks({memory_.data() + 64, 512}, 256), "tensor_mismatch");
  EXPECT_EQ(bind_blocks({memory_.data() + 32, 512}, 64), "tensor_mismatch");
}

TEST_F(BoundTensorsTest, ChecksWhatIsDeferredIfTheCallUsesIt) {
  for (TensorPlan& tensor : plan_.tensors) {
    if (tensor.role != TensorRole::kWorkspace) continue;
    tensor.role = TensorRole::kDeferred;
    tensor.deferred_offset = std::exchange(tensor.workspace_offset, -1);
  }
  plan_.deferred_bytes = std::exchange(plan_.workspace_bytes, 0);
  ASSERT_TRUE(bind());
  EXPECT_EQ(bind_blocks({}), "ok");
  EXPECT_FALSE(bound_.is_bound[4]);
  call_.deferred = BlockUse::kWrite;
  const int64_t bytes = 256 + 256 + 5 * 32;  // as of the saved block
  EXPECT_EQ(bind_blocks({.deferred = memory_.data(), .deferred_bytes = bytes}), "ok");
  EXPECT_EQ(bound_.address[4], memory_.data() + 256);
  EXPECT_EQ(bind_blocks({.deferred = memory_.data(), .deferred_bytes = bytes - 1}),
            "workspace_too_small");
  EXPECT_EQ(bind_blocks({.deferred = nullptr, .deferred_bytes = bytes}), "tensor_mismatch");
}

// y tells T; where it is does not matter.
TEST_F(BoundTensorsTest, TakesSomeTensorsForTheirShapeAlone) {
  call_.tensors = {{.slot = 3, .is_shape_only = true}};
  tensors_[2].data = nullptr;
  ASSERT_TRUE(moejit::testing::succeeded(bind()));
  EXPECT_EQ(bound_.dims.tokens, 5);
  EXPECT_FALSE(bound_.is_bound[3]);
  y_shape_[1] = 31;
  EXPECT_EQ(bind().error().message, "tensor y: its shape is [5, 31], wanted [T <= 64, 32]");
  tensors_.pop_back();
  EXPECT_EQ(bind().error().code, ErrorCode::kMissingTensor);
}

// x, topk_ids and y of 5 tokens, a workspace and a saved block, one behind the other.
class OverlapsTest : public BoundTensorsTest {
 protected:
  void SetUp() override {
    BoundTensorsTest::SetUp();
    place(0, 0);
    place(1, 320);
    place(2, 384);
    workspace_ = memory_.data() + 1024;
    saved_ = memory_.data() + 4096;
  }
  void place(std::size_t tensor, std::size_t at) { tensors_[tensor].data = memory_.data() + at; }
  // "" or the message, without addresses.
  std::string check(BlockUse saved = BlockUse::kWrite, BlockUse deferred = BlockUse::kNone) {
    EXPECT_TRUE(moejit::testing::succeeded(bind()));
    bound_.blocks = {BoundMemory{workspace_, plan_.workspace_bytes}, BoundMemory{saved_, 512},
                     BoundMemory{deferred_, deferred_bytes_}};
    call_.saved = saved;
    call_.deferred = deferred;
    const auto result = check_overlaps(plan_, call_, bound_);
    if (result) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kTensorMismatch);
    const std::string& message = result.error().message;
    const auto word = [&](std::size_t from) {
      return message.substr(from, message.find(',', from) - from);
    };
    const std::size_t other = message.find("overlaps ");
    return other == std::string::npos ? message : word(0) + " overlaps " + word(other + 9);
  }
  std::byte *workspace_ = nullptr, *saved_ = nullptr, *deferred_ = nullptr;
  int64_t deferred_bytes_ = 0;
};

TEST_F(OverlapsTest, AreNoneWhereMemoryFollowsMemory) { EXPECT_EQ(check(), ""); }

TEST_F(OverlapsTest, OfWhatIsOnlyReadAreFine) {
  place(1, 0);
  EXPECT_EQ(check(), "");
}

TEST_F(OverlapsTest, OfAnOutputAreRefused) {
  place(1, 768);
  place(2, 304);
  EXPECT_EQ(check(), "tensor x overlaps tensor y");
  place(2, 0);
  EXPECT_EQ(check(), "tensor x overlaps tensor y");
  place(1, 320);
  place(2, 352);  // behind x, from the last 8 bytes of topk_ids on
  EXPECT_EQ(check(), "tensor topk_ids overlaps tensor y");
}

TEST_F(OverlapsTest, OfAnInputThatIsReadNoMoreAreFine) {
  TensorPlan &x = plan_.tensors[0], &y = plan_.tensors[3];
  place(2, 0);
  x.last_use = y.first_use = 3;  // the kernel that writes y reads x
  EXPECT_EQ(check(), "tensor x overlaps tensor y");
  y.first_use = 4;
  EXPECT_EQ(check(), "");
  x.role = TensorRole::kWeight;  // which the next call reads again
  EXPECT_EQ(check(), "tensor x overlaps tensor y");
}

TEST_F(OverlapsTest, OfNoTokensAreNone) {
  x_shape_[0] = ids_shape_[0] = y_shape_[0] = 0;
  place(2, 0);
  EXPECT_EQ(check(), "");
}

TEST_F(OverlapsTest, OfTheWorkspaceAreRefused) {
  workspace_ = memory_.data() + 512;  // y ends behind it
  EXPECT_EQ(check(), "tensor y overlaps the workspace");
  workspace_ = saved_;
  EXPECT_EQ(check(), "the workspace overlaps the saved block");
}

TEST_F(OverlapsTest, OfWhatIsSavedAreRefusedWhereItIsWritten) {
  saved_ = memory_.data();
  EXPECT_EQ(check(), "tensor y overlaps the saved block");
  place(2, 512);
  EXPECT_NE(check(), "");  // x or topk_ids
  EXPECT_EQ(check(BlockUse::kRead), "");
  place(2, 384);
  EXPECT_EQ(check(BlockUse::kRead), "tensor y overlaps the saved block");
}

TEST_F(OverlapsTest, OfWhatIsDeferredAreRefusedWhereItIsWritten) {
  deferred_ = memory_.data();
  deferred_bytes_ = 512;
  place(2, 512);  // x and topk_ids are in the block
  EXPECT_NE(check(BlockUse::kRead, BlockUse::kWrite), "");
  EXPECT_EQ(check(BlockUse::kRead, BlockUse::kRead), "");
  deferred_ = memory_.data() + 512;
  EXPECT_EQ(check(BlockUse::kRead, BlockUse::kRead), "tensor y overlaps the deferred block");
}

}  // namespace
}  // namespace moejit::runtime
