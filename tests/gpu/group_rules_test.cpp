// SPDX-License-Identifier: Apache-2.0
// What a group refuses, and what becomes of it: wrong memory, wrong order, a silent rank.
#include "compiler/group_plan.h"
#include "moejit_device/params/status_bits.h"
#include "runtime/group/group_state.h"
#include "runtime/prepared_plan.h"
#include "tests/gpu/group_case.h"
#include "tests/support/kernels_ahead.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

using compiler::Layer;
using compiler::Plan;
using runtime::Group;
using runtime::GroupMember;
using runtime::PreparedPlan;

::testing::AssertionResult is_refused(const Result<void>& result, ErrorCode code,
                                      std::string_view words) {
  if (result) return ::testing::AssertionFailure() << "nothing is refused";
  const Error& error = result.error();
  if (error.code != code || (error.message + " " + error.hint).find(words) == std::string::npos)
    return ::testing::AssertionFailure()
           << to_string(error.code) << ": " << error.message << " (" << error.hint << ")";
  return ::testing::AssertionSuccess();
}

// Memory of two ranks, for what adopt() refuses.
class GroupMemories : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plan = compiler::plan_layer(completed(group_layer(2)), target());
    ASSERT_TRUE(succeeded(plan));
    plan_ = std::move(*plan);
    auto devices =
        trial::Devices::open(std::string(tested_target()), 2, 2 * plan_.group->memory.bytes, 1);
    if (!devices) GTEST_SKIP() << devices.error().message;
    devices_ = std::move(*devices);
    for (int32_t rank = 0; rank < 2; ++rank)
      members_.push_back({.base = devices_->memory(rank),
                          .bytes = plan_.group->memory.bytes,
                          .identity = group_identity(plan_)});
  }
  static compiler::Target target() {
    if (tested_target() == "sim") return compiler::simulator_target();
    return {};
  }
  Result<void> adopt() {
    const auto rank = static_cast<int32_t>(plan_.group ? plan_.group->rank : 0);
    auto group = Group::adopt(plan_, devices_->device(rank), members_);
    if (!group) return tl::make_unexpected(group.error());
    return {};
  }
  void expect_refused(std::string_view words, ErrorCode code = ErrorCode::kInvalidValue) {
    EXPECT_TRUE(is_refused(adopt(), code, words));
  }

  Plan plan_;
  std::unique_ptr<trial::Devices> devices_;
  std::vector<GroupMember> members_;
};

TEST_F(GroupMemories, AreAdopted) { EXPECT_TRUE(succeeded(adopt())); }

TEST_F(GroupMemories, OfFewerRanksAreRefused) {
  members_.pop_back();
  expect_refused("got memory of 1 ranks, wanted that of the 2 of the layer group");
}

TEST_F(GroupMemories, ThatAreNullAreRefused) {
  members_[1].base = nullptr;
  expect_refused("the memory of rank 1 is null, wanted ");
}

TEST_F(GroupMemories, ThatAreUnalignedAreRefused) {
  members_[1].base = static_cast<std::byte*>(members_[1].base) + 64;
  expect_refused("wanted a multiple of 256");
}

TEST_F(GroupMemories, ThatAreTooSmallAreRefused) {
  members_[0].bytes -= 1;
  expect_refused("the memory of rank 0 has ");
}

TEST_F(GroupMemories, ThatAreEqualAreRefused) {
  members_[1].base = members_[0].base;
  expect_refused("ranks 0 and 1 have the same memory");
}

TEST_F(GroupMemories, ThatOverlapAreRefused) {
  members_[1].base = static_cast<std::byte*>(members_[0].base) + 256;
  expect_refused("ranks 0 and 1 have the same memory");
}

TEST_F(GroupMemories, OfAnotherGroupAreRefused) {
  auto first = Group::adopt(plan_, devices_->device(0), members_);
  ASSERT_TRUE(succeeded(first));
  expect_refused("belongs to another group of this process");
  plan_.group->rank = 1;
  EXPECT_TRUE(succeeded(adopt()));  // each rank has memory of its own
  plan_.group->rank = 0;
  first->reset();
  EXPECT_TRUE(succeeded(adopt()));
}

