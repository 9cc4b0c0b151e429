#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Takes a slice of DeepSeek-V3's MoE layer (its sizes, 4 experts, 16 tokens) from the description to
# checked numbers: plan, sources, cubins for sm_90a in a cache, a run on the GPU or, without one, in
# the simulator, and a comparison of every kernel with the CPU reference.
# Usage: docs/examples/demo.sh PATH_OF_MOEJIT [FOLDER_FOR_RESULTS]
set -eu
moejit=${1:?usage: docs/examples/demo.sh PATH_OF_MOEJIT [FOLDER_FOR_RESULTS]}
results=${2:-$(dirname "$moejit")/demo}
layer=$(dirname "$0")/layers/deepseek-v3-slice.json
mkdir -p "$results"
cache=$results/cache
[ -d "$cache" ] || mkdir -m 700 "$cache"

step() { printf '\n== %s\n\n' "$1"; }

step "The plan: moejit plan $layer"
"$moejit" plan "$layer"

step "The sources: moejit emit $layer --output-dir $results/sources"
"$moejit" emit "$layer" --output-dir "$results/sources"

step "The kernels, compiled for sm_90a: moejit build $layer --cache-dir $cache"
"$moejit" build "$layer" --with-intermediates --cache-dir "$cache"
"$moejit" inspect "$layer" --cache-dir "$cache"

step "A run, checked: moejit run $layer --check --cache-dir $cache"
"$moejit" run "$layer" --check --cache-dir "$cache" --output "$results/y.safetensors"
