// SPDX-License-Identifier: Apache-2.0
#include "compiler/worker/cbor.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit::compiler {
namespace {

using Library = nlohmann::json;

// Gets the library's events. The library's own values would need memory to be destroyed.
class ValueReader final : public Library::json_sax_t {
 public:
  explicit ValueReader(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() override { return add({}); }
  bool boolean(bool) override { return add({}); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return add({});
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*written*/) override {
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override {
    return add(std::vector<std::uint8_t>(value.begin(), value.end()));
  }
  bool start_object(std::size_t /*members*/) override { return open(false); }
  bool start_array(std::size_t /*elements*/) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Library::exception&) override {
    return false;
  }

  CborValues values;

 private:
  struct Open {
    std::string path;
    bool is_array = false;
    std::size_t elements = 0;
    std::string key;
  };

  // Returns the path of the value that is being read.
  std::string path() {
    if (open_.empty()) return {};
    Open& parent = open_.back();
    const std::string name = parent.is_array ? std::to_string(parent.elements++) : parent.key;
    return parent.path.empty() ? name : parent.path + "/" + name;
  }
  bool add(CborValue value) {
    values.insert_or_assign(path(), std::move(value));
    return true;
  }
  bool open(bool is_array) {
    if (open_.size() >= max_depth_) return false;
    std::string own = path();
    values.insert_or_assign(own, CborValue());
    open_.push_back({.path = std::move(own), .is_array = is_array});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  std::vector<Open> open_;  // outermost first
};

}  // namespace

CborWriter& CborWriter::text(std::string_view text) {
  head(3, text.size());
  for (const char c : text) written_.push_back(static_cast<std::byte>(c));
  return *this;
}

CborWriter& CborWriter::bytes(std::span<const std::byte> bytes) {
  head(2, bytes.size());
  written_.insert(written_.end(), bytes.begin(), bytes.end());
  return *this;
}

CborWriter& CborWriter::integer(std::int64_t value) {
  return value < 0 ? head(1, ~static_cast<std::uint64_t>(value))
                   : head(0, static_cast<std::uint64_t>(value));
}

CborWriter& CborWriter::number(double value) {
  written_.push_back(std::byte{0xfb});
  big_endian(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

CborWriter& CborWriter::head(unsigned kind, std::uint64_t argument) {
  const auto first = [&](std::uint64_t low) {
    written_.push_back(static_cast<std::byte>(kind << 5U | low));
  };
  if (argument < 24) {
    first(argument);
    return *this;
  }
  const unsigned log2_bytes = argument >> 8U == 0    ? 0
                              : argument >> 16U == 0 ? 1
                              : argument >> 32U == 0 ? 2
                                                     : 3;
  first(24 + log2_bytes);
  big_endian(argument, 1U << log2_bytes);
  return *this;
}

void CborWriter::big_endian(std::uint64_t value, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0;)
    written_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xffU));
}

std::optional<CborValues> read_cbor(std::span<const std::byte> bytes, std::size_t max_depth) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  ValueReader reader(max_depth);
  if (!Library::sax_parse(first, first + bytes.size(), &reader, Library::input_format_t::cbor))
    return std::nullopt;
  return std::move(reader.values);
}

}  // namespace moejit::compiler
