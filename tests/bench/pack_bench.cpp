// SPDX-License-Identifier: Apache-2.0
// Measures a pack of many entries: pack_bench [ENTRIES], 100000 by default. Prints medians and 99th
// percentiles in microseconds; the file's pages are in the page cache.
#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "compiler/support/file.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/core.h>
#include <random>

namespace moejit::cache {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void print(const char* what, std::vector<double> samples) {
  std::ranges::sort(samples);
  fmt::print("{:<44}{:>12.3f}{:>12.3f}\n", what, samples[samples.size() / 2],
             samples[samples.size() * 99 / 100]);
}

Digest key_of(std::size_t i) { return sha256(fmt::format("key {}", i)); }

// Returns the value, or exits with the error's text: then there is nothing to measure.
template <typename T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", to_string(result.error()));
  std::exit(1);
}

std::string write_pack(const testing::TempDir& folder, const std::string& name, std::size_t entries,
                       std::size_t payload_bytes) {
  std::vector<Entry> all;
  for (std::size_t i = 0; i < entries; ++i)
    all.push_back({.key = key_of(i),
                   .metadata = "{}",
                   .payload = std::vector<std::byte>(payload_bytes, static_cast<std::byte>(i))});
  all = need(unique_entries(std::move(all)));
  const std::string path = (folder / name).string();
  if (const auto written = write_pack_file(path, need(encode_pack(all, "{}"))); !written) {
    fmt::print(stderr, "{}\n", to_string(written.error()));
    std::exit(1);
  }
  return path;
}

void measure_opening(const std::string& path) {
  std::vector<double> samples, with_lookup;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    const auto pack = need(Pack::open(path));
    samples.push_back(microseconds_since(start));
    if (!need(pack->contains(key_of(static_cast<std::size_t>(i))))) std::exit(1);
    with_lookup.push_back(microseconds_since(start));
  }
  print("opening", samples);
  print("opening and the first lookup", with_lookup);
}

// Measures lookups. One sample is the mean of 100, since the clock itself takes as long as one.
void measure_lookups(const Pack& pack, std::size_t entries) {
  std::mt19937_64 random(1);
  std::vector<Digest> keys;
  for (int i = 0; i < 100000; ++i) keys.push_back(key_of(random() % entries));
  const auto all = [&](bool is_first_touch) {
    std::vector<double> samples;
    for (std::size_t i = 0; i < keys.size(); i += 100) {
      const auto start = Clock::now();
      for (std::size_t j = i; j < i + 100; ++j)
        if (!need(pack.contains(keys[j]))) std::exit(1);
      samples.push_back(microseconds_since(start) / 100);
    }
    print(is_first_touch ? "lookup, pages being read for the first time" : "lookup", samples);
  };
  all(true);
  all(false);
}

void measure_hits(const char* what, const Pack& pack, std::size_t entries) {
  std::vector<double> samples;
  for (std::size_t i = 0; i < 5000; ++i) {
    const Digest key = key_of(i % entries);
    const auto start = Clock::now();
    if (!need(pack.get(key))) std::exit(1);
    samples.push_back(microseconds_since(start));
  }
  print(what, samples);
}

// Opens the same pack with a signature, with the ring of its key.
std::unique_ptr<Pack> open_signed(const testing::TempDir& folder, const std::string& path) {
  PrivateKey key;
  key.bytes.fill(7);
  const Digest digest = need(Pack::open(path))->digest();
  const std::string signed_path = (folder / "signed.moejitpack").string();
  const auto signed_bytes = need(sign_pack(need(read_file(path)), digest, key, {}));
  if (!write_pack_file(signed_path, signed_bytes)) std::exit(1);
  return need(Pack::open(signed_path, {.ring = KeyRing{.path = "", .keys = {{key.public_key()}}}}));
}

void measure_sha256() {
  const std::vector<std::byte> bytes(65536);
  std::vector<double> samples;
  for (int i = 0; i < 2000; ++i) {
    const auto start = Clock::now();
    if (sha256(bytes) == Digest{}) std::exit(1);
    samples.push_back(microseconds_since(start));
  }
  print("  of which SHA-256 of 64 KiB", samples);
}

int run(std::size_t entries) {
  const testing::TempDir folder("pack-bench");
  const std::string many = write_pack(folder, "many.moejitpack", entries, 64);
  const std::string large = write_pack(folder, "large.moejitpack", 500, 65536);
  fmt::print("{:<44}{:>12}{:>12}\n", fmt::format("{} entries, us", entries), "median", "p99");
  measure_opening(many);
  measure_lookups(*need(Pack::open(many)), entries);
  measure_hits("verified hit of 64 KiB", *need(Pack::open(large)), 500);
  measure_hits("verified hit of 64 KiB, with a key ring", *open_signed(folder, large), 500);
  measure_sha256();
  return 0;
}

}  // namespace
}  // namespace moejit::cache

int main(int argc, char** argv) {
  const long long entries = argc > 1 ? std::atoll(argv[1]) : 100000;
  if (entries < 1000) {
    fmt::print(stderr, "pack_bench [ENTRIES], at least 1000\n");
    return 2;
  }
  return moejit::cache::run(static_cast<std::size_t>(entries));
}
