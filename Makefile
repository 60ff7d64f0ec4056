# SPDX-License-Identifier: Apache-2.0
# The common verbs, for hands that type make. Meson builds; see scripts/.
.PHONY: all demo check bench install conform-all faults soak strangers
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
faults: all # goes on with one that was interrupted; FAULTS="--times 2 --healthy-minutes 1" for less
	@python3 tests/campaign/campaign.py --jobs 4 --healthy-minutes 15 --log build/faults.log --json build/faults.json \
	  --page docs/faults.md $(FAULTS) build/cli/unisono build/tests/campaign/campaign_worker
# Goes on where build/soak.log was left, until TIME has been collected; remove that file to begin anew.
soak: all
	@python3 tests/soak/soak.py --time $(or $(TIME),1h) --log build/soak.log $(SOAK) build/tests/soak/soak
strangers: all
	@build/tests/strangers/strangers --seconds $(or $(TIME),3m)
