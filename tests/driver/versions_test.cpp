// SPDX-License-Identifier: Apache-2.0
// Drivers that are older, or lack something: copies of the fake in which one name is another.
#include "compiler/support/file.h"
#include "tests/driver/driver_fixture.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace moejit::testing {
namespace {

struct Function {
  const char* symbol;
  int version;
  bool is_optional;
};

#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) Function{symbol, version, false},
#define MOEJIT_OPTIONAL_DRIVER_FUNCTION(member, name, symbol, version) \
  Function{symbol, version, true},
const Function kFunctions[] = {
#include "runtime/driver/driver_functions.inc"
};
#undef MOEJIT_DRIVER_FUNCTION

class VersionsTest : public DriverTest {
 protected:
  void TearDown() override {
    ::setenv("MOEJIT_CUDA_DRIVER", MOEJIT_FAKE_CUDA, 1);
    DriverTest::TearDown();
  }
  // The next driver_api() opens a driver without these functions.
  void use_driver_without(const std::vector<Function>& functions) {
    std::ifstream file(MOEJIT_FAKE_CUDA, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (const Function& function : functions) {
      const std::string name = '\0' + std::string(function.symbol) + '\0';
      std::size_t at = bytes.find(name);
      ASSERT_NE(at, std::string::npos) << function.symbol;
      for (; at != std::string::npos; at = bytes.find(name, at)) bytes[at + 1] = 'x';
    }
    const std::string path = (dir_ / (std::to_string(++copies_) + ".so")).string();
    ASSERT_TRUE(write_file(path, bytes));
    ::setenv("MOEJIT_CUDA_DRIVER", path.c_str(), 1);
  }

  TestDir dir_;
  int copies_ = 0;
};

TEST_F(VersionsTest, NamesEachFunctionThatADriverLacksAndTheOldestThatHasAll) {
  int required = 0;
  for (const Function& function : kFunctions) {
    if (function.is_optional) continue;
    ++required;
    ASSERT_NO_FATAL_FAILURE(use_driver_without({function}));
    const auto device = runtime::open_cuda_device();
    ASSERT_FALSE(device) << function.symbol;
    EXPECT_EQ(device.error().code, ErrorCode::kDriverMissing);
    EXPECT_NE(device.error().message.find(std::string(" has no function ") + function.symbol +
                                          ", wanted one of CUDA 12.0 or later"),
              std::string::npos)
        << device.error().message;
  }
  EXPECT_GT(required, 40);
  // A failure is not remembered.
  ::setenv("MOEJIT_CUDA_DRIVER", MOEJIT_FAKE_CUDA, 1);
  EXPECT_NE(open(), nullptr);
}

TEST_F(VersionsTest, RunsOnADriverOfTheOldestReleaseThatIsSupported) {
  std::vector<Function> newer;
  std::ranges::copy_if(kFunctions, std::back_inserter(newer),
                       [](const Function& function) { return function.version > 12000; });
  ASSERT_FALSE(newer.empty());
  for (const Function& function : newer) EXPECT_TRUE(function.is_optional) << function.symbol;
  ASSERT_NO_FATAL_FAILURE(use_driver_without(newer));
  cuda()->driver_version = 12000;
  const auto device = open();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->gpu_facts().cuda_version, "12.0");
  const auto engine = make_engine();
  const auto layer = make_layer(*engine, *device);
  ASSERT_NE(layer, nullptr);
  EXPECT_TRUE(succeeded(layer->run_all()));
  EXPECT_EQ(cuda()->launches, layer->launches());
}

TEST_F(VersionsTest, WithoutTheQueryOfParametersTheyAreNotCompared) {
  ASSERT_NO_FATAL_FAILURE(use_driver_without({{"cuKernelGetParamInfo", 12040, true}}));
  const auto device = open();
  const auto engine = make_engine();
  const auto layer = make_layer(*engine, *device, {.param_bytes_off = 8});
  EXPECT_NE(layer, nullptr);
}

TEST_F(VersionsTest, RefusesAGpuThatNoTargetIsFor) {
  for (const int capability : {70, 75, 87, 110}) {
    cuda()->compute_capability = capability;
    const auto device = runtime::open_cuda_device();
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(device.error().message.find("9.0 (H100, H200, H20)"), std::string::npos)
        << device.error().message;
  }
}

TEST_F(VersionsTest, OpensAGpuForTheTargetThatIsMadeForIt) {
  for (const auto& [capability, name] :
       {std::pair(80, "cuda:sm_80"), {89, "cuda:sm_89"}, {103, "cuda:sm_103a"}}) {
    cuda()->compute_capability = capability;
    EXPECT_EQ(to_string(open()->target()), name);
  }
}

TEST_F(VersionsTest, OpensAGpuForATargetThatItRuns) {
  cuda()->compute_capability = 103;
  const auto family = compiler::parse_target("cuda:sm_100f").value();
  const auto device = runtime::open_cuda_device(runtime::kCurrentGpu, family);
  ASSERT_TRUE(succeeded(device));
  EXPECT_EQ((*device)->target(), family);
  const auto refused = runtime::open_cuda_device(runtime::kCurrentGpu, compiler::Target{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("runs cuda:sm_103a, wanted cuda:sm_90a"),
            std::string::npos)
      << refused.error().message;
}

TEST_F(VersionsTest, LoadsNoKernelOfAnotherTarget) {
  cuda()->compute_capability = 120;
  const auto device = open();
  const auto loaded = device->load(compiler::KernelBinary{
      .entry = "other", .target = compiler::Target{}, .bytes = {}, .usage = {}});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
}

TEST_F(VersionsTest, AMachineWithoutAGpuIsATypedError) {
  cuda()->devices = -1;
  const auto device = runtime::open_cuda_device();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kNoDevice);
  // Planning, emitting and compiling ask no driver.
  const auto plan = DriverLayer::plan({});
  const int64_t before = cuda()->calls;
  EXPECT_TRUE(succeeded(make_engine()->binary(emit_kernel(plan.kernels[0], plan.target).value())));
  EXPECT_EQ(cuda()->calls, before);
  cuda()->devices = 1;
  EXPECT_NE(open(), nullptr);
}

}  // namespace
}  // namespace moejit::testing
