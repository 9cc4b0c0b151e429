// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/error_code.h"

namespace moejit::bindings {
namespace {

struct CodeRow {
  ErrorCode code;
  moejit_error_code number;
};

constexpr CodeRow kCodes[] = {
    {ErrorCode::kInvalidJson, MOEJIT_ERROR_INVALID_JSON},
    {ErrorCode::kUnknownKey, MOEJIT_ERROR_UNKNOWN_KEY},
    {ErrorCode::kMissingKey, MOEJIT_ERROR_MISSING_KEY},
    {ErrorCode::kWrongType, MOEJIT_ERROR_WRONG_TYPE},
    {ErrorCode::kInvalidValue, MOEJIT_ERROR_INVALID_VALUE},
    {ErrorCode::kUnsupported, MOEJIT_ERROR_UNSUPPORTED},
    {ErrorCode::kUsage, MOEJIT_ERROR_USAGE},
    {ErrorCode::kFileNotFound, MOEJIT_ERROR_FILE_NOT_FOUND},
    {ErrorCode::kFileRead, MOEJIT_ERROR_FILE_READ},
    {ErrorCode::kFileWrite, MOEJIT_ERROR_FILE_WRITE},
    {ErrorCode::kInvalidFile, MOEJIT_ERROR_INVALID_FILE},
    {ErrorCode::kMissingTensor, MOEJIT_ERROR_MISSING_TENSOR},
    {ErrorCode::kTensorMismatch, MOEJIT_ERROR_TENSOR_MISMATCH},
    {ErrorCode::kCompilerMissing, MOEJIT_ERROR_COMPILER_MISSING},
    {ErrorCode::kCompileFailed, MOEJIT_ERROR_COMPILE_FAILED},
    {ErrorCode::kCompilerFault, MOEJIT_ERROR_COMPILER_FAULT},
    {ErrorCode::kInterrupted, MOEJIT_ERROR_INTERRUPTED},
    {ErrorCode::kCacheUnusable, MOEJIT_ERROR_CACHE_UNUSABLE},
    {ErrorCode::kCacheCorrupt, MOEJIT_ERROR_CACHE_CORRUPT},
    {ErrorCode::kCacheMiss, MOEJIT_ERROR_CACHE_MISS},
    {ErrorCode::kDriverMissing, MOEJIT_ERROR_DRIVER_MISSING},
    {ErrorCode::kNoDevice, MOEJIT_ERROR_NO_DEVICE},
    {ErrorCode::kDriver, MOEJIT_ERROR_DRIVER},
    {ErrorCode::kStreamCapture, MOEJIT_ERROR_STREAM_CAPTURE},
    {ErrorCode::kOutOfMemory, MOEJIT_ERROR_OUT_OF_MEMORY},
    {ErrorCode::kInvalidState, MOEJIT_ERROR_INVALID_STATE},
    {ErrorCode::kWorkspaceTooSmall, MOEJIT_ERROR_WORKSPACE_TOO_SMALL},
    {ErrorCode::kSimulatorFault, MOEJIT_ERROR_SIMULATOR_FAULT},
    {ErrorCode::kDeviceStatus, MOEJIT_ERROR_DEVICE_STATUS},
    {ErrorCode::kCheckFailed, MOEJIT_ERROR_CHECK_FAILED},
    {ErrorCode::kTuningOutdated, MOEJIT_ERROR_TUNING_OUTDATED},
    {ErrorCode::kInternal, MOEJIT_ERROR_INTERNAL},
};

constexpr bool has_number(ErrorCode code) {
  for (const CodeRow& row : kCodes)
    if (row.code == code) return true;
  return false;
}
// Asserts that each code has a number; a new one goes to the end of moejit_error_code.
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) \
  static_assert(has_number(ErrorCode::enumerator), name " has no number in moejit.h");
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE

}  // namespace

moejit_error_code number_of(ErrorCode code) {
  for (const CodeRow& row : kCodes)
    if (row.code == code) return row.number;
  return MOEJIT_ERROR_INTERNAL;
}

}  // namespace moejit::bindings

const char* moejit_error_code_name(moejit_error_code code) {
  if (code == MOEJIT_OK) return "ok";
  for (const auto& row : moejit::bindings::kCodes)
    if (row.number == code) return moejit::to_string(row.code).data();  // points to a literal
  return "unknown";
}
