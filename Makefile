# demo and test each work alone on a fresh machine: every target installs what it needs.

CARGO ?= cargo
# Cargo builds into CARGO_TARGET_DIR, if it is set.
FARWIRE = $(or $(CARGO_TARGET_DIR),target)/release/farwire
OUT ?= out
# Where `make install` puts files; DESTDIR comes before PREFIX, for packages.
PREFIX ?= /usr/local
DESTDIR ?=
# The processors that `make dist` builds for.
ARCHITECTURES ?= x86_64 aarch64
# Seconds that every fuzz target has.
FUZZ_TIME ?= 20
FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
# Targets whose every case has 256 MB of memory and 1 s: a stranger's file or request must not cost more. Two things would use as much memory
# as the limit and are therefore off: the sanitizer keeping freed memory for long, and the fuzzer's tables of the weights of its inputs.
FUZZ_LIMITED = records links filters bodies trace_mahimahi trace_csv trace_theaterq trace_netem trace_pair trace_cellreplay trace_samples
FUZZ_LIMITS = -rss_limit_mb=256 -malloc_limit_mb=256 -timeout=1 -entropic=0
# A model of netem-trace has up to a million lines, whatever its length.
FUZZ_MANY_LINES = -timeout=10
FUZZ_ASAN = quarantine_size_mb=8:thread_local_quarantine_size_kb=64
# An interpreter is a thousand times as slow: so few cases of each property.
MIRI = PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked

.PHONY: demo test test-all check bench scenarios truth limits peers soak fuzz miri sbom dist dist-check dist-twice pictures docs build install base toolchain test-tools format-tools ci-files soak-tools scenario-tools bench-tools deny

demo: build ## the seven WAN cases on an embedded test bed, without root; prints the table, writes the report
	$(FARWIRE) run scenarios/toffee-mocha.toml --quick --overwrite --out $(OUT)/toffee-mocha

test: toolchain test-tools ## every test that this machine allows, but for the longest; what is skipped is named with its cause, and at the end what each suite took
	CARGO='$(CARGO)' scripts/test

test-all: toolchain test-tools format-tools ci-files docs ## the same with the longest, with Firefox, QUIC and programs that read or validate the formats and the files for CI, the book, the examples for Rust, and the packages
	CARGO='$(CARGO)' FARWIRE_TEST_ALL=1 scripts/test
	$(CARGO) test --locked --manifest-path examples/rust-tests/Cargo.toml --target-dir target/rust-tests
	$(MAKE) dist-check

check: toolchain deny ## format, circles of imports, prose, links, generated pages, lints, fuzz targets, documentation, licences, advisories where RustSec's database can be fetched
	$(CARGO) fmt --all --check
	@scripts/need python3 python3
	python3 -B scripts/import_circles_test.py
	python3 -B scripts/import_circles.py
	python3 -B scripts/prose_test.py
	python3 -B scripts/prose.py
	python3 -B scripts/links_test.py
	python3 -B scripts/links.py
	python3 -B scripts/reference_test.py
	python3 -B scripts/reference.py --check
	python3 -B scripts/messages_test.py
	python3 -B scripts/messages.py
	python3 -B scripts/book_pages_test.py
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked
	@scripts/need c++ g++
	$(CARGO) check --manifest-path fuzz/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target) --locked --bins
	$(CARGO) deny --locked check licenses bans sources
	@if $(CARGO) deny --locked fetch db >/dev/null 2>&1; then $(CARGO) deny --locked check --disable-fetch advisories; \
	else echo "farwire: RustSec's database cannot be fetched: advisories are not checked" >&2; fi

bench: base build bench-tools ## farwire beside its peers and, with BASE=COMMIT, that commit's; writes docs/bench.md; PARTS="throughput tcp" for some parts of it
	$(if $(BASE),FARWIRE_BASE=$$(echo target/base/farwire-*)) $(CARGO) bench --locked --bench bench -- $(PARTS)

