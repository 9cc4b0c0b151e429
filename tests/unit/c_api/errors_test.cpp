// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/error.h"
#include "tests/unit/c_api/last_error.h"

#include <array>
#include <cstdlib>
#include <moejit/moejit_describe.h>
#include <moejit/moejit_group.h>
#include <set>
#include <string_view>
#include <thread>

namespace moejit::testing {
namespace {

moejit_error_code create_layer(std::string_view json, moejit_plan** layer) {
  return moejit_plan_create(json.data(), json.size(), "sim", nullptr, layer);
}

TEST(CApiVersion, IsTheHeaders) {
  EXPECT_EQ(moejit_version_number(),
            100 * MOEJIT_VERSION_MINOR + MOEJIT_VERSION_PATCH + 10000 * MOEJIT_VERSION_MAJOR);
  EXPECT_EQ(moejit_version(), std::to_string(MOEJIT_VERSION_MAJOR) + "." +
                                  std::to_string(MOEJIT_VERSION_MINOR) + "." +
                                  std::to_string(MOEJIT_VERSION_PATCH));
  EXPECT_EQ(moejit_abi_version(), MOEJIT_ABI_VERSION);
}

TEST(CApiErrors, HaveTheNamesOfTheCppCodesAndANumberEach) {
  std::set<std::string_view> names;
  for (int number = MOEJIT_ERROR_INVALID_JSON; number <= MOEJIT_ERROR_INVALID_STATE; ++number)
    names.insert(moejit_error_code_name(static_cast<moejit_error_code>(number)));
  const std::set<std::string_view> wanted = {
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) name,
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
  };
  EXPECT_EQ(names, wanted);
  EXPECT_EQ(std::string_view(moejit_error_code_name(MOEJIT_ERROR_INVALID_JSON)), "invalid_json");
  EXPECT_EQ(std::string_view(moejit_error_code_name(MOEJIT_ERROR_CACHE_MISS)), "cache_miss");
  EXPECT_EQ(std::string_view(moejit_error_code_name(MOEJIT_ERROR_INTERNAL)), "internal");
  EXPECT_EQ(std::string_view(moejit_error_code_name(MOEJIT_OK)), "ok");
  EXPECT_EQ(std::string_view(moejit_error_code_name(static_cast<moejit_error_code>(999))),
            "unknown");
}

// A program that is compiled with one version runs with the next.
TEST(CApiErrors, KeepTheirNumbers) {
  std::string names;
  for (int number = MOEJIT_OK; number <= MOEJIT_ERROR_INVALID_STATE; ++number)
    names += std::string(moejit_error_code_name(static_cast<moejit_error_code>(number))) + " ";
  EXPECT_EQ(names,
            "ok invalid_json unknown_key missing_key wrong_type invalid_value unsupported usage "
            "file_not_found file_read file_write invalid_file missing_tensor tensor_mismatch "
            "compiler_missing compile_failed cache_unusable cache_corrupt cache_miss "
            "driver_missing no_device driver out_of_memory workspace_too_small simulator_fault "
            "device_status check_failed internal compiler_fault interrupted stream_capture "
            "tuning_outdated invalid_state ");
}

TEST(CApiErrors, LeaveNoHandleOfAFailedCall) {
  const auto fails = []<typename Handle>(Handle*, const auto& create) {
    static char other = 0;
    auto* handle = reinterpret_cast<Handle*>(&other);
    EXPECT_NE(create(&handle), MOEJIT_OK);
    EXPECT_EQ(handle, nullptr);
  };
  const moejit_simulator_options no_size = {};
  const moejit_engine_options no_engine_size = {};
  fails(static_cast<moejit_device*>(nullptr),
        [](auto** handle) { return moejit_device_open_cuda(-2, handle); });
  fails(static_cast<moejit_device*>(nullptr),
        [&](auto** handle) { return moejit_device_open_simulator(&no_size, handle); });
  fails(static_cast<moejit_device*>(nullptr), [](auto** handle) {
    void* memory = nullptr;
    return moejit_device_open_simulator_group(1, -1, 0, handle, &memory);
  });
  fails(static_cast<moejit_engine*>(nullptr),
        [&](auto** handle) { return moejit_engine_create(&no_engine_size, handle); });
  fails(static_cast<moejit_plan*>(nullptr),
        [](auto** handle) { return create_layer("{", handle); });
  fails(static_cast<moejit_plan*>(nullptr),
        [](auto** handle) { return moejit_group_layer_create("{", 1, "sim", 0, nullptr, handle); });
  fails(static_cast<moejit_plan*>(nullptr),
        [](auto** handle) { return moejit_plan_create("{", 1, "sim", nullptr, handle); });
  fails(static_cast<moejit_description*>(nullptr),
        [](auto** handle) { return moejit_describe_hugging_face("{", 1, nullptr, handle); });
  fails(static_cast<moejit_group*>(nullptr),
        [](auto** handle) { return moejit_group_adopt(nullptr, nullptr, nullptr, 0, handle); });
  fails(static_cast<moejit_group*>(nullptr),
        [](auto** handle) { return moejit_group_open(nullptr, nullptr, nullptr, handle); });
  fails(static_cast<moejit_group*>(nullptr),
        [](auto** handle) { return moejit_group_open_nccl(nullptr, nullptr, nullptr, 0, handle); });
  fails(static_cast<moejit_group*>(nullptr),
        [](auto** handle) { return moejit_group_adopt_nccl(nullptr, nullptr, nullptr, handle); });
}

TEST(CApiErrors, TellStageMessageAndHint) {
  moejit_plan* layer = nullptr;
  EXPECT_TRUE(is_error(create_layer(R"({"name": "a", "hiden": 1})", &layer),
                       MOEJIT_ERROR_UNKNOWN_KEY, "hiden"));
  const moejit_error& error = *moejit_last_error();
  EXPECT_EQ(std::string_view(error.stage), "parse");
  EXPECT_NE(std::string_view(error.hint).find("hidden"), std::string_view::npos) << error.hint;
  EXPECT_EQ(std::string_view(error.detail), "");
  EXPECT_EQ(layer, nullptr);
}

TEST(CApiErrors, ComeBeforeATextThatIsTooLongIsRead) {
  moejit_plan* layer = nullptr;
  EXPECT_EQ(create_layer(std::string((std::size_t{1} << 20) + 1, '['), &layer),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_STREQ(moejit_last_error()->message, "layer: got 1048577 bytes, wanted at most 1048576");
  EXPECT_EQ(layer, nullptr);
}

TEST(CApiErrors, AreForgottenByACallThatSucceeds) {
  moejit_plan* layer = nullptr;
  ASSERT_NE(create_layer("{", &layer), MOEJIT_OK);
  ASSERT_TRUE(is_ok(moejit_status_check(0)));
  EXPECT_EQ(moejit_last_error()->code, MOEJIT_OK);
  EXPECT_EQ(std::string_view(moejit_last_error()->message), "");
}

TEST(CApiErrors, AreLeftAloneByFunctionsWithoutACode) {
  moejit_plan* layer = nullptr;
  ASSERT_EQ(create_layer("{", &layer), MOEJIT_ERROR_INVALID_JSON);
  moejit_plan_destroy(layer);
  (void)moejit_version();
  EXPECT_EQ(moejit_last_error()->code, MOEJIT_ERROR_INVALID_JSON);
}

TEST(CApiErrors, AreThoseOfTheThread) {
  moejit_plan* layer = nullptr;
  ASSERT_EQ(create_layer("{", &layer), MOEJIT_ERROR_INVALID_JSON);
  std::array<std::string, 2> messages;
  std::array<moejit_error_code, 2> before{};
  const auto fail_on = [&](std::size_t i, const char* json) {
    before[i] = moejit_last_error()->code;
    moejit_plan* made = nullptr;
    for (int round = 0; round < 100; ++round) {
      create_layer(json, &made);
      messages[i] = moejit_last_error()->message;
    }
  };
  std::thread first(fail_on, 0, R"({"one": 1})");
  std::thread second(fail_on, 1, R"({"two": 2})");
  first.join();
  second.join();
  EXPECT_EQ(before[0], MOEJIT_OK);
  EXPECT_EQ(before[1], MOEJIT_OK);
  EXPECT_NE(messages[0].find("one"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("two"), std::string::npos) << messages[1];
  EXPECT_EQ(moejit_last_error()->code, MOEJIT_ERROR_INVALID_JSON);
}

TEST(CApiErrors, AreUtf8WhateverTheyQuote) {
  EXPECT_TRUE(is_error(
      moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "s\xFFm\xC3\xA4", nullptr, nullptr),
      MOEJIT_ERROR_INVALID_VALUE));
  moejit_plan* layer = nullptr;
  EXPECT_NE(
      moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "s\xFFm\xC3\xA4", nullptr, &layer),
      MOEJIT_OK);
  const std::string message = moejit_last_error()->message;
  EXPECT_NE(message.find("s\\xffm\xC3\xA4"), std::string::npos) << message;
}

TEST(CApiErrors, SayWhichPointerIsNull) {
  moejit_device* device = nullptr;
  moejit_engine* engine = nullptr;
  moejit_plan* layer = nullptr;
  moejit_device_info device_info = {};
  moejit_engine_info engine_info = {};
  moejit_plan_info layer_info = {};
  moejit_tensor_info tensor_info = {};
  moejit_call call = {};
  const char* text = nullptr;
  void* address = nullptr;
  constexpr auto kNull = MOEJIT_ERROR_INVALID_VALUE;
  EXPECT_TRUE(is_error(moejit_device_open_cuda(0, nullptr), kNull, "device of", "is NULL"));
  EXPECT_TRUE(is_error(moejit_device_open_simulator(nullptr, nullptr), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_shared({kDLCPU, 0}, nullptr), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_get_info(device, &device_info), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_allocate(device, 1, &address), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_release(device, nullptr), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_copy_to_device(device, &text, &text, 1), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_copy_to_host(device, &text, &text, 1), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_fill(device, &text, 0, 1, nullptr), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_device_synchronize(device, nullptr), kNull, "device of"));
  EXPECT_TRUE(is_error(moejit_engine_create(nullptr, nullptr), kNull, "engine of"));
  EXPECT_TRUE(is_error(moejit_engine_shared(nullptr, nullptr), kNull, "engine of"));
  EXPECT_TRUE(is_error(moejit_engine_get_info(engine, &engine_info), kNull, "engine of"));
  EXPECT_TRUE(is_error(moejit_plan_create("{}", 2, "sim", nullptr, nullptr), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_create(nullptr, 2, "sim", nullptr, &layer), kNull, "json of"));
  EXPECT_TRUE(is_error(moejit_plan_create("{}", 2, nullptr, nullptr, &layer), kNull, "target of"));
  EXPECT_TRUE(is_error(moejit_plan_get_info(layer, &layer_info), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_get_description(layer, &text), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_get_json(layer, &text), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_get_text(layer, 0, &text), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_get_tensor(layer, 0, &tensor_info), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_find_tensor(layer, "x", &tensor_info), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_plan_prepare(layer, engine, device), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_layer_update_weights(layer, &call), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_layer_forward(layer, &call), kNull, "plan of"));
  EXPECT_TRUE(is_error(moejit_layer_backward(layer, MOEJIT_GRADIENT_ADD, &call), kNull, "plan of"));
}

TEST(CApiErrors, LetNullBeDestroyed) {
  moejit_device_destroy(nullptr);
  moejit_engine_destroy(nullptr);
  moejit_plan_destroy(nullptr);
  moejit_plan_destroy(nullptr);
  moejit_description_destroy(nullptr);
  moejit_plan_destroy(nullptr);
  moejit_group_destroy(nullptr);
}

TEST(CApiStatus, IsASentenceAboutEachBit) {
  EXPECT_TRUE(is_ok(moejit_status_check(0)));
  EXPECT_TRUE(is_error(moejit_status_check(MOEJIT_STATUS_BAD_EXPERT_ID | MOEJIT_STATUS_BAD_SCALE),
                       MOEJIT_ERROR_DEVICE_STATUS, "is 5;", "1: expert ids", "4: scales"));
  EXPECT_EQ(std::string(moejit_last_error()->message).find("more rows"), std::string::npos);
  EXPECT_TRUE(is_error(moejit_status_check(1U << 31), MOEJIT_ERROR_DEVICE_STATUS, "no kernel"));
  EXPECT_NE(moejit_status_text(MOEJIT_STATUS_ROW_OVERFLOW), nullptr);
  EXPECT_TRUE(is_error(moejit_status_check(MOEJIT_STATUS_OTHER_TOKENS), MOEJIT_ERROR_DEVICE_STATUS,
                       "8: a backward call with another number of tokens"));
  EXPECT_NE(std::string(moejit_last_error()->hint).find("the same forward call"),
            std::string::npos);
  EXPECT_TRUE(is_error(moejit_status_check(MOEJIT_STATUS_TOO_MANY_EXPERTS),
                       MOEJIT_ERROR_DEVICE_STATUS, "16: a token with more experts"));
  EXPECT_NE(std::string(moejit_last_error()->hint).find("raise top_k"), std::string::npos);
  EXPECT_TRUE(is_error(moejit_status_check(MOEJIT_STATUS_BAD_LOGIT), MOEJIT_ERROR_DEVICE_STATUS,
                       "32: logits that are NaN"));
  EXPECT_EQ(moejit_status_text(3), nullptr);
  EXPECT_EQ(moejit_status_text(0), nullptr);
}

TEST(CApiDevice, NamesTheTargetOfAComputeCapability) {
  const char* target = nullptr;
  ASSERT_EQ(moejit_target_of_capability(9, 0, &target), MOEJIT_OK);
  EXPECT_STREQ(target, "cuda:sm_90a");
  EXPECT_TRUE(is_error(moejit_target_of_capability(7, 5, &target), MOEJIT_ERROR_UNSUPPORTED,
                       "compute capability 7.5"));
  EXPECT_EQ(target, nullptr);
  EXPECT_TRUE(
      is_error(moejit_target_of_capability(9, 0, nullptr), MOEJIT_ERROR_INVALID_VALUE, "is NULL"));
}

TEST(CApiDevice, SaysThatThereIsNoDriver) {
  ASSERT_EQ(setenv("MOEJIT_CUDA_DRIVER", "/nowhere/libcuda.so", 1), 0);
  moejit_device* device = nullptr;
  EXPECT_TRUE(is_error(moejit_device_open_cuda(0, &device), MOEJIT_ERROR_DRIVER_MISSING,
                       "/nowhere/libcuda.so"));
  EXPECT_EQ(device, nullptr);
}

TEST(CApiDevice, RefusesMemoryThatIsNone) {
  moejit_device* device = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device)));
  void* address = &device;
  EXPECT_TRUE(is_error(moejit_device_allocate(device, -1, &address), MOEJIT_ERROR_INVALID_VALUE,
                       "-1", "at least 0"));
  EXPECT_EQ(address, nullptr);
  EXPECT_TRUE(is_error(moejit_device_allocate(device, 1, nullptr), MOEJIT_ERROR_INVALID_VALUE,
                       "address of"));
  EXPECT_TRUE(is_error(moejit_device_copy_to_device(device, nullptr, &address, 1),
                       MOEJIT_ERROR_INVALID_VALUE, "destination of"));
  EXPECT_TRUE(is_error(moejit_device_copy_to_host(device, &address, nullptr, 1),
                       MOEJIT_ERROR_INVALID_VALUE, "source of"));
  EXPECT_TRUE(is_error(moejit_device_fill(device, nullptr, 0, 1, nullptr),
                       MOEJIT_ERROR_INVALID_VALUE, "destination of"));
  EXPECT_TRUE(is_ok(moejit_device_copy_to_device(device, nullptr, nullptr, 0)));
  EXPECT_TRUE(is_ok(moejit_device_release(device, nullptr)));
  moejit_device_destroy(device);
}

