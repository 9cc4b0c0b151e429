// SPDX-License-Identifier: Apache-2.0
#include <moejit/moejit_describe.h>
#include <moejit/moejit_group.h>

// A prototype without (void) would take these arguments.
const char* (*const version)(void) = moejit_version;
_Static_assert(sizeof(moejit_error_code) == sizeof(int), "codes are passed as int");
