# SPDX-License-Identifier: Apache-2.0
# The common verbs, for hands that type make. Meson builds; see scripts/.
.PHONY: all demo check bench install conform-all faults
all:
	@test -e build/build.ninja || meson setup build
	@ninja -C build
demo:
	@scripts/demo
check:
	@scripts/check
bench: all
	@python3 bench/compare.py
install: all
	@meson install -C build
conform-all: all
	@meson test -C build --benchmark --suite conform-all --verbose
faults:
	@scripts/check --suite faults
