// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// Writes CBOR (RFC 8949), item by item: the items of a map or an array follow it, in a map each
// after its key.
class CborWriter {
 public:
  CborWriter& map(std::size_t members) { return head(5, members); }
  CborWriter& array(std::size_t elements) { return head(4, elements); }
  CborWriter& text(std::string_view text);
  CborWriter& bytes(std::span<const std::byte> bytes);
  CborWriter& integer(std::int64_t value);
  CborWriter& number(double value);

  std::vector<std::byte> take() { return std::move(written_); }

 private:
  CborWriter& head(unsigned kind, std::uint64_t argument);
  void big_endian(std::uint64_t value, unsigned bytes);

  std::vector<std::byte> written_;
};

// A value of a CBOR item; std::monostate for maps, arrays and all others.
using CborValue =
    std::variant<std::monostate, std::string, std::vector<std::uint8_t>, std::int64_t, double>;
// The values of an item by their paths: "" is the item, "time/total" a member's member, "usage/0"
// an array's first. It is flat, so that destroying it needs no memory.
using CborValues = std::map<std::string, CborValue, std::less<>>;

// Reads one item, with nothing behind it. None if it is malformed or nests more than `max_depth`
// maps and arrays: the bytes may be anything.
std::optional<CborValues> read_cbor(std::span<const std::byte> bytes, std::size_t max_depth);

}  // namespace moejit::compiler
