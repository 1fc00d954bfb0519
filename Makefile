# Chores by name; `make help` lists them. Nothing here needs root once the packages are installed.

CARGO ?= cargo
PREFIX ?= /usr/local
# What the static program has in place of libraries.
STATIC := -p weft-perf --features own
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: all help demo docs recording check test test-units test-clients test-measurements lint \
        build release bench compared bench-copy bench-quick bench-wan benchmarks examples interop \
        soak soak-connections soak-fio soak-paths soak-simulator soak-stopped soak-targets \
        soak-valgrind soak-wan-clients soak-sockets peer-suites fuzz miri mutants sanitizers \
        advisories deps mpich publish-check pyverbs peers servers install uninstall dist test-dist \
        test-recipes test-arm64 test-passthrough test-podman test-languages demo-deps rust
.NOTPARALLEL:

all: release

help: ## This list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: rust demo-deps ## What Weft is, in four acts: below a minute once built (ARGS="--plain")
	@$(CARGO) build --release --locked -p weft-cli -p weft-preload
	@$(TARGET)/release/weft bench demo $(ARGS)

check: ## The quick tier: style, lints, the crate graph, unit tests (below a minute warm)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) xtask arch
	$(CARGO) xtask tidy
	$(CARGO) xtask test quick

test: deps mpich pyverbs servers lint build ## Everything that must hold: style, lints, all tests
	@status=0; \
	$(CARGO) xtask test || status=1; \
	$(CARGO) test --locked $(STATIC) || status=1; \
	scripts/test-languages.sh $(TARGET)/debug || status=1; \
	$(CARGO) xtask cost || status=1; \
	exit $$status

test-units: build ## Tests that need neither a clock nor a network: right on any machine
	$(CARGO) xtask test units
	$(CARGO) test --locked $(STATIC)

test-clients: deps mpich pyverbs servers build ## Tests with real applications
	$(CARGO) xtask test clients

test-measurements: deps build ## Rates, delays and losses on real clocks, on an idle machine
	$(CARGO) xtask test measurements

lint: ## Formatting, clippy, rustdoc, the crate graph, the style of the text, licences and sources
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy $(STATIC) --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --lib --no-deps \
	    --document-private-items --locked
	$(CARGO) xtask arch
	$(CARGO) xtask tidy
	@scripts/deny.sh

publish-check: ## Packages every crate that others may use, and builds it from its package (minutes)
	$(CARGO) publish --workspace --dry-run --locked $(ARGS)

advisories: ## Known weaknesses of what the build takes in (fetches the RustSec database)
	@scripts/deny.sh advisories

build: rust ## The debug build; the tests run what it puts into target/debug
	$(CARGO) build --workspace --locked

release: rust ## weft, libweft.so and libweft_sockets.so in target/release
	$(CARGO) build --workspace --release --locked

bench-wan: deps release ## weft0 beside kernel TCP and QUIC across a WAN of 70 ms (ARGS="--quick")
	@$(CARGO) build --release --locked --target-dir $(TARGET)/quic \
	    --manifest-path interop/quic/Cargo.toml
	@PATH="$(abspath $(TARGET))/quic/release:$$PATH" $(TARGET)/release/weft bench table wan $(ARGS)

bench-copy: deps release ## weft cp beside scp and rsync, into BENCHMARKS.md (ARGS="100 '20ms'")
	@WEFT=$(abspath $(TARGET))/release/weft INTO=$(INTO) scripts/bench-copy.sh $(ARGS)

compared: deps release ## The table of README.md: what others reach; rxe and siw in QEMU (20 min)
	@$(CARGO) build --release --locked --target-dir $(TARGET)/quic \
	    --manifest-path interop/quic/Cargo.toml
	@mkdir -p $(TARGET)/interop
	@interop/vm/compare.sh >$(TARGET)/interop/compared.json
	@PATH="$(abspath $(TARGET))/quic/release:$$PATH" $(TARGET)/release/weft bench table compared \
	    --vm $(TARGET)/interop/compared.json --into README.md $(ARGS)

bench-quick: deps release ## A look at the papers' figures on this machine (below five minutes)
	@$(TARGET)/release/weft bench all --quick $(ARGS)

bench: deps release ## Weft beside its peers in one run, as a table (ARGS="--quick")
	@$(TARGET)/release/weft bench table lan $(ARGS)

# Each table goes into its place in BENCHMARKS.md; the results of the figures are kept.
TABLES ?= lan figures wan copy
# Where `make bench-copy` puts its table; nowhere, but to stdout, if it is empty.
INTO ?= BENCHMARKS.md
ROUNDS ?= 5

benchmarks: deps release ## Every table of BENCHMARKS.md measured again (hours; TABLES=lan: 15 min)
	@set -e; for table in $(TABLES); do case $$table in \
	lan) $(TARGET)/release/weft bench table lan --rounds $(ROUNDS) --into BENCHMARKS.md $(ARGS);; \
	figures) $(TARGET)/release/weft bench all --rounds $(ROUNDS) --into BENCHMARKS.md $(ARGS);; \
	wan) $(MAKE) --no-print-directory bench-wan \
	    ARGS="--rounds $(ROUNDS) --into BENCHMARKS.md $(ARGS)";; \
	copy) ROUNDS=$(ROUNDS) $(MAKE) --no-print-directory bench-copy;; \
	*) echo "TABLES has lan, figures, wan and copy, not $$table" >&2; exit 1;; \
	esac; done

examples: release ## The programs of examples/ over TCP and both kinds of SDP (a minute)
	@$(TARGET)/release/weft bench apps $(ARGS)

interop: release ## Against the Linux kernel's siw, in a virtual machine (needs QEMU, minutes)
	@interop/vm/interop.sh $(ARGS)