TEST_F(GroupMemories, OfAnotherLayerAreRefused) {
  Layer other = completed(group_layer(2));
  other.intermediate = 96;
  auto plan = compiler::plan_layer(other, target(), {.rank = 1});
  ASSERT_TRUE(succeeded(plan));
  members_[1].identity = group_identity(*plan);
  expect_refused("ranks 0 and 1 of a group differ in intermediate: 80 and 96",
                 ErrorCode::kTensorMismatch);
}

TEST_F(GroupMemories, OfAnotherVersionAreRefused) {
  members_[1].identity[0] = "moejit=0.0.1";
  expect_refused("differ in moejit", ErrorCode::kTensorMismatch);
}

TEST_F(GroupMemories, OfARankThatTellsNothingAreRefused) {
  members_[1].identity.clear();
  expect_refused("and nothing, wanted the same", ErrorCode::kTensorMismatch);
}

TEST_F(GroupMemories, OfAnotherShapeAreNoLayers) {
  auto group = Group::adopt(plan_, devices_->device(0), members_);
  ASSERT_TRUE(succeeded(group));
  Layer other = group_layer(2);
  other.max_tokens = 13;
  auto plan = compiler::plan_layer(completed(other), target());
  ASSERT_TRUE(succeeded(plan));
  const auto layer = PreparedPlan::prepare(*plan, test_engine(), **group);
  ASSERT_FALSE(layer);
  EXPECT_EQ(layer.error().code, ErrorCode::kInvalidValue);
  EXPECT_NE(layer.error().hint.find("max_tokens"), std::string::npos);
}

TEST_F(GroupMemories, AreForPlansOfGroupsAlone) {
  auto group = Group::adopt(plan_, devices_->device(0), members_);
  ASSERT_TRUE(succeeded(group));
  const auto alone = PreparedPlan::prepare(plan_, test_engine(), devices_->device(0));
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("is shared by the ranks of a group"), std::string::npos);
  plan_ = compiler::plan_layer(layer_of_one_rank(completed(group_layer(2))), target()).value();
  const auto shared = PreparedPlan::prepare(plan_, test_engine(), **group);
  ASSERT_FALSE(shared);
  EXPECT_NE(shared.error().message.find("is of one rank, wanted a plan of a group's layer"),
            std::string::npos);
  group->reset();
  expect_refused("wanted a plan of a group's layer", ErrorCode::kUnsupported);
}

// Forward alone has a part of the memory of training; training has more than there is for forward.
TEST_F(GroupMemories, OfTrainingAreEnoughForForward) {
  Layer layer = completed(group_layer(2));
  layer.passes = {compiler::Pass::kForward};
  auto forward = compiler::plan_layer(layer, target());
  ASSERT_TRUE(succeeded(forward));
  auto group = Group::adopt(plan_, devices_->device(0), members_);
  ASSERT_TRUE(succeeded(group));
  ASSERT_TRUE(succeeded(note_kernels_of(*forward)));
  EXPECT_TRUE(succeeded(PreparedPlan::prepare(*forward, test_engine(), **group)));
  group->reset();
  for (GroupMember& member : members_) member.identity.clear();
  auto smaller = Group::adopt(*forward, devices_->device(0), members_);
  ASSERT_TRUE(succeeded(smaller));
  const auto training = PreparedPlan::prepare(plan_, test_engine(), **smaller);
  ASSERT_FALSE(training);
  EXPECT_NE(training.error().hint.find("passes"), std::string::npos);
}

