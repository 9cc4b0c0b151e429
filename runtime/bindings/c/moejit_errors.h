// SPDX-License-Identifier: Apache-2.0
#pragma once

// The errors of the C interface, a part of <moejit/moejit.h>.

// NOLINTBEGIN: C, not C++

#define MOEJIT_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// The error codes. docs/errors.md says what each means and what to do. Numbers never change their
// meaning.
typedef enum moejit_error_code {
  MOEJIT_OK = 0,
  MOEJIT_ERROR_INVALID_JSON = 1,
  MOEJIT_ERROR_UNKNOWN_KEY = 2,
  MOEJIT_ERROR_MISSING_KEY = 3,
  MOEJIT_ERROR_WRONG_TYPE = 4,
  MOEJIT_ERROR_INVALID_VALUE = 5,
  MOEJIT_ERROR_UNSUPPORTED = 6,
  MOEJIT_ERROR_USAGE = 7,
  MOEJIT_ERROR_FILE_NOT_FOUND = 8,
  MOEJIT_ERROR_FILE_READ = 9,
  MOEJIT_ERROR_FILE_WRITE = 10,
  MOEJIT_ERROR_INVALID_FILE = 11,
  MOEJIT_ERROR_MISSING_TENSOR = 12,
  MOEJIT_ERROR_TENSOR_MISMATCH = 13,
  MOEJIT_ERROR_COMPILER_MISSING = 14,
  MOEJIT_ERROR_COMPILE_FAILED = 15,
  MOEJIT_ERROR_CACHE_UNUSABLE = 16,
  MOEJIT_ERROR_CACHE_CORRUPT = 17,
  MOEJIT_ERROR_CACHE_MISS = 18,
  MOEJIT_ERROR_DRIVER_MISSING = 19,
  MOEJIT_ERROR_NO_DEVICE = 20,
  MOEJIT_ERROR_DRIVER = 21,
  MOEJIT_ERROR_OUT_OF_MEMORY = 22,
  MOEJIT_ERROR_WORKSPACE_TOO_SMALL = 23,
  MOEJIT_ERROR_SIMULATOR_FAULT = 24,
  MOEJIT_ERROR_DEVICE_STATUS = 25,
  MOEJIT_ERROR_CHECK_FAILED = 26,
  MOEJIT_ERROR_INTERNAL = 27,
  MOEJIT_ERROR_COMPILER_FAULT = 28,
  MOEJIT_ERROR_INTERRUPTED = 29,
  MOEJIT_ERROR_STREAM_CAPTURE = 30,
  MOEJIT_ERROR_TUNING_OUTDATED = 31,  // of the command line tool alone
  MOEJIT_ERROR_INVALID_STATE = 32
} moejit_error_code;

// Returns the name of a code: "invalid_json", ...; "ok"; "unknown" for any other number.
MOEJIT_API const char* moejit_error_code_name(moejit_error_code code);

// An error. The strings are never NULL but may be empty. Later versions add fields at the end.
typedef struct moejit_error {
  moejit_error_code code;
  const char* stage;    // where in the flow: "parse", "plan", "emit", "compile", "cache", "load",
                        // "launch", "file"
  const char* message;  // one sentence: what, where, what was got and what wanted
  const char* hint;     // what to do
  const char* detail;   // long material, such as a compiler's log
} moejit_error;

// Returns the last error of the calling thread, never NULL. It is valid until the thread calls a
// function that returns a code.
MOEJIT_API const moejit_error* moejit_last_error(void);

#ifdef __cplusplus
}
#endif

// NOLINTEND
