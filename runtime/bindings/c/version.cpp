// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/moejit.h"

#include <string_view>

#define MOEJIT_TEXT_INNER(number) #number
#define MOEJIT_TEXT(number) MOEJIT_TEXT_INNER(number)

namespace {

constexpr std::string_view kHeaderVersion = MOEJIT_TEXT(MOEJIT_VERSION_MAJOR) "." MOEJIT_TEXT(
    MOEJIT_VERSION_MINOR) "." MOEJIT_TEXT(MOEJIT_VERSION_PATCH);
static_assert(kHeaderVersion == MOEJIT_VERSION, "moejit.h is not of the project's version");
static_assert(MOEJIT_ABI_VERSION == MOEJIT_SOVERSION, "nor of its ABI version");

}  // namespace

const char* moejit_version(void) { return MOEJIT_VERSION; }

int32_t moejit_version_number(void) {
  return MOEJIT_VERSION_MAJOR * 10000 + MOEJIT_VERSION_MINOR * 100 + MOEJIT_VERSION_PATCH;
}

int32_t moejit_abi_version(void) { return MOEJIT_ABI_VERSION; }
