// SPDX-License-Identifier: Apache-2.0
#include "runtime/fold_headers.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::runtime {
namespace {

using Fields = std::vector<HashedField>;

const std::string kA = std::string(8, 'a') + std::string(56, '1');
const std::string kB = std::string(8, 'b') + std::string(56, '2');
const std::string kC = std::string(8, 'c') + std::string(56, '3');

const Fields kWhole = {{"source", kA},
                       {"header:moejit_device/core/math.cuh", kA},
                       {"header:moejit_device/core/types.cuh", kB},
                       {"header:moejit_device/params/route_params.h", kC},
                       {"header:moejit_device/top.cuh", kA},
                       {"header:moejit_sim/machine.h", kB},
                       {"option", "-a"}};

TEST(FoldHeaders, MakesOneFieldOfThem) {
  EXPECT_EQ(fold_headers(kWhole),
            (Fields{{"source", kA},
                    {"header:*",
                     "core/ math aaaaaaaa types bbbbbbbb params/ route_params.h cccccccc "
                     "moejit_device/ top aaaaaaaa moejit_sim/ machine.h bbbbbbbb"},
                    {"option", "-a"}}));
}

TEST(FoldHeaders, KeepsApartWhatTargetsNameInAnotherWay) {
  EXPECT_EQ(fold_headers(
                Fields{{"header moejit_device/a/b.cuh", kA}, {"header:moejit_device/a/b.cuh", kB}}),
            (Fields{{"header *", "a/ b aaaaaaaa"}, {"header:*", "a/ b bbbbbbbb"}}));
}

TEST(FoldHeaders, LeavesAsItIsWhatCouldNotBeTold) {
  for (const HashedField& field :
       {HashedField{"header:moejit_device/a/b.cuh", "0"}, HashedField{"header:other/b.cuh", kA},
        HashedField{"header:moejit_device/a/no_suffix", kA},
        HashedField{"header:moejit_device/a b/c.cuh", kA}, HashedField{"header:b", kA},
        HashedField{"header:moejit_device/moejit_a/b.cuh", kA}, HashedField{"header:", kA},
        HashedField{"header", kA}, HashedField{"headers/a/b.cuh", kA}})
    EXPECT_EQ(fold_headers(Fields{field}), Fields{field}) << field.name;
  EXPECT_EQ(fold_headers(Fields{}), Fields{});
}

TEST(UnfoldHeaders, GivesBackTheFieldsInOrder) {
  Fields expected = kWhole;
  for (std::size_t i = 1; i + 1 < expected.size(); ++i)
    expected[i].value.resize(kStoredHeaderDigits);
  EXPECT_EQ(unfold_headers(fold_headers(kWhole)), expected);
}

TEST(UnfoldHeaders, LeavesAsItIsWhatEarlierVersionsStored) {
  EXPECT_EQ(unfold_headers(kWhole), kWhole);
}

TEST(UnfoldHeaders, TakesAnyText) {
  const Fields odd = {{"header:*", "core/ math"}, {"header:*x", "a/ b c"}, {"header*", "a/ b c"}};
  EXPECT_EQ(unfold_headers(odd), odd);
  EXPECT_EQ(unfold_headers(Fields{{"header:*", "  "}}), Fields{});
}

TEST(IsSameValue, ComparesHeadersByTheDigitsThatBothHave) {
  const char* const header = "header:moejit_device/a/b.cuh";
  EXPECT_TRUE(is_same_value(header, kA, "aaaaaaaa"));
  EXPECT_TRUE(is_same_value("header moejit_device/a/b.cuh", "aaaaaaaa", kA));
  EXPECT_TRUE(is_same_value("source", kA, kA));
  EXPECT_FALSE(is_same_value(header, kA, "aaaaaaab"));
  EXPECT_FALSE(is_same_value(header, kA, kB));
  EXPECT_FALSE(is_same_value(header, kA, ""));
  EXPECT_FALSE(is_same_value(header, kA, "aaaa"));
  EXPECT_FALSE(is_same_value("source", kA, "aaaaaaaa"));
}

}  // namespace
}  // namespace moejit::runtime
