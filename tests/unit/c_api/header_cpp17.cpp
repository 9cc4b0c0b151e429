// SPDX-License-Identifier: Apache-2.0
#include <moejit/moejit.hpp>
#include <type_traits>

static_assert(std::is_move_constructible_v<moejit::Layer>);
static_assert(!std::is_copy_constructible_v<moejit::Layer>);
static_assert(!std::is_copy_assignable_v<moejit::Device>);
static_assert(std::is_nothrow_move_assignable_v<moejit::Engine>);
static_assert(std::is_base_of_v<std::exception, moejit::Error>);