TEST(GroupOrder, HasNoBackwardBeforeForward) {
  std::string why_not;
  const auto group = GroupCase::open(completed(group_layer(2)), {3, 3}, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  EXPECT_TRUE(is_refused(group->session().call("backward"), ErrorCode::kInvalidState,
                         "backward of the layer group comes before"));
  EXPECT_EQ(group->run(), (std::vector<uint32_t>{0, 0}));  // nothing was launched
}

TEST(GroupOrder, AddsNothingIfItMayNot) {
  std::string why_not;
  Layer layer = group_layer(1);
  layer.fuse_wgrad_accumulation = false;
  const auto group = GroupCase::open(completed(layer), {3}, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  EXPECT_TRUE(succeeded(group->session().call("forward")));
  EXPECT_TRUE(is_refused(group->session().call("backward+add"), ErrorCode::kUnsupported,
                         "overwrites the gradients"));
}

// A saved block of a forward call with another T is told of on all ranks, and nobody waits.
TEST(GroupOrder, HasBackwardOfTheTokensOfForward) {
  std::string why_not;
  const auto group = GroupCase::open(completed(group_layer(2)), {3, 7}, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  trial::Trial& session = group->session();
  EXPECT_EQ(group->run(), (std::vector<uint32_t>{0, 0}));
  const auto* const saved = find_tensor(session.plan(1), "saved_tokens");
  ASSERT_NE(saved, nullptr);
  const int64_t other = 5;
  ASSERT_TRUE(succeeded(group->devices().device(1).copy_to_device(
      static_cast<std::byte*>(session.memory(1).saved) + saved->saved_offset, &other,
      sizeof(other))));
  EXPECT_TRUE(succeeded(session.call("backward")));
  const auto status = session.status();
  ASSERT_TRUE(succeeded(status));
  EXPECT_EQ(*status, std::vector<uint32_t>(2, device::kStatusOtherTokens));
}

// The tensors of a call of one rank, whose exchange needs nobody else.
class GroupTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    Layer layer = group_layer(1);
    layer.passes = {compiler::Pass::kForward};
    auto plan = compiler::plan_layer(completed(layer), GroupTarget());
    ASSERT_TRUE(succeeded(plan));
    auto devices =
        trial::Devices::open(std::string(tested_target()), 1, plan->group->memory.bytes, 1);
    if (!devices) GTEST_SKIP() << devices.error().message;
    devices_ = std::move(*devices);
    const GroupMember member{.base = devices_->memory(0), .bytes = plan->group->memory.bytes};
    auto group = Group::adopt(*plan, devices_->device(0), {&member, 1});
    ASSERT_TRUE(succeeded(group));
    group_ = std::move(*group);
    plan_ = *plan;
    ASSERT_TRUE(succeeded(note_kernels_of(plan_)));
    auto made = PreparedPlan::prepare(plan_, test_engine(), *group_);
    ASSERT_TRUE(succeeded(made));
    layer_ = std::move(*made);
    auto workspace = runtime::DeviceMemory::allocate(devices_->device(0), plan->workspace_bytes);
    ASSERT_TRUE(succeeded(workspace));
    workspace_ = std::move(*workspace);
    memory_ = {.workspace = workspace_.address(), .workspace_bytes = plan->workspace_bytes};
    shapes_.reserve(plan->tensors.size());
    for (const compiler::TensorPlan& tensor : layer_->plan().tensors) {
      if (!is_callers(tensor.role) || tensor.is_optional) continue;
      auto memory = runtime::DeviceMemory::allocate(devices_->device(0), tensor.bytes);
      ASSERT_TRUE(succeeded(memory));
      std::vector<int64_t>& shape = shapes_.emplace_back();
      for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
      tensors_.push_back({tensor.name, tensor.dtype, shape, memory->address()});
      owned_.push_back(std::move(*memory));
    }
  }
  static compiler::Target GroupTarget() {
    if (tested_target() == "sim") return compiler::simulator_target();
    return {};
  }
  runtime::TensorRef& at(std::string_view name) {
    return *std::ranges::find(tensors_, name, &runtime::TensorRef::name);
  }
  Result<void> forward() { return layer_->call("forward", tensors_, memory_, nullptr); }

  compiler::Plan plan_;
  std::unique_ptr<trial::Devices> devices_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<PreparedPlan> layer_;
  runtime::DeviceMemory workspace_;
  runtime::CallMemory memory_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<runtime::TensorRef> tensors_;
  std::vector<runtime::DeviceMemory> owned_;
};

TEST_F(GroupTensors, MustBeThere) {
  std::erase_if(tensors_, [](const runtime::TensorRef& tensor) { return tensor.name == "x"; });
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kMissingTensor, "x"));
}

