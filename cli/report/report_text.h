// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::cli {

// Returns the number if a clock, a power or a time is known; measuring code writes 0 where it is
// not. A quotient of such numbers is unknown too if it is not finite.
std::optional<double> known(double number);

// Returns "812.5 µs", "4.56 ms" or "1.23 s".
std::string micros_text(double microseconds);
// Returns the text of a time with the sign of micro in "us".
std::string with_micro_sign(std::string text);

// Returns a time in the same form, or "unknown".
std::string known_time_text(std::optional<double> microseconds);

// Returns what a ratio of times means: "-9.5 %" of time, with a true minus sign.
std::string change_text(double ratio);
// Returns "-10.5 to -9.0 %"; "unknown" for an interval without end.
std::string change_range_text(double low, double high);

// Returns the number with a format such as "{:.0f} MHz", or "unknown".
std::string known_text(std::optional<double> number, std::string_view format);

// Returns "1 round", "12 rounds".
std::string count_text(int64_t count, std::string_view thing);

// Returns the number of characters of a text.
std::size_t length_of(std::string_view text);
// Returns the text with at most `most` characters, the last of which stands for the rest.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace moejit::cli
