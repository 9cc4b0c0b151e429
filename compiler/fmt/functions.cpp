// SPDX-License-Identifier: Apache-2.0
// Defines functions of fmt 9 and 10 that its headers only declare if they are not used header-only.
// See moejit_fmt in compiler/CMakeLists.txt.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float value) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double value) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref locale) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref locale) -> char;
#if FMT_VERSION >= 100000
template void vformat_to(buffer<char>& out, string_view format, vformat_args<>::type arguments,
                         locale_ref locale);
#endif

}  // namespace detail
FMT_END_NAMESPACE