TEST_F(GroupTensors, MustBeOfTheLayer) {
  tensors_.push_back({"x_q", compiler::DType::kU8, {}, nullptr});
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kTensorMismatch, "has no caller's tensor"));
}

TEST_F(GroupTensors, MustBeGivenOnce) {
  tensors_.push_back(at("y"));
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kTensorMismatch, "tensor y: it is given twice"));
}

TEST_F(GroupTensors, MustHaveTheirTypes) {
  at("topk_ids").dtype = compiler::DType::kI64;
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kTensorMismatch, "tensor topk_ids: its dtype is"));
}

TEST_F(GroupTensors, MustHaveTheSameTokens) {
  const std::vector<int64_t> shape = {11, 144};
  at("y").shape = shape;
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kTensorMismatch, "tensor y: it has 11 tokens"));
}

TEST_F(GroupTensors, NeedTheWholeWorkspace) {
  memory_.workspace_bytes -= 256;
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kWorkspaceTooSmall, "the workspace has"));
}

TEST_F(GroupTensors, NeedAnAlignedWorkspace) {
  memory_.workspace = static_cast<std::byte*>(memory_.workspace) + 16;
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kTensorMismatch, "is not a multiple of"));
}

TEST_F(GroupTensors, NeedAGroupThatIsAlive) {
  group_.reset();
  EXPECT_TRUE(
      is_refused(forward(), ErrorCode::kInvalidState, "the group of the layer was destroyed"));
}

TEST_F(GroupTensors, NeedTheGroupForThemselves) {
  const runtime::GroupCall other(*group_->state());  // as a thread has it that is in a call
  EXPECT_TRUE(is_refused(forward(), ErrorCode::kInvalidState, "another thread is in a call"));
}

TEST_F(GroupTensors, NeedTheProcessOfTheGroup) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_right = is_refused(forward(), ErrorCode::kInvalidState, "made by fork()");
    ::_exit(is_right && is_refused(group_->reset(), ErrorCode::kInvalidState, "its child") ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(succeeded(group_->status()));
}

TEST_F(GroupTensors, AreNotOfAGroupThatOpens) {
  EXPECT_TRUE(is_refused(group_->reopen({.path = "/tmp/none"}), ErrorCode::kInvalidState,
                         "the group adopted memory of the caller"));
  if (tested_target() != "sim") return;
  const auto opened =
      Group::open(plan_, devices_->device(0), {.path = "/tmp/none", .deadline_ms = 1});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(opened.error().message.find("simulator has no memory that processes share"),
            std::string::npos)
      << opened.error().message;
}

TEST_F(GroupTensors, HaveNoBackwardPass) {
  EXPECT_TRUE(is_refused(layer_->call("backward", tensors_, memory_, nullptr),
                         ErrorCode::kUnsupported, "has no backward pass"));
}

// Rank 1 makes no call: rank 0 ends by itself, is told who was silent, and works again after
// resets.
TEST(GroupSilence, EndsInTheStatusWordAndAReset) {
  std::string why_not;
  const auto group = GroupCase::open(completed(group_layer(2)), {5, 4}, why_not, 1, {}, 1000);
  if (group == nullptr) GTEST_SKIP() << why_not;
  trial::Trial& session = group->session();
  ASSERT_TRUE(succeeded(session.call_on(0, "forward")));
  const auto status = session.status();
  ASSERT_TRUE(succeeded(status));
  EXPECT_EQ((*status)[0] & device::kStatusSilentRank, device::kStatusSilentRank);
  EXPECT_EQ(runtime::silent_ranks((*status)[0]), "1");
  EXPECT_TRUE(
      is_refused(session.call_on(0, "forward"), ErrorCode::kInvalidState, "rank 1 of the group"));
  for (int32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(succeeded(session.group(rank).reset()));
  EXPECT_EQ(group->run(), (std::vector<uint32_t>{0, 0}));
  group->expect_bits_of_one_rank();
}

}  // namespace
}  // namespace moejit::testing