scenarios: build scenario-tools ## every scenario that ships, shortened, against its own expectations
	$(FARWIRE) run scenarios/*.toml --quick --overwrite --out $(OUT)

truth: build ## the packet log against a capture; every instrument's interval against what the emulator counted, 12 or 20 seeded runs each; REPEATS=10 for fewer; ten links that farwire fit does not know
	$(CARGO) bench --locked --bench truth -- $(if $(REPEATS),--repeats=$(REPEATS))
	scripts/fit_hidden 10

limits: ## every limit that makes a run or a figure invalid, lifted one at a time: a named test must fail; WORDS="late starved" for some
	scripts/limits $(WORDS)

peers: build ## netem and queues beside the kernel's, in a user-mode Linux: the same packets through both
	@scripts/need linux.uml user-mode-linux insmod kmod tc iproute2
	$(CARGO) bench --locked --bench netem

soak: soak-tools ci-files ## the full volumes: the laws of all effects and the same ten per cent off, 10 GB of TCP and 1 GB of UDP through cut trains, rates for 10 s, 1,000 kills, 30 minutes of 50 clients, 30 minutes of a link changed every second, 30 minutes of 1,000 links that change and whose interfaces come and go, 10^9 packets through one link and as many through the forwarder, 30 minutes of four clients that ask the API for what costs most, the API against its document, the page for everybody, 200 runs by Slurm, twenty links at a container of Podman, 30 minutes on the host's network
	FARWIRE_SOAK=1 $(CARGO) test --locked -p farwire-model --test laws
	FARWIRE_SOAK=1 $(CARGO) test --release --locked -p farwire-netio --test allocations
	FARWIRE_SOAK=1 $(CARGO) test --release --locked -p farwire --lib a_billion_packets
	for suite in traffic hostile live page slurm emulate::soak emulate::links::soak host_network::soak; do \
		FARWIRE_SOAK=1 $(CARGO) test --release --locked --test system -- --test-threads=1 $$suite:: || exit 1; \
	done
	@if scripts/nightly rustc; then \
	ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address $(CARGO) +nightly test --locked --target $(HOST) --target-dir target/sanitized --test system -- traffic::; fi

fuzz: toolchain ## every parser, the far end's conversations and the API's requests, for 20 s each from a small corpus; FUZZ_TIME=600 for longer, FUZZ_TARGETS="records links" for some
	@scripts/nightly rustc
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --version 0.13.2 --locked
	$(CARGO) +nightly fuzz build
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/target/found/$$target && \
		echo "fuzz $$target" && \
		case " $(FUZZ_LIMITED) " in *" $$target "*) limits='$(FUZZ_LIMITS)';; *) limits=-timeout=10;; esac && \
		case $$target in trace_netem) limits="$$limits $(FUZZ_MANY_LINES)";; esac && \
		ASAN_OPTIONS=$(FUZZ_ASAN) $(CARGO) +nightly fuzz run $$target fuzz/target/found/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_TIME) $$limits -print_final_stats=1 -verbosity=0 || exit 1; \
	done

miri: toolchain ## the model and the parsers in an interpreter that knows undefined behaviour
	@scripts/nightly miri rust-src
	$(MIRI) -p farwire-model --lib
	$(MIRI) -p farwire-netio --lib -- fuzzing
	$(MIRI) -p farwire-instruments --lib -- fuzzing

dist: toolchain ## what a release consists of, in $(OUT)/dist: wheels and their sources, archives, Debian packages, RPMs, SBOM and checksums; ARCHITECTURES=x86_64 for one processor
	@scripts/need python3 python3 git git
	CARGO='$(CARGO)' scripts/dist '$(OUT)/dist' $(ARCHITECTURES)

dist-check: dist ## the files of `make dist` installed, used and removed in clean Debians, and their programs on old ones; as root
	scripts/dist_check '$(OUT)/dist'

dist-twice: toolchain ## two builds of the last commit in different folders: do all files of a release have the same bytes?
	@scripts/need python3 python3 git git
	CARGO='$(CARGO)' scripts/dist_twice $(ARCHITECTURES)

sbom: toolchain ## what the program is built of, as CycloneDX, in $(OUT)/farwire.cdx.json
	@$(CARGO) sbom --version >/dev/null 2>&1 || $(CARGO) install cargo-sbom --version 0.10.0 --locked
	@mkdir -p $(OUT)
	$(CARGO) sbom --cargo-package farwire --output-format cyclone_dx_json_1_6 > $(OUT)/farwire.cdx.json

pictures: build scenario-tools ## the pictures of README and docs, anew
	@scripts/need chromium chromium chromedriver chromium-driver wget wget
	CARGO='$(CARGO)' scripts/pictures

MDBOOK = 0.5.4

docs: toolchain ## the book, in target/book, from docs and README
	@scripts/need python3 python3
	@target/docs-tools/bin/mdbook --version 2>/dev/null | grep -q $(MDBOOK) || $(CARGO) install mdbook --version $(MDBOOK) --locked --no-default-features --features search --root target/docs-tools
	target/docs-tools/bin/mdbook build
	python3 -B scripts/links.py target/book

HOST = $(shell rustc -vV | sed -n 's/^host: //p')

build: toolchain
	$(CARGO) build --release --locked

install: $(FARWIRE) ## the program, systemd's units, manual pages, completions and scenarios, below PREFIX=/usr/local; with DESTDIR=DIR for a package
	@scripts/install $(FARWIRE) '$(PREFIX)' '$(DESTDIR)'

# A program that was built is installed as it is, because root often has no toolchain.
$(FARWIRE):
	$(MAKE) build

base: toolchain
	@$(if $(BASE),CARGO='$(CARGO)' scripts/base '$(BASE)')

toolchain:
	@command -v $(CARGO) >/dev/null || { echo "farwire: no cargo here: install Rust with rustup (rustup.rs), then try again" >&2; exit 3; }
	@scripts/need cc gcc

test-tools: toolchain
	@scripts/need ping iputils-ping wget wget iperf3 iperf3 iperf iperf nuttcp nuttcp ip iproute2 mandoc mandoc chromium chromium chromedriver chromium-driver parallel parallel curl curl tshark tshark promtool prometheus pasta passt slurmctld slurm-wlm munged munge podman podman runc runc /usr/lib/podman/netavark netavark iptables iptables busybox busybox-static git git
	@scripts/python-tools

format-tools: toolchain
	@scripts/need newuidmap uidmap slirp4netns slirp4netns
	@test -x target/peers/bin/stamp-suite || $(CARGO) install --debug stamp-suite --version 1.0.0 --locked --root target/peers
	@test -x target/peers/bin/geckodriver || $(CARGO) install --debug geckodriver --version 0.37.1 --locked --root target/peers
	@scripts/format-tools

ci-files:
	@scripts/need python3 python3
	scripts/ci_files

soak-tools: test-tools format-tools
	@test -f target/soak-tools/bin/schemathesis || { scripts/need python3 python3 python3:ensurepip python3-venv && rm -rf target/soak-tools && python3 -m venv target/soak-tools && \
	target/soak-tools/bin/pip install --quiet schemathesis==4.32.5; }

scenario-tools:
	@scripts/need iperf iperf nuttcp nuttcp

bench-tools: test-tools
	@scripts/need sockperf sockperf irtt irtt
	@test -x target/peers/bin/rattan || $(CARGO) install rattan --version 0.1.1 --locked --root target/peers

deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --debug cargo-deny --version 0.20.2 --locked