TEST(CApiDevice, TouchesNothingBeyondItsMemoryInTheSimulator) {
  moejit_device* device = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device)));
  void* address = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_allocate(device, 8, &address)));
  std::array<char, 9> nine{};
  char* const inside = static_cast<char*>(address) + 4;
  constexpr auto kRefused = MOEJIT_ERROR_INVALID_VALUE;
  EXPECT_TRUE(is_error(moejit_device_copy_to_device(device, address, nine.data(), 9), kRefused));
  EXPECT_TRUE(is_error(moejit_device_copy_to_host(device, nine.data(), inside, 5), kRefused));
  EXPECT_TRUE(is_error(moejit_device_fill(device, inside, 0, 5, nullptr), kRefused));
  EXPECT_TRUE(is_error(moejit_device_release(device, inside), kRefused));
  EXPECT_TRUE(is_ok(moejit_device_release(device, address)));
  EXPECT_TRUE(is_error(moejit_device_release(device, address), kRefused));
  moejit_device_destroy(device);
}

TEST(CApiDevice, KeepsWhatIsCopiedAndFilled) {
  moejit_device* device = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device)));
  void* address = nullptr;
  ASSERT_TRUE(is_ok(moejit_device_allocate(device, 8, &address)));
  const std::array<char, 4> given = {'a', 'b', 'c', 'd'};
  std::array<char, 8> got{};
  EXPECT_TRUE(is_ok(moejit_device_fill(device, address, 'x', 8, nullptr)));
  EXPECT_TRUE(is_ok(moejit_device_copy_to_device(device, address, given.data(), 4)));
  EXPECT_TRUE(is_ok(moejit_device_synchronize(device, nullptr)));
  EXPECT_TRUE(is_ok(moejit_device_copy_to_host(device, got.data(), address, 8)));
  EXPECT_EQ(std::string_view(got.data(), 8), "abcdxxxx");
  EXPECT_TRUE(is_ok(moejit_device_release(device, address)));
  moejit_device_destroy(device);
}

}  // namespace
}  // namespace moejit::testing
