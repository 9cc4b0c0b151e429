# SPDX-License-Identifier: Apache-2.0
# Commands for people and CI; the build itself is CMake (see CMakePresets.json).
#   make demo   install what is missing, build, and run a layer from description to numbers
#   make test   install what is missing, build, and run the tests
#               make test LABEL=unit: only those of one label (docs/CONTRIBUTING.md)
#               make test CHANGED=1: only what differs from the last whole run can break
#   make test-torch   the same for the tests of moejit.torch, with torch 2.11; TORCH=2.15.0: another version
#   make test-jax   the same for the tests of moejit.jax
#   make wheel  build the Python package for other machines, build/dist/moejit-*.whl (docs/python.md)
.PHONY: demo test test-torch test-jax wheel portable format check-format tidy clean help
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
PYTHON ?= python3
# The platform that a wheel is for: the oldest glibc that has what this machine's compiler links.
MANYLINUX ?= manylinux_2_34_x86_64
# OFF: ignore an installed CUDA toolkit and use the wheels in .deps/.
MOEJIT_CUDA_TOOLKIT ?= ON
export MOEJIT_CUDA_TOOLKIT
configure = cmake --preset $(1) -DMOEJIT_CUDA_TOOLKIT=$(MOEJIT_CUDA_TOOLKIT) --log-level=WARNING
# Prints the CPU seconds of what it runs, and of each test.
cpu_table = $(PYTHON) tests/cpu_table.py build/ci
sources = git ls-files '*.h' '*.hpp' '*.c' '*.cpp' '*.cuh' ':!tests/golden'

demo:
	.ci/setup
	$(call configure,release)
	cmake --build --preset release --parallel $(JOBS) --target moejit moejit_shared
	docs/examples/demo.sh build/release/moejit

test:
	.ci/setup tests
	$(call configure,ci)
ifdef CHANGED
	$(PYTHON) tests/changed.py build/ci $(JOBS) $(CHANGED)
else
	$(cpu_table) build cmake --build --preset ci --parallel $(JOBS) $(if $(LABEL),--target tests_$(LABEL))
	$(cpu_table) tests ctest --preset ci --parallel $(JOBS) $(if $(LABEL),--label-regex '^$(LABEL)$$')
	$(if $(LABEL),,$(PYTHON) tests/changed.py passed build/ci)
endif

test-torch:
	.ci/setup tests
	$(call configure,ci)
	$(cpu_table) build cmake --build --preset ci --parallel $(JOBS) --target moejit moejit_torch moejit_torch_floor
	torch=$$(.ci/setup-torch $(TORCH)) && /usr/bin/python3 tests/torch/run.py build/ci $(JOBS) "$$torch"

test-jax:
	.ci/setup tests
	jax=$$(.ci/setup-jax) && $(call configure,ci) && \
	  $(cpu_table) build cmake --build --preset ci --parallel $(JOBS) --target moejit_shared moejit_jax && \
	  /usr/bin/python3 tests/jax/run.py build/ci $(JOBS) "$$jax"

wheel:
	.ci/setup wheel
	.ci/setup-jax >/dev/null
	rm -f build/dist/moejit-*.whl
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir build/dist \
	  --config-settings=wheel.tags=py3-none-$(MANYLINUX) .
	$(PYTHON) tests/package/wheel_test.py build/dist/moejit-*.whl

portable:
	.ci/setup tests
	.ci/setup-jax >/dev/null
	$(call configure,portable)
	cmake --build --preset portable --parallel $(JOBS)

format:
	$(sources) | xargs clang-format-14 -i

check-format:
	$(sources) | xargs clang-format-14 --dry-run --Werror

tidy:
	$(call configure,tidy)
	cmake --build --preset tidy --parallel $(JOBS)

clean:
	rm -rf build

help:
	@sed -n 's/^#   //p' Makefile
