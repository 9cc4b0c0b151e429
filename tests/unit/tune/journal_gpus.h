// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit::tune {

// GPUs as the sessions of journals name them.
inline constexpr const char* kH200 = R"({"name":"NVIDIA H200","arch":"sm_90a","sm_count":132})";
inline constexpr const char* kH20 = R"({"name":"NVIDIA H20","arch":"sm_90a","sm_count":78})";

}  // namespace moejit::tune
