# SPDX-License-Identifier: Apache-2.0
# The common verbs, for hands that type make. Meson builds; see scripts/.
.PHONY: all demo check bench install conform-all faults soak strangers demo-torch check-torch bench-torch
all:
	@scripts/build
demo:
	@scripts/demo
check:
	@scripts/check
bench: all
	@python3 bench/bench.py $(BENCH)
install: all
	@meson install -C build
conform-all:
	@scripts/conform-all
faults: all # goes on with one of this build that was interrupted; FAULTS="--times 2 --healthy-minutes 1" for less, --judge for the page so far
	@python3 tests/campaign/campaign.py --jobs 4 --healthy-minutes 15 --log build/faults.log --json build/faults.json \
	  --page docs/faults.md $(FAULTS) build/cli/unisono build/tests/campaign/campaign_worker
# Goes on where build/soak.log was left, until TIME has been collected; remove that file to begin anew.
soak: all
	@python3 tests/soak/soak.py --time $(or $(TIME),1h) --log build/soak.log $(SOAK) build/tests/soak/soak
strangers: all
	@build/tests/strangers/strangers --seconds $(or $(TIME),3m)
# PyTorch: UNISONO_PYTHON says which Python has torch (default: python3).
demo-torch: all
	@scripts/with-torch examples/torch/demo.py $(DEMO)
check-torch: all # PyTorch's own suite on gloo and on unisono; goes on where it was interrupted (SUITE=--fresh begins anew)
	@scripts/with-torch tests/torch/suite.py $(SUITE)
bench-torch: all
	@scripts/with-torch bench/torch.py $(BENCH)