test-passthrough: release ## Faults over the kernel's siw and rxe, in a virtual machine (needs QEMU)
	@interop/vm/passthrough.sh $(ARGS)

soak: soak-connections ## Long runs: ten million operations on a bad way, an outage (10 minutes)
	$(CARGO) test --release --locked -p weft-host --test adapter -- \
	    --ignored --nocapture --test-threads 1

soak-connections: ## 100,000 connections on each device, by rdma-cm and without it (minutes)
	$(CARGO) test --release --locked -p weft-rdmacm --test cycles -- --ignored --nocapture

soak-stopped: deps build ## Programs that are stopped for minutes go on (3 minutes)
	$(CARGO) test --locked -p weft-interop --test stopped -- --ignored --nocapture

soak-paths: ## weave is safe on 10,000 random paths, in the simulator (PATHS=N, PATHS_SEED=N)
	$(CARGO) test --release --locked -p weft-sim --test safety -- --ignored --nocapture

soak-targets: ## What Shuttle was designed for, in the simulator (17 minutes)
	$(CARGO) test --release --locked -p weft-sim --test targets -- --ignored --nocapture

soak-simulator: ## docs/simulator.md has what the scenarios give (40 minutes; SCENARIOS="loss ecn")
	SCENARIOS="$(SCENARIOS)" $(CARGO) test --release --locked -p weft-sim --test page -- \
	    --ignored --nocapture

soak-wan-clients: deps ## Client programs across 70 ms that lose or reorder, as a table (minutes)
	$(CARGO) test --release --locked -p weft-interop --test wan -- --ignored --nocapture

soak-fio: deps ## fio with its data checked, for an hour (SECONDS=3600)
	SECONDS=$(or $(SECONDS),3600) $(CARGO) test --release --locked -p weft-interop --test fio \
	    -- --ignored --nocapture

soak-valgrind: deps ## Every program about what verbs mean under valgrind (5 minutes)
	$(CARGO) test --release --locked -p weft-preload --test semantics -- --ignored --nocapture

soak-sockets: deps servers ## Programs of sockets that take longer: PostgreSQL, Go, sockperf
	$(CARGO) test --locked -p weft-sockets --test programs -- --ignored --nocapture

peer-suites: deps pyverbs mpich servers peers build ## Other projects' tests (CLIENTS="ceph gloo")
	$(CARGO) test --locked -p weft-interop --test peer_suites -- --nocapture
	$(CARGO) test --locked -p weft-interop --test clients -- --ignored --nocapture table
	$(CARGO) test --locked -p weft-interop --test ucx --test openmpi --test mpich -- --ignored

fuzz: ## Every fuzz target for SECONDS_EACH seconds (needs cargo-fuzz and a nightly toolchain)
	@scripts/fuzz.sh

miri: ## Unit tests of the protocol crates under Miri (needs a nightly toolchain, 5 minutes)
	@scripts/miri.sh

mutants: ## Changes of CRATE that no test notices (CRATE=cm ARGS="--shard 0/8"; cargo-mutants)
	@scripts/mutants.sh $(or $(CRATE),cm) $(ARGS)

sanitizers: ## The engine's tests and the C programs under AddressSanitizer and ThreadSanitizer
	@scripts/sanitizers.sh

docs: ## The pages of docs/ as a site in target/docs/site; links and commands checked (needs mdBook)
	@scripts/docs.sh
	@$(CARGO) test --quiet --locked -p weft-cli --bin weft -- documented reference

recording: release ## The picture of README.md, from a run of the demonstration (half a minute)
	@scripts/recording.py docs/figures/demo.svg $(TARGET)/release/weft bench demo --act 1 --act 3

mpich: ## Puts an MPICH that has libfabric into target/mpich
	@scripts/mpich.sh

pyverbs: ## Puts rdma-core's python tests into target/pyverbs
	@scripts/pyverbs.sh

peers: ## Puts programs of other projects into target/peers (minutes, some hundred MB)
	@scripts/deps.sh autoconf automake libtool cmake libclang-14-dev g++ libgloo-dev \
	    ceph-mon ceph-osd ceph-common
	@scripts/peers.sh

servers: ## Puts nginx, sshd, redis-server and tgt into target/servers
	@scripts/servers.sh

deps: ## Installs the Debian packages that are missing
	@scripts/deps.sh

demo-deps:
	@scripts/demo-deps.sh

rust:
	@scripts/rust.sh

install: release ## weft, degen, libraries, manual pages and completions below PREFIX
	@scripts/layout.sh $(TARGET)/release $(TARGET)/layout
	@sh $(TARGET)/layout/install.sh --prefix $(DESTDIR)$(PREFIX)

uninstall: ## Removes what install put below PREFIX
	@sh scripts/install.sh --prefix $(DESTDIR)$(PREFIX) --uninstall

dist: rust ## Release files for x86-64 and aarch64 in target/dist (ARCHES=x86_64: one; minutes)
	@scripts/dist.sh $(ARCHES)

test-dist: ## Runs the release of target/dist in root file systems of Debian and Ubuntu (as root)
	@scripts/deps.sh --only debootstrap bubblewrap
	@scripts/test-dist.sh

test-recipes: ## Executes the CI recipes and the container device with it, in clean roots (as root)
	@scripts/deps.sh --only debootstrap bubblewrap python3
	@scripts/test-recipes.sh

test-podman: ## Hands the release to an unmodified image by rootless podman (not as root)
	@scripts/test-podman.sh

test-arm64: ## Runs the aarch64 release of target/dist under emulation (as root, minutes)
	@scripts/deps.sh --only debootstrap bubblewrap qemu-user-static iproute2
	@scripts/test-arm64.sh

test-languages: build ## The projects of examples/testing with their languages' test runners
	@scripts/test-languages.sh $(TARGET)/debug
